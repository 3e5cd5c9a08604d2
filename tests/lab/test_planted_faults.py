"""`cellrepro.diverge` against trainings in which one known thing was changed at a random place.

Where a fault lies follows from its case's number; what must be named follows from the fault, and
from an own look at the stored tables (`planted.diverging_entry`, `planted.diverging_operation`).
One case of each kind of fault is in the fast suite, the others are slow.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from contextlib import contextmanager
from functools import partial
from unittest import mock

import numpy as np
import pytest

import planted
from cellrepro.determinism.seeding import generators_kept
from cellrepro.lab import process
from cellrepro.lab.checkpointing import Keeping
from cellrepro.lab.divergence import rerun
from cellrepro.lab.divergence.find import diverge
from cellrepro.store import platform
from cellrepro.trace.training_steps import Watches, layer_group
from planted import N_STEPS, at_step, before_step, wrapped

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS, OFF, OPS = {"ledger": "steps"}, {"ledger": "off"}, {"ledger": "ops"}


def first_is_fast(*cases):
    """Cases of one kind of fault: the first runs always, the others in the long suite."""
    cases = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [
        pytest.param(*case, id="-".join(map(_named, case)), marks=[pytest.mark.slow] * (n > 0))
        for n, case in enumerate(cases)
    ]


def _named(value):
    return getattr(value, "__name__", None) or re.sub(r"\W+", "_", str(value)).strip("_")


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    """The shared store; runs made in it are only added to."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        made = planted.Bench(tmp_path_factory.mktemp("planted"))
        assert all(record.n_objects > 1 for record in made.clean().manifest.masks.values())
    finally:
        torch.set_num_threads(n_threads)
    return made


def dice(number):
    """Where a case's fault lies."""
    return np.random.default_rng([20261101, number])


def kept(step):
    """Write down the operations of a step and of the one before it; all take twice as long."""
    return Keeping(operation_steps=(max(0, step - 1), step))


def outside_steps(found, stage, *names):
    """Assert what was named of a difference before the first step or after the last."""
    assert found.first is not None
    assert (found.first.step, found.first.stage, found.first.names) == (None, stage, names)
    assert found.first.op is None


def in_step(bench, a, b, step, *stages):
    """Assert the step, stage and names; from what was planted, and from the stored tables."""
    found = bench.diverge(a, b)
    expected = planted.diverging_entry(a, b)
    assert expected is not None, "the fault left no trace"
    assert expected[0] == step
    assert expected[1] in stages
    assert (found.first.step, found.first.stage, found.first.names) == expected
    assert found.first.epoch == step // 2
    return found


# -- what went in --------------------------------------------------------------------------


def a_pixel(at, pixels):
    """Make one pixel a little brighter or darker."""
    y, x = (int(at.integers(n)) for n in pixels.shape)
    pixels[y, x] = int(pixels[y, x]) ^ 64


def a_label_pixel(at, labels):
    """Take one pixel from an object."""
    inside = np.argwhere(labels > 0)
    y, x = inside[at.integers(len(inside))]
    labels[y, x] = 0


def other_numbers(at, labels):
    """Number the same objects otherwise."""
    numbers = np.unique(labels[labels > 0])
    lookup = np.zeros(numbers.max() + 1, labels.dtype)
    lookup[numbers] = np.roll(numbers, int(at.integers(1, len(numbers))))
    return lookup[labels]


@pytest.mark.parametrize(
    ("number", "split", "change"),
    first_is_fast(
        (0, "train", a_pixel),
        (3, "train", a_label_pixel),
        (10, "train", other_numbers),
        (20, "test", a_pixel),
        (22, "test", a_label_pixel),
    ),
)
def test_image_or_mask(bench, number, split, change):
    """The file, its content and what is made of it are named; numbers of objects change no step."""
    at = dice(number)
    image = f"synth_{at.integers(2) + 2 * (split == 'test'):03}"
    masks = change is not a_pixel
    file = f"{split}/{image}{'_masks' if masks else ''}.tif"
    data = bench.folder(
        f"data {number}", lambda folder: planted.rewrite_image(folder / file, partial(change, at))
    )
    clean, changed = bench.clean(**STEPS), bench.run(data=data, **STEPS)
    found = bench.diverge(clean, changed)
    names = [f"file {file}", f"{image} {'masks' if masks else 'decoded'}"]
    if split == "train" and change is not other_numbers:
        names.append(f"{image} {'flows' if masks else 'normalised'}")
        step, stage, _ = planted.diverging_entry(clean, changed)
        assert (found.computed.step, found.computed.stage) == (step, stage)
        assert any(note.startswith("operations were not compared") for note in found.notes)
    else:
        assert found.computed is None
    outside_steps(found, "data", *names)
    assert found.judgement == "data"


