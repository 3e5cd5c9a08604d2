"""`cellrepro.diverge` against trainings in which one known thing was changed at a random place.

Where a fault lies follows from its case's number; what must be named follows from the fault, and
from an own look at the stored tables (`planted.parting_entry`, `planted.parting_operation`).
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
from cellrepro.lab.checkpointing import Keeping
from cellrepro.store import platform
from cellrepro.store.digests import value_digest
from cellrepro.trace.training_steps import Watches, layer_group
from planted import N_STEPS, at_step, before_step, rows, wrapped

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

STEPS = {"ledger": "steps"}


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


def before_training(found, stage, *names):
    """Assert what was named of a difference that is there before the first step."""
    assert found.first is not None
    assert (found.first.step, found.first.stage) == (None, stage)
    assert found.first.names == names
    assert found.first.op is None


def in_step(bench, a, b, step, *stages):
    """Assert the step, stage and names; from what was planted, and from the stored tables."""
    found = bench.diverge(a, b)
    expected = planted.parting_entry(a, b)
    assert expected is not None, "the fault left no trace"
    assert expected[0] == step
    assert expected[1] in stages
    assert found.first is not None
    assert (found.first.step, found.first.stage, found.first.names) == expected
    assert found.first.epoch == step // 2
    return found


def after_training(found, stage, *names):
    """Assert what was named of a difference that is there after the last step only."""
    assert found.first is not None
    assert (found.first.step, found.first.stage, found.first.names) == (None, stage, names)
    assert found.computed is None


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


def an_object(at, labels):
    """Take an object away."""
    labels[labels == at.choice(np.unique(labels[labels > 0]))] = 0


def other_numbers(at, labels):
    """Number the same objects otherwise."""
    numbers = np.unique(labels[labels > 0])
    lookup = np.zeros(numbers.max() + 1, labels.dtype)
    lookup[numbers] = np.roll(numbers, int(at.integers(1, len(numbers))))
    return lookup[labels]


PIXELS = [a_pixel] * 3
LABELS = [*[a_label_pixel] * 2, *[an_object] * 2]


@pytest.mark.parametrize(
    ("number", "change"),
    [*enumerate([*PIXELS, *LABELS])],
    ids=lambda value: value.__name__ if callable(value) else str(value),
)
def test_training_data(bench, number, change):
    """Of an image and a mask the file, its content and what training makes of it are named."""
    at = dice(number)
    image = f"synth_{at.integers(2):03}"
    masks = change is not a_pixel
    file = f"train/{image}{'_masks' if masks else ''}.tif"
    data = bench.folder(
        f"training data {number}",
        lambda folder: planted.rewrite_image(folder / file, partial(change, at)),
    )
    clean, changed = bench.clean(**STEPS), bench.run(data=data, **STEPS)
    found = bench.diverge(clean, changed)
    content, prepared = ("masks", "flows") if masks else ("decoded", "normalised")
    names = [f"file {file}", f"{image} {content}", f"{image} {prepared}"]
    if change is an_object:  # with it the mean diameter, by which nothing is scaled here
        assert found.first.names[:3] == tuple(names)
    else:
        before_training(found, "data", *names)
    assert found.judgement == "data"
    assert found.computed is not None
    step, stage, _ = planted.parting_entry(clean, changed)
    assert (found.computed.step, found.computed.stage) == (step, stage)
    drawn = {
        row["step"]: row["detail"]
        for row in rows(clean)
        if row["stage"] == "batch" and row["name"] == "images drawn"
    }
    if stage == "batch":
        assert image in drawn[step]


@pytest.mark.parametrize("number", range(10, 12))
def test_masks_of_the_data_renumbered(bench, number):
    """Other numbers in a mask of the data change the data and nothing that is computed."""
    at = dice(number)
    image = f"synth_{at.integers(2):03}"
    file = f"train/{image}_masks.tif"
    data = bench.folder(
        f"renumbered {number}",
        lambda folder: planted.rewrite_image(folder / file, partial(other_numbers, at)),
    )
    found = bench.diverge(bench.clean(**STEPS), bench.run(data=data, **STEPS))
    before_training(found, "data", f"file {file}", f"{image} masks")
    assert found.computed is None
    assert set(found.stages) == {"data"}


@pytest.mark.parametrize(
    ("number", "masks"), [(20, False), (21, False), (22, True)], ids=["pixel", "pixel", "mask"]
)
def test_test_data(bench, number, masks):
    """A test image changes the data and its own flows, and no step; its mask changes no flow."""
    at = dice(number)
    image = f"synth_{at.integers(2, 4):03}"
    file = f"test/{image}{'_masks' if masks else ''}.tif"
    change = a_label_pixel if masks else a_pixel
    data = bench.folder(
        f"test data {number}",
        lambda folder: planted.rewrite_image(folder / file, partial(change, at)),
    )
    found = bench.diverge(bench.clean(**STEPS), bench.run(data=data, **STEPS))
    before_training(found, "data", f"file {file}", f"{image} {'masks' if masks else 'decoded'}")
    assert found.computed is None
    assert all(name.startswith(image) for name in found.stages.get("flows", ()))
    assert ("flows" in found.stages) is not masks


def test_two_images_in_each_others_place(bench):
    """Two files with each other's name: both are named, and the first step is one with either."""

    def swap(folder):
        for end in (".tif", "_masks.tif"):
            one, other = (folder / "train" / f"synth_00{i}{end}" for i in range(2))
            one.rename(folder / "aside")
            other.rename(one)
            (folder / "aside").rename(other)

    clean = bench.clean(**STEPS)
    changed = bench.run(data=bench.folder("other order", swap), **STEPS)
    found = bench.diverge(clean, changed)
    before_training(
        found,
        "data",
        *(f"file train/synth_00{i}{end}.tif" for i in range(2) for end in ("", "_masks")),
        *(f"synth_00{i} {what}" for i in range(2) for what in ("decoded", "masks")),
        *(f"synth_00{i} {what}" for i in range(2) for what in ("normalised", "flows")),
    )
    assert (found.computed.step, found.computed.stage) == (0, "batch")
    assert found.computed.names == ("images", "targets")


