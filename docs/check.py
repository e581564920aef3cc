"""Goes through a site that was built: no link leads nowhere, and no page asks the network for anything.

Links to other sites are not followed: whether they are there is not ours, and the build has no network.
"""

from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What a browser fetches by itself when it shows a page.
FETCHED = {
    ("link", "href"),
    ("object", "data"),
    *((tag, "src") for tag in ("script", "img", "iframe", "source")),
}


class Page(HTMLParser):
    """The links of a page, and the places in it that a link can lead to."""

    def __init__(self, text: str) -> None:
        """Read it."""
        super().__init__()
        self.links: list[tuple[str, bool]] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Note what a tag leads to, and whether that is fetched at once."""
        for name, value in attributes:
            if name == "id" or (tag == "a" and name == "name"):
                self.anchors.add(value or "")
            elif value is not None and (name == "href" or (tag, name) in FETCHED):
                self.links.append((value, (tag, name) in FETCHED))


def site(folder: Path, without: tuple[str, ...] = ()) -> list[str]:
    """Give what is wrong with a built site, a line each; `without` are folders that were left out of it.

    The pages of rustdoc are looked at as targets only: rustdoc checks its own links, as `make lint` asks it.
    """
    folder = folder.resolve()
    pages: dict[Path, Page] = {}
    wrong = []

    def page(path: Path) -> Page:
        if path not in pages:
            pages[path] = Page(path.read_text())
        return pages[path]

    for path in sorted(folder.rglob("*.html")):
        name = path.relative_to(folder).as_posix()
        if name.startswith("reference/rust/"):
            continue
        for link, fetched in page(path).links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if fetched and parts.scheme != "data":
                    wrong.append(f"{name}: asks the network for {link}")
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            if target.is_dir():
                target /= "index.html"
            if any(target.is_relative_to(folder / left) for left in without):
                continue
            if not target.is_relative_to(folder) or not target.is_file():
                wrong.append(f"{name}: {link} leads nowhere")
            elif anchor and target.suffix == ".html" and anchor not in page(target).anchors:
                wrong.append(f"{name}: {link} leads to a page without that place")
    for path in sorted(folder.rglob("*.css")):
        for address in re.findall(r"""(?:url\(|@import )["']?(https?:[^"')]+|//[^"')]+)""", path.read_text()):
            wrong.append(f"{path.relative_to(folder)}: asks the network for {address}")
    return wrong


if __name__ == "__main__":
    found = site(Path(sys.argv[1]))
    print(*found, sep="\n")
    sys.exit(bool(found))
