"""A result says itself: its JSON follows from its fields, properties and methods."""

import json
import math
from dataclasses import dataclass, field

import numpy as np
import pytest

from samebits.results import Result, derived, in_json, json_text


@dataclass(frozen=True)
class Stored:
    path: str

    @property
    def json_record(self):
        return {"digest": 3 * self.path}


@dataclass(frozen=True, repr=False)
class Found(Result):
    cells: tuple[int, ...]
    score: float
    labels: np.ndarray
    repeats: tuple[Stored, ...]
    pixels: object = field(default=None, repr=False)
    _plan: object = None

    @derived
    def n_cells(self):
        return len(self.cells)

    @in_json
    def sentence(self):
        return f"{self.n_cells} cells"

    @property
    def differs(self):
        return self.n_cells > 1


def test_json_has_fields_then_what_follows_from_them():
    """What is kept for computing is not in it, and NaN, which JSON lacks, is null."""
    labels = np.array([1, 2])
    found = Found((7, 8), math.nan, labels, (Stored("a"),), pixels=object(), _plan=object())
    document = json.loads(found.as_json())
    assert list(document.items()) == [
        ("cells", [7, 8]),
        ("score", None),
        ("labels", [1, 2]),
        ("repeats", [{"digest": "aaa"}]),
        ("n_cells", 2),
        ("sentence", "2 cells"),
    ]
    assert (found.as_text(), found.exit_code) == ("2 cells\n", 1)


@pytest.mark.parametrize(
    "text", ["é 😀 \u2028", "\x1b[2J\x07\x7f\x9b", "name that is no UTF-8: \udcff"]
)
def test_json_is_ascii_and_moves_no_cursor(text):
    written = json_text({text: [text, 2**70]})
    assert not set(written) - set(map(chr, range(32, 127))) - {"\n"}
    assert json.loads(written) == {text: [text, 2**70]}


def test_json_of_any_depth():
    deep: list = []
    for _ in range(300):
        deep = [deep]
    assert json.loads(json_text(deep)) == deep