def a_weight(at, tensors):
    """Move one weight by one unit in its last place; returns its layer's group."""
    name = str(at.choice(sorted(tensors.keys() - {"diam_labels", "diam_mean"})))
    values = tensors[name].reshape(-1)
    index = at.integers(values.size)
    values[index] = np.nextafter(values[index], np.float32(np.inf))
    return layer_group(name)


@pytest.mark.slow
def test_weight_of_the_file_trained_from(bench):
    """One bit of one weight in the file: its group of layers."""
    at, named = dice(30), []
    model = bench.root / "file" / bench.model.name
    model.parent.mkdir()
    planted.rewrite_weights(bench.model, lambda t: named.append(a_weight(at, t)), model)
    found = bench.diverge(bench.clean(**STEPS), bench.run(model=str(model), **STEPS))
    outside_steps(found, "weights-init", *named)
    assert found.judgement == "data"


@pytest.mark.parametrize(
    "asked",
    first_is_fast(
        {"seed": 1},
        {"data_seed": 7},
        {"learning_rate": 0.02},
        {"epochs": 4},
        {"batch_size": 2},
        {"mode": "fast"},
        {"loose": "index_put"},
    ),
)
def test_settings(bench, asked):
    """Other settings are named, and what they came to in the steps."""
    found = bench.diverge(bench.clean(**STEPS), bench.run(**STEPS, **asked))
    outside_steps(found, "spec", *asked)
    assert found.judgement == "settings"
    shown = {
        "seed": (0, "rng"),
        "data_seed": (0, "batch"),
        "learning_rate": (2, "update"),  # in the first epoch it is 0
        "batch_size": (0, "batch"),
    }.get(next(iter(asked)))
    if shown is not None:
        assert (found.computed.step, found.computed.stage) == shown
    if "mode" in asked:
        assert "environment" not in found.stages
    if "epochs" in asked:
        assert found.computed is None
        assert any(f"B {2 * asked['epochs']}; only the first" in note for note in found.notes)


# -- the environment -----------------------------------------------------------------------


def test_version_in_the_stored_files(bench):
    """Named from the files alone, without a ledger."""
    clean = bench.clean(**OFF)
    changed = bench.copy(clean)
    planted.rewrite_manifest(changed.folder, lambda m: m["versions"].update(torch="1.0"))
    found = bench.diverge(clean, changed)
    outside_steps(found, "environment", "versions.torch")
    assert (found.computed, found.judgement) == (None, "environment")
    assert any("kept no ledger" in note for note in found.notes)


def _capability():
    import torch

    return mock.patch.object(torch.backends.cpu, "get_cpu_capability", return_value="PLANTED")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (_capability, "cpu_capability"),
        (lambda: mock.patch.dict(os.environ, MKL_CBWR="COMPATIBLE"), "variables.MKL_CBWR"),
        (lambda: wrapped(platform, "versions", lambda f: f() | {"numpy": "0"}), "versions.numpy"),
    ],
    ids=["instructions", "variable", "version"],
)
def test_environment(bench, plant, name):
    """What the run found around it."""
    found = bench.diverge(bench.clean(**STEPS), bench.run(plant(), **STEPS))
    outside_steps(found, "environment", name)
    assert (found.computed, found.judgement) == (None, "environment")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("threads: 2", {"profile.threads", "variables.OMP_NUM_THREADS"}),
        ("threads: 1\nenvironment: {MKL_CBWR: AVX2}", {"profile.environment.MKL_CBWR"}),
        ("threads: 1\ndtype: bfloat16", {"profile.dtype"}),
    ],
    ids=["threads", "variable", "dtype"],
)
def test_profile(bench, tmp_path, settings, names):
    """A setting of the profile is named, not the profile."""
    file = tmp_path / "cpu-1thread.yaml"
    file.write_text(f"device: cpu\n{settings}\n")
    found = bench.diverge(bench.clean(**STEPS), bench.run(profile=str(file), **STEPS))
    assert (found.first.step, found.first.stage) == (None, "environment")
    assert {*found.first.names} <= names
    assert found.first.names


