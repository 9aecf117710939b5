"""A real browser: Debian's Chromium, driven by playwright, which downloads none of its own."""

import os
import shutil
from contextlib import contextmanager

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
DRAW_ALL = """async () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
    for (const plot of document.querySelectorAll(".plot")) {
        plot.scrollIntoView();
        for (let i = 0; i < 400 && !plot.querySelector(".main-svg"); i++) await new Promise(ok => setTimeout(ok, 15));
    }
    for (const fold of document.querySelectorAll("details")) fold.open = false;
    window.scrollTo(0, 0);
}"""


def chromium():
    """Its path. In CI it must be there; elsewhere a test without it is skipped, and says so."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        told = "Chromium is not installed: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(told)
        pytest.skip(told)
    return found


@contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    path = chromium()
    with sync_playwright() as playwright:
        open_store = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield open_store
        open_store.close()


class Visit:
    """A page that is looked at, with everything that went wrong in it."""

    def __init__(self, open_store, file, *, width=1280, height=900, scheme="light"):
        context = open_store.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = context.new_page()
        self.errors, self.requests = [], []
        self.page.on("console", lambda said: self.errors.append(said.text) if said.type in ("error", "warning") else 0)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"file://{file}")

    def draw_all(self):
        """Scroll past every figure, as a reader would, and wait for each."""
        self.page.evaluate(DRAW_ALL)
        assert self.page.locator(".plot:not(:has(.main-svg))").count() == 0

    def assert_quiet(self):
        """No error, and no request but for the file itself; what a page makes itself (blob:, data:) never leaves it."""
        assert self.errors == []
        left = [url for url in self.requests[1:] if not url.startswith(("blob:", "data:"))]
        assert left == []
