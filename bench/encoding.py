"""How quickly one core turns text into tokens: ours and Python's tiktoken, in turns, on Python's standard library.

Run as ``python bench/encoding.py [NAME...]``, with tiktoken installed. Both sides encode the same texts, one after the
other, on one core; they take turns, so that other load meets both. The time is the processor's, from the kernel.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "crates/lowtide-text/tests/oracle"))
from token_oracles import binary, standard_library, tiktoken_encoding

ROUNDS = 7


def processor_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def compare(name: str, texts: list[str], file: Path) -> None:
    theirs = tiktoken_encoding(name)
    size = sum(len(text.encode()) for text in texts) / 1e6
    ours = subprocess.Popen(
        [binary(), name, "--time", file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert ours.stdin
    assert ours.stdout
    rust, python = [], []
    for turn in range(ROUNDS + 1):
        start = processor_seconds(ours.pid)
        ours.stdin.write("\n")
        ours.stdin.flush()
        count = int(ours.stdout.readline().split()[1])
        used = processor_seconds(ours.pid) - start
        if turn:  # the first warms up
            rust.append(size / used)
        start = time.thread_time()
        tokens = sum(len(theirs.encode_ordinary(text)) for text in texts)
        if turn:
            python.append(size / (time.thread_time() - start))
        assert tokens == count, "both sides give the same tokens"
    ours.stdin.close()
    ours.wait()
    both = statistics.median(rust), statistics.median(python)
    print(
        f"{name:14} {size:6.1f} MB  lowtide {both[0]:6.1f} MB/s  tiktoken {both[1]:5.1f} MB/s  {both[0] / both[1]:5.1f}×"
    )


def main() -> None:
    texts = [text.replace("\0", " ") for text in standard_library()]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "texts")
        file.write_text("\0".join(texts), newline="")
        for name in sys.argv[1:] or ["gpt2", "cl100k_base", "o200k_base"]:
            compare(name, texts, file)


if __name__ == "__main__":
    main()
