"""Content as one self-contained HTML file.

Requirements it meets:
- it makes no network request: its Content-Security-Policy allows none;
- no text of a file can become script: everything is escaped, and the policy runs only the scripts whose hashes it
  names, those of this package;
- the same content gives the same bytes.
"""

import base64
import hashlib
import json
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import jinja2
import markupsafe

from riesz._version import __version__
from riesz_lab.errors import printable
from riesz_lab.report import plotting
from riesz_lab.report.content import Page
from riesz_lab.report.figure import Figure, Panel


def html(page: Page) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )
    environment.filters |= {
        "slug": lambda text: re.sub(r"[^a-z]+", "-", text.lower()),
        "is_figure": lambda block: isinstance(block, Figure),
        "dashes": lambda series: ("none", "7 4", "2 3", "8 3 2 3")[series.dash % 4],
        "description": _description,
        "height": _height,
        "plotly": lambda panel: _json(plotting.plot(panel)),
        "path": lambda link: quote(link, safe="/.-_~"),
    }
    scripts = [_resource("page.js")] + ([_plotly_js()] if page.figures() else [])
    return environment.from_string(_resource("page.html")).render(
        page=page,
        css=_resource("page.css"),
        js=_resource("page.js"),
        plotly_js=_plotly_js(),
        policy=_policy(scripts),
        version=__version__,
    )


def _finalize(value: object) -> object:
    # Invisible characters can reverse how a name reads on a page, too.
    plain = isinstance(value, str) and not isinstance(value, markupsafe.Markup)
    return printable(value, keep="\n\t") if plain else value  # type: ignore[arg-type]


def _policy(scripts: list[str]) -> str:
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def _json(value: Any) -> str:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _description(panel: Panel, figure: Figure) -> str:
    """The description of a plot for screen readers."""
    kind = "image" if panel.image is not None else f"{len(panel.series)} series"
    axes = f"{panel.y} against {panel.x}" if panel.y and panel.x else ""
    shown = ". ".join(filter(None, (figure.title, panel.title, axes, kind)))
    return f"{shown}. Arrow keys walk along the points." if panel.image is None else f"{shown}."


def _height(panel: Panel) -> markupsafe.Markup:
    """Room for one line per label down the side."""
    if not panel.sideways:
        return markupsafe.Markup()
    labels = len({label for series in panel.series for label in series.x})
    return markupsafe.Markup(f' style="height:{80 + 30 * max(labels, 2)}px"')


def _resource(name: str) -> str:
    return files("riesz_lab.report").joinpath(name).read_text(encoding="utf-8")


@lru_cache(maxsize=1)
def _plotly_js() -> str:
    # A browser normalises newlines before it takes the hash.
    return files("plotly").joinpath("package_data/plotly.min.js").read_text(encoding="utf-8").replace("\r\n", "\n")
