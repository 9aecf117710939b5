"""What the pages show runs as shown, and the site they make opens without a network."""

from __future__ import annotations

import csv
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from docs.finding import finding

from riesz_lab.cli import COMMANDS

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)

# What the text around a block says is there already.
BEFORE = {
    "sharding.md": """
import atexit, torch, torch.distributed, riesz
if not torch.distributed.is_initialized():
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    atexit.register(torch.distributed.destroy_process_group)
model = torch.nn.Conv2d(3, 8, 3)
"""
}


def _with_blocks() -> list[str]:
    return [str(page.relative_to(ROOT)) for page in PAGES if BLOCK.search(page.read_text())]


@pytest.mark.parametrize("page", _with_blocks())
def test_python_blocks_run(page, tmp_path):
    # A process of its own: blocks may start process groups, and write into the folder they run in.
    blocks = BLOCK.findall((ROOT / page).read_text())
    before = BEFORE.get(Path(page).name, "")
    script = "\n".join(
        f"exec(compile({before + block!r}, {page!r}, 'exec'), {{'__name__': 'page'}})" for block in blocks
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_links_of_pages_outside_the_site_lead_somewhere():
    for page in [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_readme_states_what_the_evidence_states():
    assert finding() in (ROOT / "README.md").read_text(), "run `python -m docs.finding`, as `make evidence` does"


def _printed(row: dict[str, str]) -> list[str]:
    """An arm of a stored table as the page of sweeps prints it."""
    number = {key: float(row[key] or "nan") for key in ("mean", "sd", "difference", "interval_low", "interval_high")}
    points = {key: 100 * value for key, value in number.items()}
    score = f"{points['mean']:.2f} ± {points['sd']:.2f}"
    if not row["baseline"]:
        return [row["arm"], score, *[""] * 6]
    return [
        row["arm"],
        score,
        f"{points['difference']:+.2f}",
        f"{points['interval_low']:+.2f} to {points['interval_high']:+.2f}",
        f"{float(row['p']):.4f}",
        f"{float(row['p_holm']):.4f}",
        f"{row['wins']}/{row['ties']}/{row['losses']}",
        f"{float(row['error_reduced']):+.1f}%",
    ]


@pytest.mark.parametrize("name", ["lambda-fashion-mini", "directions-mini", "controls-mini"])
def test_the_page_of_sweeps_prints_its_stored_tables(name):
    _, _, after = (ROOT / "docs/sweeps.md").read_text().partition(f"`riesz sweep {name}`; differences")
    _, _, *lines = re.search(r"(?:^\|.*\n)+", after, re.MULTILINE)[0].splitlines()  # without head and rule
    with (ROOT / f"docs/sweeps/{name}.csv").open(newline="") as file:
        stored = [_printed(row) for row in csv.DictReader(file)]
    assert [[cell.strip() for cell in line.strip("|").split("|")] for line in lines] == stored


def test_pages_that_are_read_as_source_include_no_other_page():
    # A code host shows the directive instead of what it includes; these two pages are read on the site alone.
    of_the_site = [ROOT / "docs/index.md", ROOT / "docs/changelog.md"]
    for page in PAGES:
        assert page in of_the_site or "```{include}" not in page.read_text(), page


def test_the_paper_is_cited_as_the_preprint_it_is():
    for page in [*PAGES, ROOT / "CITATION.cff"]:
        assert "ICLR" not in page.read_text(), page


def test_every_command_is_listed():
    page = (ROOT / "docs/reference/commands.md").read_text()
    assert re.findall(r"^\| `riesz (\w+)", page, re.MULTILINE) == list(COMMANDS)


class _Requests(HTMLParser):
    """Collects what a browser fetches when it opens a page, and where the page's own links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors.add(given.get("id", ""))
        if tag == "a":
            self.links.append(given.get("href", ""))
        elif tag == "link":
            self.fetched.append(given.get("href", ""))
        else:
            self.fetched += [given[name] for name in ("src", "srcset", "data", "poster") if name in given]


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> dict[Path, _Requests]:
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-W",
        "-n",
        "--keep-going",
        "-q",
        "-b",
        "html",
        str(ROOT / "docs"),
        folder,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {}
    for path in folder.rglob("*.html"):
        pages[path] = _Requests()
        pages[path].feed(path.read_text())
    return pages


def test_the_site_requests_nothing_from_elsewhere(site):
    assert len(site) > 20
    for path, page in site.items():
        assert not [target for target in page.fetched if re.match(r"(https?:)?//", target)], path
    styles = {style for path in site for style in path.parent.glob("_static/**/*.css")}
    assert styles
    for style in styles:
        assert not re.search(r"(url\(|@import\s*)[\"']?(https?:)?//", style.read_text()), style


def test_links_within_the_site_lead_to_a_page_and_an_anchor(site):
    for path, page in site.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            file = (path.parent / target).resolve() if target else path
            assert file.exists(), f"{path.name}: {link}"
            if anchor and file in site:
                assert anchor in site[file].anchors, f"{path.name}: {link}"