def a_weight(at, tensors):
    """Move one weight by one unit in its last place; returns its layer's group."""
    name = str(at.choice(sorted(tensors.keys() - {"diam_labels", "diam_mean"})))
    values = tensors[name].reshape(-1)
    index = at.integers(values.size)
    values[index] = np.nextafter(values[index], np.float32(np.inf))
    return layer_group(name)


@pytest.mark.parametrize("number", range(30, 33))
def test_weight_of_the_file_trained_from(bench, number):
    """One bit of one weight in the file: its group of layers."""
    at, named = dice(number), []
    model = bench.root / f"file {number}" / bench.model.name
    model.parent.mkdir()
    planted.rewrite_weights(bench.model, lambda t: named.append(a_weight(at, t)), model)
    changed = bench.run(model=str(model), **STEPS)
    found = bench.diverge(bench.clean(**STEPS), changed)
    before_training(found, "weights-init", *named)
    assert found.judgement == "data"


@pytest.mark.parametrize("number", range(33, 35))
def test_weight_of_the_built_network(bench, number):
    """The same file, but one weight comes out otherwise: the spec is the same."""
    from cellrepro.model import network

    at, named = dice(number), []

    def build(original, *arguments, **options):
        built = original(*arguments, **options)
        tensors = {
            name: planted.memory(value)
            for name, value in built.named_parameters()
            if value.is_contiguous()
        }
        named.append(a_weight(at, tensors))
        return built

    changed = bench.run(wrapped(network, "build", build), **STEPS)
    found = bench.diverge(bench.clean(**STEPS), changed)
    assert changed.manifest.key == bench.clean(**STEPS).manifest.key
    before_training(found, "weights-init", *named)


# -- what was asked for --------------------------------------------------------------------


