"""`cellrepro.diverge` against trainings in which one known thing was changed.

What must be named follows from what was planted, and from an own look at the stored tables
(`planted.diverging_entry`, `planted.diverging_operation`).
"""

from __future__ import annotations

import os
import re
import shutil
from functools import partial
from unittest import mock

import numpy as np
import pytest

import planted
from cellrepro.divergence import step_again
from cellrepro.divergence.diverge import diverge
from cellrepro.errors import Damaged
from cellrepro.model import inference
from cellrepro.model.watches import Watches, layer_group
from cellrepro.process import calling
from cellrepro.run.options import RecordingOptions
from cellrepro.store.ledger import LEDGER
from cellrepro.store.machine_identity import MACHINE_VARIABLE
from planted import N_STEPS, at_step, before_step, wrapped
from samebits.generator_states import generators_kept

pytestmark = pytest.mark.usefixtures("one_thread")

STEP = 3  # where a fault lies, if its test does not say otherwise; the first epoch ends at 2
IMAGE = "synth_002"  # the only test image
KEPT = {"ledger": "ops", "recording": RecordingOptions(operation_steps=(STEP - 1, STEP))}
"""Write down the operations of that step and of the one before it; all take twice as long."""


@pytest.fixture(scope="module")
def bench(tmp_path_factory, small_store):
    """The shared store; runs made in it are only added to."""
    made = planted.Bench(tmp_path_factory.mktemp("planted"), small_store.weights)
    assert made.clean.manifest.masks[IMAGE].n_objects > 1  # what a first run sets stays set
    return made


def outside_steps(found, stage, *names):
    """Assert what was named of a difference before the first step or after the last."""
    assert found.first is not None
    assert (found.first.step, found.first.stage, found.first.names) == (None, stage, names)
    assert found.first.op is None


def in_step(bench, changed, *stages):
    """Assert step, stage and names; from what was planted, and from the stored tables."""
    found = bench.diverge(bench.clean, changed)
    expected = planted.diverging_entry(bench.clean, changed)
    assert expected is not None, "the fault left no trace"
    assert expected[0] == STEP
    assert expected[1] in stages
    assert (found.first.step, found.first.stage, found.first.names) == expected
    assert found.first.epoch == STEP // 2
    return found


# -- what went in --------------------------------------------------------------------------


def a_pixel(pixels):
    """Take one pixel from an image, or from an object."""
    pixels[tuple(np.argwhere(pixels > 0)[40])] = 0


def test_image(bench, tmp_path):
    """The file, its content and what is made of it are named."""
    data = tmp_path / "cells"
    shutil.copytree(bench.data, data)
    planted.rewrite_image(data / "train" / "synth_000.tif", a_pixel)
    changed = bench.run(data=data)
    found = bench.diverge(bench.clean, changed)
    names = ("file train/synth_000.tif", "synth_000 decoded", "synth_000 normalised")
    outside_steps(found, "data", *names)
    step, stage, _ = planted.diverging_entry(bench.clean, changed)
    assert (found.computed.step, found.computed.stage) == (step, stage)
    assert any(note.startswith("operations were not compared") for note in found.notes)
    assert found.judgement == "data"


def a_weight(tensors):
    """Move one weight of the output layer by one unit in its last place."""
    tensors["out.bias"][5] = np.nextafter(tensors["out.bias"][5], np.float32(np.inf))


@pytest.mark.slow
def test_weight_of_the_file_trained_from(bench, tmp_path):
    """One bit of one weight in the file: its group of layers."""
    model = tmp_path / bench.model.name
    shutil.copyfile(bench.model, model)
    planted.rewrite_weights(model, a_weight)
    found = bench.diverge(bench.clean, bench.run(model=str(model)))
    outside_steps(found, "weights-init", layer_group("out.bias"))
    assert found.judgement == "data"


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        ({"learning_rate": 0.02}, (2, "update")),  # in the first epoch it is 0
        pytest.param({"epochs": 3}, None, marks=pytest.mark.slow),
    ],
    ids=["learning rate", "epochs"],
)
def test_settings(bench, asked, shown):
    """Other settings are named, and what they came to in the steps."""
    found = bench.diverge(bench.clean, bench.run(**asked))
    outside_steps(found, "spec", *asked)
    assert found.judgement == "settings"
    assert (found.computed and (found.computed.step, found.computed.stage)) == shown
    note = "A made 4 steps and B 6; only the first 4 were compared"
    assert (note in found.notes) is (shown is None)


@pytest.mark.slow
def test_environment(bench):
    """What the run found around it."""
    with mock.patch.dict(os.environ, MKL_CBWR="COMPATIBLE"):
        found = bench.diverge(bench.clean, bench.run())
    outside_steps(found, "environment", "variables.MKL_CBWR")
    assert (found.computed, found.judgement) == (None, "environment")


