"""Two passports compared without any of their files."""

import pytest

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.passport_comparison import DigestComparison, environment_differences
from cellrepro.exchange.passport_making import passport_of
from cellrepro.store.store import Store
from stores import add_run, squares, three


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "outputs")


@pytest.mark.parametrize(
    ("weight", "masks", "verdict", "n_labels", "n_outlines"),
    [
        (1.0, three(), Verdict.IDENTICAL, 3, 3),
        (1.0, three(img_c=squares(numbers=(7, 3))), Verdict.SAME_OBJECTS, 2, 3),
        (1.0, three(img_b=squares(grown=8)), Verdict.DIFFERENT, 2, 2),
        (2.0, three(), Verdict.DIFFERENT, 3, 3),
    ],
    ids=["equal", "renumbered", "another outline", "other weights"],
)
def test_the_step_by_digests(store, weight, masks, verdict, n_labels, n_outlines):
    """What a passport without its run can tell."""
    run = add_run(store, [(1.0, three()), (weight, masks)])
    original, again = (passport_of(repeat) for repeat in run.repeats)
    digests = DigestComparison.of(original, again)
    assert digests.verdict == verdict
    assert (digests.n_equal_labels, digests.n_equal_outlines) == (n_labels, n_outlines)


def test_environments_are_held_to_each_other(store):
    here = add_run(store, [(1.0, three())]).repeats[0]
    there = add_run(store, [(1.0, three())], manifest={"threads": 16}, seed=1).repeats[0]
    same = environment_differences(passport_of(here), passport_of(here))
    assert same == {}
    differing = environment_differences(passport_of(there), passport_of(here))
    assert (differing["threads"].theirs, differing["threads"].here) == (16, 2)
