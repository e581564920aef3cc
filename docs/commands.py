"""Writes docs/commands.md, the reference of the command, from what the command says of itself.

`python docs/commands.py` after a change of its help; a test says when that was forgotten.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).with_name("commands.md")
# Where there is more to read.
GUIDES = {
    "info": "[formats.md](formats.md) says what it recognises, [choose.md](choose.md) what follows.",
    "bench": "[bench.md](bench.md) says how it measures.",
    "watch": "[watch.md](watch.md) says how it decides.",
    "prepare": "[prepare.md](prepare.md) has inputs, tokenizers, and what a kill leaves behind.",
    "verify": "[prepare.md](prepare.md#what-is-written) says what a manifest holds.",
    "shuffle": "[shuffling.md](shuffling.md) says when a shuffled file is worth its space.",
    "convert": "[writing.md](writing.md#other-files-lowtide-convert) says what survives.",
    "cache": "[cache.md](cache.md) says what it promises.",
    "demo": "[start.md](start.md) is the five minutes after it.",
}
HEAD = """# The command

`lowtide COMMAND --help` says what stands here. It comes with the Python package; `python -m lowtide` is the
same.

What a command answers goes to stdout, as a table or with `--json`. Progress and errors go to stderr,
progress only on a terminal. A path that begins with `~` is in your home. Sizes are written like `64MiB`,
`1.5GB` or a number of bytes. Exit codes: 0 it worked, 1 it failed, 2 it was called wrongly; `watch` ends with
its command's own ([watch.md](watch.md#the-report)).
"""


def said(*arguments: str) -> str:
    """Give what the command says, as in a window of 100 columns."""
    command = [sys.executable, "-m", "lowtide", *arguments]
    surroundings = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "CLICOLOR_FORCE")}
    answer = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True).stdout
    return "\n".join(line.rstrip() for line in answer.strip().splitlines())


def page() -> str:
    """Give the page."""
    first = said("--help")
    names = re.findall(r"^  ([a-z]+) +\S", first.split("Commands:")[1].split("\n\n")[0], re.M)
    parts = [HEAD, f"```text\n{first}\n```\n"]
    for name in names:
        if name != "help":
            guide = f"{GUIDES[name]}\n\n" if name in GUIDES else ""
            parts.append(f"## `lowtide {name}`\n\n{guide}```text\n{said(name, '--help')}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
