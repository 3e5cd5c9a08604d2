"""The first screen of a report answers what the runs of a store show, and no more."""

import re

import numpy as np
import pytest

from cellrepro.cli import run
from cellrepro.comparison.seed_spread import decide_between, measure_spread
from cellrepro.show.figures.spread import answer
from cellrepro.show.report.short_answers import headline, short_answers
from cellrepro.show.report.summary import summarise
from cellrepro.store.store import Store
from stores import NOTHING, add_run, squares, three

LESS = three(squares(second=False))
NONE = dict.fromkeys(three(), NOTHING)
EQUAL = [(1.0, three())] * 2
OTHER_WEIGHTS = [(1.0, three()), (2.0, three())]
OTHER_CELLS = [(1.0, three()), (1.0, three()), (2.0, LESS)]


@pytest.fixture
def answers_of(tmp_path):
    """The headline and the answers by question, over some runs."""

    def answers(*runs):
        store = Store(tmp_path)
        for outcomes, fields in runs:
            add_run(store, outcomes, **fields)
        summary = summarise(store, {})
        answers = short_answers(summary.chapters)
        return headline(summary.chapters), {one.question: " ".join(one.lines) for one in answers}

    return answers


@pytest.mark.parametrize(
    ("runs", "starts", "advice"),
    [
        ([(EQUAL, {})], "Yes: the repeats of the one spec are bit-identical", "Nothing."),
        ([(EQUAL, {"mode": "fast"})], "Yes", "Nothing for these specs"),
        ([(EQUAL[:1], {})], "Not known: no spec was run twice", "Run each spec twice"),
        ([([(1.0, NONE)] * 2, {})], "Not known: the repeats of the one spec found", "Train for"),
        ([(OTHER_WEIGHTS, {"mode": "fast"})], "No: the repeats", "For equal repeats"),
        ([(OTHER_WEIGHTS, {})], "No: the repeats", "Report it: mode strict"),
        (
            [(EQUAL, {}), (OTHER_WEIGHTS, {"mode": "fast"})],
            "Not everywhere: the repeats of 1 of 2 specs differ",
            "For equal repeats use `--mode strict`; the repeats of 1 spec",
        ),
        ([(EQUAL, {}), ([(1.0, NONE)] * 2, {"seed": 5})], "Yes, as far as known", "Train for"),
    ],
)
def test_the_same_or_not(answers_of, runs, starts, advice):
    said, answers = answers_of(*runs)
    assert said.startswith(starts)
    assert answers["What to do?"].startswith(advice)
    assert ("Where not?" in answers) == said.startswith(("No:", "Not everywhere"))


def test_where_not_names_the_spec_and_the_cells(answers_of):
    _, answers = answers_of((EQUAL, {"seed": 1}), (OTHER_CELLS, {"mode": "fast"}))
    assert answers["Where not?"] == (
        "fast, seed 0: weights and masks differ, 9.1 % of the cells without a match."
    )
    _, answers = answers_of((OTHER_WEIGHTS, {"mode": "fast", "seed": 2}))
    assert "fast, seed 2: weights differ, masks do not" in answers["Where not?"]


def test_equal_masks_of_different_weights_do_not_matter(answers_of):
    _, answers = answers_of((OTHER_WEIGHTS, {"mode": "fast"}))
    assert answers["Does it matter?"] == (
        "Repeats of one spec in mode fast: no, their cells are equal; the only pair of repeats "
        "is not bit-identical."
    )


def test_the_command_takes_two_repeats_that_differ(answers_of, tmp_path, capsys, monkeypatch):
    """Of three repeats the first two are equal."""
    _, answers = answers_of((OTHER_CELLS, {"mode": "fast"}))
    (command,) = re.findall(r"`cellrepro (diverge .*)`", answers["What to do?"])
    assert command.split()[2].endswith("/2")
    monkeypatch.chdir(tmp_path.parent)  # the command names the store by its folder
    assert run(["compare", *command.split()[1:]]) == 1
    assert capsys.readouterr().out.startswith("different")


