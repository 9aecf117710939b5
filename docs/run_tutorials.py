"""Runs the tutorials and stores their outputs: `make tutorials`.

Each runs in a folder of its own, as a user would run it. What changes from run to run (timings, addresses) is left out.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

TUTORIALS = Path(__file__).parent / "tutorials"
LIMIT_SECONDS = 120


def run(path: Path, folder: Path) -> NotebookNode:
    """The notebook with the outputs of this run; an exception in any cell is raised."""
    notebook = nbformat.read(path, as_version=4)
    # Shell commands in a notebook must be those of this Python's environment.
    os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    client = NotebookClient(
        notebook, timeout=LIMIT_SECONDS, coalesce_streams=True, resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type == "code":
            cell.outputs = [_plain(output, folder) for output in cell.outputs]
    return notebook


def _plain(output: NotebookNode, folder: Path) -> NotebookNode:
    if "text" in output:
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output["text"])
        output["text"] = text.replace(f"{folder}/", "").replace("\r\n", "\n")
    return output


def main() -> None:
    for path in sorted(TUTORIALS.glob("*.ipynb")):
        with tempfile.TemporaryDirectory() as folder:
            notebook = run(path, Path(folder))
        nbformat.write(notebook, path)
        print(path.name)


if __name__ == "__main__":
    main()
