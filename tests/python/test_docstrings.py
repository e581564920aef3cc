"""What ``help`` and an editor say of every public name: it is there, it is the same, and its examples run."""

from __future__ import annotations

import ast
import doctest
import html
import inspect
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import lowtide
import lowtide._lowtide

SCRIPT = Path(__file__).parents[2] / "bindings" / "python" / "stub_docs.py"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> dict[str, object]:
    """Every public name of the package, and every public member of its classes."""
    found: dict[str, object] = {}
    for name in lowtide.__all__:
        if name != "__version__":
            value = found[name] = getattr(lowtide, name)
            parts = sorted(part for part in vars(value) if part[0] != "_") if inspect.isclass(value) else []
            found |= {f"{name}.{part}": getattr(value, part) for part in parts}
    return found


NAMES = public()
CALLED = [name for name, value in NAMES.items() if callable(value)]
# Those of watch run in a process of their own: test_watch_python.py.
EXAMPLES = [name for name in CALLED if name.split(".")[0] not in ("watch", "Watch", "Report")]


@pytest.fixture
def files(tmp_path, monkeypatch):
    """A folder with the files that the examples name."""
    monkeypatch.chdir(tmp_path)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    rows = np.arange(128_000, dtype="float32").reshape(1000, 128)
    np.save("rows.npy", rows)
    np.save("labels.npy", np.arange(1000))
    rows.tofile("rows.bin")
    Path("story.txt").write_text("Once upon a time\nthere was a tide, and it was low\n")
    for split in ("train", "val"):
        (np.arange(200_000) * 7919 % 50257).astype("<u2").tofile(f"{split}.bin")


def run(name: str, doc: str) -> int:
    """Run the examples of a docstring: how many lines there were."""
    test = doctest.DocTestParser().get_doctest(doc, {"lowtide": lowtide}, name, None, 0)
    said: list[str] = []
    result = doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.append)
    assert result.failed == 0, "".join(said)
    return result.attempted


def test_the_names_are_found():
    assert {"open", "tokens", "watch", "Array.chunks", "Tokens.loader", "Report.to_html"} <= set(CALLED)
    assert {"Array.shape", "Tokens.documents", "Watch.report"} <= set(NAMES) - set(CALLED)


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_explained(name):
    doc = inspect.cleandoc(NAMES[name].__doc__ or "")
    first = doc.split("\n\n")[0]
    assert re.search(r"[.:]$", first), f"{name} begins: {first!r}"
    if name in CALLED:
        assert ">>> " in doc, f"{name} has no example"


@pytest.mark.parametrize("name", [name for name in CALLED if not inspect.isclass(NAMES[name])])
def test_every_argument_is_explained(name):
    doc = inspect.cleandoc(NAMES[name].__doc__ or "")
    for argument in inspect.signature(NAMES[name]).parameters:
        if argument != "self" and argument[0] != "_":
            assert re.search(rf"^    (\w+, )?{argument}\b.*: ", doc, re.M), (
                f"{name} does not explain {argument}"
            )


SOURCES = ["_lowtide.pyi", "_watch.py", "torch.py", "_map_datasets.py", "pytest_plugin.py"]


def defined(source: str) -> dict[str, ast.FunctionDef]:
    """The public functions and methods of a source, by name; read, not imported: torch is not needed."""
    found: dict[str, ast.FunctionDef] = {}
    private = {"Meter", "Recording", "Watched", "main", "parse_interval", "parse_size", "pytest_runtest_call"}
    for node in ast.parse((SCRIPT.parent / "python" / "lowtide" / source).read_text()).body:
        parts = node.body if isinstance(node, ast.ClassDef) else []
        if (
            isinstance(node, ast.FunctionDef | ast.ClassDef)
            and node.name not in private
            and node.name[0] != "_"
        ):
            for part in [node, *parts]:
                name = part.name if part is node else f"{node.name}.{getattr(part, 'name', '_')}"
                if isinstance(part, ast.FunctionDef) and "._" not in name and ast.get_docstring(part):
                    found[name] = part
    return found


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_given_back_is_explained(source):
    for name, node in defined(source).items():
        given = ast.unparse(node.returns) if node.returns else "None"
        plain = {getattr(mark, "id", getattr(mark, "attr", "")) for mark in node.decorator_list}
        if given != "None" and not plain & {"property", "fixture", "setter"}:
            assert re.search(r"^Returns:$", ast.get_docstring(node), re.M), f"{source}: {name} gives {given}"


