"""Links between pages that nobody has to write: code that names something leads to where that is explained.

`lowtide.open` leads to the Python reference, `lowtide watch` to the command's, `a.shuffled(...)` to the
method: the pages call arrays `a`, tokens `t`. Code in a heading or in a link stays what it is, and so does
what names nothing.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx

COMMAND = re.compile(r"lowtide ([a-z]+)\b")
NAME = re.compile(r"(?:lowtide\.)?[A-Za-z_][\w.]*")
CALLED = {"a": "lowtide.Array", "t": "lowtide.Tokens", "loader": "lowtide.Loader", "it": "lowtide.Chunks"}


def names(code: str) -> list[str]:
    """Give the full names that a piece of code may mean: `a.chunks(4096)` is `lowtide.Array.chunks`."""
    found = NAME.match(code)
    if found is None or code[found.end() :][:1] not in ("", "("):
        return []
    first, _, last = found.group().partition(".")
    if first in CALLED:
        return [f"{CALLED[first]}.{last}"]
    return [found.group(), f"lowtide.{found.group()}"] if last else []


def link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Wrap each piece of code that names something in a link to it."""
    objects = app.env.domains.python_domain.objects
    commands = app.env.metadata["commands"].get("myst_slugs", {})
    for code in list(doctree.findall(nodes.literal)):
        outer = code.parent
        while outer is not None and not isinstance(outer, nodes.title | nodes.reference | nodes.term):
            outer = outer.parent
        if outer is not None:
            continue
        if (found := COMMAND.match(code.astext())) and (slug := f"lowtide-{found[1]}") in commands:
            page, anchor = "commands", commands[slug][1]
        elif known := [objects[name] for name in names(code.astext()) if name in objects]:
            page, anchor = known[0].docname, known[0].node_id
        else:
            continue
        address = "" if page == docname else app.builder.get_relative_uri(docname, page)
        reference = nodes.reference("", "", internal=True, refuri=f"{address}#{anchor}")
        code.replace_self(reference)
        reference += code


def setup(app: Sphinx) -> dict[str, object]:
    """Tell Sphinx."""
    app.connect("doctree-resolved", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
