"""Pairs of trainings that are equal but for one thing, and an own look at where they diverge.

The trainings are real: the worker's own code carries them out and the store takes them in. Only
the process is not one of their own, so a profile's check of how it was started is left out.
What is changed is changed inside the run, in the images, or in the files afterwards.
"""

import json
import shutil
from contextlib import ExitStack, nullcontext
from functools import cached_property
from unittest import mock

import numpy as np
import tifffile
import torch
from pyarrow import parquet
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from torch.utils._python_dispatch import _disable_current_modes

from cellrepro.divergence.diverge import diverge
from cellrepro.images.synthetic_sets import write_folder
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.process.child import Child
from cellrepro.profiles.profiles import Profile
from cellrepro.run.options import RecordingOptions, TrainingOptions
from cellrepro.run.planning import plan_training
from cellrepro.run.worker import make_repeat
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from samebits.generator_states import generators_kept
from samebits.trace.observer import Call

ASKED = {
    "epochs": 2,
    "images_per_epoch": 2,
    "learning_rate": 0.01,
    "profile": "cpu-1thread",
    "ledger": "steps",
}
N_STEPS = 4


class Bench:
    """A folder of images, weights that find cells in them, and a store of trainings from there."""

    def __init__(self, root, weights):
        self.root, self.store, self.data = root, Store(root / "outputs"), root / "cells"
        self.model = root / "begin.safetensors"
        write_folder(self.data, n_train=2, n_test=1, shape=(160, 160))
        shutil.copyfile(weights, self.model)

    def run(self, *plants, recording=None, **asked):
        """Train with the plants in force; the result is the next repeat of what was asked for."""
        given = {**ASKED, "model": str(self.model), "store": self.store.root, **asked}
        plan = plan_training(TrainingOptions(data=given.pop("data", self.data), **given))
        done = self.store.run(plan.spec.key)
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(1)
            area = stack.enter_context(self.store.staging())
            stack.enter_context(generators_kept())
            stack.enter_context(as_one_process())
            for plant in plants:
                stack.enter_context(plant)
            folder = area / "repeat"
            folder.mkdir()
            child = Child(plan.request.setup, lambda event: None)
            make_repeat(
                child,
                request=plan.request,
                repeat=len(done.repeats) if done else 0,
                staged=folder,
                recording=recording or RecordingOptions(),
                with_images=True,
            )
            return self.store.commit(folder, plan.spec)

    @cached_property
    def clean(self):
        """A training with nothing planted, and every operation written down."""
        return self.run(ledger="ops")

    def copy(self, repeat):
        """The same files as another repeat of the same run, to be changed."""
        n_there = len(self.store.run(repeat.manifest.key).repeats)
        return copied(repeat, repeat.folder.with_name(str(n_there)))

    def diverge(self, a, b):
        """What `cellrepro.diverge` says from what both wrote down."""
        return diverge(a.name, b.name, again=False, store=self.store.root, quiet=True)


def as_one_process():
    """Trainings here are not in processes of their own, which a profile would check."""
    return mock.patch.object(Profile, "enter", return_value=torch.device("cpu"))


def copied(repeat, folder):
    """The same files as another repeat, which may be changed."""
    shutil.copytree(repeat.folder, folder)
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    rewrite_manifest(folder, lambda manifest: manifest.update(repeat=int(folder.name)))
    return Repeat(folder)


def rewrite_manifest(folder, change):
    """Change a stored manifest."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest, indent=1))


def rows(repeat, name="ledger"):
    """A stored table as it lies there."""
    return parquet.read_table(repeat.folder / f"{name}.parquet", partitioning=None).to_pylist()


def diverging_entry(a, b):
    """The first step and stage whose digests differ, row by row, and the names that differ."""
    here, there = (
        {(row["step"], row["stage"], row["name"]): row["digest"] for row in rows(repeat)}
        for repeat in (a, b)
    )
    differing = [
        key for key, digest in here.items() if 0 <= key[0] < N_STEPS and there.get(key) != digest
    ]
    if not differing:
        return None
    step, stage, _ = differing[0]
    return step, stage, tuple(name for *at, name in differing if at == [step, stage])


def operations(repeat, step):
    """The operations of one step in their order."""
    return [row for row in rows(repeat, "ledger-ops") if row["step"] == step]


def diverging_operation(a, b, step):
    """The first operation whose outputs differ, position by position, on both sides."""
    both = list(zip(operations(a, step), operations(b, step), strict=True))
    assert all(one["op"] == other["op"] for one, other in both)
    return next(pair for pair in both if pair[0]["outputs"] != pair[1]["outputs"])


def at_step(step, plant):
    """Enter what the plant gives for the loop while it does one step."""

    def planted(original, loop):
        with plant(loop) if loop.training.n_steps == step else nullcontext():
            return original(loop)

    return wrapped(TrainingLoop, "step", planted)


def before_step(step, act):
    """Act between two steps."""
    return at_step(step, lambda loop: nullcontext(act(loop)))


def wrapped(target, name, around):
    """Have ``around(original, *arguments)`` called in a function's place."""
    original = getattr(target, name)

    def planted(*arguments, **options):
        return around(original, *arguments, **options)

    return mock.patch.object(target, name, planted)


def one_operation(step, index, change):
    """Change what one operation of one step gives, by its order, before anybody sees it."""

    def counted(loop):
        n_run = iter(range(10**9))

        def around(run, call):
            returned = run(call)
            if next(n_run) == index:
                change(returned if not isinstance(returned, tuple) else returned[0])
            return returned

        return wrapped(Call, "run", around)

    return at_step(step, counted)


def memory(tensor):
    """A tensor's own memory, unseen by who watches operations."""
    with _disable_current_modes():
        return tensor.detach().as_strided((tensor.numel(),), (1,)).numpy()


def every_ulp(tensor, at=slice(None)):
    """Move elements to the next number further from zero."""
    values = memory(tensor)
    values[at] = np.nextafter(values[at], np.copysign(values.dtype.type(np.inf), values[at]))


def a_thousandth(tensor):
    """Make elements larger by a thousandth, more than any round-off."""
    values = memory(tensor)
    values *= values.dtype.type(1.001)


def one_ulp(tensor):
    """Move the largest element to the next number further from zero."""
    every_ulp(tensor, int(np.abs(memory(tensor)).argmax()))


def rewrite_image(path, change):
    """Change pixels of an image or a mask."""
    pixels = tifffile.imread(path)
    change(pixels)
    path.unlink()
    tifffile.imwrite(path, pixels)


def rewrite_weights(path, change):
    """Change tensors of a weights file, its header kept."""
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    change(tensors)
    path.unlink()
    save_file(tensors, path, metadata)
