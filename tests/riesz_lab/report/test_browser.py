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
from riesz_lab.report import page, report
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
    file.write_text(page.html(report.build(report.read(demo_runs), demo_runs)), encoding="utf-8")
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
    visit.draw_all()
    folder = Path(os.environ.get("RIESZ_SCREENSHOTS", tmp_path))
    visit.page.screenshot(path=folder / f"answer-{device}.png")
    bottom = "document.querySelector('{}').getBoundingClientRect().bottom"
    assert visit.page.evaluate(bottom.format("#answer .findings")) < height
    assert visit.page.evaluate(bottom.format("#figure-pairs .plot")) < height
    visit.assert_quiet()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["report", "answer"])
@pytest.mark.parametrize(("device", "width", "height"), [("desktop", 1280, 900), ("phone", 390, 844)])
def test_page_fits_and_is_quiet(chromium, demo_page, answer_page, kind, device, width, height, scheme, tmp_path):
    visit = Visit(
        chromium, {"report": demo_page, "answer": answer_page}[kind], width=width, height=height, scheme=scheme
    )
    visit.draw_all()
    folder = Path(os.environ.get("RIESZ_SCREENSHOTS", tmp_path))
    visit.page.screenshot(path=folder / f"{kind}-{device}-{scheme}.png", full_page=True)
    # Nothing is wider than the screen: wide tables scroll in boxes of their own.
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
    ground = visit.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert visit.page.evaluate(CONTRAST) == []
    assert ground == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 23, 28)"}[scheme]
    visit.assert_quiet()


def test_a_phone_has_no_buttons_on_the_data_and_hints_at_wide_tables(chromium, demo_page):
    visit = Visit(chromium, demo_page, width=390, height=844)
    visit.draw_all()
    bars = visit.page.locator(".plot .modebar")  # its container has no height, and so is never visible
    assert bars.count()
    assert not any(bars.nth(index).is_visible() for index in range(bars.count()))
    wide = "[...document.querySelectorAll('.scroll')].map(box => [box.scrollWidth > box.clientWidth + 1,"
    wide += " !box.previousElementSibling.hidden])"
    shown = visit.page.evaluate(wide)
    assert any(overflows for overflows, _ in shown)
    assert all(overflows == hint for overflows, hint in shown)


def test_hover_shows_a_value(visit):
    plot = visit.page.locator("#figure-curves .plot").last
    plot.scroll_into_view_if_needed()
    plot.locator(".scatterlayer .point").last.wait_for()
    box = plot.locator(".scatterlayer .point").last.bounding_box()
    for shift in (6, 3, 0):
        visit.page.mouse.move(box["x"] + box["width"] / 2 - shift, box["y"] + box["height"] / 2)
    label = plot.locator(".hoverlayer .hovertext").first
    label.wait_for(timeout=5000)
    assert re.search(r"\d", label.text_content())
    visit.assert_quiet()


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
    plot = visit.page.locator("#figure-curves .plot").first
    plot.scroll_into_view_if_needed()
    plot.locator(".scatterlayer .point").last.wait_for()
    plot.focus()
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        visit.page.keyboard.press(key)
    plot.locator(".hoverlayer .hovertext").first.wait_for(timeout=5000)
    assert re.search(r"SobolevTilde: 2, \d+", visit.page.locator("#live").text_content())
    legend = visit.page.locator("#figure-curves .legend button").first
    legend.press("Space")
    assert legend.get_attribute("aria-pressed") == "false"
    shown = visit.page.evaluate(
        "[...document.querySelectorAll('#figure-curves .plot')].map(p => p.data.filter(t => t.visible).length)"
    )
    assert shown == [4, 4]  # two of three methods, a line and a band each
    visit.assert_quiet()


def test_theme_is_switched_and_figures_follow(visit):
    def ink():
        return visit.page.evaluate("document.querySelector('#figure-curves .plot').layout.font.color")

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
    assert visit.page.locator(".plot:not(:has(.main-svg))").count() == 0
    visit.assert_quiet()


@pytest.mark.slow
def test_every_figure_of_a_full_report_is_drawn(chromium, tmp_path):
    for name in EVERY:
        store_sweep(tmp_path / "runs", name, trials=2)
    file = tmp_path / "report.html"
    file.write_text(page.html(report.build(report.read(tmp_path / "runs"), tmp_path)))
    visit = Visit(chromium, file, width=390)
    visit.draw_all()
    assert visit.page.locator("figure").count() >= 12
    visit.assert_quiet()


def test_hostile_strings_run_nothing(chromium, tmp_path):
    assert len(HOSTILE) >= 20
    runs = infected_store(tmp_path / "runs")
    written = page.html(report.build(report.read(runs), tmp_path))
    # The strings are in the page, so that there was something to run.
    assert sum(marker in written for marker in (f"evil{i}" for i in range(len(HOSTILE)))) >= 20
    file = tmp_path / "report.html"
    file.write_text(written)
    visit = Visit(chromium, file)
    visit.draw_all()
    plots = visit.page.locator(".plot")
    for index in range(0, plots.count(), 3):
        plots.nth(index).focus()
        visit.page.keyboard.press("ArrowRight")
    assert visit.page.evaluate("window.evil") is None
    assert visit.page.locator("main :is(img, iframe, object, embed, form, base, link)").count() == 0
    assert visit.page.evaluate("[...document.querySelectorAll('a')].every(a => /^(#|file:)/.test(a.getAttribute('href')"
                               ".startsWith('#') ? '#' : a.href))")  # fmt: skip
    visit.assert_quiet()
