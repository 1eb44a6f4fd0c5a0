"""Results as files."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from jaxcore import export
from models.errors import InputError


@dataclass(frozen=True)
class Record:
    numbers: tuple[float, ...]
    name: str


def test_numbers_that_are_not_finite_become_null():
    value = {"a": float("nan"), "b": [1.5, float("inf")], "c": np.float32(-np.inf), "d": np.array([1, 2])}
    assert json.loads(export.to_json(value)) == {"a": None, "b": [1.5, None], "c": None, "d": [1, 2]}


def test_records_become_objects():
    assert json.loads(export.to_json(Record((0.5, 1.0), "é"))) == {"numbers": [0.5, 1.0], "name": "é"}
    assert "é" in export.to_json(Record((), "é"))


def test_every_result_says_what_made_it():
    result = export.result("sample", {"reference": "x"}, 1.23456, {"text": "t"})
    assert list(result) == ["schema", "model", "versions", "elapsed_s", "text"]
    assert result["schema"] == "clearbox.sample/1"
    assert set(result["versions"]) == {"jax", "jaxlib", "clearbox"}


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "out.json"

    def broken(file):
        file.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export.write(target, broken)
    assert list(tmp_path.iterdir()) == []
    export.write(target, lambda file: file.write(b"whole"))
    assert target.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [target]


def test_a_place_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(InputError, match="gone"):
        export.write(tmp_path / "gone" / "out.json", lambda file: file.write(b"x"))
