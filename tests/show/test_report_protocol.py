"""The protocol: five steps with known answers, what is missing, and the grids for them."""

from pathlib import Path

import pytest
from test_seed_spread import BFLOAT16, CUDA, ONE_THREAD, cells, images, seeded

import cellrepro
from cellrepro.compare.seed_spread import Spread, measure
from cellrepro.errors import BadInput
from cellrepro.lab.grid import read_grid
from cellrepro.show.report.protocol import Status, protocol
from cellrepro.store.store import Store
from stores import NOTHING, add_run

PROJECT = Path(cellrepro.__file__).parents[2]


def steps_of(store):
    return protocol(measure(store.runs()))


@pytest.fixture
def carried_out(tmp_path):
    """What the grid would leave: fast repeats differ, strict ones do not, a device moves pixels."""
    store = Store(tmp_path)
    for seed in range(3):
        seeded(store, seed, n=6, repeats=2)
    own = {f"img_{i}": cells(without={0, 1, 15} if i % 2 else {0, 1}) for i in range(6)}
    near = {name: masks.copy() for name, masks in own.items()}
    near["img_0"][8, 26:30] = near["img_0"][7, 26]
    add_run(store, [(1.0, own), (1.1, near)], mode="fast", truth=False)
    add_run(store, [(1.0, near)], truth=False, **CUDA, manifest={"device": "cuda:0"})
    return store


def test_five_steps_with_their_answers(carried_out):
    steps = steps_of(carried_out)
    assert [step.number for step in steps] == [1, 2, 3, 4, 5]
    assert [step.answer for step in steps] == [
        "No: 1 of 1 pair differ in their bits, and no cell changed.",
        "Yes: all 3 pairs are bit-identical in weights and masks.",
        "No: changing the mode leaves the outlines the same in 1 pair.",
        "No: changing the device changed no cell, but pixels in 1 of 1 pair (289 ppm on average); "
        "less than seeds do.",
        "Changing the seed moves 19 % of the cells (16 % to 22 %, 95 % interval over images and "
        "seeds); less than that: repeats of one spec, modes, devices.",
    ]
    assert {step.status for step in steps} == {Status.ANSWERED}
    assert not any(step.todo for step in steps)
    assert [(step.n_pairs, step.n_runs, step.n_images) for step in steps] == [
        (1, 2, 6), (3, 6, 6), (1, 2, 6), (1, 2, 6), (3, 3, 6),
    ]  # fmt: skip


def test_an_empty_store_says_what_to_run():
    steps = protocol(Spread(()))
    assert {step.status for step in steps} == {Status.NOT_ENOUGH}
    assert {step.answer for step in steps} == {"Nothing was compared."}
    assert all("`cellrepro grid grids/protocol.yaml`" in step.todo for step in steps)
    assert "3 seeds or more" in steps[4].todo
    assert "mode fast, two or more repeats" in steps[0].todo


def test_two_seeds_are_no_answer(tmp_path):
    store = Store(tmp_path)
    for seed in range(2):
        seeded(store, seed)
    add_run(store, [(1.0, images(without=[3]))], mode="fast", truth=False)
    steps = steps_of(store)
    assert steps[4].status == "not enough runs"
    assert "only 2 seeds: not enough to say" in steps[4].answer
    assert steps[2].answer.endswith("; only 2 seeds.")
    assert steps[2].status == "answered"


def test_what_seeds_do_not_explain_is_said(carried_out):
    add_run(carried_out, [(1.0, images(6, without=range(2, 12)))], mode="warn", truth=False)
    steps = steps_of(carried_out)
    assert steps[2].answer.startswith("Yes: changing the mode moved ")
    assert "not shown to be less than seeds do" in steps[2].answer
    assert "less than that: repeats of one spec, devices" in steps[4].answer
    assert "not shown to be less: modes" in steps[4].answer


