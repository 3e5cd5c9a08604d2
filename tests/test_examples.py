"""The example of a training of one's own, as its reader runs it: each run a process."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[1] / "examples" / "own_training.py"
FOR_OWN_TRAININGS = {
    *("seed_everything", "generator", "item_generator", "rank_seed", "split", "loader_arguments"),
    *("check_dataset", "check_repeatable", "add_seed_to", "check_seed_of", "restore"),
}


def started(folder, *options):
    command = [sys.executable, EXAMPLE, folder, *map(str, options)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def told(process):
    """The lines on the epochs and the weights of a training that went well."""
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert err.startswith("seeded with ")
    assert "0 findings over 16 of 96 items" in out
    assert "identical over 10 runs from one state" in out
    return re.findall("^(?:epoch|weights) .*$", out, re.MULTILINE)


def test_it_is_short_and_uses_every_function_for_own_trainings():
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) < 170
    assert set(re.findall(r"samebits\.([a-z]\w+)\(", text)) == FOR_OWN_TRAININGS


@pytest.mark.slow
def test_it_repeats_resumes_to_the_same_bits_and_refuses_what_is_wrong_in_a_sentence(tmp_path):
    """Whatever the number of workers. Takes long: nine processes import PyTorch."""
    whole, half = tmp_path / "whole", tmp_path / "half"
    long, short = started(whole, "--epochs", 3), started(half, "--epochs", 2, "--workers", 0)
    *epochs, weights = told(long)
    *first, halfway = told(short)
    assert first == epochs[:2]
    assert halfway != weights
    resumed = started(half, "--epochs", 3, "--resume")
    refused = started(whole, "--epochs", 6, "--resume", "--seed", 7)
    assert told(resumed) == [epochs[2], weights]
    (whole / "other").mkdir()
    (whole / "other" / "pictures").mkdir()
    wrong = {
        refused: "checkpoint.pt is not of seed 7: torch's generator has seed 42; give",
        started(whole, "--epochs", 2, "--resume"): "is of epoch 3; expected --epochs 3 or more",
        started(whole / "other", "--resume"): "checkpoint.pt cannot be read",
        started(whole / "other"): "the length of dataset must be a whole number of at least 1",
        started(whole / "checkpoint.pt"): "Not a directory",
        started(whole, "--epochs", 0): "expected --epochs of 1 or more",
    }
    for process, message in wrong.items():
        error = process.communicate(timeout=120)[1]
        assert process.returncode in (1, 2)
        assert message in error
        assert "Traceback" not in error
