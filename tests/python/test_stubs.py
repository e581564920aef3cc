"""The stubs say what the module does: checked by mypy itself."""

import importlib.resources
import inspect
import subprocess
import sys

import pytest

import lowtide


@pytest.mark.heavy
def test_stubs_match_the_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "lowtide._lowtide"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.heavy
def test_a_users_program_is_checked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import lowtide\n"
        "a = lowtide.open('rows.npy', budget='64MiB', access='read')\n"
        "reveal_type(a.shape)\n"
        "for rows, chunk in a.shuffled(4096, seed=1, with_rows=True):\n"
        "    print(rows, chunk)\n"
        "lowtide.open('rows.npy', access='fast')\n"
        "both = lowtide.zip(a, a)\n"
        "for one in a.chunks(5): reveal_type(one)\n"
        "for one in a.shuffled(5, seed=None, repeat=True): reveal_type(one)\n"
        "for two in both.chunks(5): reveal_type(two)\n"
        "for at, two in both.shuffled(5, with_rows=True): reveal_type(two)\n"
        "kept: lowtide.Chunks[object] = a.chunks(5)\n"
        "reveal_type(kept.state_dict()['blocks'])\n"
        "loader = lowtide.tokens('train.bin').loader(4, 64, repeat=True)\n"
        "for x, y in loader: reveal_type(x)\n"
        "reveal_type(loader.state_dict()['order'])\n"
        "reveal_type(tuple(a.chunks))\n"
        "reveal_type(a.chunks[0])\n"
        "reveal_type(a.chunks.index(4))\n"
        "for one in lowtide.Array.chunks(a, 5): reveal_type(one)\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    assert 'Revealed type is "tuple[int, ...]"' in said.replace("builtins.", "")
    assert "Found 1 error" in said, said
    assert "program.py:6: error" in said
    array = "numpy.ndarray[tuple[Any, ...], numpy.dtype[Any]]"
    revealed = [
        line.split('"')[1].replace("builtins.", "") for line in said.splitlines() if "Revealed" in line
    ]
    assert revealed[1:] == [
        array,
        array,
        f"tuple[{array}, ...]",
        f"tuple[{array}, ...]",
        "list[int] | None",
        array,
        "Literal['shuffled'] | Literal['sequential'] | Literal['with_replacement']",
        "tuple[int, ...]",
        "int",
        "int",
        array,
    ]


def test_every_default_is_shown():
    """What Rust cannot write as Python would be shown as three dots, as help() says then; no stub matches."""
    module = lowtide._lowtide
    callables = {name: getattr(module, name) for name in dir(module)}
    for name, item in list(callables.items()):
        if inspect.isclass(item):
            callables |= {f"{name}.{part}": getattr(item, part) for part in dir(item) if part[0] != "_"}
    seen = 0
    for name, item in callables.items():
        try:
            parameters = inspect.signature(item).parameters.values()
        except (TypeError, ValueError):
            continue  # no callable, or one of Python's own
        seen += 1
        assert ... not in [parameter.default for parameter in parameters], name
    assert seen > 60


def test_the_package_is_typed_and_names_what_is_public():
    assert importlib.resources.files("lowtide").joinpath("py.typed").is_file()
    public = {name for name in dir(lowtide) if not name.startswith("_")}
    assert public >= {"Array", "Budget", "Chunks", "Zip", "open", "release", "zip"}
    assert set(lowtide.__all__) <= set(dir(lowtide))
