"""A real browser: Debian's Chromium, driven by playwright, which downloads none of its own."""

import os
import shutil
from contextlib import contextmanager

import pytest

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SCROLL_THROUGH = """async () => {
    for (const fold of document.querySelectorAll("details")) fold.open = true;
    for (const plot of document.querySelectorAll(".plot")) {
        plot.scrollIntoView();
        await new Promise(ok => requestAnimationFrame(ok));
    }
    for (const fold of document.querySelectorAll("details")) fold.open = false;
    window.scrollTo(0, 0);
}"""


def chromium_path():
    """The path of Chromium. Without it a test fails in CI, and is skipped with the reason elsewhere."""
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        reason = "Chromium is not installed: apt-get install chromium"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return path


@contextmanager
def browser():
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        yield launched
        launched.close()


class Visit:
    """An open page, with all its errors and requests."""

    def __init__(self, browser, file, *, width=1280, height=900, scheme="light"):
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        self.page = context.new_page()
        self.errors, self.requests = [], []
        self.page.on(
            "console", lambda message: self.errors.append(message.text) if message.type in ("error", "warning") else 0
        )
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.errors.append(f"dialog {dialog.message}"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(f"file://{file}")

    def scroll_through(self):
        """Past every figure, as a reader would."""
        self.page.evaluate(SCROLL_THROUGH)

    def assert_quiet(self):
        """No error, and no request but for the file itself; pixels in the page (data:) never leave it."""
        assert self.errors == []
        left = [url for url in self.requests[1:] if not url.startswith("data:")]
        assert left == []
