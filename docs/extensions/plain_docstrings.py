"""Lets docstrings be plain text with Markdown's backticks, which reStructuredText reads differently.

`riesz.Name` becomes a link and any other `code` a literal; elsewhere the signs | and trailing _ lose their meaning.
"""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(?<!`)(`[^`\n]+`)(?!`)")
PUBLIC = re.compile(r"`(riesz(?:\.[A-Za-z]\w*)+)(?:\(\))?`")


def to_rst(line: str) -> str:
    """One line of a docstring as reStructuredText."""
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = CODE.split(line)
    for index, part in enumerate(parts):
        if CODE.fullmatch(part):
            public = PUBLIC.fullmatch(part)
            parts[index] = f":py:obj:`{public[1]}`" if public else f"`{part}`"
        else:
            parts[index] = re.sub(r"(\||(?<=\w)_(?!\w))", r"\\\1", part)
    return "".join(parts)


def _process(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    example = False
    for index, line in enumerate(lines):
        # What a doctest prints, up to the next blank line, stays as printed.
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if not example:
            lines[index] = to_rst(line)


def setup(app: Sphinx) -> dict[str, Any]:
    app.connect("autodoc-process-docstring", _process, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
