"""Two ledgers side by side: the first difference, and only what is one."""

import re
from dataclasses import replace

import pytest

from cellrepro.comparison.ledger_diff import Difference, compare_ledgers
from cellrepro.divergence.first_difference import FirstDifference
from cellrepro.store.ledger import BEFORE, LedgerRow
from samebits.digests import value_digest

IN_A_STEP = [
    *[("rng", "numpy before"), ("batch", "crops"), ("batch", "images"), ("forward", "output")],
    *[("loss", "loss"), ("backward", "out"), ("update", "out"), ("weights", "out")],
    ("rng", "numpy after"),
]
BEGINNING = [("environment", "threads"), ("spec", "seed"), ("data", "a"), ("weights-init", "out")]
END = [("flows", "a"), ("masks", "a outlines"), ("masks", "a labels")]


def made(n_steps=3):
    """A ledger as a run makes it; every digest is the place's own."""
    places = [
        *[(BEFORE, *place) for place in BEGINNING],
        *[(step, *place) for step in range(n_steps) for place in IN_A_STEP],
        *[(n_steps, *place) for place in END],
    ]
    return [
        LedgerRow(step, step // 2 if 0 <= step < n_steps else -1, stage, name, digest)
        for step, stage, name in places
        for digest in [value_digest([stage, name, min(step, n_steps)])[:32]]
    ]


def changed(ledger, index, **changes):
    changes = changes or {"digest": "f" * len(ledger[index].digest)}
    index %= len(ledger)
    return [*ledger[:index], replace(ledger[index], **changes), *ledger[index + 1 :]]


def places(differences):
    return [(found.step, found.stage, found.name) for found in differences]


def test_one_changed_entry_is_the_only_difference_wherever_it_is():
    a = made()
    assert compare_ledgers(a, changed(a, 8, value=3.5, detail="[1]")).first is None
    for index, entry in enumerate(a):
        b = changed(a, index)
        found = compare_ledgers(a, b)
        inside = 0 <= entry.step < 3
        step, epoch = (entry.step, entry.epoch) if inside else (None, None)
        expected = Difference(step, epoch, entry.stage, entry.name, entry, b[index])
        assert found.differences == (expected,)
        assert found.compared.total() == len(a)
        if entry.stage != "loss":  # which says how many steps there are
            alone = compare_ledgers(a, [*a[:index], *a[index + 1 :]]).differences
            assert alone == (replace(expected, b=None),)
        assert found.first_computed == (expected if inside else None)
        assert found.of_stage(entry.stage) == [expected]


def test_before_and_after_by_stage_and_within_a_step_as_made():
    a = made(1)
    shuffled = [*a[:4][::-1], *a[4:-3], *a[-3:][::-1]]
    others = [replace(entry, digest="f" * 32) for entry in shuffled]
    found = compare_ledgers(shuffled, others)
    assert places(found.differences) == [
        *[(None, *place) for place in BEGINNING],
        *[(0, *place) for place in IN_A_STEP],
        *[(None, "flows", "a"), (None, "masks", "a labels"), (None, "masks", "a outlines")],
    ]


def test_digests_of_two_algorithms_are_not_compared():
    """Of a processor and of a GPU; the others of the same step are."""
    a = made()
    lanes = changed(a, 7, digest="e" * 48)
    found = compare_ledgers(a, lanes)
    assert found.differences == ()
    assert (found.compared.total(), found.not_comparable.total()) == (len(a) - 1, 1)
    assert places(compare_ledgers(a, changed(lanes, 9)).differences) == [(0, "backward", "out")]


@pytest.mark.parametrize("longer_first", [True, False])
def test_steps_that_only_one_made_are_left_out(longer_first):
    """What comes after the last step is compared, whatever its number."""
    pair = [made(5), made(3)] if longer_first else [made(3), made(5)]
    pair = [[replace(e, digest="a" * 32) if e in one[-3:] else e for e in one] for one in pair]
    found = compare_ledgers(*pair)
    assert (found.differences, found.n_steps) == ((), (5, 3) if longer_first else (3, 5))
    assert found.compared.total() == len(made(3))
    found = compare_ledgers(changed(pair[0], -1), pair[1])
    assert places(found.differences) == [(None, "masks", "a labels")]


def test_what_is_ignored_does_not_count():
    a, b = made(), changed(changed(made(), 0), 9)
    found = compare_ledgers(a, b, ignored=lambda entry: entry.stage == "environment")
    assert places(found.differences) == [(0, "backward", "out")]
    assert found.compared.total() == len(a) - 1


def said_first(stage, fields):
    """What is said of the first difference of two records, from both values of each field."""
    a, b = (
        [
            LedgerRow(BEFORE, -1, stage, name, value_digest(values[side]), detail=values[side])
            for name, values in fields.items()
        ]
        for side in (0, 1)
    )
    found = compare_ledgers(a, b)
    return FirstDifference.of(found.first, found).said


def test_every_setting_that_differs_is_said_as_the_first_difference():
    """One alone would be taken for the cause of all that follows."""
    said = said_first("spec", {"diameter": ("30", "45"), "flow_threshold": ("0.4", "0.0")})
    assert said == "diameter: 30 in A, 45 in B; flow_threshold: 0.4 in A, 0.0 in B"


def test_of_an_environment_what_can_be_read_is_said_once():
    """Threads stand in several of its fields; a list or a digest says nothing by its letters."""
    fields = {
        "profile.threads": ("2", "1"),
        "threads": ("2", "1"),
        "numeric_libraries": ('[{"api": "x", "n": 2}]', '[{"api": "x", "n": 1}]'),
        "numeric_class.name": ('"6796dd90f576"', '"89368abcce01"'),
        "versions.torch": ('"2.6.0"', '"2.15.0"'),
        "variables.OMP_NUM_THREADS": ("2", "1"),
    }
    said = said_first("environment", fields)
    assert said.count("2 in A, 1 in B") == 1
    assert "2.6.0 in A, 2.15.0 in B" in said
    assert not re.search(r"[{\[]|6796dd90f576", said)
    libraries = said_first("environment", {"numeric_libraries": fields["numeric_libraries"]})
    assert libraries.startswith("numeric libraries")


def test_of_an_environment_no_field_hides_another_with_equal_values():
    flags = {"switches.benchmark": ("true", "false"), "switches.tf32": ("true", "false")}
    versions = {"versions.numpy": ('"1"', '"2"'), "versions.scipy": ('"1"', '"2"')}
    said = said_first("environment", flags | versions)
    assert said.count("true in A, false in B") == said.count("1 in A, 2 in B") == 2
