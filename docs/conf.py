"""The documentation site. `make docs` builds it strictly: every warning and every unresolved reference is an error.

Nothing is fetched while it is built or opened: no intersphinx, fonts of the system, maths as MathML.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "docs" / "extensions"), str(ROOT / "src")]

from riesz import __version__  # noqa: E402

project = "riesz"
author = "the riesz authors"
copyright = f"2026, {author}"  # noqa: A001
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "plain_docstrings",  # before napoleon: both process docstrings, in this order
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "inline_figures",
    "mathml",
    "repository_links",
]
exclude_patterns = ["_build", "extensions", "figures", "jupyter_execute"]
nitpicky = True
# Types of other packages, and aliases that annotations spell out.
nitpick_ignore_regex = [
    ("py:.*", r"(torch|nn|collections|pathlib|typing|os|numpy|np)\..*"),
    # Records that the API names and its pages do not list.
    ("py:class", r"riesz_lab\.(data|store|training|tasks)\..*"),
    ("py:class", r"riesz\.metrics\.low_rank\..*"),
    (
        "py:.*",
        r"(Tensor|Path|Sequence|Mapping|Callable|Iterator|Any|Self|Grads|Dataset)",
    ),
]

myst_enable_extensions = ["dollarmath", "colon_fence", "deflist"]
myst_heading_anchors = 3
# Notebooks are committed with their outputs; tests/test_tutorials.py runs them.
nb_execution_mode = "off"
nb_ipywidgets_js = {}
html_math_renderer = "mathml"

autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
pygments_style = "friendly"
pygments_dark_style = "github-dark"
html_title = f"riesz {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
# The prompts of doctests and of shells are not copied.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