# -- random numbers ------------------------------------------------------------------------


def draw_numpy():
    return np.random.rand()


def test_draw_within_a_forward_pass(bench):
    """The draw itself, with its module and line."""
    module = "encoder.blocks.0.attn"

    def drawn(forward, *arguments):
        draw_numpy()
        return forward(*arguments)

    def plant(loop):
        return wrapped(loop._network.get_submodule(module), "forward", drawn)

    found = in_step(bench, bench.run(at_step(STEP, plant), **KEPT), "rng")
    assert found.first.names == ("numpy after",)
    assert (found.first.module, found.first.phase) == (module, "forward")
    assert re.search(r"test_planted_faults\.py:\d+ in draw_numpy$", found.first.source)
    assert found.first.source in found.evidence.draws
    assert found.judgement == "draws"


@pytest.mark.slow
def test_draw_between_two_steps(bench):
    """The generator before the step after it, and nobody is blamed."""
    changed = bench.run(before_step(STEP, lambda loop: draw_numpy() and None), **KEPT)
    found = in_step(bench, changed, "rng")
    assert found.first.names[0] == "numpy before"
    assert (found.first.op, found.judgement) == (None, "draws")
    assert any("a generator changed before the step began" in note for note in found.notes)


def test_batch(bench):
    """What the network is given at one step: images and targets one pixel down."""
    import cellpose.transforms

    def cropped(original, *arguments, **options):
        images, targets, *others = original(*arguments, **options)
        return (images.roll(1, -2), targets.roll(1, -2), *others)

    name = "random_rotate_and_resize"
    plant = at_step(STEP, lambda loop: wrapped(cellpose.transforms, name, cropped))
    assert in_step(bench, bench.run(plant), "batch").first.names == ("images", "targets")


# -- operations ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "op"),
    [
        ("forward", "gelu"),
        pytest.param("backward", "gelu_backward", marks=pytest.mark.slow),
        pytest.param("update", "lerp_", marks=pytest.mark.slow),
    ],
)
def test_operation(bench, phase, op):
    """The exact operation, whatever follows from it; the first of its kind."""
    named = re.compile(rf"aten\.{op}\.")
    candidates = planted.operations(bench.clean, STEP)
    row = next(row for row in candidates if row["phase"] == phase and named.match(row["op"]))
    changed = bench.run(planted.one_operation(STEP, row["index"], planted.every_ulp), **KEPT)
    stages = {"forward": ("forward", "backward"), "update": ("update", "weights")}
    found = in_step(bench, changed, *stages.get(phase, ("backward",)))
    one, other = planted.diverging_operation(bench.clean, changed, STEP)
    assert one == row
    assert one["inputs"] == other["inputs"]
    first = found.first
    assert first == found.computed
    expected = (row["op"], row["module"], row["source"], row["phase"], "agree")
    assert (first.op, first.module, first.source, first.phase, first.inputs) == expected
    assert found.evidence.how == "stored operations"
    assert "is the first operation whose inputs agree" in found.evidence.parting


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "judgement"), [(planted.every_ulp, "round-off"), (planted.a_thousandth, "fault")]
)
def test_operation_on_another_machine(bench, monkeypatch, change, judgement):
    """Two machines cannot repeat each other's steps; what each wrote of its own is judged."""
    op = next(row for row in planted.operations(bench.clean, STEP) if "gelu" in row["op"])
    here = bench.run(**KEPT)
    monkeypatch.setenv(MACHINE_VARIABLE, "another")
    there = bench.run(planted.one_operation(STEP, op["index"], change), **KEPT)
    found = bench.diverge(here, there)
    assert (found.first.op, found.first.module) == (op["op"], op["module"])
    assert (found.judgement, found.evidence.how) == (judgement, "stored operations")


def test_unwritten_memory_is_no_race(bench, monkeypatch):
    """An operation that reads it differs in bits in every repetition, and is called what it is."""
    import cellpose.train
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    chance = iter(np.random.default_rng(0).random(1000))

    def reads(original, *arguments):
        loss = original(*arguments)
        with _disable_current_modes():  # who had the memory before leaves something there
            value = 1e-5 * next(chance)
            left = [torch.empty(256).fill_(value) for _ in range(64)]  # one block may be taken
            del left
        return loss * (1 + torch.empty(256)[64:].sum())

    plant = partial(at_step, 2, lambda loop: wrapped(cellpose.train, "_loss_fn_seg", reads))
    a, b = (bench.run(plant(), mode="fast") for _ in range(2))  # mode strict fills all memory
    assert planted.diverging_entry(a, b) == (2, "loss", ("loss",))
    monkeypatch.setattr(step_again, "in_child", calling.in_this_process)  # where the plant is
    with planted.as_one_process(), generators_kept(), plant():
        few = {"repetitions": 3, "suspects": 8}
        found = diverge(a.name, b.name, **few, store=bench.store.root, quiet=True)
    assert found.judgement == "unwritten-memory", found.evidence
    first = found.first
    assert (first.step, first.stage, first.op) == (2, "loss", "aten.sum.default")
    assert "aten.empty.memory_format" in found.evidence.parting