# -- random numbers ------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("generator", planted.DRAWS)
def test_draw_between_two_steps(bench, generator):
    """The generator before the step after it, and nobody is blamed."""
    step = int(dice(50).integers(1, N_STEPS))
    draw = planted.DRAWS[generator]
    changed = bench.run(before_step(step, lambda loop: draw() and None), keeping=kept(step))
    found = in_step(bench, bench.clean(), changed, step, "rng")
    assert found.first.names[0] == f"{generator} before"
    assert (found.first.op, found.judgement) == (None, "draws")
    assert any("a generator changed before the step began" in note for note in found.notes)


MODULES = ["encoder.blocks.0.attn", "encoder.blocks.1.mlp.lin2", "encoder.neck.2", "out"]


@pytest.mark.parametrize(
    ("number", "generator"), first_is_fast((60, "python"), (61, "numpy"), (62, "torch"))
)
def test_draw_within_a_forward_pass(bench, number, generator):
    """The draw itself, with its module and line."""
    at = dice(number)
    step, module = int(at.integers(N_STEPS)), str(at.choice(MODULES))
    draw = planted.DRAWS[generator]
    changed = bench.run(planted.hooked(step, module, draw), keeping=kept(step))
    found = in_step(bench, bench.clean(), changed, step, "rng")
    assert found.first.names == (f"{generator} after",)
    assert (found.first.module, found.first.phase) == (module, "forward")
    assert re.fullmatch(rf"(tests/)?planted\.py:\d+ in {draw.__name__}", found.first.source)
    assert found.first.source in found.evidence.draws
    assert found.judgement == "draws"


@pytest.mark.slow
def test_draw_before_the_crop_is_drawn(bench):
    """A number more from NumPy within a step crops otherwise; the draw is in the evidence."""
    import cellpose.train

    step = int(dice(70).integers(N_STEPS))

    def batch(original, *arguments, **options):
        planted.draw_numpy()
        return original(*arguments, **options)

    plant = at_step(step, lambda loop: wrapped(cellpose.train, "_get_batch", batch))
    changed = bench.run(plant, keeping=kept(step))
    found = in_step(bench, bench.clean(), changed, step, "batch")
    assert found.first.names == ("crops", "images", "targets")
    assert "in draw_numpy" in found.evidence.draws


# -- batches -------------------------------------------------------------------------------


def crop_down(images, targets):
    """One pixel in y."""
    return images.roll(1, -2), targets.roll(1, -2)


def to_float16(images, targets):
    """Images rounded, and back."""
    return images.half().float(), targets


@pytest.mark.parametrize(
    ("number", "change", "names"),
    first_is_fast((80, crop_down, ("images", "targets")), (82, to_float16, ("images",))),
)
def test_batch(bench, number, change, names):
    """What the network is given at one step."""
    import cellpose.transforms

    def cropped(original, *arguments, **options):
        images, targets, *others = original(*arguments, **options)
        return (*change(images, targets), *others)

    step = int(dice(number).integers(N_STEPS))
    plant = at_step(
        step, lambda loop: wrapped(cellpose.transforms, "random_rotate_and_resize", cropped)
    )
    found = in_step(bench, bench.clean(**STEPS), bench.run(plant, **STEPS), step, "batch")
    assert found.first.names == names


# -- operations ----------------------------------------------------------------------------

MATTER = {
    *("convolution", "addmm", "mm", "bmm", "native_layer_norm", "gelu", "_softmax"),
    *("add", "sub", "mul", "div", "sqrt", "sum"),
    *("convolution_backward", "native_layer_norm_backward", "gelu_backward"),
    *("_softmax_backward_data", "unfold_backward"),
    *("lerp_", "addcmul_", "addcdiv_", "mul_"),
}


