"""Every input of the fuzzer's corpus once more: taken or refused with a message, nothing else."""

import random

import pytest
from fuzz_targets import CORPUS, TARGETS, look

INPUTS = [
    pytest.param(name, path, id=f"{name}-{path.name[:8]}")
    for name in TARGETS
    for path in sorted((CORPUS / name).glob("*"))
]


def test_the_corpus_is_small_and_of_every_target():
    sizes = {name: [p.stat().st_size for p in (CORPUS / name).iterdir()] for name in TARGETS}
    assert all(sizes.values())
    assert sum(map(sum, sizes.values())) <= 100_000
    assert {path.name for path in CORPUS.iterdir()} == {*TARGETS}


@pytest.mark.parametrize(("name", "path"), INPUTS)
def test_an_input_is_taken_or_refused(name, path, tmp_path):
    message = look(name, path.read_bytes(), tmp_path)
    assert message != ""


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_cut_off_or_changed_is_taken_or_refused(name, tmp_path):
    """A few changes to the largest input of each target: the same ones each time."""
    whole = max((CORPUS / name).iterdir(), key=lambda path: path.stat().st_size).read_bytes()
    dice = random.Random(name)
    for _ in range(10):
        cut = whole[: dice.randrange(len(whole) + 1)]
        look(name, cut, tmp_path)
        place = dice.randrange(len(whole))
        changed = whole[:place] + bytes([dice.randrange(256)]) + whole[place + 1 :]
        look(name, changed, tmp_path)
