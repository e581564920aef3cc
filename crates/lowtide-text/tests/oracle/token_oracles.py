"""Python's tiktoken without its downloads, and the Rust tokenizers behind a pipe.

tiktoken fetches its vocabularies; here they come from the Rust side, and count only if their SHA-256 is the
one that the package carries. Run as a program, this prints the golden file of the Rust tests::

    python tests/python/token_oracles.py > crates/lowtide-text/tests/valid/tiktoken.jsonl
"""

import base64
import functools
import hashlib
import json
import random
import struct
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[4]


@functools.cache
def binary() -> Path:
    """The example program that encodes, built as the tests are."""
    build = "cargo build --release --quiet -p lowtide-text --features huggingface --example encode"
    subprocess.run(build.split(), cwd=ROOT, check=True)
    return ROOT / "target/release/examples/encode"


class Rust:
    """A tokenizer of the Rust side."""

    def __init__(self, name: str) -> None:
        self.pipe = subprocess.Popen([binary(), name], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> "Rust":
        return self

    def __exit__(self, *_: object) -> None:
        assert self.pipe.stdin
        assert self.pipe.stdout
        self.pipe.stdin.close()
        self.pipe.stdout.close()
        self.pipe.wait()

    def encode(self, text: str) -> list[int]:
        assert self.pipe.stdin
        assert self.pipe.stdout
        data = text.encode()
        self.pipe.stdin.write(struct.pack("<I", len(data)) + data)
        self.pipe.stdin.flush()
        (count,) = struct.unpack("<I", self.pipe.stdout.read(4))
        return list(struct.unpack(f"<{count}I", self.pipe.stdout.read(4 * count)))


@functools.cache
def tiktoken_encoding(name: str) -> Any:
    """Python's ``tiktoken.Encoding``, with its own pattern and special words, and the checked ranks."""
    import tiktoken
    from tiktoken_ext import openai_public

    def load(url: str, expected_hash: str) -> dict[bytes, int]:
        ours = Path(url).stem
        lines = subprocess.run([binary(), ours, "--ranks"], check=True, capture_output=True).stdout
        assert hashlib.sha256(lines).hexdigest() == expected_hash, f"the ranks of {ours} are not tiktoken's"
        return {base64.b64decode(word): int(rank) for word, rank in map(bytes.split, lines.splitlines())}

    # The files of gpt2 are of another format; its ranks are those of r50k_base.
    openai_public.load_tiktoken_bpe = load
    constructor = openai_public.ENCODING_CONSTRUCTORS["r50k_base" if name == "gpt2" else name]
    return tiktoken.Encoding(**constructor())


def standard_library() -> Iterator[str]:
    """Every module of the standard library, the test suite aside."""
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).rglob("*.py")):
        if not {"site-packages", "test", "tests"} & set(path.parts):
            yield path.read_text(errors="replace")


def torture() -> Iterator[str]:
    """Text that tokenizers get wrong."""
    yield from SMALL
    for char in [
        " ",
        "a",
        "A",
        "\n",
        "🙂",
        "0",
        "\u0301",
        "世",
        "'",
        "\r\n",
        "ab",
        " \n",
        "世A",
        "/\n",
        "\t",
    ]:
        yield char * (2**20 // len(char.encode()))
        # Whitespace is another matter at the end of a text than before a word, where tiktoken itself gives up
        # on a megabyte of it (a panic: StackOverflow).
        run = char * 2**13
        yield from (f"x{run}", f"{run}x", f"{run} x", f".{run}.")
    # Every character of every plane, where it begins, goes on and ends a run of each class.
    everything = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for start in range(0, len(everything), 4096):
        yield " ".join(f"a{c}b1{c}2 {c}B{c}s'{c}.{c}\n{c} " for c in everything[start : start + 4096])
    # Neighbours at random.
    mixed = random.Random(13)
    for _ in range(200):
        yield "".join(mixed.choices(everything, k=500))
        yield "".join(mixed.choices(ALPHABET, k=500))


ALPHABET = [
    *" \t\r\n\n  aBc'sSſ/!.,(0129",
    "'ll",
    "'VE",
    "世",
    "〇",
    "é",
    "É",
    "ǅ",
    "\u0301",
    "ª",
    "\u3000",
    "\u00a0",
]
ALPHABET += [
    "\u2028",
    "\u0085",
    "\ufeff",
    "\0",
    "\u200d",
    "🙂",
    "🏽",
    "½",
    "٣",
    "   ",
    "\n\n",
    "\r\n",
    "ß",
    "ŉ",
]

SMALL = [
    "",
    " ",
    "\n",
    "\n  ",
    " \n \n  ",
    "a \n  ",
    "hello world",
    "Hello,  world!\n\n\tindented\r\n  twice \n ",
    "it's we'll THEY'VE I'D 'ſ x'S '' 'q don't 'SS 'lL",
    "1 12 123 1234 12345.678 ¼ Ⅷ ٣٤٥٦ 一二三 〇〇〇〇",
    "a\u0301\u0302b \u0301 \u0301x ǅx ªº \u0301AB \u0301ABc",
    "HTTPServer camelCase ABCdef 世A 世AB A世 ａＢ ABC'S abc'LL",
    "日本語のテキスト、「引用」と句読点。\u3000次の文。",
    "👩\u200d👩\u200d👧\u200d👦🏽 🇩🇪 ❤\ufe0f\u200d🔥",
    "//\n/ .\n/x ;\r\n\r\n/// a/b/c",
    "\ufeffbom \0 nul \u0085 nel \u00a0nbsp \u2028 \u3000wide",
    "<|endoftext|> <|fim_prefix|> </s>",
    "   \t \u00a0 x \n \n\n  y",
    "mixed\r\nline\nends\rhere\n\r\n\r",
    "🙂" * 40,
    "a" * 150,
    " " * 100 + "x",
    "supercalifragilisticexpialidocious" * 4,
]


def main() -> None:
    for name in ["gpt2", "p50k_base", "cl100k_base", "o200k_base"]:
        for text in SMALL:
            line = {"encoding": name, "text": text, "ids": tiktoken_encoding(name).encode_ordinary(text)}
            sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
