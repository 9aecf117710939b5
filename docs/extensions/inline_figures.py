"""Puts figures of `riesz_lab.report` into the page: they take its colours, light and dark, and show values on hover."""

from __future__ import annotations

import re
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

# What a file of its own has: a ground, and the colours of the reader's screen.
ALONE = re.compile(r'<style>.*?</style><rect class="ground"[^>]*/>', re.DOTALL)


def _inline(app: Sphinx, document: nodes.document, _: str) -> None:
    if app.builder.format != "html":
        return
    for image in list(document.findall(nodes.image)):
        file = Path(app.srcdir) / image["uri"]
        drawn = file.read_text(encoding="utf-8") if file.suffix == ".svg" and file.is_file() else ""
        if ALONE.search(drawn):
            text = escape(image.get("alt", ""))
            opening = f'<svg class="drawn" role="img" aria-label="{text}" '
            inline = ALONE.sub("", drawn).replace("<svg ", opening, 1).replace(' color="#1b1f24"', "", 1)
            image.replace_self(nodes.raw("", f'<div class="figure">{inline}</div>', format="html"))


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("doctree-resolved", _inline)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
