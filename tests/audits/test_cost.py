"""The price of determinism: the same steps in every way, timed alike, and summed up rightly."""

import sys

import pytest

from cellrepro.audits import cost
from cellrepro.audits.cost import Cost, measure_cost, summarise
from cellrepro.images.synthetic_sets import labelled_nuclei
from cellrepro.model.step_timing import SideBySide
from samebits.errors import BadInput

ROUNDS = [
    {"strict": [1.0, 1.2, 9.0], "plain": [1.0, 1.0, 1.0]},
    {"strict": [2.0, 2.2, 2.4], "plain": [2.0, 4.0, 2.0]},
    {"strict": [0.9, 0.9, 0.9], "plain": [1.0, 1.0, 7.0]},
]


def test_rows_compare_the_rounds_medians():
    plain, strict = summarise(ROUNDS, {"strict": [7, 9, 8], "plain": [1, 1, 4]})
    assert (plain.name, plain.ratio, plain.lowest, plain.highest) == ("plain", 1, 1, 1)
    assert (strict.ratio, strict.lowest, strict.highest) == pytest.approx((1.1, 0.9, 1.2))
    assert strict.seconds == 1.2  # the median of all nine
    assert (plain.peak_memory, strict.peak_memory) == (1, 8)


def test_a_ratio_says_in_which_rounds_it_was_slower():
    peaks = {"strict": [1], "plain": [1]}
    slower = [{"strict": [1.5], "plain": [1.0]}, {"strict": [1.4], "plain": [1.0]}]
    faster = [{"strict": [0.9], "plain": [1.0]}]
    sentences = [
        Cost("tiny", "cpu", 2, 1, len(rounds), summarise(rounds, peaks)).sentence()
        for rounds in (ROUNDS, slower, faster)
    ]
    assert ["slower in every round" in sentence for sentence in sentences] == [False, True, False]
    assert ["slower in no round" in sentence for sentence in sentences] == [False, False, True]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"encoder": "vit-h"},
            "encoder is 'vit-h'; expected one of tiny, tiny-4, tiny-8, tiny-12, vit-b, vit-l",
        ),
        ({"steps": 0}, "steps must be a whole number of at least 1, got 0"),
        ({"variants": ("fast",)}, "plain among them"),
    ],
    ids=str,
)
def test_wrong_input_is_refused_before_anything_starts(changes, message, monkeypatch):
    monkeypatch.setattr(cost, "in_child", None)
    with pytest.raises(BadInput, match=message):
        measure_cost(quiet=True, **changes)


# -- side by side --------------------------------------------------------------------------


ALL = ("plain", "fast", "warn", "strict", "others", "algorithms", "cudnn")


@pytest.mark.usefixtures("one_thread")
# Cellpose's autocast to float32 does nothing on a CPU and says so (4.2.1.1).
@pytest.mark.filterwarnings("ignore:.*autocast")
def test_every_variant_takes_the_same_steps_under_its_own_switches(monkeypatch):
    import torch

    from cellrepro.model.network import import_cellpose, seeded_network
    from samebits.modes import switches

    import_cellpose()
    from cellpose import train

    seen, original, fetch = [], train._loss_fn_seg, train._get_batch

    def loss(*arguments):
        value = original(*arguments)
        by = sys._getframe(1).f_code.co_name
        seen.append({**switches(), "loss": value.item(), "seed": torch.initial_seed(), "by": by})
        return value

    monkeypatch.setattr(train, "_loss_fn_seg", loss)
    images = labelled_nuclei(2, shape=(64, 64), n_nuclei=7, diameter=9)
    timing = SideBySide(seeded_network("tiny", seed=0), images, steps=1, variants=ALL, seed=3)
    seconds = timing.round()
    assert tuple(seconds) == ALL
    assert all(len(times) == 1 and times[0] > 0 for times in seconds.values())
    assert train._get_batch is fetch
    assert all(len(peaks) == (name == "plain") + 1 for name, peaks in timing.peaks.items())

    assert len(seen) == 2 * 8  # one untimed, one timed; plain once more to warm up
    runs = dict(zip(["warm-up", *seconds], zip(seen[::2], seen[1::2], strict=True), strict=True))
    expected = {  # whose loop, deterministic, only warning, memory filled, cuDNN, substitutes
        "plain": ("train_seg", False, False, True, False, False),
        "fast": ("_loss_of", False, False, True, False, False),
        "warn": ("_loss_of", True, True, False, True, False),
        "strict": ("_loss_of", True, False, False, True, True),
        "others": ("train_seg", True, True, True, True, False),
        "algorithms": ("train_seg", True, True, False, False, False),
        "cudnn": ("train_seg", False, False, True, True, False),
    }
    for name, values in expected.items():
        for step in runs[name]:
            assert values == (
                step["by"],
                step["deterministic_algorithms"],
                step["deterministic_warn_only"],
                step["fill_uninitialized_memory"],
                step["cudnn_deterministic"],
                bool(step["substitutes"]),
            ), name
    assert {step["seed"] for step in seen} == {3}
    losses = {name: [step["loss"] for step in run] for name, run in runs.items()}
    assert all(losses[name] == losses["plain"] for name in runs if name not in ("warn", "strict"))
    assert losses["strict"] == pytest.approx(losses["plain"])
    assert losses["plain"][0] != losses["plain"][1]
    assert tuple(timing.round()) == ALL  # though it began with the next one