@pytest.mark.parametrize(
    "asked",
    [
        {"seed": 1},
        {"seed": 2**32 - 1},
        {"data_seed": 0},
        {"data_seed": 7},
        {"learning_rate": 0.02},
        {"epochs": 4},
        {"epochs": 2},
        {"batch_size": 2},
        {"images_per_epoch": 1},
        {"mode": "warn"},
        {"mode": "fast"},
        {"loose": "index_put"},
    ],
    ids=str,
)
def test_asked_for(bench, asked):
    """What was asked for otherwise is named, and what it came to in the steps."""
    clean, other = bench.clean(**STEPS), bench.run(**STEPS, **asked)
    found = bench.diverge(clean, other)
    before_training(found, "spec", *asked)
    assert found.judgement == "asked for"
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


# -- what was around -----------------------------------------------------------------------


def a_version(at, found):
    """Another version of one package."""
    name = str(at.choice(sorted(found)))
    found[name] += "+planted"
    return f"versions.{name}"


@pytest.mark.parametrize("number", range(40, 43))
def test_version_of_a_library(bench, number):
    """A package's version as the run found it."""
    named = set()

    def versions(original):
        found = original()
        named.add(a_version(dice(number), found))  # the same however often a run asks
        return found

    changed = bench.run(wrapped(platform, "versions", versions), **STEPS)
    found = bench.diverge(bench.clean(**STEPS), changed)
    before_training(found, "environment", *named)
    assert found.first.said.endswith('+planted" in B')
    assert (found.computed, found.judgement) == (None, "surroundings")


@pytest.mark.parametrize("ledger", ["off", "steps"])
def test_version_in_the_stored_files(bench, ledger):
    """The same from the files alone, with and without a ledger."""
    from cellrepro.store.ledger import LEDGER, Ledger

    clean = bench.clean(ledger=ledger)
    changed = bench.copy(clean)
    planted.rewrite_manifest(changed.folder, lambda m: m["versions"].update(torch="1.0"))
    if ledger == "steps":
        stored = Ledger.read(changed.folder / LEDGER)
        other = Ledger()
        other.add("environment", "versions.torch", value_digest("1.0"), detail="1.0")
        stored.entries = [
            other.entries[0] if entry.name == "versions.torch" else entry
            for entry in stored.entries
        ]
        stored.write(changed.folder / LEDGER)
    found = bench.diverge(clean, changed)
    before_training(found, "environment", "versions.torch")
    assert found.judgement == "surroundings"


def _capability():
    import torch

    return mock.patch.object(torch.backends.cpu, "get_cpu_capability", return_value="PLANTED")


def _processor():
    return mock.patch.object(platform, "_processor", return_value=("Abacus 9", {"avx2"}))


@pytest.mark.parametrize(
    ("plant", "names"),
    [
        (_capability, {"cpu_capability"}),
        (_processor, {"host.processor", "host.instructions"}),
        (lambda: mock.patch.dict(os.environ, MKL_CBWR="COMPATIBLE"), {"variables.MKL_CBWR"}),
    ],
    ids=["instructions", "processor", "variable"],
)
def test_surroundings(bench, plant, names):
    """What the run found around it."""
    found = bench.diverge(bench.clean(**STEPS), bench.run(plant(), **STEPS))
    assert (found.first.step, found.first.stage) == (None, "environment")
    assert set(found.first.names) <= names
    assert found.first.names
    assert (found.computed, found.judgement) == (None, "surroundings")


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ("threads: 2", {"profile.threads", "variables.OMP_NUM_THREADS"}),
        ("threads: 1\nonednn: false", {"profile.onednn"}),
        ("threads: 1\nenvironment: {MKL_CBWR: AVX2}", {"profile.environment.MKL_CBWR"}),
    ],
    ids=["threads", "oneDNN", "variable"],
)
def test_profile(bench, tmp_path, settings, names):
    """A setting of the profile is named, not the profile."""
    file = tmp_path / "cpu-1thread.yaml"
    file.write_text(f"device: cpu\n{settings}\n")
    found = bench.diverge(bench.clean(**STEPS), bench.run(profile=str(file), **STEPS))
    assert (found.first.step, found.first.stage) == (None, "environment")
    assert set(found.first.names) <= names
    assert found.first.names
    assert found.computed is None


