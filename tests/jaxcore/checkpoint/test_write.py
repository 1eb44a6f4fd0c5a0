"""Writing: what the safetensors library reads back, and that failure leaves nothing."""

import ml_dtypes
import numpy as np
import pytest
from safetensors import safe_open

from jaxcore.checkpoint.safetensors import read_header
from jaxcore.checkpoint.write import ALIGNMENT, Entry, write_safetensors

A = np.arange(96, dtype=np.float32).reshape(6, 16)
B = np.arange(5).astype(ml_dtypes.bfloat16)


def test_the_library_reads_what_was_written_in_pieces(tmp_path):
    path = tmp_path / "x.safetensors"
    entries = [Entry("a·é", "F32", (6, 16), [A[:4], A[4:]]), Entry("b", "BF16", (5,), iter([B]))]
    write_safetensors(path, entries, {"format": "pt"})
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt"}
        np.testing.assert_array_equal(file.get_tensor("a·é").numpy(), A)
        np.testing.assert_array_equal(file.get_tensor("b").float().numpy(), B.astype(np.float32))
    assert [info.offset % ALIGNMENT for info in read_header(path)[1]] == [0, 0]
    assert list(tmp_path.iterdir()) == [path]


def interrupted():
    yield A[:3]
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        (interrupted(), KeyboardInterrupt),
        ([A[:5]], ValueError),
        ([A, A], ValueError),
        ([A.astype(np.float64)], ValueError),
    ],
    ids=["interrupted", "too short", "too long", "other dtype"],
)
def test_a_failure_leaves_nothing_and_keeps_what_was_there(tmp_path, pieces, error):
    path = tmp_path / "x.safetensors"
    path.write_bytes(b"old")
    with pytest.raises(error):
        write_safetensors(path, [Entry("a", "F32", (6, 16), pieces)])
    assert list(tmp_path.iterdir()) == [path]
    assert path.read_bytes() == b"old"