# -- single values between the stages of a step --------------------------------------------


def test_gradient(bench):
    """A gradient changed once it is there: the group of layers, and no operation to blame."""
    name = "encoder.blocks.0.mlp.lin1.weight"

    def backward(original, watches, network):
        planted.one_ulp(network.get_parameter(name).grad)
        original(watches, network)

    plant = at_step(STEP, lambda loop: wrapped(Watches, "backward", backward))
    found = in_step(bench, bench.run(plant, **KEPT), "backward")
    assert found.first.names == (layer_group(name),)
    assert found.first.op is None


@pytest.mark.slow
def test_weight_between_two_steps(bench):
    """The step before ended in equal weights, so it shows in what the next one computes first.

    The operation named is the first whose outputs differ, and so did its inputs.
    """
    name = "encoder.neck.2.weight"
    plant = before_step(STEP, lambda loop: planted.one_ulp(loop._network.get_parameter(name)))
    changed = bench.run(plant, **KEPT)
    first = in_step(bench, changed, "forward").first
    one, other = planted.diverging_operation(bench.clean, changed, STEP)
    assert one["inputs"] != other["inputs"]
    actual = (first.op, first.module, first.source)
    assert actual == (one["op"], one["module"], one["source"])
    assert (first.module, first.inputs) == (name.rpartition(".")[0], "differ")


# -- what came out -------------------------------------------------------------------------


def test_stored_files(bench, invoke):
    """What was changed afterwards is damage, and no place where two runs part; without ledgers,
    manifests are compared."""
    clean = bench.copy(bench.clean)
    for name, rewrite, change in (
        (f"masks/{IMAGE}.tif", planted.rewrite_image, a_pixel),
        ("weights.safetensors", planted.rewrite_weights, a_weight),
    ):
        changed = bench.copy(bench.clean)
        rewrite(changed.folder / name, change)
        with pytest.raises(Damaged, match=re.escape(f"{changed.folder / name} is damaged")):
            bench.diverge(clean, changed)
    changed = bench.copy(bench.clean)
    (changed.folder / LEDGER).unlink()
    planted.rewrite_manifest(changed.folder, lambda m: m["versions"].update(torch="1.0"))
    store = ["--no-again", "--store", bench.store.root]
    answer = invoke("diverge", clean.name, changed.name, *store, "--json")
    first = answer.json["first"]
    assert (answer.code, answer.json["judgement"]) == (1, "environment")
    assert (first["stage"], first["names"]) == ("environment", ["versions.torch"])


def other_numbers(masks):
    """The same objects, each with the next one's number."""
    numbers = np.unique(masks[masks > 0])
    lookup = np.zeros(numbers.max() + 1, masks.dtype)
    lookup[numbers] = np.roll(numbers, 1)
    masks[:] = lookup[masks]


@pytest.mark.parametrize(
    ("change", "names", "verdict"),
    [
        (lambda result: a_pixel(result.masks), "outlines, labels, stored file", "different"),
        pytest.param(
            lambda result: other_numbers(result.masks),
            "labels, stored file",
            "same-objects",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            lambda result: result.flows.update(flows=2 * result.flows["flows"]),
            *("flows", "identical"),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["a pixel of a mask", "other numbers", "flows"],
)
def test_segmentation(bench, change, names, verdict):
    """What is given for the test image."""

    def segment(original, network, images, **options):
        for result in original(network, images, **options):
            change(result)
            yield result

    found = bench.diverge(bench.clean, bench.run(wrapped(inference, "segment", segment)))
    stage = "flows" if names == "flows" else "masks"
    outside_steps(found, stage, *(f"{IMAGE} {name}" for name in names.split(", ")))
    assert found.computed is None
    assert found.verdict.value == verdict


# -- equal pairs ---------------------------------------------------------------------------


def test_nothing_is_reported_of_equal_runs(bench, tmp_path):
    """Equal runs are equal, wherever their images and weights lay, and under whatever names."""
    data, model = tmp_path / "others", tmp_path / "same.safetensors"
    shutil.copytree(bench.data, data)
    shutil.copyfile(bench.model, model)
    found = bench.diverge(bench.clean, bench.run(data=data, model=str(model)))
    assert found.first is None, found.sentence()
    assert (found.computed, found.judgement, found.stages) == (None, None, {})
    assert found.sentence().startswith("identical: no difference in ")
    assert found.compared > 50 * N_STEPS