def test_tf32(bench, tmp_path):
    """The profile's setting comes first, then the switches that it moves."""
    file = tmp_path / "cpu-1thread.yaml"
    file.write_text("device: cpu\nthreads: 1\ntf32: true\n")
    found = bench.diverge(bench.clean(**STEPS), bench.run(profile=str(file), **STEPS))
    assert (found.first.step, found.first.stage) == (None, "environment")
    assert found.first.said == "profile.tf32: false in A, true in B"
    assert all(name.startswith("switches.") for name in found.first.names[1:])


def test_dtype(bench, tmp_path):
    """The profile's setting, then the weights that it rounds, then the first step."""
    file = tmp_path / "cpu-1thread.yaml"
    file.write_text("device: cpu\nthreads: 1\ndtype: bfloat16\n")
    found = bench.diverge(bench.clean(**STEPS), bench.run(profile=str(file), **STEPS))
    assert (found.first.step, found.first.stage) == (None, "environment")
    assert found.first.names == ("profile.dtype",)
    assert list(found.stages)[:2] == ["environment", "weights-init"]


# -- random numbers ------------------------------------------------------------------------


def moved_between_steps(found, generator):
    """Assert that the generator is named and nobody is blamed."""
    assert found.first.names[0] == f"{generator} before"
    assert found.first.op is None
    assert found.judgement == "draws"
    assert any("was moved before the step began" in note for note in found.notes)


@pytest.mark.parametrize("generator", planted.DRAWS)
def test_draw_before_the_training(bench, generator):
    """The generator at the first step; nobody wrote down who drew before it."""
    from cellrepro.lab import worker

    def loop(original, *arguments, **options):
        planted.DRAWS[generator]()
        return original(*arguments, **options)

    changed = bench.run(wrapped(worker, "training_loop", loop), keeping=kept(0))
    found = in_step(bench, bench.clean(), changed, 0, "rng")
    moved_between_steps(found, generator)


@pytest.mark.parametrize("generator", planted.DRAWS)
def test_draw_before_the_seeds_are_set(bench, generator):
    """What the seeds overwrite is no difference."""
    from cellrepro.lab import worker

    def data(original, *arguments):
        planted.DRAWS[generator]()
        return original(*arguments)

    changed = bench.run(wrapped(worker, "read_data", data), **STEPS)
    assert bench.diverge(bench.clean(**STEPS), changed).first is None


@pytest.mark.parametrize(
    ("number", "generator"), [*enumerate([*planted.DRAWS, "torch"], 50)], ids=str
)
def test_draw_between_two_steps(bench, number, generator):
    """The generator before the step after it."""
    step = int(dice(number).integers(1, N_STEPS))
    draw = planted.DRAWS[generator]
    changed = bench.run(before_step(step, lambda loop: draw() and None), keeping=kept(step))
    found = in_step(bench, bench.clean(), changed, step, "rng")
    moved_between_steps(found, generator)


MODULES = ["encoder.blocks.0.attn", "encoder.blocks.1.mlp.lin2", "encoder.neck.2", "out"]


