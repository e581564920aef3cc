"""Says whether the wheels are what their names say: one for each machine, for every CPython from 3.11 on.

python wheels/check.py dist/*.whl
"""

import re
import subprocess
import sys
import zipfile
from io import BytesIO
from pathlib import Path

from elftools.elf.elffile import ELFFile

MODULE = "lowtide/_lowtide.abi3.so"
MACHINES = {"x86_64": ("EM_X86_64", 4 << 10), "aarch64": ("EM_AARCH64", 64 << 10)}  # and the largest page


def check(wheel: Path) -> str:
    """Check one wheel, and name the machine that it is for."""
    version, python, abi, platform = wheel.stem.split("-")[1:]
    machine = platform.removeprefix("manylinux_2_28_")
    assert (python, abi) == ("cp311", "abi3"), f"{wheel.name}: for {python} and {abi} only"
    assert machine in MACHINES, f"{wheel.name}: for {platform}"
    with zipfile.ZipFile(wheel) as files:
        about = f"lowtide-{version}.dist-info"
        tags = re.findall("^Tag: (.*)$", files.read(f"{about}/WHEEL").decode(), re.M)
        assert tags == [f"{python}-{abi}-{platform}"], f"{wheel.name}: WHEEL says {tags}"
        metadata = files.read(f"{about}/METADATA").decode()
        for line in (f"Version: {version}", "Requires-Python: >=3.11", "Requires-Dist: numpy>=1.26"):
            assert f"\n{line}\n" in metadata, f"{wheel.name}: METADATA lacks {line}"
        names = files.namelist()
        for name in ("lowtide/py.typed", "lowtide/_lowtide.pyi", f"{about}/licenses/LICENSE-MIT"):
            assert name in names, f"{wheel.name}: {name} is missing"
        native = [name for name in names if name.endswith(".so")]
        assert native == [MODULE], f"{wheel.name}: native code is {native}"
        module = ELFFile(BytesIO(files.read(MODULE)))
    kind, page = MACHINES[machine]
    assert module["e_machine"] == kind, f"{wheel.name}: code for {module['e_machine']}"
    # A kernel with larger pages than the segments are aligned to cannot load it.
    aligned = min(segment["p_align"] for segment in module.iter_segments("PT_LOAD"))
    assert aligned >= page, f"{wheel.name}: segments aligned to {aligned}, and pages may have {page}"
    # auditwheel reads the symbols that are asked of glibc: a wheel that says 2_28 and needs 2.34 installs and
    # does not import.
    says = subprocess.run(["auditwheel", "show", wheel], check=True, capture_output=True, text=True).stdout
    assert f'platform tag: "{platform}"' in " ".join(says.split()), f"auditwheel finds otherwise:\n{says}"
    print(f"{wheel.name}: {kind}, {platform}, {wheel.stat().st_size / 1e6:.1f} MB")
    return machine


found = sorted(check(Path(wheel)) for wheel in sys.argv[1:])
assert found == sorted(MACHINES), f"there should be one wheel for each of {sorted(MACHINES)}, not {found}"
