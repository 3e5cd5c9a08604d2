"""Of which runs mode portable promises the same bits, and what is said of it."""

import re

import pytest

from cellrepro.comparison.portable_promise import promised_alike
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.show.report.build import write_report
from cellrepro.store.store import Store
from stores import add_run, some_spec, squares, three


def portable(**changes):
    return some_spec(mode="portable", **changes)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"profile": "cpu-1thread", "profile_settings": {"device": "cpu", "threads": 1}}, True),
        ({"ranks": 2}, True),
        ({"seed": 1}, False),
        ({"batch_size": 2}, False),  # of a training it decides what is averaged
        ({"mode": "strict"}, False),
    ],
)
def test_what_changes_no_bit(changes, expected):
    assert promised_alike(portable(), some_spec(**{"mode": "portable", **changes})) is expected


def test_the_batch_size_of_a_segmentation_changes_none():
    def segmented(**settings):
        return portable(task="segment", epochs=0, learning_rate=0.0, settings=settings)

    assert promised_alike(segmented(batch_size=1), segmented(batch_size=4))
    assert not promised_alike(segmented(min_size=3), segmented(min_size=4))


@pytest.fixture
def two_devices(tmp_path):
    """One training on two profiles in mode portable; gives the store and what makes the second."""
    store = Store(tmp_path / "store")
    first = add_run(store, [(1.0, three())], mode="portable")

    def second(weight, masks):
        run = add_run(store, [(weight, masks)], mode="portable", profile="cpu-1thread")
        return first.repeats[0], run.repeats[0]

    return store, second


def test_a_kept_promise_is_said(two_devices):
    store, second = two_devices
    a, b = second(1.0, three())
    assert not any("they differ" in note for note in compare_repeats(a, b).notes)
    page = write_report(store.root).html.read_text(encoding="utf-8")
    assert "mode portable on 2 devices came to one result, as promised" in page


def test_a_broken_promise_is_news(two_devices):
    store, second = two_devices
    a, b = second(2.0, three(squares(second=False)))
    (note,) = [note for note in compare_repeats(a, b).notes if "portable" in note]
    assert "promises the same bits here, and they differ" in note
    (command,) = re.findall(r"cellrepro diverge (\S+) (\S+)", note)
    assert [store.find(name).name for name in command] == [a.name, b.name]
    page = write_report(store.root).html.read_text(encoding="utf-8")
    assert "mode portable on 2 devices came to 2 results, though the same bits are promised" in page