def test_precision_and_threads_are_no_device(tmp_path):
    """On one processor cells that change with bfloat16 say nothing of another device."""
    store = Store(tmp_path)
    for seed in range(3):
        seeded(store, seed, n=6)
    far = images(6, without={12, 13, 14})
    same = {f"img_{i}": cells(without={0, 1, 15} if i % 2 else {0, 1}) for i in range(6)}
    add_run(store, [(1.0, far)], truth=False, **BFLOAT16)
    add_run(store, [(1.0, same)], truth=False, **ONE_THREAD)
    step = steps_of(store)[3]
    assert step.question == "Does another device or machine give other cells?"
    assert (step.status, step.n_pairs) == ("not enough runs", 0)
    assert step.answer.startswith("No other device was compared. On one device: No: changing ")
    assert "threads or instruction set leaves the outlines the same in 1 pair." in step.answer
    assert "Yes: changing the precision moved 21 % of the cells" in step.answer
    assert "profiles cuda, mps" in step.todo
    add_run(store, [(1.0, same)], truth=False, **CUDA, manifest={"device": "cuda:0"})
    answer = steps_of(store)[3].answer
    assert answer.startswith("No: changing the device leaves the outlines the same in ")
    assert "On one device: No: changing threads" in answer


def test_nothing_found_is_no_answer(tmp_path):
    store = Store(tmp_path)
    add_run(store, [(1.0, {"img": NOTHING})] * 3, mode="fast")
    first = steps_of(store)[0]
    assert (first.status, first.n_pairs) == ("not enough runs", 0)
    assert first.answer == "No cells were found in 3 pairs, which proves nothing."
    assert "a network that finds cells" in first.todo


def test_strict_with_one_operation_loose_is_not_strict(tmp_path):
    add_run(Store(tmp_path), [(1.0, images()), (1.5, images(without=[1]))], loose="index_put")
    assert steps_of(Store(tmp_path))[1].status == "not enough runs"


# -- the grids -----------------------------------------------------------------------------


def test_the_grid_holds_all_five_steps(small_data, tmp_path):
    grid = read_grid(
        PROJECT / "grids" / "protocol.yaml",
        store=tmp_path / "outputs",
        overrides={"data": str(small_data)},
    )
    points = {(p.plan.spec.mode, p.plan.spec.profile, p.plan.spec.seed) for p in grid.points}
    assert grid.repeats == 2
    assert points == {("fast", "cpu", 0), ("strict", "cpu-1thread", 0)} | {
        ("strict", "cpu", seed) for seed in range(4)
    }
    assert all(p.plan.spec.model == "tiny" for p in grid.points)
    assert not (tmp_path / "outputs").exists()


def test_the_long_grid_can_be_carried_out(small_data, tmp_path):
    """Here on the processor; what it asks for reaches the notebook, checkpoints included."""
    grid = read_grid(
        PROJECT / "grids" / "protocol-long.yaml",
        store=tmp_path / "outputs",
        overrides={"data": str(small_data), "profile": "cpu"},
    )
    points = [(p.plan.spec.mode, p.plan.spec.seed) for p in grid.points]
    assert sorted(points) == [(mode, seed) for mode in ("fast", "strict") for seed in range(5)]
    assert {p.plan.spec.epochs for p in grid.points} == {500}
    asked = {
        (p.parameters["checkpoint_every"], p.parameters["keep_checkpoints"]) for p in grid.points
    }
    assert asked == {(10, True)}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"checkpoint_every": -3}, "checkpoint_every is -3; expected a number of epochs"),
        ({"checkpoint_every": 0}, "keep_checkpoints asks for checkpoints and checkpoint_every, 0"),
        ({"keep_checkpoints": "all"}, "keep_checkpoints is 'all'; expected true or false"),
    ],
    ids=["negative", "none to keep", "no switch"],
)
def test_checkpoints_are_refused_before_anything_runs(small_data, tmp_path, given, message):
    with pytest.raises(BadInput, match=message):
        read_grid(
            PROJECT / "grids" / "protocol-long.yaml",
            store=tmp_path / "outputs",
            overrides={"data": str(small_data), "profile": "cpu", **given},
        )
    assert not (tmp_path / "outputs").exists()