def an_operation(at, clean, step, phase, change):
    """One of a step's operations whose result shows: of the second block, it may be dropped.

    A single score of an attention may be so low that the softmax leaves nothing of it.
    """
    single = (phase, change) == ("forward", planted.largest_scaled)
    hidden = ["encoder.blocks.0.attn"] if single else []
    candidates = [
        row
        for row in planted.operations(clean, step)
        if row["phase"] == phase
        and row["op"].split(".")[1] in MATTER
        and row["outputs"]
        and row["norm"]
        and (row["module"] or phase != "forward")
        and not str(row["module"]).startswith(("encoder.blocks.1", *hidden))
        and row["dtypes"].split(" -> ")[1].split(",")[0] == "float32"
    ]
    return candidates[at.integers(len(candidates))]


@pytest.mark.parametrize(
    ("number", "phase", "change"),
    first_is_fast(
        (100, "forward", planted.scaled),
        (102, "forward", planted.every_ulp),
        (104, "forward", planted.largest_scaled),
        (106, "backward", planted.scaled),
        (108, "backward", planted.every_ulp),
        (110, "backward", planted.largest_scaled),
        (112, "update", planted.scaled),
        (113, "update", planted.largest_scaled),
    ),
)
def test_operation(bench, number, phase, change):
    """The exact operation, whatever follows from it."""
    at, clean = dice(number), bench.clean()
    step = int(at.integers(2, N_STEPS))
    row = an_operation(at, clean, step, phase, change)
    changed = bench.run(planted.one_operation(step, row["index"], change), keeping=kept(step))
    stages = {
        "forward": ("forward", "backward"),
        "backward": ("backward",),
        "update": ("update", "weights"),
    }[phase]
    found = in_step(bench, clean, changed, step, *stages)
    one, other = planted.diverging_operation(clean, changed, step)
    assert one == row
    assert one["inputs"] == other["inputs"]
    first = found.first
    assert first == found.computed
    named = (first.op, first.module, first.source, first.phase, first.inputs)
    assert named == (row["op"], row["module"], row["source"], row["phase"], "agree")
    assert found.evidence.how == "stored operations"
    assert "is the first operation whose inputs agree" in found.evidence.parting