def test_it_matters_beside_seeds(answers_of):
    _, answers = answers_of(([(1.0, three()), (2.0, three(squares(grown=4)))], {}))
    assert answers["Does it matter?"].endswith(
        "every cell has a match and 0.058 % of the pixels differ."
    )
    seeds = [(1.5, three(squares(grown=4))), (2.5, LESS), (3.5, three(squares(second=False)))]
    runs = [([outcome], {"seed": n}) for n, outcome in enumerate(seeds, start=1)]
    _, answers = answers_of(*runs)
    seed_sentence = re.search(r"another seed: (\S+) %", answers["Does it matter?"])
    assert 0 < float(seed_sentence[1]) < 20


def test_what_is_like_seeds_is_said_in_one_sentence(answers_of):
    """One cell of three images goes between repeats, one or two between seeds."""
    less = squares(second=False)
    runs = [(OTHER_CELLS, {"mode": "fast"})]
    for seed in range(3):
        masks = three() | dict.fromkeys(["img_b", "img_c"][:seed], less)
        runs.append(([(3.0 + seed, masks)], {"seed": seed}))
    _, answers = answers_of(*runs)
    assert answers["Does it matter?"] == (
        "As much as another random seed does, in these runs: repeats of fast, seed 0, up to 9.1 "
        "%; modes fast and strict, 9.1 % of the cells without a match. For comparison, another "
        "seed: 13 % of the cells have no match (at most 20 %, 3 seeds, 3 images). With more seeds "
        "and images it may be shown that these changed fewer."
    )


def test_what_changed_less_than_any_two_seeds_is_not_said_to_change_as_much(answers_of, tmp_path):
    """Not shown to be less, and yet less in these runs: the sentence and the figure say so."""
    small_alone = np.where(squares() == 2, 1, 0).astype(np.uint16)
    by_seed = [three(), *(dict.fromkeys(three(), m) for m in (squares(second=False), small_alone))]
    runs = [(OTHER_CELLS, {"mode": "fast"})]
    runs += [([(3.0 + seed, masks)], {"seed": seed}) for seed, masks in enumerate(by_seed)]
    _, answers = answers_of(*runs)
    assert (
        "Less than another random seed does, in these runs: repeats" in answers["Does it matter?"]
    )
    assert "As much as" not in answers["Does it matter?"]
    spread = measure_spread(Store(tmp_path).runs())
    assert answer(spread, spread.axis("repeats")) == "≠ less than another seed, in these runs"


def test_what_changes_cells_matters_wherever_it_was_changed(answers_of):
    """Equal repeats of most runs do not speak for the few in which a setting was changed."""
    diameters = [
        ([(None, found)], {"task": "segment", "settings": {"diameter": diameter}})
        for diameter, found in ((30.0, three()), (45.0, LESS))
    ]
    said, answers = answers_of((EQUAL, {}), *diameters)
    assert said == "Yes: the repeats of the one repeated spec are bit-identical."
    assert "Diameter 30 or 45" in answers["Does it matter?"]
    assert ": yes, 9.1 % of the cells have no match; nothing to" in answers["Does it matter?"]


def test_report_and_terminal_judge_a_pair_alike(tmp_path):
    """The seeds were run in mode strict alone, the two precisions in mode fast."""
    store = Store(tmp_path)
    for seed, found in enumerate((three(), LESS, three(squares(grown=4)))):
        add_run(store, [(1.0 + seed, found)], seed=seed)
    settings = {"device": "cpu", "threads": 2, "dtype": "bfloat16"}
    half = {"profile": "half", "profile_settings": settings}
    add_run(store, [(1.0, three())], mode="fast")
    add_run(store, [(1.5, LESS)], mode="fast", **half)
    spread = measure_spread(store.runs())
    (pair,) = spread.axis("precision").evidence
    decision = spread.decide("precision")
    assert decision.is_judged
    assert decision == decide_between(pair.a, pair.b, store.runs())
