"""Token files of every dialect, against the peers that write them.

The checked-in files are read in the fast tests; the heavy one has the peers write them fresh.
"""

import importlib.util
import logging
import pickle
from pathlib import Path

import numpy as np
import pytest

import lowtide

VALID = Path(__file__).parents[2] / "crates/lowtide/tests/valid"
KEPT = [line.split("\t") for line in (VALID / "tokens.txt").read_text().splitlines()[1:]]


def numbers(document):
    return [] if document == "-" else [int(token) for token in document.split(",")]


def check(path, dtype, documents, indexed):
    """That Lowtide reads what the peer read: every token, and every document where there is an index."""
    t = lowtide.tokens(path)
    tokens = [token for document in documents for token in document]
    assert len(t) == len(tokens)
    assert t.dtype == np.dtype(dtype)
    block = len(tokens) - 1
    if np.dtype(dtype).kind == "u" and np.dtype(dtype).itemsize == 8:
        block -= 1  # the last token is the largest there is, and int64 ends before it
    if block > 0:
        x, y = t.windows([0], block)
        assert x.dtype == y.dtype == np.int64
        assert x.tolist() == [tokens[:block]]
        assert y.tolist() == [tokens[1 : block + 1]]
    if indexed:
        assert t.documents == len(documents)
        assert [t.document(i).tolist() for i in range(len(documents))] == documents
        with pytest.raises(IndexError):
            t.document(len(documents))


@pytest.mark.parametrize(("name", "dialect", "dtype", "documents"), KEPT, ids=[line[0] for line in KEPT])
def test_files_by_the_peers(name, dialect, dtype, documents):
    indexed = dialect in ("megatron", "datatrove") and "no-index" not in name
    documents = [numbers(document) for document in documents.split(" ") if document]
    check(VALID / "tokens" / name, dtype, documents, indexed)


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("peer", ["megatron", "datatrove", "llmc", "numpy"])
def test_files_by_the_peers_of_today(peer, tmp_path):
    for package in ["torch", "megatron.core", "datatrove", "tokenizers"]:
        pytest.importorskip(package)
    spec = importlib.util.spec_from_file_location("make_tokens", VALID / "make_tokens.py")
    make = importlib.util.module_from_spec(spec)
    logging.disable()
    try:
        spec.loader.exec_module(make)
        answers = list(make.PEERS[peer](tmp_path))
    finally:
        logging.disable(logging.NOTSET)
    assert answers
    for name, (dialect, dtype, documents) in answers:
        indexed = dialect in ("megatron", "datatrove") and "no-index" not in name
        check(tmp_path / name, dtype, [document.tolist() for document in documents], indexed)


@pytest.mark.parametrize("name", ["sequences", "sequences.bin", "sequences.idx"])
def test_megatron_goes_by_prefix_data_or_index(name):
    t = lowtide.tokens(VALID / "tokens/megatron" / name)
    assert (len(t), t.documents) == (21, 3)


def llmc(path, tokens):
    header = np.zeros(256, "<i4")
    header[:3] = 20240520, 1, len(tokens)
    path.write_bytes(header.tobytes() + np.array(tokens, "<u2").tobytes())


def test_an_end_of_text_ends_a_document_and_begins_one_in_llmc(tmp_path):
    end = 50256
    np.array([1, 2, end, 3, end, end, 4], "<u2").tofile(tmp_path / "nano.bin")
    t = lowtide.tokens(tmp_path / "nano.bin", end_of_text=end)
    assert [t.document(i).tolist() for i in range(t.documents)] == [[1, 2, end], [3, end], [end], [4]]
    llmc(tmp_path / "a.bin", [end, 1, 2, end, 3])
    llmc(tmp_path / "b.bin", [4, end, 5])
    t = lowtide.tokens([tmp_path / "a.bin", tmp_path / "b.bin"], end_of_text=end)
    # A shard's end ends a document too.
    assert [t.document(i).tolist() for i in range(t.documents)] == [[end, 1, 2], [end, 3], [4], [end, 5]]


def test_a_folder_a_glob_and_a_list_are_one_stream(tmp_path):
    for i in range(3):
        llmc(tmp_path / f"shard_{i}.bin", range(10 * i, 10 * i + 10))
    names = [tmp_path / f"shard_{i}.bin" for i in range(3)]
    for named in [tmp_path, str(tmp_path / "*.bin"), names, [str(name) for name in names]]:
        t = lowtide.tokens(named)
        assert [Path(file) for file in t.files] == names
        x, y = t.windows([5, 0], 20)
        assert x.tolist() == [list(range(5, 25)), list(range(20))]
        assert (y == x + 1).all()
    assert len(lowtide.tokens(names[::-1])) == 30
    assert lowtide.tokens(names[::-1]).windows([0], 3)[0].tolist() == [[20, 21, 22]]


def test_what_is_ambiguous_is_asked_about(tmp_path):
    llmc(tmp_path / "cut.bin", range(10))
    (tmp_path / "cut.bin").write_bytes((tmp_path / "cut.bin").read_bytes()[:-2])
    with pytest.raises(ValueError, match='format="nanogpt" reads it as raw'):
        lowtide.tokens(tmp_path / "cut.bin")
    assert len(lowtide.tokens(tmp_path / "cut.bin", format="nanogpt")) == 512 + 9
    np.arange(100, dtype="<u4").tofile(tmp_path / "olmo.npy")
    with pytest.raises(ValueError, match="needs dtype="):
        lowtide.tokens(tmp_path / "olmo.npy")
    assert len(lowtide.tokens(tmp_path / "olmo.npy", dtype="uint32")) == 100
    (np.arange(100, dtype="<u4") * 499).tofile(tmp_path / "wide.bin")
    with pytest.warns(UserWarning, match='looks like uint32: say dtype="uint32"'):
        t = lowtide.tokens(tmp_path / "wide.bin")
    assert len(t) == 200
    with pytest.raises(ValueError, match='format="nanoGPT" is not a token format'):
        lowtide.tokens(tmp_path / "wide.bin", format="nanoGPT")
    with pytest.raises(FileNotFoundError):
        lowtide.tokens(tmp_path / "nothing.bin")
    for name in ["train.bin", "val.bin"]:
        (tmp_path / name).write_bytes(bytes(8))
    with pytest.raises(ValueError, match=r"train\.bin and val\.bin, which are not meant as one stream"):
        lowtide.tokens(tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (("Früher gab es im Café Flöße und Öl. " * 300).encode("latin1"), "text, but not in UTF-8"),
        (("Some words and more of them. " * 300).encode("utf-16"), "text in UTF-16"),
        (b'{"a": 1}' * 100, "JSON text"),
        (pickle.dumps(list(range(1000)), protocol=0), "a Python pickle"),
    ],
)
def test_text_of_any_encoding_is_no_tokens(tmp_path, content, said):
    path = tmp_path / "train.bin"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"expected tokens, found {said}"):
        lowtide.tokens(path)
    with pytest.warns(UserWarning, match=f"looks like {said}"):
        assert len(lowtide.tokens(path, dtype="uint8")) == len(content)
    assert len(lowtide.tokens(path, dtype="uint8", format="raw")) == len(content)
