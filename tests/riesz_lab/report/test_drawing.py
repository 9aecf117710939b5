"""The drawings: what is drawn lies where it belongs, covers nothing, and can become neither script nor markup."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image as Pixels

from riesz_lab.report.drawing import Scale, draw_panel, legend, picture
from riesz_lab.report.figure import Figure, Image, Panel, Series
from riesz_lab.report.shapes import INK, Circle, Group, Path, Picture, Text, rectangle

SVG = "{http://www.w3.org/2000/svg}"


def flat(shapes, kind):
    for shape in shapes:
        if isinstance(shape, Group):
            yield from flat(shape.shapes, kind)
        elif isinstance(shape, kind):
            yield shape


def of(panel, kind):
    return list(flat(draw_panel(panel).shapes, kind))


def line(y, **style):
    return Series(name="a", x=list(range(len(y))), y=y, **style)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0.0, 1.0, ["0.0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-0.3, 0.3, ["-0.2", "0.0", "0.2"]),
        (0.0, 5.0, ["0", "1", "2", "3", "4", "5"]),
        (91.0, 93.1, ["91.0", "91.5", "92.0", "92.5", "93.0"]),
        (0.0, 1e6, ["0", "200000", "400000", "600000", "800000", "1e+06"]),
        (0.0, 2e-6, ["0", "5e-07", "1e-06", "1.5e-06", "2e-06"]),
    ],
)
def test_ticks_are_round_and_have_no_digit_too_many(low, high, labels):
    assert [text for _, text in Scale(low, high, 0, 100).ticks(5)] == labels


def test_ticks_of_epochs_are_whole():
    assert [text for _, text in Scale(1, 3, 0, 100).ticks(6, whole=True)] == ["1", "2", "3"]


def test_logarithmic_ticks_are_powers_of_ten():
    assert [text for _, text in Scale(0.5, 2000, 0, 100, log=True).ticks(5)] == ["1", "10", "100", "1000"]


def test_equal_values_but_for_rounding_have_a_readable_axis():
    ticks = of(Panel(series=[line([0.1 + 0.2, 0.3])]), Text)
    assert len({text.text for text in ticks}) == len(ticks)


def test_a_line_has_gaps_and_ends_at_the_range_shown():
    panel = Panel(series=[line([0.0, 4.0, 0.0, None, 1.0, 1.0])], y_range=(-1.0, 2.0))
    (drawn,) = [path for path in of(panel, Path) if path.width == 2]
    bottom, top = (next(p[1] for p in drawn.lines[0]), min(y for part in drawn.lines for _, y in part))
    assert [len(part) for part in drawn.lines] == [2, 2, 2]
    # Half of the way to 4 is inside.
    assert drawn.lines[0][1][1] == drawn.lines[1][0][1] == top < bottom


def test_no_dot_covers_another_nor_the_mean():
    rng = np.random.default_rng(0)
    values = [*rng.normal(size=40).tolist(), 0.5, 0.5, 0.5]
    dots = Series(name="one pair", x=["arm"] * len(values), y=values, kind="dots", color=1)
    mean = Series(name="mean", x=["arm"], y=[0.1], low=[-0.3], high=[0.5], kind="points", color=1)
    panel = Panel(series=[dots, mean], sideways=True, zero=True)
    circles = of(panel, Circle)
    assert len(circles) == len(values) + 1
    for index, one in enumerate(circles):
        for other in circles[:index]:
            assert np.hypot(one.x - other.x, one.y - other.y) >= one.r + other.r


def test_marks_of_several_series_in_one_row_cover_none_of_each_other():
    series = [Series(name=name, x=["arm"], y=[1.0], kind="points") for name in "abc"]
    marks = of(Panel(series=series, sideways=True), Circle)
    assert {mark.x for mark in marks} == {marks[0].x}
    assert all(below.y - above.y >= above.r + below.r for above, below in pairwise(marks))


def test_long_labels_stand_above_their_rows_and_short_ones_beside():
    def panel(label):
        return Panel(series=[Series(name="a", x=[label, "b"], y=[1, 2], kind="points")], sideways=True, zero=True)

    (beside,) = [text for text in of(panel("short"), Text) if text.text == "short"]
    assert beside.anchor == "end"
    words = "SobolevTilde, lam 5, channels permuted against SobolevTilde, lam 5, on all layers"
    above = [text for text in of(panel(words), Text) if text.text in words]
    assert " ".join(text.text for text in above if len(text.text) > 1) == words
    assert all(text.anchor == "start" and text.x == 0 for text in above)


def test_the_margin_is_a_band_around_zero_and_in_the_legend():
    points = Series(name="a", x=["arm"], y=[0.1], kind="points")
    figure = Figure(name="f", title="", panels=[Panel(series=[points], sideways=True, zero=True, margin=0.5)])
    (band,) = [shape for shape in draw_panel(figure.panels[0]).shapes if isinstance(shape, Group)][:1]
    assert band.name == "margin"
    corners = band.shapes[0].lines[0]
    (mark,) = of(figure.panels[0], Circle)
    assert corners[0][0] < mark.x < corners[1][0]
    assert list(legend(figure)) == ["a", "margin"]


def test_a_legend_shows_dashes_marks_bands_and_ink_for_several_colours():
    plain = line([1.0, 2.0, 3.0], low=[0.0, 1.0, 2.0], high=[2.0, 3.0, 4.0], dash=1, color=1)
    one, two = (Series(name="mean", x=[arm], y=[1.0], kind="points", color=c) for arm, c in (("x", 2), ("y", 3)))
    samples = legend(Figure(name="f", title="", panels=[Panel(series=[plain, one, two])]))
    band, stroke, mark = samples["a"].shapes
    assert [band.fill, stroke.stroke, mark.fill] == 3 * [plain.hex_color]
    assert stroke.dash
    assert isinstance(mark, Path)  # a square
    assert samples["mean"].shapes[-1].fill == INK


def test_one_series_alone_needs_no_legend():
    assert legend(Figure(name="f", title="", panels=[Panel(series=[line([1.0, 2.0])])])) == {}


def test_an_image_is_clear_at_zero_and_where_nothing_is_known():
    image = Image(np.array([[1.0, -1.0], [0.0, np.nan]]), "rows", "columns")
    shown = of(Panel(image=image), Picture)[0]
    with Pixels.open(io.BytesIO(shown.png)) as pixels:
        assert [pixels.getpixel((x, y))[3] for y in (0, 1) for x in (0, 1)] == [255, 255, 0, 0]
        assert pixels.getpixel((0, 0))[0] > pixels.getpixel((1, 0))[0]


def test_hatching_stays_inside_its_cell():
    hatched = np.array([[False, False], [False, True]])
    image = Image(np.zeros((2, 2)), "a", "b", ("0", "1"), ("0", "1"), (("", ""), ("", "x")), hatched)
    paths = of(Panel(image=image), Path)
    (lines,) = [path.lines for path in paths if len(path.lines) > 3]
    cells = [path.lines[0] for path in paths if path.closed and path.opacity == 0.2]
    (left, top), _, (right, bottom), _ = cells[3]
    assert all(left <= x <= right and top <= y <= bottom for part in lines for x, y in part)


HOSTILE = "</text></svg><script>evil()</script>\x00\x1b\u202e & \" '"


@pytest.mark.parametrize(
    "panel",
    [
        Panel(
            title=HOSTILE, x=HOSTILE, y=HOSTILE, series=[Series(name=HOSTILE, x=[1, 2, 3], y=[1, 2, 3], note=HOSTILE)]
        ),
        Panel(series=[Series(name=HOSTILE, x=[HOSTILE], y=[1], low=[0], high=[2], kind="points")], sideways=True),
        Panel(image=Image(np.ones((1, 1)), HOSTILE, HOSTILE, (HOSTILE,), (HOSTILE,), ((HOSTILE,),))),
    ],
    ids=["axes", "rows", "image"],
)
def test_texts_cannot_become_markup(panel):
    drawn = picture(Figure(name="f", title="", panels=[panel, replace(panel)]), "svg").decode()
    tree = ElementTree.fromstring(drawn)
    assert {node.tag.removeprefix(SVG) for node in tree.iter()} <= {
        "svg", "style", "rect", "g", "path", "circle", "text", "title", "image"
    }  # fmt: skip
    assert "evil()" in drawn
    assert "\x1b" not in drawn
    assert picture(Figure(name="f", title="", panels=[panel]), "png").startswith(b"\x89PNG")


@pytest.mark.parametrize("value", [None, float("nan"), float("inf"), 0.0, -1.0, 1e300])
@pytest.mark.parametrize("style", [{}, {"log_y": True}, {"sideways": True}, {"sideways": True, "log_y": True}])
def test_values_that_cannot_be_drawn_are_left_out(value, style):
    x = ["a", "b"] if style.get("sideways") else [1.0, 2.0]
    for kind in ("points", "line", "dots", "bars"):
        if kind == "bars" and style.get("log_y"):
            continue
        series = Series(name="s", x=x, y=[value, 0.5], low=[value, 0.4], high=[value, 0.6], kind=kind)
        drawn = picture(Figure(name="f", title="", panels=[Panel(series=[series], **style)]), "svg").decode()
        assert not re.search(r"\b(nan|inf)\b", drawn)


def test_without_any_value_a_panel_is_empty():
    assert not of(Panel(series=[line([None, None])]), Circle)
    assert draw_panel(Panel()).height > 0


def test_a_file_follows_the_scheme_of_its_reader_and_a_page_its_own_text():
    drawn = picture(Figure(name="f", title="", panels=[Panel(series=[line([1.0, 2.0])], y="y")]), "svg").decode()
    assert "prefers-color-scheme:dark" in drawn
    assert f'fill="{INK}"' in drawn


def test_png_has_the_same_shapes():
    """A filled rectangle, so that the place of everything else is that of the SVG, too."""
    from riesz_lab.report.shapes import Drawing, raster

    drawn = raster(Drawing(96, 48, [Group(x=48, y=24, shapes=[rectangle(0, 0, 48, 24, fill="#ff0000")])]), "png")
    with Pixels.open(io.BytesIO(drawn)) as pixels:
        assert pixels.size == (200, 100)
        assert pixels.convert("RGB").getpixel((150, 75)) == (255, 0, 0)
        assert pixels.convert("RGB").getpixel((50, 25)) == (255, 255, 255)
