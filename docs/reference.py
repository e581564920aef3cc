"""Makes the pages of the Python reference, from signatures and docstrings as they stand in the sources.

Nothing is imported: what Rust defines is read from its stub, where signatures have types, and whose
docstrings a test holds against the module; the rest from its Python files. So the reference is the same
wherever it is made, with or without torch. docs/python.md says which names there are, under which heading: a
page for each.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

from sphinx.ext.napoleon import Config, GoogleDocstring

PACKAGE = Path(__file__).resolve().parent.parent / "bindings" / "python" / "python" / "lowtide"
# Where the names of each module are defined.
SOURCES = {
    "lowtide": ["_lowtide.pyi", "_watch.py"],
    "lowtide.torch": ["torch.py", "_map_datasets.py"],
    "lowtide.pytest_plugin": ["pytest_plugin.py"],
}
GOOGLE = Config(napoleon_google_docstring=True, napoleon_use_rtype=False)
Definition = ast.FunctionDef | ast.ClassDef


def listed(page: str) -> dict[str, list[str]]:
    """Give the names that docs/python.md lists, by the headings under which they stand."""
    sections = re.split(r"^## ", page, flags=re.M)[1:]
    return {s.split("\n", 1)[0]: re.findall(r"^- `([\w.]+)`", s, re.M) for s in sections}


def slug(heading: str) -> str:
    """Give the name of a heading's page."""
    return re.sub(r"\W+", "-", heading.lower()).strip("-")


def pages(page: str) -> dict[str, str]:
    """Give the pages of the reference by their paths."""
    return {f"python/{slug(heading)}.rst": one(heading, names) for heading, names in listed(page).items()}


def tree(made: dict[str, str]) -> str:
    """Give what makes Sphinx list them below docs/python.md."""
    names = [name.removesuffix(".rst") for name in made if name.startswith("python/")]
    return "\n```{toctree}\n:hidden:\n\n" + "\n".join(names) + "\n```\n"


def one(heading: str, names: list[str]) -> str:
    """Give a page with everything that is known of these names."""
    lines = [heading, "=" * len(heading), ""]
    for name in names:
        module, _, last = name.rpartition(".")
        found, aliases = definitions(module)
        lines += [name, "-" * len(name), "", f".. py:currentmodule:: {module}", ""]
        lines += described(last, found[last], aliases)
    return "\n".join(lines) + "\n"


def definitions(module: str) -> tuple[dict[str, list[Definition]], dict[str, ast.expr]]:
    """Give what the sources of a module define, with all overloads, and what private names stand for."""
    found: dict[str, list[Definition]] = {}
    aliases: dict[str, ast.expr] = {}
    for source in SOURCES[module]:
        for node in ast.parse((PACKAGE / source).read_text()).body:
            if isinstance(node, Definition):
                found.setdefault(node.name, []).append(node)
                if isinstance(node, ast.ClassDef) and "TypedDict" in map(named, node.bases):
                    aliases[node.name] = ast.Name("dict")
            elif isinstance(node, ast.AnnAssign) and named(node.annotation) == "TypeAlias" and node.value:
                aliases[named(node.target)] = node.value
            elif isinstance(node, ast.Assign) and named(node.targets[0]) in ("Paths", "_Pair", "_Arrays"):
                aliases[named(node.targets[0])] = node.value
    aliases["_Path"] = ast.parse("str | PathLike", mode="eval").body  # bytes, too
    return found, aliases


def named(node: ast.expr) -> str:
    """Give the last name of an expression: that of `pytest.fixture` is `fixture`."""
    return getattr(node, "attr", getattr(node, "id", ""))


