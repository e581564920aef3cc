"""What making a release relies on, and what would rot unseen: `make wheels` itself takes minutes."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import lowtide

ROOT = Path(__file__).parents[2]


def test_the_package_has_the_version_of_the_workspace() -> None:
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    version = manifest["workspace"]["package"]["version"]
    assert lowtide.__version__ == version
    inside = manifest["workspace"]["dependencies"]
    assert {crate["version"] for crate in inside.values() if "path" in crate} == {version}


def test_tests_that_emulators_cannot_run_exist() -> None:
    """A renamed test would be run under qemu and fail there, or stay listed for ever."""
    sources = [*ROOT.glob("crates/lowtide/src/**/*.rs"), *ROOT.glob("crates/lowtide/tests/*.rs")]
    there = {name for source in sources for name in re.findall(r"\bfn (\w+)\(\)", source.read_text())}
    lines = (ROOT / "wheels/not-under-qemu.txt").read_text().splitlines()
    listed = [line.split(maxsplit=1) for line in lines if not line.startswith("#")]
    assert all(len(line) == 2 for line in listed), "every test has its reason"
    assert {name.split("::")[-1] for name, _ in listed} <= there


def test_what_the_workflow_calls_is_there() -> None:
    workflow = (ROOT / ".github/workflows/release.yml").read_text()
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"run: make ([a-z0-9-]+)", workflow)) <= set(targets)
    scripts = re.findall(r"\bwheels/[\w.-]+", workflow + (ROOT / "Makefile").read_text())
    assert scripts
    for script in scripts:
        assert (ROOT / script).is_file(), script


@pytest.fixture(scope="module")
def build_script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("build") / "build"
    subprocess.run(["rustc", "--edition=2024", ROOT / "crates/lowtide/build.rs", "-o", program], check=True)
    return program


@pytest.mark.parametrize(
    ("system", "width", "refused"),
    [("linux", "64", False), ("linux", "32", True), ("macos", "64", True), ("windows", "64", True)],
)
def test_other_systems_are_refused(system: str, width: str, refused: bool, build_script: Path) -> None:
    cargo = {"CARGO_CFG_TARGET_OS": system, "CARGO_CFG_TARGET_POINTER_WIDTH": width}
    environment = os.environ | cargo | {"TARGET": f"any-{system}"}
    says = subprocess.run([build_script], check=True, capture_output=True, text=True, env=environment).stdout
    assert ("cargo::error=" in says) == refused
    if refused:
        assert f"cannot be built for any-{system} (hint: on Windows use WSL 2" in says
