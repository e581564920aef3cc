"""Writes the docstrings of the module into its stub, so that an editor shows them.

They are written once, in the Rust files; the stub, which editors read, has a copy. After a change of one:
``make setup && .venv/bin/python bindings/python/stub_docs.py``. A test says when that was forgotten.
"""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import lowtide._lowtide

STUB = Path(__file__).with_name("python") / "lowtide" / "_lowtide.pyi"


def docs(module: ModuleType) -> dict[str, str]:
    """Give the docstrings of a module's classes and functions and of their public members, by name."""
    found: dict[str, str] = {}
    for name, value in vars(module).items():
        if not callable(value) or name.startswith("_"):
            continue
        things = {name: value}
        if inspect.isclass(value):
            things |= {f"{name}.{part}": getattr(value, part) for part in vars(value) if part[0] != "_"}
        for known, thing in things.items():
            if thing.__doc__:
                found[known] = inspect.cleandoc(thing.__doc__)
    return found


def with_docs(stub: str, found: dict[str, str]) -> str:
    """Give the text of a stub with these docstrings, in place of those that it had."""
    lines = stub.splitlines()
    for name, node in reversed(list(definitions(ast.parse(stub)))):
        if name not in found:
            continue
        first = node.body[0]
        has = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        indent = " " * (node.col_offset + 4)
        doc = textwrap.indent(quoted(found[name]), indent).splitlines()
        if has:  # a docstring, or the dots that stand for a body
            before = lines[first.lineno - 1][: first.col_offset].rstrip()
            lines[first.lineno - 1 : first.end_lineno] = [before, *doc] if before else doc
        else:
            at = min([first.lineno, *(part.lineno for part in getattr(first, "decorator_list", []))]) - 1
            lines[at:at] = [*doc, ""]
    return formatted("\n".join(lines) + "\n")


def definitions(tree: ast.Module) -> list[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Give what a stub defines, from its top to its end, by the names that ``docs`` has for it."""
    found: list[tuple[str, ast.FunctionDef | ast.ClassDef]] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.append((node.name, node))
        if isinstance(node, ast.ClassDef):
            parts = [part for part in node.body if isinstance(part, ast.FunctionDef)]
            found += [(f"{node.name}.{part.name}", part) for part in parts]
    return found


def quoted(doc: str) -> str:
    """Give a docstring as source, the quotes on a line of their own where it has several."""
    if '"""' in doc or "\\" in doc or doc.endswith('"'):
        raise ValueError(f"this docstring would need escapes:\n{doc}")
    return f'"""{doc}\n"""' if "\n" in doc else f'"""{doc}"""'


def formatted(stub: str) -> str:
    """Give it as ruff would have it."""
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(STUB), "-"]
    return subprocess.run(command, input=stub, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    STUB.write_text(with_docs(STUB.read_text(), docs(lowtide._lowtide)))
