"""The page in a real browser: it can be seen, hovered, sorted, walked with the keyboard, printed; and it is safe.

Screenshots go to the folder RIESZ_SCREENSHOTS, if that is set.
"""

import os
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from browsing import Visit, browser
from hostile_strings import HOSTILE, infected_store
from riesz_lab import recipes
from riesz_lab.commands import demo
from riesz_lab.report import page
from riesz_lab.report.data import read
from riesz_lab.report.report import build
from stored import EVERY, store_sweep

CONTRAST = """() => {
    const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map(v => v / 255)
            .map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (node) => {
        for (let at = node; at; at = at.parentElement) {
            const color = getComputedStyle(at).backgroundColor;
            if (!/, 0\\)$/.test(color) && color !== "transparent") return color;
        }
        return "rgb(255, 255, 255)";
    };
    const found = [];
    for (const node of document.querySelectorAll("body *")) {
        const own = [...node.childNodes].some(child => child.nodeType === 3 && child.textContent.trim());
        if (!own || node.closest(".plot, script, style, noscript, #live")) continue;
        const style = getComputedStyle(node);
        const [a, b] = [light(style.color), light(ground(node))];
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) found.push(`${node.tagName}.${node.className}: ${ratio.toFixed(2)}`);
    }
    return [...new Set(found)];
}"""


@pytest.fixture(scope="module")
def chromium():
    with browser() as launched:
        yield launched


@pytest.fixture(scope="module")
def demo_runs(tmp_path_factory):
    """The trials of a demo that is shorter than the real one."""
    runs = tmp_path_factory.mktemp("demo")
    small = replace(recipes.recipe("demo"), train_limit=150, test_limit=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demo, "recipe", lambda name: small)
        demo.demo(seeds=3, runs=runs, progress="none")
    return runs / "demo"


@pytest.fixture(scope="module")
def answer_page(demo_runs):
    """The demo's own page; RIESZ_DEMO_REPORT may name that of the real one."""
    return Path(os.environ.get("RIESZ_DEMO_REPORT", demo_runs / "report.html")).resolve()


