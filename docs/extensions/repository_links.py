"""Links from pages to Markdown files and folders of the repository outside of docs/.

Other files need nothing: MyST copies them into the site, so they open offline. Markdown outside of docs/ it takes for a
page of the site, and folders for a reference; here the first are copied too and the second become plain text.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class RepositoryLinks(SphinxTransform):
    default_priority = 200

    def apply(self, **kwargs: Any) -> None:
        here = Path(self.env.doc2path(self.env.docname)).parent
        for node in list(self.document.findall(addnodes.pending_xref)):
            if node.get("reftype") != "myst":
                continue
            target = node["reftarget"].partition("#")[0]
            if node.get("refdomain") == "doc" and Path(target).is_absolute():
                # The path of the file without its suffix; what is copied is named from the folder of the pages.
                path = "/" + os.path.relpath(f"{target}.md", self.env.srcdir)
                copy = addnodes.download_reference("", "", *node.children, reftarget=path, refdoc=node["refdoc"])
                node.replace_self(copy)
            elif not node.get("refdomain") and target and (here / target).is_dir():
                node.replace_self(nodes.inline("", "", *node.children))


def setup(app: Sphinx) -> dict[str, Any]:
    app.add_transform(RepositoryLinks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