@pytest.mark.parametrize("source", SOURCES)
def test_every_argument_of_every_class_and_method_is_explained(source):
    tree = ast.parse((SCRIPT.parent / "python" / "lowtide" / source).read_text())
    makers = {
        node.name: (ast.get_docstring(node), part)
        for node in tree.body
        if isinstance(node, ast.ClassDef)
        and node.name[0] != "_"
        and node.name not in ("Meter", "Report", "Watch")
        for part in node.body
        if isinstance(part, ast.FunctionDef) and part.name in ("__init__", "__new__")
    }
    known = {name: (ast.get_docstring(node), node) for name, node in defined(source).items()}
    for name, (doc, node) in {**makers, **known}.items():
        for argument in [*node.args.args, *node.args.kwonlyargs]:
            if argument.arg not in ("self", "cls") and argument.arg[0] != "_":
                explained = re.search(rf"^    (\w+, )?{argument.arg}\b.*: ", doc, re.M)
                setter = any(getattr(mark, "attr", "") == "setter" for mark in node.decorator_list)
                assert explained or setter, f"{source}: {name} does not explain {argument.arg}"


def test_open_is_enough_to_use_it():
    doc = lowtide.open.__doc__
    with pytest.raises(ValueError, match="not a way of access") as caught:
        lowtide.open("rows.npy", access="none")
    ways = re.findall(r'"(\w+)"', str(caught.value).split("hint: ")[1])
    assert len(ways) == 6
    for word in [*ways, "keep", "drop"]:
        assert f'        "{word}": ' in doc, word
    assert "256 MiB" in doc
    assert "lowtide.Budget" in doc


def test_every_attribute_of_a_report_is_explained():
    with lowtide.watch(files=()) as w:
        pass
    for name in vars(w.report):
        if name[0] != "_":
            assert re.search(rf"^    {name}: ", inspect.cleandoc(lowtide.Report.__doc__), re.M), name


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_run(name, files):
    assert run(name, inspect.cleandoc(NAMES[name].__doc__)) > 0


def test_the_examples_of_the_package_run(files):
    assert run("lowtide", lowtide.__doc__) >= 4


@pytest.mark.heavy
@pytest.mark.filterwarnings("default")  # torch's are not ours
def test_the_examples_with_torch_run(files):
    pytest.importorskip("torch")
    import lowtide.torch

    assert run("lowtide.torch", lowtide.torch.__doc__) >= 3
    for name in lowtide.torch.__all__:
        value = getattr(lowtide.torch, name)
        assert run(f"lowtide.torch.{name}", inspect.cleandoc(value.__doc__)) > 0, name
        for part, method in vars(value).items() if inspect.isclass(value) else ():
            if part[0] != "_" and inspect.isfunction(method):
                assert run(f"lowtide.torch.{name}.{part}", inspect.cleandoc(method.__doc__)) > 0, part


@pytest.mark.heavy
@pytest.mark.filterwarnings("default")  # Ray's are not ours
def test_the_names_for_ray_are_explained_and_their_examples_run(files):
    ray = pytest.importorskip("ray.data", reason="Ray is not installed") and sys.modules["ray"]
    import lowtide.ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=256 << 20)
    try:
        assert run("lowtide.ray", lowtide.ray.__doc__) >= 4
        for name in lowtide.ray.__all__:
            function = getattr(lowtide.ray, name)
            doc = inspect.cleandoc(function.__doc__)
            assert run(f"lowtide.ray.{name}", doc) > 0, name
            for argument in inspect.signature(function).parameters:
                assert re.search(rf"^    {argument}: ", doc, re.M), f"{name} does not explain {argument}"
    finally:
        ray.shutdown()


