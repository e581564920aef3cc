"""The stubs say what the module does: checked by mypy itself."""

import importlib.resources
import subprocess
import sys

import lowtide


def test_stubs_match_the_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "lowtide._lowtide"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_users_program_is_checked(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "import lowtide\n"
        "a = lowtide.open('rows.npy', budget='64MiB', access='read')\n"
        "reveal_type(a.shape)\n"
        "for rows, chunk in a.shuffled(4096, seed=1, with_rows=True):\n"
        "    print(rows, chunk)\n"
        "lowtide.open('rows.npy', access='fast')\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", str(program)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path).stdout
    assert 'Revealed type is "tuple[int, ...]"' in said.replace("builtins.", "")
    assert "Found 1 error" in said, said
    assert "program.py:6: error" in said


def test_the_package_is_typed_and_names_what_is_public():
    assert importlib.resources.files("lowtide").joinpath("py.typed").is_file()
    public = {name for name in dir(lowtide) if not name.startswith("_")}
    assert public >= {"Array", "Budget", "Chunks", "Zip", "open", "release", "zip"}
    assert set(lowtide.__all__) <= set(dir(lowtide))