@pytest.fixture(scope="module")
def demo_page(demo_runs):
    """The full report of the demo's trials."""
    file = demo_runs / "full.html"
    file.write_text(page.html(build(read(demo_runs), demo_runs)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def visit(chromium, demo_page):
    """One visit for everything that is done by hand."""
    return Visit(chromium, demo_page)


def test_the_first_key_skips_to_the_content(visit):
    visit.page.keyboard.press("Tab")
    assert visit.page.evaluate("document.activeElement.className") == "skip"
    visit.page.keyboard.press("Enter")
    assert visit.page.evaluate("document.activeElement.id") == "main"


@pytest.mark.parametrize(("device", "width", "height"), [("desktop", 1280, 900), ("phone", 390, 844)])
def test_the_first_screen_of_the_demo_is_its_answer(chromium, answer_page, device, width, height, tmp_path):
    visit = Visit(chromium, answer_page, width=width, height=height)
    visit.scroll_through()
    folder = Path(os.environ.get("RIESZ_SCREENSHOTS", tmp_path))
    visit.page.screenshot(path=folder / f"answer-{device}.png")
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    assert visit.page.evaluate(bottom.format("#answer table")) < height
    assert visit.page.evaluate(bottom.format("#figure-pairs .plot")) < height
    visit.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["report", "answer"])
@pytest.mark.parametrize(("device", "width", "height"), [("desktop", 1280, 900), ("phone", 390, 844)])
def test_page_fits_and_is_quiet(chromium, demo_page, answer_page, kind, device, width, height, scheme, tmp_path):
    visit = Visit(
        chromium, {"report": demo_page, "answer": answer_page}[kind], width=width, height=height, scheme=scheme
    )
    visit.scroll_through()
    folder = Path(os.environ.get("RIESZ_SCREENSHOTS", tmp_path))
    visit.page.screenshot(path=folder / f"{kind}-{device}-{scheme}.png", full_page=True)
    # Nothing is wider than the screen: wide tables scroll in boxes of their own.
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert visit.page.evaluate(CONTRAST) == []
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
    visit.assert_quiet()


def test_a_phone_hints_at_wide_tables(chromium, demo_page):
    visit = Visit(chromium, demo_page, width=390, height=844)
    visit.scroll_through()
    wide = "[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth > box.clientWidth + 1,"
    wide += " !box.previousElementSibling.hidden])"
    shown = visit.page.evaluate(wide)
    assert any(overflows for overflows, _ in shown)
    assert all(overflows == hint for overflows, hint in shown)


def test_texts_of_figures_can_be_read_on_a_phone_and_lie_inside(chromium, demo_page):
    visit = Visit(chromium, demo_page, width=390, height=844)
    texts = visit.page.evaluate(
        """() => [...document.querySelectorAll(".plot text")].map(text => {
            const svg = text.closest(".plot");
            const [box, plot] = [text.getBoundingClientRect(), svg.getBoundingClientRect()];
            const size = parseFloat(getComputedStyle(text).fontSize) * plot.width / svg.viewBox.baseVal.width;
            const inside = box.left >= plot.left - 1 && box.right <= plot.right + 1 && box.bottom <= plot.bottom + 1;
            return [text.textContent, size, inside];
        })"""
    )
    assert len(texts) > 30
    assert [text for text, size, inside in texts if size < 9 or not inside] == []


def test_hover_shows_a_value(visit):
    point = visit.page.locator("#figure-curves .plot circle").last
    point.scroll_into_view_if_needed()
    point.hover()
    tip = visit.page.locator("#tip")
    assert tip.is_visible()
    assert re.search(r"epoch \d+: \d+", tip.text_content())
    visit.page.mouse.move(2, 2)
    assert not tip.is_visible()
    visit.assert_quiet()


def test_without_the_script_figures_are_drawn_and_have_titles(chromium, demo_page):
    context = chromium.new_context(java_script_enabled=False)
    opened = context.new_page()
    opened.goto(f"file://{demo_page}")
    assert opened.locator("#figure-curves .plot path").first.is_visible()
    assert opened.locator("#figure-curves .plot title").count() > 5
    context.close()


def test_table_sorts_by_mouse_and_keyboard(visit):
    table = visit.page.locator("#paper table").first
    head = table.locator("thead th").nth(4)

    def column():
        return [float(value) for value in table.locator("tbody tr td:nth-child(5)").all_text_contents()]

    head.locator("button").click()
    assert column() == sorted(column())
    assert head.get_attribute("aria-sort") == "ascending"
    head.locator("button").press("Enter")
    assert column() == sorted(column(), reverse=True)
    assert head.get_attribute("aria-sort") == "descending"
    assert "descending" in visit.page.locator("#live").text_content()
    visit.assert_quiet()


def test_keyboard_walks_points_and_switches_series(visit):
    plot = visit.page.locator("#figure-curves .plot").last
    plot.focus()
    said = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        # What a browser reports when the page scrolls below a mouse at rest.
        plot.locator("[data-series] > *").last.dispatch_event("pointerover", {"bubbles": True})
        visit.page.keyboard.press(key)
        said.append(visit.page.locator("#live").text_content())
    assert [re.sub(r": .*", "", line) for line in said] == ["SGD, epoch 2", "SGD, epoch 4", "SobolevTilde, epoch 4"]
    assert visit.page.locator("#tip").text_content() == said[-1]
    legend = visit.page.locator("#figure-curves .legend button").first
    legend.press("Space")
    assert legend.get_attribute("aria-pressed") == "false"
    hidden = visit.page.locator('#figure-curves .plot [data-series="SGD"]')
    assert hidden.count() == 4  # a line and a band, in two panels
    assert not any(hidden.nth(index).is_visible() for index in range(4))
    assert visit.page.locator('#figure-curves .plot [data-series="SobolevTilde"] path').first.is_visible()
    legend.press("Space")
    visit.assert_quiet()


def test_theme_is_switched_and_figures_follow(visit):
    def ink():
        return visit.page.evaluate("getComputedStyle(document.querySelector('#figure-curves .plot text')).fill")

    before, button = ink(), visit.page.locator("#theme")
    button.click()
    assert "light" in button.text_content()
    button.press("Enter")
    assert "dark" in button.text_content()
    assert ink() != before
    visit.assert_quiet()


NAMELESS = """() => [...document.querySelectorAll("button, a, .plot, [role]")]
    .filter(node => node.id !== "live" && !node.textContent.trim() && !node.getAttribute("aria-label"))
    .map(node => node.outerHTML.slice(0, 200))"""


def test_controls_have_names_and_headings_have_order(visit):
    assert visit.page.evaluate(NAMELESS) == []
    levels = visit.page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_it_prints(chromium, demo_page, tmp_path):
    visit = Visit(chromium, demo_page)
    printed = Path(os.environ.get("RIESZ_SCREENSHOTS", tmp_path)) / "report.pdf"
    visit.page.pdf(path=printed, format="A4")
    assert printed.read_bytes().startswith(b"%PDF")
    visit.assert_quiet()


@pytest.mark.slow
def test_every_figure_of_a_full_report_is_drawn(chromium, tmp_path):
    for name in EVERY:
        store_sweep(tmp_path / "runs", name, trials=2)
    file = tmp_path / "report.html"
    file.write_text(page.html(build(read(tmp_path / "runs"), tmp_path)))
    visit = Visit(chromium, file, width=390)
    visit.scroll_through()
    assert visit.page.locator("figure").count() >= 12
    visit.assert_quiet()


def test_hostile_strings_run_nothing(chromium, tmp_path):
    assert len(HOSTILE) >= 20
    runs = infected_store(tmp_path / "runs")
    written = page.html(build(read(runs), tmp_path))
    # The strings are in the page, so that there was something to run.
    assert sum(marker in written for marker in (f"evil{i}" for i in range(len(HOSTILE)))) >= 20
    file = tmp_path / "report.html"
    file.write_text(written)
    visit = Visit(chromium, file)
    visit.scroll_through()
    plots = visit.page.locator(".plot")
    for index in range(0, plots.count(), 3):
        plots.nth(index).focus()
        visit.page.keyboard.press("ArrowRight")
    assert visit.page.evaluate("window.evil") is None
    foreign = "main :is(img, iframe, object, embed, form, base, link, script, foreignObject)"
    assert visit.page.locator(foreign).count() == 0
    assert visit.page.evaluate("[...document.querySelectorAll('a')].every(a => /^(#|file:)/.test(a.getAttribute('href')"
                               ".startsWith('#') ? '#' : a.href))")  # fmt: skip
    visit.assert_quiet()