def test_the_stub_says_the_same():
    script = runpy.run_path(str(SCRIPT))
    stub = script["STUB"].read_text()
    docs = script["docs"](lowtide._lowtide)
    assert {name for name in NAMES if name.split(".")[0] not in ("watch", "Watch", "Report")} <= set(docs)
    assert script["with_docs"](stub, docs) == stub, f"the stub is old: run {SCRIPT.name}"
    # As an editor sees it: every definition of a name has its words, each overload too.
    for name, node in script["definitions"](ast.parse(stub)):
        if name in docs:
            assert ast.get_docstring(node) == docs[name], name


def test_a_stub_gets_its_words_and_loses_old_ones():
    with_docs = runpy.run_path(str(SCRIPT))["with_docs"]
    stub = (
        'class A:\n    @property\n    def b(self) -> int: ...\n    def c(self) -> None:\n        """Old."""\n'
    )
    new = with_docs(stub, {"A": "An a.\n\n>>> A()", "A.b": "The b.", "A.c": "New."})
    names = {}
    exec(new, names)
    assert inspect.getdoc(names["A"]) == "An a.\n\n>>> A()"
    assert (names["A"].b.__doc__, names["A"].c.__doc__) == ("The b.", "New.")
    assert "Old" not in new
    assert "..." not in new


def cells(page: str) -> dict[str, str]:
    """What a table of a notebook says, by name."""
    rows = re.findall(r"<tr><th[^>]*>(.*?)</th><td[^>]*>(.*?)</td></tr>", page)
    return {name: html.unescape(value) for name, value in rows}


def test_a_notebook_shows_an_array(files):
    a = lowtide.open("rows.npy", budget="64MiB", access="read", cache="drop")
    said = cells(a._repr_html_())
    assert said == {
        "path": str(Path("rows.npy").resolve()),
        "shape": "(1000, 128)",
        "dtype": "float32",
        "size": "500 KiB",
        "access": "read",
        "cache": "drop",
        "budget": "64 MiB",
    }
    a.close()
    assert cells(a._repr_html_()) == {**said, "closed": "yes"}


def test_a_notebook_shows_tokens(files):
    t = lowtide.tokens("train.bin", end_of_text=50256)
    said = cells(t._repr_html_())
    assert said["tokens"] == "200000"
    assert (said["format"], said["dtype"], said["size"]) == ("nanogpt", "uint16", "391 KiB")
    assert "documents" not in said  # which would take a pass over all tokens
    count = str(t.documents)
    assert cells(t._repr_html_())["documents"] == count
    t.remember_documents()
    assert cells(lowtide.tokens("train.bin", end_of_text=50256)._repr_html_())["documents"] == count


def test_a_notebook_names_a_few_of_many_files(tmp_path):
    for number in range(9):
        np.arange(64, dtype="<u2").tofile(tmp_path / f"{number}.bin")
    said = cells(lowtide.tokens(tmp_path, dtype="uint16")._repr_html_())
    assert said["files"].count(".bin") == 3
    assert said["files"].endswith(", and 6 more")


def test_the_name_of_a_file_is_no_html(tmp_path):
    name = "<img src=x onerror=alert(1)>&\"'<!--"
    (tmp_path / name).write_bytes(bytes(64))
    np.arange(64, dtype="<u2").tofile(tmp_path / f"{name}.bin")
    array = lowtide.open(tmp_path / name, dtype="uint8")._repr_html_()
    tokens = lowtide.tokens([tmp_path / f"{name}.bin"], dtype="uint16")._repr_html_()
    for page in (array, tokens):
        assert set(re.findall(r"<(\w+|!)", page)) == {"div", "strong", "table", "tr", "th", "td"}
    assert cells(array)["path"] == str(tmp_path / name)
    assert cells(tokens)["file"] == str(tmp_path / f"{name}.bin")


def test_help_prints(files):
    said = subprocess.run(
        [sys.executable, "-c", "import lowtide; help(lowtide.open); help(lowtide.Array.shuffled)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "access='auto'" in said
    assert "with_rows: Gives" in said
