"""``a.chunks`` is a method, and the shape that h5py's attribute of that name is. dask takes it for that."""

import inspect
import pickle
import pydoc

import numpy as np
import pytest

import lowtide


@pytest.mark.parametrize(
    ("shape", "order", "piece"),
    [
        ((3000, 40, 1024), "C", (102, 40, 1024)),
        ((3000, 40, 1024), "F", (3000, 40, 34)),
        ((3, 5), "C", (3, 5)),
        ((7,), "C", (7,)),
        ((), "C", ()),
        ((0, 5), "C", (1, 5)),
        ((1 << 33, 128), "C", (1 << 19, 128)),  # 4 TiB: not more pieces than can be written down
        ((2, 1 << 30), "C", (1, 1 << 22)),  # a row is larger than a piece
    ],
)
def test_pieces_lie_together_in_the_file(tmp_path, shape, order, piece):
    path = tmp_path / "a.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f4", "fortran_order": order == "F", "shape": shape}
        )
        file.truncate(file.tell() + 4 * int(np.prod(shape, dtype=object)))
    a = lowtide.open(path)
    assert tuple(a.chunks) == piece
    assert a.chunks == piece
    assert len(a.chunks) == a.ndim
    assert hash(a.chunks) == hash(piece)
    assert [a.chunks[i] for i in range(len(piece))] == list(piece)


def test_it_is_still_a_method(save):
    array = np.arange(10)
    a = lowtide.open(save(array))
    for chunks in (a.chunks, lowtide.Array.chunks.__get__(a), pickle.loads(pickle.dumps(a.chunks))):
        assert [chunk.tolist() for chunk in chunks(rows=4)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert len(list(lowtide.Array.chunks(a, 3))) == 4
    words = ["rows", "rank", "world_size", "drop_last"]
    assert list(inspect.signature(a.chunks).parameters) == words
    assert list(inspect.signature(lowtide.Array.chunks).parameters) == ["self", *words]
    help_text = pydoc.render_doc(lowtide.Array, renderer=pydoc.plaintext)
    assert "chunks(self, rows, *, rank=None, world_size=None, drop_last=False)" in help_text
    assert callable(a.chunks)
    assert a.chunks.__name__ == "chunks"
    assert a.chunks.__self__ is a
    assert "(10,)" in repr(a.chunks)
    # An object of ours points to the method, which explains it.
    first = lowtide.Array.chunks.__doc__.splitlines()[0].rstrip(".")
    assert a.chunks.__doc__ == f"{first}: see `lowtide.Array.chunks`."