@pytest.mark.parametrize(
    ("number", "generator"),
    [*enumerate(["python", "numpy", "torch", "torch", "numpy"], 60)],
    ids=str,
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
    assert found.evidence.draws.startswith("b drew ")
    assert found.judgement == "draws"


def test_draw_that_drops_other_layers(bench):
    """A draw before the network's own: named, whatever else it changed."""
    step = 3
    changed = bench.run(planted.hooked(step, "", planted.draw_torch), keeping=kept(step))
    found = in_step(bench, bench.clean(), changed, step, "forward", "rng")
    assert "in draw_torch" in found.evidence.draws
    assert found.evidence.draws.startswith("b drew ")


@pytest.mark.parametrize("number", range(70, 72))
def test_draw_before_the_crop_is_drawn(bench, number):
    """A number more from NumPy within a step crops otherwise; the draw is in the evidence."""
    import cellpose.train

    step = int(dice(number).integers(N_STEPS))

    def batch(original, *arguments, **options):
        planted.draw_numpy()
        return original(*arguments, **options)

    changed = bench.run(
        at_step(step, lambda loop: wrapped(cellpose.train, "_get_batch", batch)),
        keeping=kept(step),
    )
    found = in_step(bench, bench.clean(), changed, step, "batch")
    assert found.first.names == ("crops", "images", "targets")
    assert "in draw_numpy" in found.evidence.draws
    assert found.evidence.draws.startswith("b drew ")


# -- batches -------------------------------------------------------------------------------


def test_order_in_a_batch(bench):
    """Two images in each other's place in one batch."""
    asked = {**STEPS, "batch_size": 2, "images_per_epoch": 4}
    clean = bench.clean(**asked)

    def turned(loop):
        original = loop._loss

        def loss(indices, *arguments, **options):
            return original(indices[::-1], *arguments, **options)

        return mock.patch.object(loop, "_loss", loss)

    drawn = [row for row in rows(clean) if row["name"] == "images drawn"]
    step = next(row["step"] for row in drawn if len(set(json.loads(row["detail"]))) == 2)
    changed = bench.run(at_step(step, turned), **asked)
    found = in_step(bench, clean, changed, step, "batch")
    assert found.first.names[0] == "images drawn"


def _cropped(change, original, *arguments, **options):
    import torch

    images, targets, *others = original(*arguments, **options)
    images, targets = change(images, targets)
    assert isinstance(images, torch.Tensor)
    return images, targets, *others


def crop_down(images, targets):
    """One pixel in y."""
    return images.roll(1, -2), targets.roll(1, -2)


def crop_left(images, targets):
    """One pixel in x."""
    return images.roll(-1, -1), targets.roll(-1, -1)


def to_float16(images, targets):
    """Images rounded, and back."""
    return images.half().float(), targets


def to_bfloat16(images, targets):
    """Images rounded, and back."""
    return images.bfloat16().float(), targets


@pytest.mark.parametrize(
    ("number", "change", "names"),
    [
        (80, crop_down, ("images", "targets")),
        (81, crop_left, ("images", "targets")),
        (82, to_float16, ("images",)),
        (83, to_bfloat16, ("images",)),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_batch(bench, number, change, names):
    """What the network is given at one step."""
    import cellpose.transforms

    step = int(dice(number).integers(N_STEPS))
    plant = at_step(
        step,
        lambda loop: wrapped(
            cellpose.transforms, "random_rotate_and_resize", partial(_cropped, change)
        ),
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
    hidden = ["encoder.blocks.0.attn"] if (phase, change) == ("forward", "one") else []
    found = planted.operations(clean, step)
    candidates = [
        row
        for row in found
        if row["phase"] == phase
        and row["op"].split(".")[1] in MATTER
        and row["outputs"]
        and row["norm"]
        and (row["module"] or phase != "forward")
        and not str(row["module"]).startswith(("encoder.blocks.1", *hidden))
        and row["dtypes"].split(" -> ")[1].split(",")[0] == "float32"
    ]
    return candidates[at.integers(len(candidates))]


CHANGES = {"scaled": planted.scaled, "ulp": planted.every_ulp, "one": planted.largest_scaled}
OPERATIONS = [
    *[(phase, change) for phase in ("forward", "backward") for change in [*CHANGES] * 2],
    *[("update", change) for change in ("scaled", "one")],
]


@pytest.mark.parametrize(
    ("number", "phase", "change"),
    [(number, *each) for number, each in enumerate(OPERATIONS, 100)],
    ids=str,
)
def test_operation(bench, number, phase, change):
    """The exact operation, whatever follows from it."""
    at, clean = dice(number), bench.clean()
    step = int(at.integers(2, N_STEPS))
    row = an_operation(at, clean, step, phase, change)
    plant = planted.one_operation(step, row["index"], CHANGES[change])
    changed = bench.run(plant, keeping=kept(step))
    stages = {
        "forward": ("forward", "backward"),
        "backward": ("backward",),
        "update": ("update", "weights"),
    }[phase]
    found = in_step(bench, clean, changed, step, *stages)
    one, other = planted.parting_operation(clean, changed, step)
    assert one == row
    assert one["inputs"] == other["inputs"]
    first = found.first
    assert (first.op, first.module, first.source, first.phase) == (
        *(row["op"], row["module"], row["source"], row["phase"]),
    )
    assert first.inputs == "agree"
    assert first == found.computed
    assert found.evidence.how == "stored operations"
    assert "is the first operation whose inputs agree" in found.evidence.parting


@pytest.mark.parametrize(
    ("number", "op", "stage"),
    [
        (130, "aten.grid_sampler_2d.default", "batch"),
        (131, "aten.mse_loss.default", "loss"),
        (132, "aten.rand.default", "forward"),
    ],
    ids=["augmentation", "loss", "dropping"],
)
def test_operation_of_another_stage(bench, number, op, stage):
    """Operations outside the network, and one that draws."""
    clean = bench.clean()
    step = int(dice(number).integers(2, N_STEPS))
    row = next(row for row in planted.operations(clean, step) if row["op"] == op)
    change = _dropped_otherwise if op == "aten.rand.default" else planted.scaled
    changed = bench.run(planted.one_operation(step, row["index"], change), keeping=kept(step))
    found = in_step(bench, clean, changed, step, stage)
    assert (found.first.op, found.first.module, found.first.source, found.first.inputs) == (
        *(op, row["module"], row["source"], "agree"),
    )


def _dropped_otherwise(drawn):
    values = planted.memory(drawn)
    values[-1] = 0.9 if values[-1] < 0.4 else 0.1  # the last layer is dropped below 0.4


# -- single values between the stages of a step --------------------------------------------


@pytest.mark.parametrize(
    ("number", "ledger"), [(140, "steps"), (141, "ops")], ids=["steps", "operations"]
)
def test_loss(bench, number, ledger):
    """A loss of one unit in its last place more changes only what is said of it."""
    import cellpose.train

    step = int(dice(number).integers(N_STEPS))

    def loss(original, *arguments):
        found = original(*arguments)
        planted.one_ulp(found)
        return found

    plant = at_step(step, lambda loop: wrapped(cellpose.train, "_loss_fn_seg", loss))
    changed = bench.run(plant, ledger=ledger, keeping=kept(step))
    found = in_step(bench, bench.clean(ledger=ledger), changed, step, "loss")
    assert found.first.names == ("loss",)
    assert found.first.op is None
    assert found.stages == {"loss": ("loss",)}
    assert len(found.notes) == 1
    assert ("a change between two operations" in found.notes[0]) is (ledger == "ops")


@pytest.mark.parametrize(
    ("number", "ledger"), [(142, "steps"), (143, "ops"), (144, "ops")], ids=str
)
def test_gradient(bench, number, ledger):
    """A gradient changed once it is there: the group of layers, and no operation to blame."""
    at = dice(number)
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


def twice(original, *arguments, **options):
    """Update, and update again."""
    original(*arguments, **options)
    return original(*arguments, **options)


def skipped(original, *arguments, **options):
    """Update nothing."""


def decayed(original, optimizer, *arguments, **options):
    """Update with another weight decay."""
    group = optimizer.param_groups[0]
    group["weight_decay"] += 0.05
    return original(optimizer, *arguments, **options)


def a_moment(original, optimizer, *arguments, **options):
    """Move one running mean by one unit in its last place, once it is updated."""
    result = original(optimizer, *arguments, **options)
    planted.one_ulp(next(iter(optimizer.state.values()))["exp_avg"])
    return result


@pytest.mark.parametrize(
    ("number", "change", "ledger"),
    [
        (150, twice, "steps"),
        (151, twice, "ops"),
        (152, skipped, "steps"),
        (153, skipped, "ops"),
        (154, decayed, "steps"),
        (155, decayed, "ops"),
        (156, a_moment, "steps"),
        (157, a_moment, "ops"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_optimizer(bench, number, change, ledger):
    """An update done twice, not at all, or otherwise."""
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
    if change is a_moment:
        assert len(found.first.names) == 1
    assert found.first.phase in (None, "update")


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (160, "encoder.neck.2.weight"),
        (161, "out.weight"),
        (162, "encoder.blocks.0.mlp.lin1.weight"),
        (163, "out.bias"),
    ],
    ids=str,
)
def test_weight_between_two_steps(bench, number, name):
    """The step before ended in equal weights, so it shows in what the next one computes first.

    The operation named is the first whose outputs differ, and so did its inputs.
    """
    step = int(dice(number).integers(1, N_STEPS))
    plant = before_step(step, lambda loop: planted.one_ulp(loop._network.get_parameter(name)))
    changed = bench.run(plant, keeping=kept(step))
    found = in_step(bench, bench.clean(), changed, step, "forward")
    one, other = planted.parting_operation(bench.clean(), changed, step)
    assert one["inputs"] != other["inputs"]
    first = found.first
    assert (first.op, first.module, first.source) == (one["op"], one["module"], one["source"])
    assert (first.module, first.inputs) == (name.rpartition(".")[0], "differ")


# -- what came out -------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(170, 172))
def test_stored_weights(bench, number):
    """One weight of the stored file."""
    at = dice(number)
    changed = bench.copy(bench.clean(**STEPS))
    planted.rewrite_weights(changed.weights, lambda tensors: a_weight(at, tensors) and None)
    after_training(bench.diverge(bench.clean(**STEPS), changed), "weights", "stored file")


def test_weights_as_they_are_saved(bench):
    """A weight that changes on the way to the file, once it was digested."""
    from cellrepro.model import network

    def save(original, trained, path, **options):
        if path.name == "weights.safetensors":
            planted.one_ulp(trained.out.weight)
        return original(trained, path, **options)

    changed = bench.run(wrapped(network, "save_weights", save), **STEPS)
    found = bench.diverge(bench.clean(**STEPS), changed)
    assert (found.first.step, found.first.stage) == (None, "weights")
    assert found.first.names == ("stored file",)


def segmented(number, change):
    """Change what is given for one image, by ``change(segmentation)``."""
    from cellrepro.model import inference

    at = int(dice(number).integers(2))

    def segment(original, network, images):
        for index, result in enumerate(original(network, images)):
            if index == at:
                change(result)
            yield result

    return wrapped(inference, "segment", segment), f"synth_{at + 2:03}"


@pytest.mark.parametrize(
    ("number", "what"), [(180, "flows"), (181, "flows"), (182, "probability")], ids=str
)
def test_flows(bench, number, what):
    """One value of what the network gave for one test image."""

    def change(result):
        result.flows[what] = result.flows[what].copy()
        values = result.flows[what].reshape(-1)
        at = dice(number).integers(values.size)
        values[at] = np.nextafter(values[at], np.float32(np.inf))

    plant, image = segmented(number, change)
    found = bench.diverge(bench.clean(**STEPS), bench.run(plant, **STEPS))
    after_training(found, "flows", f"{image} {what}")
    assert set(found.stages) == {"flows"}


def test_labels_in_the_result(bench):
    """Other numbers for the same objects are told as that."""

    def change(result):
        result.masks[:] = planted.swapped(result.masks)

    plant, image = segmented(190, change)
    found = bench.diverge(bench.clean(**STEPS), bench.run(plant, **STEPS))
    after_training(found, "masks", f"{image} labels", f"{image} stored file")
    assert found.verdict.value == "same-objects"


@pytest.mark.parametrize("number", range(191, 193))
def test_mask_pixel_in_the_result(bench, number):
    """One pixel of one object."""
    plant, image = segmented(number, lambda result: a_label_pixel(dice(number), result.masks))
    found = bench.diverge(bench.clean(**STEPS), bench.run(plant, **STEPS))
    after_training(found, "masks", f"{image} outlines", f"{image} labels", f"{image} stored file")
    assert found.verdict.value == "different"
    assert 0 < found.comparison.ppm < 100


@pytest.mark.parametrize(
    ("number", "change", "ledger"),
    [
        (200, a_label_pixel, "steps"),
        (201, a_label_pixel, "off"),
        (202, other_numbers, "ops"),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_stored_mask(bench, number, change, ledger):
    """A stored mask that was changed afterwards: only the file."""
    at, clean = dice(number), bench.clean(ledger=ledger)
    changed = bench.copy(clean)
    image = f"synth_{at.integers(2, 4):03}"
    planted.rewrite_image(changed.folder / "masks" / f"{image}.tif", partial(change, at))
    after_training(bench.diverge(clean, changed), "masks", f"{image} stored file")


# -- equal pairs ---------------------------------------------------------------------------


def killed(step):
    """End the process's work before a step, as a kill would."""

    def stop(loop):
        raise _KilledError

    return before_step(step, stop)


class _KilledError(Exception):
    pass


def resumed(bench, step, **asked):
    """A training that was killed at a step and went on."""
    unfinished = bench.root / f"unfinished {step} {len(asked)}"
    unfinished.mkdir()
    keeping = Keeping(unfinished=unfinished, checkpoint_every=1)
    with pytest.raises(_KilledError):
        bench.run(killed(step), keeping=keeping, **asked)
    keeping = Keeping(unfinished=unfinished, checkpoint_every=1, resume=True)
    done = bench.run(keeping=keeping, **asked)
    assert done.manifest.training.resumed_at == [step // 2]
    return done


def moved(bench, **asked):
    """The same images in a folder of another name."""
    target = bench.root / f"elsewhere {len(asked)}" / "others"
    shutil.copytree(bench.data, target)
    return bench.run(data=target, **asked)


def renamed(bench, **asked):
    """The same weights in a file of another name."""
    target = bench.root / "same.safetensors"
    shutil.copyfile(bench.model, target)
    return bench.run(model=str(target), **asked)


def again(bench, **asked):
    """The same spec once more."""
    bench.clean(**asked)
    return bench.run(**asked)


def beside(bench, **asked):
    """The same training with another ledger."""
    return bench.clean(**{**asked, "ledger": "steps" if asked["ledger"] == "ops" else "ops"})


OPS, OFF = {"ledger": "ops"}, {"ledger": "off"}
EQUAL = [
    ("repeat, off", again, OFF),
    ("repeat, steps", again, STEPS),
    ("repeat, operations", again, OPS),
    ("steps beside operations", beside, OPS),
    ("off beside operations", beside, OFF),
    ("seed 1", beside, {**STEPS, "seed": 1}),
    ("seed 2**32 - 1", again, {**STEPS, "seed": 2**32 - 1}),
    ("data seed", again, {**STEPS, "data_seed": 7}),
    ("batches of two", beside, {**STEPS, "batch_size": 2, "images_per_epoch": 4}),
    ("one odd batch", again, {**STEPS, "batch_size": 2, "images_per_epoch": 3}),
    ("mode warn", again, {**STEPS, "mode": "warn"}),
    ("mode fast", beside, {**OPS, "mode": "fast"}),
    ("from seeded weights", again, {**STEPS, "model": "tiny"}),
    ("one epoch", again, {**STEPS, "epochs": 1}),
    ("killed in the first epoch but one", partial(resumed, step=3), STEPS),
    ("killed between epochs", partial(resumed, step=4), OPS),
    ("folder of another name", moved, STEPS),
    ("folder of another name, off", moved, {**OFF, "seed": 3}),
    ("weights of another name", renamed, STEPS),
    ("a learning rate of 0", again, {**STEPS, "learning_rate": 0.0}),
]


@pytest.mark.parametrize(("make", "asked"), [e[1:] for e in EQUAL], ids=[e[0] for e in EQUAL])
def test_nothing_is_reported_of_equal_runs(bench, make, asked):
    """Equal runs are equal, whatever was written down of them and wherever they lay."""
    clean = bench.clean(**asked)
    found = bench.diverge(clean, make(bench, **asked))
    assert found.first is None, found.sentence()
    assert (found.computed, found.judgement, found.stages) == (None, None, {})
    assert found.sentence().startswith("no difference in ")


def test_exit_code(bench, invoke):
    """0 where nothing differs, 1 where something does."""
    store = ["--no-again", "--store", bench.store.root]
    clean, same = bench.clean(**STEPS), bench.run(**STEPS)
    answer = invoke("diverge", clean.name, same.name, *store)
    assert (answer.code, answer.out.count("no difference in ")) == (0, 1)
    changed = bench.copy(clean)
    planted.rewrite_image(
        changed.folder / "masks" / "synth_002.tif", partial(a_label_pixel, dice(0))
    )
    answer = invoke("diverge", clean.name, changed.name, *store)
    assert (answer.code, answer.out.count("synth_002 stored file")) == (1, 2)
