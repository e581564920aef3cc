"""The site that `make docs` builds: its parts are current, what it names is there, mistakes are seen."""

from __future__ import annotations

import ast
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

import lowtide

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "bindings" / "python" / "python" / "lowtide"


def test_the_page_of_commands_is_what_the_command_says():
    script = runpy.run_path(str(DOCS / "commands.py"))
    assert script["PAGE"].read_text() == script["page"](), "it is old: run docs/commands.py"


def all_of(source: str) -> list[str]:
    """The names in ``__all__`` of a source, which need not be imported for it."""
    for node in ast.parse((PACKAGE / source).read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(f"{source} has no __all__")


def test_every_public_name_is_in_the_reference():
    listed = re.findall(r"^- `([\w.]+)`", (DOCS / "python.md").read_text(), re.M)
    public = {f"lowtide.{name}" for name in lowtide.__all__ if name != "__version__"}
    public |= {f"lowtide.torch.{name}" for name in all_of("torch.py")}
    public |= {"lowtide.pytest_plugin.Flat", "lowtide.pytest_plugin.lowtide_flat"}
    assert sorted(listed) == sorted(public)


def test_every_page_is_in_the_list_of_pages():
    linked = set(re.findall(r"^- \[[^]]+\]\(([^)]+)\): ", (DOCS / "index.md").read_text(), re.M))
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    assert linked == pages | {f"../{page.name}" for page in ROOT.glob("*.md")}


def test_the_tests_that_correctness_names_are_there():
    page = (DOCS / "correctness.md").read_text()
    seen = re.findall(r"seen\s+by\s(.*?)(?=\n- |\n\n)", page, re.S)
    named = {name for tests in seen for name in re.findall(r"`(\w+)`", tests)}
    sources = [*(ROOT / "tests").rglob("*.py"), *(ROOT / "crates").rglob("*.rs")]
    there = {name for s in sources for name in re.findall(r"\b(?:def|fn) (\w+)", s.read_text())}
    assert len(named) > 30
    assert named <= there


@pytest.mark.heavy
def test_code_on_the_pages_leads_to_its_explanation():
    """Links that nobody wrote: docs/crosslinks.py. `make test-all` has just built the site."""
    html = DOCS / "_build" / "html"
    if not (html / "arrays.html").exists():
        pytest.skip("the site is not built: make docs")

    def links(page: str) -> str:
        return (html / page).read_text()

    assert 'href="python/arrays.html#lowtide.Array.chunks"' in links("arrays.html")  # a.chunks
    assert 'href="python/arrays.html#lowtide.release"' in links("why.html")
    assert 'href="commands.html#lowtide-watch"' in links("why.html")
    assert 'href="runs/2026-11-17-why.html"' in links("why.html")
    assert 'href="reference/rust/lowtide/index.html"' in links("rust.html")
    for name in re.findall(r"^- `([\w.]+)`", (DOCS / "python.md").read_text(), re.M):
        assert f'#{name}"' in links("python.html"), name


@pytest.fixture
def built(tmp_path):
    """A small site without a mistake."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "style.css").write_text("p { background: url(data:image/png;base64,AA) }")
    (tmp_path / "index.html").write_text(
        '<link rel="stylesheet" href="style.css"><h1 id="top">A</h1><a href="#top">up</a>'
        '<a href="folder/other.html#there%20it%20is">other</a><a href="https://example.org/gone">elsewhere</a>'
    )
    (tmp_path / "folder" / "other.html").write_text(
        '<h2 id="there it is">B</h2><a href="../index.html">A</a>'
    )
    return tmp_path


def check(folder: Path) -> list[str]:
    answer = subprocess.run([sys.executable, DOCS / "check.py", folder], capture_output=True, text=True)
    assert answer.stderr == ""
    lines = answer.stdout.strip().splitlines()
    assert answer.returncode == bool(lines)
    return lines


def test_a_site_without_a_mistake_passes(built):
    assert check(built) == []


@pytest.mark.parametrize(
    ("html", "says"),
    [
        ('<a href="gone.html">', "gone.html leads nowhere"),
        ('<a href="../outside.html">', "../outside.html leads nowhere"),
        ('<a href="index.html#gone">', "index.html#gone leads to a page without that place"),
        ('<a href="#gone">', "#gone leads to a page without that place"),
        ('<img src="gone.svg">', "gone.svg leads nowhere"),
        (
            '<script src="https://cdn.example.org/x.js"></script>',
            "asks the network for https://cdn.example.org/x.js",
        ),
        ('<link href="//fonts.example.org/a">', "asks the network for //fonts.example.org/a"),
    ],
)
def test_a_mistake_is_seen(built, html, says):
    (built / "page.html").write_text(html)
    assert check(built) == [f"page.html: {says}"]


def test_a_style_that_asks_the_network_is_seen(built):
    (built / "style.css").write_text(
        '@import "https://fonts.example.org/a.css"; p { background: url(//x.org/b) }'
    )
    assert [line.split(" for ")[1] for line in check(built)] == [
        "https://fonts.example.org/a.css",
        "//x.org/b",
    ]
