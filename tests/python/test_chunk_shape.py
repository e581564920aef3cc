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


@pytest.mark.parametrize(
    ("arguments", "named", "says"),
    [
        ((), {}, r"Array.chunks\(\) missing 1 required positional argument: 'rows'"),
        ((5, 6), {}, r"Array.chunks\(\) takes 2 positional arguments but 3 were given"),
        ((5,), {"seed": 1}, r"Array.chunks\(\) got an unexpected keyword argument 'seed'"),
    ],
)
def test_a_wrong_call_is_told_by_the_names_that_the_caller_used(tmp_path, arguments, named, says):
    np.save(tmp_path / "rows.npy", np.zeros((10, 4)))
    a = lowtide.open(tmp_path / "rows.npy")
    with pytest.raises(TypeError, match=says):
        a.chunks(*arguments, **named)
    with pytest.raises(TypeError, match=says):
        lowtide.Array.chunks(a, *arguments, **named)


def test_the_shape_answers_as_a_sequence_does(tmp_path):
    np.save(tmp_path / "rows.npy", np.zeros((10, 4, 4)))
    chunks = lowtide.open(tmp_path / "rows.npy").chunks
    assert (chunks.index(4), chunks.index(4, 2), chunks.count(4), chunks.count(7)) == (1, 2, 2, 0)
    assert (4 in chunks, 7 in chunks, list(reversed(chunks)), chunks[1:]) == (True, False, [4, 4, 10], (4, 4))
    with pytest.raises(ValueError, match="not in tuple"):
        chunks.index(7)