def described(name: str, nodes: list[Definition], aliases: dict[str, ast.expr]) -> list[str]:
    """Give the directive of a function, a class with its members, a method or a property."""
    node, doc = chosen(nodes), next((d for d in map(ast.get_docstring, nodes) if d), "")
    body = str(GoogleDocstring(prose(inspect.cleandoc(doc)), GOOGLE)).splitlines()
    options: list[str] = []
    if isinstance(node, ast.ClassDef):
        kind, members = "class", parts(node)
        makers = [part for maker in ("__init__", "__new__") for part in members.get(maker, [])]
        # What only we make has no signature that a user needs.
        public = makers and not {"recording", "files"} & {argument.arg for argument in makers[0].args.args}
        head = name + (signature(makers[0], aliases) if public else "")
        for member, several in members.items():
            if member[0] != "_" and any(map(ast.get_docstring, several)):
                body += ["", *described(member, several, aliases)]
    elif "property" in map(named, node.decorator_list):
        kind, head = "property", name
        options = [f"   :type: {typed(node.returns, aliases)}"] if node.returns else []
    elif "fixture" in map(named, node.decorator_list):
        kind, head = "data", name
    else:
        first = node.args.args[0].arg if node.args.args else ""
        kind = "method" if first == "self" else "function"
        head = name + signature(node, aliases)
    return [f".. py:{kind}:: {head}", *options, "", *textwrap.indent("\n".join(body), "   ").splitlines(), ""]


def literal(code: re.Match[str]) -> str:
    """Give code in two backticks; a letter right behind it has to be kept apart, unseen."""
    return f"``{code[1]}``" + ("\\ " if code[2] else "")


def prose(doc: str) -> str:
    """Give a docstring as Sphinx wants it: code in two backticks, the words of an argument as a list."""
    lines: list[str] = []
    item = ""  # how far the words of the list are indented, if we are in one
    for line in doc.splitlines():
        indent = line[: len(line) - len(line.lstrip())]
        if line.lstrip().startswith((">>>", "...")):
            lines.append(line)
            continue
        line = re.sub(r"(?<![`:])`([^`]+)`(?!`)(?=(\w?))", literal, line)
        line = line.replace('"*', '"\\*')
        if re.match(r' {8,}"\w+": ', line):
            lines += [] if item == indent else [""]
            item = indent
            lines.append(f"{indent}- {line.lstrip()}")
        elif item and indent == item:
            lines.append(f"  {line}")
        else:
            item = ""
            lines.append(line)
    return "\n".join(lines)


def parts(node: ast.ClassDef) -> dict[str, list[Definition]]:
    """Give the methods and properties of a class, each with its overloads; setters are left out."""
    found: dict[str, list[Definition]] = {}
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and "setter" not in map(named, part.decorator_list):
            found.setdefault(part.name, []).append(part)
    return found


def chosen(nodes: list[Definition]) -> Definition:
    """Give the overload that says most: the one with the most arguments, the first of several."""
    if isinstance(nodes[0], ast.ClassDef):
        return nodes[0]
    overloads = [node for node in nodes if "overload" in map(named, node.decorator_list)]
    return max(overloads or nodes, key=lambda node: len(node.args.args + node.args.kwonlyargs))


def signature(node: ast.FunctionDef, aliases: dict[str, ast.expr]) -> str:
    """Give a signature with its types, without `self` and what is private."""
    node = ast.parse(ast.unparse(node)).body[0]  # a copy
    given = node.args
    given.args = [argument for argument in given.args if argument.arg not in ("self", "cls")]
    kept = [(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True) if a.arg[0] != "_"]
    given.kwonlyargs, given.kw_defaults = [a for a, _ in kept], [d for _, d in kept]
    for argument in [*given.posonlyargs, *given.args, *given.kwonlyargs]:
        if argument.annotation is not None:
            argument.annotation = ast.Name(typed(argument.annotation, aliases))
    maker = node.name in ("__init__", "__new__")
    back = "" if node.returns is None or maker else f" -> {typed(node.returns, aliases)}"
    return f"({ast.unparse(given)}){back}"


def typed(annotation: ast.expr, aliases: dict[str, ast.expr]) -> str:
    """Give a type in the reader's words: private names are what they stand for."""

    class Spelled(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.expr:
            return ast.Name(typed(aliases[node.id], aliases)) if node.id in aliases else node

    spelled = ast.unparse(Spelled().visit(ast.parse(ast.unparse(annotation), mode="eval").body))
    # Overloads tell the two apart; a reader sees one function.
    return spelled.replace("Literal[False]", "bool")
