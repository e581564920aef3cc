"""Builds the site: `make docs`, or `python docs/build.py [--no-rust] [OUT]`.

The pages are Markdown that reads well on a forge as it stands: links go to files, the list of pages is a
list. So they are gathered first, in OUT/source: those of docs/, those at the root of the repository, one for
each run that is kept in bench/runs, and the Python reference. On the way a link to a file becomes a link to
its page, and one to a file without a page a link to the repository. Sphinx makes OUT/html of them, rustdoc's
pages go beside them, and docs/check.py goes through all of it: a link that leads nowhere or to the network is
an error, and so is a warning of Sphinx's.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import check
import reference

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FORGE = "https://github.com/lowtide/lowtide"
# Pages that live elsewhere, where a forge looks for them.
ELSEWHERE = {
    "BENCHMARKS.md": "benchmarks.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "README.md": "overview.md",
    "crates/lowtide/src/lib.rs": "rust:lowtide/index.html",
    "crates/lowtide-text/src/lib.rs": "rust:lowtide_text/index.html",
}
FENCE = re.compile(r"^(```|~~~).*?^\1", re.M | re.S)
LINK = re.compile(r"(\]\()([^)\s]+)(\))")
ENTRY = re.compile(r"^- \[([^]]+)\]\(([^)#\s]+)\.md\)", re.M)


def places() -> dict[str, str]:
    """Say where each file of the repository that has a page has it."""
    pages = {f"docs/{page.name}": page.name for page in HERE.glob("*.md")}
    runs = {f"bench/runs/{run.name}": f"runs/{run.name}.md" for run in (ROOT / "bench" / "runs").iterdir()}
    return {**pages, **ELSEWHERE, **runs}


def moved(text: str, old: str, new: str, known: dict[str, str]) -> str:
    """Give a page's text with its links made for its new place; code stays as it is."""

    def link(found: re.Match[str]) -> str:
        target, _, anchor = found[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        path = os.path.normpath(os.path.join(os.path.dirname(old), target))
        anchor = f"#{anchor}" if anchor else ""
        if known.get(path, "").startswith("rust:"):
            place = known[path]
        elif path in known:
            place = os.path.relpath(known[path], os.path.dirname(new) or ".")
        elif (ROOT / path).suffix == ".svg":
            place = os.path.relpath(os.path.basename(path), os.path.dirname(new) or ".")
        else:
            place = f"{FORGE}/{'tree' if (ROOT / path).is_dir() else 'blob'}/main/{path}"
        return f"{found[1]}{place}{anchor}{found[3]}"

    parts, end = [], 0
    for fence in FENCE.finditer(text):
        parts += [LINK.sub(link, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, LINK.sub(link, text[end:])])


def with_tree(index: str) -> str:
    """Give the first page with what Sphinx calls its toctrees: the lists under its headings."""
    trees = []
    for section in re.split(r"^## ", index, flags=re.M)[1:]:
        entries = "\n".join(f"{title} <{page}>" for title, page in ENTRY.findall(section))
        if entries:
            caption = section.split("\n", 1)[0]
            trees.append(f"\n```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{entries}\n```\n")
    return index + "".join(trees)


def run_page(run: Path) -> str:
    """Give the page of a run: what it said, and all of its files."""
    files = sorted(file.name for file in run.iterdir())
    links = " · ".join(f"[{name}]({run.name}/{name})" for name in files)
    summary = run / "summary.txt"
    said = f"\n```text\n{summary.read_text()}```\n" if summary.exists() else ""
    return f"---\norphan: true\n---\n# The run {run.name}\n\nAs it was kept: {links}\n{said}"


def gather(source: Path) -> None:
    """Lay all pages into one folder; what has not changed stays, so that Sphinx need not read it again."""
    known = places()
    pages: dict[str, str] = {}
    for old, new in known.items():
        if (ROOT / old).is_dir():
            pages[new] = run_page(ROOT / old)
        elif old.endswith(".md"):
            pages[new] = moved((ROOT / old).read_text(), old, new, known)
    pages["index.md"] = with_tree(pages["index.md"])
    pages |= reference.pages(pages["python.md"])
    pages["python.md"] += reference.tree(pages)
    for name, text in pages.items():
        put(source / name, text.encode())
    for drawing in HERE.glob("*.svg"):
        put(source / drawing.name, drawing.read_bytes())
    for file in (ROOT / "bench" / "runs").glob("*/*"):
        put(source / "runs" / file.parent.name / file.name, file.read_bytes())
    wanted = {*pages, *(d.name for d in HERE.glob("*.svg"))}
    for file in [*source.glob("*.*"), *source.glob("*/*.md"), *source.glob("*/*.rst")]:
        if str(file.relative_to(source)) not in wanted:
            file.unlink()


def put(path: Path, content: bytes) -> None:
    """Write a file, unless it says that already."""
    if not path.exists() or path.read_bytes() != content:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def sphinx(out: Path) -> None:
    """Make the pages; every warning is an error."""
    command = [sys.executable, "-m", "sphinx", "-q", "-n", "-W", "--keep-going", "-j", "auto", "-b", "html"]
    command += ["-c", str(HERE), "-d", str(out / "doctrees"), str(out / "source"), str(out / "html")]
    subprocess.run(command, check=True)


def rust(html: Path) -> None:
    """Lay rustdoc's pages of the core beside the others."""
    command = ["cargo", "doc", "--no-deps", "--quiet", "--package", "lowtide", "--package", "lowtide-text"]
    # The flags of `make lint`: with others rustdoc would begin anew.
    subprocess.run(command, check=True, cwd=ROOT, env={**os.environ, "RUSTDOCFLAGS": "-D warnings"})
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc"
    place = html / "reference" / "rust"
    shutil.rmtree(place, ignore_errors=True)
    crates = ["lowtide", "lowtide_text"]
    for folder in [*crates, *(f"src/{name}" for name in crates), "static.files", "trait.impl", "type.impl"]:
        if (target / folder).exists():
            shutil.copytree(target / folder, place / folder)
    for file in target.glob("*.*"):
        if file.is_file():
            shutil.copy(file, place / file.name)


def main() -> None:
    """Build, and check what was built."""
    parser = argparse.ArgumentParser(description="Builds the site.")
    parser.add_argument("out", nargs="?", type=Path, default=HERE / "_build", help="where (docs/_build)")
    parser.add_argument("--no-rust", action="store_true", help="leave out the Rust reference")
    asked = parser.parse_args()
    gather(asked.out / "source")
    sphinx(asked.out)
    if not asked.no_rust:
        rust(asked.out / "html")
    wrong = check.site(asked.out / "html", without=("reference/rust/",) if asked.no_rust else ())
    if wrong:
        sys.exit("\n".join([*wrong, f"{len(wrong)} links are wrong"]))
    print(f"{asked.out / 'html' / 'index.html'}")


if __name__ == "__main__":
    main()
