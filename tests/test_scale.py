"""A store of ten thousand repeats is still listed, reported on and added to in no time."""

import json
import resource

import pytest
from made_up_store import make_store


def seconds_of(command, *arguments):
    """What it wrote, and its seconds of the processor: other work on the machine counts less."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = command(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.code == 0, done.err
    return done.out, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.slow
def test_ten_thousand_repeats(tmp_path, command):
    store = make_store(tmp_path / "store", n_repeats=10_200)
    listed, seconds = seconds_of(command, "list", "--json", "--store", store.root)
    runs = json.loads(listed)["runs"]
    assert (sum(len(run["repeats"]) for run in runs), seconds < 2) == (10_200, True), seconds
    _, seconds = seconds_of(command, "report", "--store", store.root)
    assert seconds < 60
    page = store.root / "report" / "index.html"
    assert page.stat().st_size < 30e6
    assert "150 pairs of 5 seeds" in page.read_text(encoding="utf-8")
