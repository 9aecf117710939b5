"""Copies the answer of docs/evidence.md into the README: what is claimed there is what the trials say today."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = re.compile(r"(<!-- finding[^>]*-->\n)(.*?)\n(<!-- end of finding -->)", re.DOTALL)


def finding() -> str:
    """What stands between the marks on the page of evidence."""
    place = PLACE.search((ROOT / "docs/evidence.md").read_text())
    if place is None:
        raise SystemExit("expected a place for the finding in docs/evidence.md, got none")
    return place[2]


def main() -> None:
    readme = ROOT / "README.md"
    text, places = PLACE.subn(lambda match: f"{match[1]}{finding()}\n{match[3]}", readme.read_text())
    if places != 1:
        raise SystemExit(f"expected one place for the finding in {readme}, got {places}")
    readme.write_text(text)


if __name__ == "__main__":
    main()