def test_unwritten_memory_is_no_race(bench, monkeypatch):
    """An operation that reads it gives other bits in every repetition, and is called what it is."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    chance = iter(np.random.default_rng(0).random(1000))

    def reads(original, *arguments):
        with _disable_current_modes():  # who had this memory before leaves something there
            torch.empty(256).fill_(1e-5 * next(chance))
        return original(*arguments) * (1 + torch.empty(256)[64:].sum())

    import cellpose.train

    step = 2
    plant = partial(at_step, step, lambda loop: wrapped(cellpose.train, "_loss_fn_seg", reads))
    asked = {**STEPS, "mode": "fast"}  # mode strict fills all memory
    a, b = bench.run(plant(), **asked), bench.run(plant(), **asked)
    assert planted.diverging_entry(a, b) == (step, "loss", ("loss",))
    monkeypatch.setattr(rerun, "call", partial(process.call, here=True))  # where the plant is
    with bench.as_one_process(), generators_kept(), plant():
        found = diverge(a.name, b.name, repetitions=3, store=bench.store.root, quiet=True)
    assert found.judgement == "unwritten-memory", found.evidence
    assert (found.first.step, found.first.stage, found.first.op) == (
        step,
        "loss",
        "aten.sum.default",
    )
    assert "aten.empty.memory_format" in found.evidence.parting


# -- single values between the stages of a step --------------------------------------------


@pytest.mark.parametrize("ledger", first_is_fast("ops", "steps"))
def test_gradient(bench, ledger):
    """A gradient changed once it is there: the group of layers, and no operation to blame."""
    at = dice(142)
    step = int(at.integers(N_STEPS))
    named = []

    def backward(original, watches, network):
        names = [
            name for name, p in network.named_parameters() if p.grad is not None and p.grad.any()
        ]
        name = str(at.choice(sorted(names)))
        planted.one_ulp(network.get_parameter(name).grad)
        named.append(layer_group(name))
        original(watches, network)

    plant = at_step(step, lambda loop: wrapped(Watches, "backward", backward))
    changed = bench.run(plant, ledger=ledger, keeping=kept(step))
    found = in_step(bench, bench.clean(ledger=ledger), changed, step, "backward")
    assert found.first.names == tuple(named)
    assert found.first.op is None


def skipped(original, *arguments, **options):
    """Update nothing."""


def decayed(original, optimizer, *arguments, **options):
    """Update with another weight decay."""
    optimizer.param_groups[0]["weight_decay"] += 0.05
    return original(optimizer, *arguments, **options)


def a_moment(original, optimizer, *arguments, **options):
    """Move one running mean by one unit in its last place, once it is updated."""
    result = original(optimizer, *arguments, **options)
    planted.one_ulp(next(iter(optimizer.state.values()))["exp_avg"])
    return result


@pytest.mark.parametrize(
    ("number", "change", "ledger"),
    first_is_fast((154, decayed, "steps"), (153, skipped, "ops"), (157, a_moment, "ops")),
)
def test_optimizer(bench, number, change, ledger):
    """An update done otherwise, or not at all."""
    import torch

    step = int(dice(number).integers(1, N_STEPS))

    @contextmanager
    def plant(loop):
        group = loop.optimizer.param_groups[0]
        before = group["weight_decay"]
        with wrapped(torch.optim.AdamW, "step", change):
            yield
        group["weight_decay"] = before

    changed = bench.run(at_step(step, plant), ledger=ledger, keeping=kept(step))
    found = in_step(bench, bench.clean(ledger=ledger), changed, step, "update")
    if change is decayed:
        assert found.first.names == ("settings",)
    assert found.first.phase in (None, "update")


@pytest.mark.parametrize(
    ("number", "name"),
    first_is_fast(
        (160, "encoder.neck.2.weight"), (162, "encoder.blocks.0.mlp.lin1.weight"), (163, "out.bias")
    ),
)
def test_weight_between_two_steps(bench, number, name):
    """The step before ended in equal weights, so it shows in what the next one computes first.

    The operation named is the first whose outputs differ, and so did its inputs.
    """
    step = int(dice(number).integers(1, N_STEPS))
    plant = before_step(step, lambda loop: planted.one_ulp(loop._network.get_parameter(name)))
    changed = bench.run(plant, keeping=kept(step))
    found = in_step(bench, bench.clean(), changed, step, "forward")
    one, other = planted.diverging_operation(bench.clean(), changed, step)
    assert one["inputs"] != other["inputs"]
    first = found.first
    assert (first.op, first.module, first.source) == (one["op"], one["module"], one["source"])
    assert (first.module, first.inputs) == (name.rpartition(".")[0], "differ")


# -- what came out -------------------------------------------------------------------------


@pytest.mark.parametrize("ledger", first_is_fast("steps", "off"))
def test_stored_files(bench, ledger):
    """A stored mask or weight that was changed afterwards: only the file."""
    at, clean = dice(200), bench.clean(ledger=ledger)
    changed = bench.copy(clean)
    image = f"synth_{at.integers(2, 4):03}"
    planted.rewrite_image(changed.folder / "masks" / f"{image}.tif", partial(a_label_pixel, at))
    outside_steps(bench.diverge(clean, changed), "masks", f"{image} stored file")
    planted.rewrite_weights(changed.weights, lambda tensors: a_weight(at, tensors) and None)
    outside_steps(bench.diverge(clean, changed), "weights", "stored file")


def one_flow(at, result):
    """One value of what the network gave."""
    result.flows["flows"] = result.flows["flows"].copy()
    values = result.flows["flows"].reshape(-1)
    index = at.integers(values.size)
    values[index] = np.nextafter(values[index], np.float32(np.inf))


def labels_swapped(at, result):
    """Other numbers for the same objects."""
    result.masks[:] = planted.swapped(result.masks)


def a_mask_pixel(at, result):
    """One pixel of one object."""
    a_label_pixel(at, result.masks)


@pytest.mark.parametrize(
    ("change", "stage", "names", "verdict"),
    first_is_fast(
        (a_mask_pixel, "masks", ("outlines", "labels", "stored file"), "different"),
        (labels_swapped, "masks", ("labels", "stored file"), "same-objects"),
        (one_flow, "flows", ("flows",), None),
    ),
)
def test_segmentation(bench, change, stage, names, verdict):
    """What is given for one test image."""
    from cellrepro.model import inference

    at = int(dice(180).integers(2))
    image = f"synth_{at + 2:03}"

    def segment(original, network, images):
        for index, result in enumerate(original(network, images)):
            if index == at:
                change(dice(181), result)
            yield result

    plant = wrapped(inference, "segment", segment)
    found = bench.diverge(bench.clean(**STEPS), bench.run(plant, **STEPS))
    outside_steps(found, stage, *(f"{image} {name}" for name in names))
    assert found.computed is None
    assert verdict is None or found.verdict.value == verdict


# -- equal pairs ---------------------------------------------------------------------------


class _KilledError(Exception):
    pass


def resumed(bench, step=3, **asked):
    """A training that was killed at a step and went on."""

    def stop(loop):
        raise _KilledError

    unfinished = bench.root / f"unfinished {step} {asked['ledger']}"
    unfinished.mkdir()
    keeping = {"unfinished": unfinished, "checkpoint_every": 1}
    with pytest.raises(_KilledError):
        bench.run(before_step(step, stop), keeping=Keeping(**keeping), **asked)
    done = bench.run(keeping=Keeping(**keeping, resume=True), **asked)
    assert done.manifest.training.resumed_at == [step // 2]
    return done


def renamed(bench, **asked):
    """The same images and weights under other names."""
    data, model = bench.root / "elsewhere" / "others", bench.root / "same.safetensors"
    shutil.copytree(bench.data, data)
    shutil.copyfile(bench.model, model)
    return bench.run(data=data, model=str(model), **asked)


def again(bench, **asked):
    """The same spec once more."""
    return bench.run(**asked)


def beside(bench, **asked):
    """The same training with another ledger."""
    return bench.clean(**{**asked, "ledger": "steps" if asked["ledger"] == "ops" else "ops"})


def draws_before_the_seeds(bench, **asked):
    """What the seeds overwrite is no difference."""
    from cellrepro.lab import worker

    def data(original, *arguments):
        planted.draw_numpy()
        planted.draw_torch()
        return original(*arguments)

    return bench.run(wrapped(worker, "read_folder", data), **asked)


@pytest.mark.parametrize(
    ("make", "asked"),
    first_is_fast(
        (again, STEPS),
        (again, OFF),
        (beside, OPS),
        (beside, OFF),
        (again, {**STEPS, "batch_size": 2, "images_per_epoch": 3}),
        (again, {**STEPS, "mode": "warn"}),
        (again, {**STEPS, "model": "tiny"}),
        (again, {**STEPS, "epochs": 1}),
        (again, {**STEPS, "learning_rate": 0.0}),
        (resumed, STEPS),
        (partial(resumed, step=4), OPS),
        (renamed, STEPS),
        (draws_before_the_seeds, STEPS),
    ),
)
def test_nothing_is_reported_of_equal_runs(bench, make, asked):
    """Equal runs are equal, whatever was written down of them and wherever they lay."""
    clean = bench.clean(**asked)
    found = bench.diverge(clean, make(bench, **asked))
    assert found.first is None, found.sentence()
    assert (found.computed, found.judgement, found.stages) == (None, None, {})
    assert found.sentence().startswith("no difference in ")


def test_exit_code(bench, invoke):
    """1 where something differs."""
    clean = bench.clean(**STEPS)
    changed = bench.copy(clean)
    change = partial(a_label_pixel, dice(0))
    planted.rewrite_image(changed.folder / "masks" / "synth_002.tif", change)
    store = ["--no-again", "--store", bench.store.root]
    answer = invoke("diverge", clean.name, changed.name, *store, "--json")
    assert answer.code == 1
    assert answer.json["first"]["said"].startswith("synth_002 stored file")
    assert json.loads(answer.out)["judgement"] == "unexplained"
