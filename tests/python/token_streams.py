"""Streams of tokens for the tests, and what windows of them must be.

Token i of a counting stream is the number i, so that a window tells where it began.
"""

import itertools
import json
import os

import numpy as np


def llmc(path, tokens: np.ndarray):
    """An llm.c file: the header says how many tokens there are, and of which width."""
    header = np.zeros(256, dtype="<i4")
    header[:3] = (20240520, 1, len(tokens)) if tokens.dtype.itemsize == 2 else (20240801, 7, len(tokens))
    path.write_bytes(header.tobytes() + tokens.astype(f"<u{tokens.dtype.itemsize}").tobytes())
    return path


def starts(batches, count=None) -> list[list[int]]:
    """Where each window of each batch of a counting stream began, after checking that it is one."""
    out = []
    for x, y in itertools.islice(batches, count):
        x, y = np.asarray(x), np.asarray(y)
        assert (np.diff(x, axis=1) == 1).all()
        assert (y == x + 1).all()
        out.append(x[:, 0].tolist())
    return out


def flat(batches) -> list[int]:
    """The windows of all batches."""
    return [start for batch in batches for start in batch]


def in_a_forked_child(work):
    """What `work` returned there, by way of JSON."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.write(write, json.dumps(work()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return answer
