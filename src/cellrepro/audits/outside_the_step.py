"""What makes two trainings differ outside the training step: tried here, on your data.

Generators, switches and Cellpose's defaults are put back.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import io
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
from natsort import natsorted

from cellrepro.bits.digests import generator_digests, tensor_digest, value_digest
from cellrepro.determinism.data_order import item_generator, loader_arguments
from cellrepro.determinism.generator_states import generators_kept
from cellrepro.determinism.modes import switches
from cellrepro.determinism.seeds import seed_everything
from cellrepro.images.folder import ImageFolder, LabelledImage, read_folder
from cellrepro.model import inference
from cellrepro.model.augmentation import augment
from cellrepro.model.encoders import TINY
from cellrepro.model.network import seeded_network
from cellrepro.model.prepared_images import with_flows
from cellrepro.model.training_loop import TrainingLoop
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.progress import progress
from cellrepro.store.ledger import Ledger
from cellrepro.trace.watches import StepWatch
from cellrepro.words import amount, some

_MOST_IMAGES = 6  # flows take longer than all the rest
_EVAL_PIXELS = 512  # along an edge: enough to tell results apart
_PARTIAL = {"percentile": [1.0, 99.0]}
"""A dictionary as users pass it to ``eval``; what it leaves out is read from the defaults."""

_TOLD = {
    "file-order": (
        "Does the order in which files are listed change what is trained on?",
        "give all file names equally many digits (img_002, img_010) and sort them",
    ),
    "two-readings": (
        "Does reading the same folder again give other images, masks or flows?",
        "copy the folder and keep its digest (sha256sum); compute flows once and keep them",
    ),
    "augmentation": (
        "Does augmentation show the same image otherwise when its generator is not put back?",
        "choose order and augmentation with cellrepro.train(data, data_seed=1); Cellpose seeds "
        "NumPy by the epoch's number, over any seed of yours",
    ),
    "loader": (
        "Does a loader give another order or other crops after another draw or with other workers?",
        "DataLoader(..., **loader_arguments(seed)) of cellrepro for the order, "
        "and item_generator(seed, epoch, index) for draws that depend on no worker",
    ),
    "import-order": (
        "Does importing Cellpose undo what was set before, or move a generator?",
        "import Cellpose first, then seed and set switches, as the modes of cellrepro do",
    ),
    "initial-weights": (
        "Do the initial weights depend on what was drawn before the network was made?",
        "start from one file of weights, or use cellrepro.model.network.seeded_network",
    ),
    "hidden-state": (
        "Does a call of Cellpose's eval change the result of a later call?",
        "pass every parameter you rely on, 'normalize': True among them, or run each analysis in a "
        "process of its own, as cellrepro does",
    ),
}
"""Of each source its question, and how to pin it."""


@dataclass(frozen=True)
class Source:
    """One source of difference, as it was found here."""

    name: str
    moves: bool  # whether it changed something here; "no" is no proof for other data
    n_compared: int  # over how many things
    evidence: tuple[str, ...]  # short facts; of digests the first 12 hex digits

    @property
    def remedy(self) -> str:
        """How to pin it."""
        return _TOLD[self.name][1]

    def sentence(self) -> str:
        """Question and answer in one line, with the first fact and, if it moves, the remedy."""
        answer = "Yes" if self.moves else "No"
        over = amount(self.n_compared, "comparison")
        pin = f" To pin it: {self.remedy}" if self.moves else ""
        return f"{_TOLD[self.name][0]} {answer}, over {over}: {self.evidence[0]}.{pin}"


def look(data: str | Path, *, quiet: bool = False) -> list[Source]:
    """Try every source of difference outside the training step on a folder of labelled images."""
    folder = read_folder(data)
    probes: list[Callable[[], Source]] = [
        *(partial(probe, folder) for probe in (file_order, two_readings, augmentation, loader)),
        import_order,
        initial_weights,
        partial(hidden_state, folder),
    ]
    with progress(len(probes), "sources", quiet=quiet) as bar:
        found = []
        for probe in probes:
            found.append(probe())
            bar.advance(found[-1].name)
    return found


# -- files ---------------------------------------------------------------------------------


def file_order(folder: ImageFolder) -> Source:
    """Whether other listings put other images in the same places; Cellpose draws indices."""
    images = {image.image_path.name: tensor_digest(image.image) for image in folder.train}
    names = list(images)
    evidence, others = [f"cellrepro's reader: {some(names, 3)}"], []
    for label, order in _listings(folder.train[0].image_path.parent, names).items():
        n_places = sum(images[a] != images.get(b) for a, b in zip_longest(names, order))
        evidence.append(
            f"{label}: {some(order, 3)}; {n_places} of {len(names)} places hold another image"
        )
        others += [label] * bool(n_places)
    head = f"other than the reader's: {', '.join(others)}" if others else "every listing agrees"
    return Source("file-order", bool(others), len(names), (head, *evidence))


def _listings(folder: Path, names: list[str]) -> dict[str, list[str]]:
    """The orders in which programs list the images of one folder, by who lists them."""
    with os.scandir(folder) as scan:
        directory = [entry.name for entry in scan if entry.name in names]
    by_cellpose = [path.name for path in inference.listed(folder)]
    return {
        "the directory (os.scandir, Path.iterdir)": directory,
        "sorted()": sorted(names),
        "Cellpose's io.get_image_files": [name for name in by_cellpose if name in names],
        "natsorted() of a listing backwards": natsorted(sorted(names, reverse=True)),
    }


def two_readings(folder: ImageFolder) -> Source:
    """Whether one folder, read here and in a fresh process, gives other numbers."""
    here = readings(None, data=folder.path)
    task = partial(readings, data=folder.path.resolve())
    fresh = in_child(task, None, label="sources, readings")
    changed = _changed(here, fresh)
    evidence = f"read in a fresh process: {len(changed)} of {amount(len(here), 'digest')} changed"
    told = "; ".join([evidence, *changed[:3]])
    return Source("two-readings", bool(changed), len(here), (told,))


def readings(child: Child | None, *, data: Path) -> dict[str, str]:
    """Digests of files, images, masks, and of a few images normalised and their flows."""
    folder = read_folder(data)
    found = {"files": folder.digest}
    for split in ("train", "test"):
        for image in getattr(folder, split):
            found[f"image {split}/{image.name}"] = tensor_digest(image.image)
            if image.masks is not None:
                found[f"masks {split}/{image.name}"] = tensor_digest(image.masks)
    prepared = _loop(_few(folder)).prepared
    return found | {name: tensor_digest(np.asarray(array)) for name, array in prepared.items()}


# -- draws ---------------------------------------------------------------------------------


def augmentation(folder: ImageFolder) -> Source:
    """Whether Cellpose's augmentation shows an image otherwise, and what it draws from."""
    import torch

    images = _few(folder)
    prepared = list(_loop(images).prepared.values())
    reseeds = {"Python": random.seed, "NumPy": np.random.seed, "PyTorch": torch.manual_seed}

    def augmented() -> str:
        shown = augment(prepared[::2], [planes[1:] for planes in prepared[1::2]])
        return value_digest([tensor_digest(part) for part in shown])

    def drawn(reseed: Any = lambda seed: None) -> str:
        seed_everything(0, quiet=True)
        reseed(1)
        return augmented()

    def epoch(seed: int, data_seed: Any) -> list[str]:
        """Digests of the batches that a training is shown after a seed of the user's."""
        ledger = Ledger()
        loop = _loop(images, data_seed=data_seed, watch=StepWatch(ledger))
        seed_everything(seed, quiet=True)
        while not loop.finished:
            loop.step()
        return [e.digest for e in ledger.entries if (e.stage, e.name) == ("batch", "images")]

    with generators_kept():
        once, after, again = drawn(), augmented(), drawn()
        drawn_from = [name for name, reseed in reseeds.items() if drawn(reseed) != once]
        first, second, other = epoch(1, "cellpose"), epoch(2, "cellpose"), epoch(1, 1)
    evidence = (
        f"from one state {once[:12]} and {again[:12]}, going on from there {after[:12]}",
        f"drawn from: {', '.join(drawn_from) or 'no global generator'}",
        f"one epoch after your own seeds 1 and 2: {sum(map(ne, first, second))} of {len(first)} "
        "batches differ",
        f"with data_seed=1: {sum(map(ne, first, other))} of {len(first)} differ",
    )
    return Source("augmentation", not once == after == again, len(images), evidence)


def loader(folder: ImageFolder, *, workers: Sequence[int] = (0, 2)) -> Source:
    """Whether a shuffling DataLoader gives another order or other crops after another draw."""
    images = [image.image for image in folder.train]
    orders: dict[str, int] = {}
    crops: dict[str, int] = {}
    with generators_kept():
        for kind in ("plain", "loader_arguments", "item_generator"):
            loaded = [_loaded(images, kind, n, extra) for n in workers for extra in (0, 1)]
            orders[kind], crops[kind] = (len(set(seen)) for seen in zip(*loaded, strict=True))
    evidence = (
        f"distinct orders {orders['plain']} plain, {orders['loader_arguments']} with "
        f"loader_arguments; distinct crops {crops['plain']} plain, {crops['loader_arguments']} "
        f"with loader_arguments, {crops['item_generator']} with item_generator",
    )
    moves = max(orders["plain"], crops["plain"]) > 1
    return Source("loader", moves, len(images) * len(orders) * len(workers) * 2, evidence)


def _loaded(images: list[np.ndarray], kind: str, n_workers: int, extra: int) -> tuple[str, str]:
    """Digests of the order and of the crops in one pass of a loader, after ``extra`` draws."""
    import torch

    from cellrepro.trace.check_dataset import through_loader

    seed_everything(0, quiet=True)
    torch.rand(extra)
    np.random.random_sample(extra)
    options: dict[str, Any] = {}
    if kind != "plain":
        options.update(loader_arguments(0))
    options["collate_fn"] = partial(_cropped, images, kind == "item_generator")
    seen = through_loader(range(len(images)), n_workers, shuffle=True, **options)
    return value_digest([index for index, _ in seen]), value_digest(sorted(seen))


def _cropped(images: list[np.ndarray], by_item: bool, index: int) -> tuple[int, list[int]]:
    """Index of an image, and the corner of its crop, drawn by whoever loads it."""
    draw: Any = item_generator(0, 0, index).random if by_item else np.random.random_sample
    return index, [int(draw() * size / 2) for size in images[index].shape[:2]]


# -- what the process did before -----------------------------------------------------------


def import_order(modules: Sequence[str] = inference.IMPORTED) -> Source:
    """Whether importing Cellpose, in a fresh process, undoes a switch or moves a generator."""
    task = partial(imported, modules=list(modules))
    states = in_child(task, None, label="sources, imports")
    changes = {
        name: _changed(before, after)
        for name, before, after in zip(modules, states, states[1:], strict=False)
    }
    others = ", ".join(name for name, changed in changes.items() if changed)
    evidence = (
        f"allow_tf32 set to False: {states[-1]['cuda_matmul_allow_tf32']} after the imports; "
        f"changed by {others or 'none of them'}",
        *(f"import {name} changed: {', '.join(c) or 'nothing'}" for name, c in changes.items()),
    )
    return Source("import-order", bool(others), len(modules) * len(states[0]), evidence)


def imported(child: Child, *, modules: list[str]) -> list[dict[str, Any]]:
    """Inside the child: generators and switches before the first import and after each."""
    import torch

    seed_everything(0, quiet=True)
    torch.backends.cuda.matmul.allow_tf32 = False
    states = []
    for module in ("torch", *modules):
        importlib.import_module(module)
        generators = {f"generator {name}": value for name, value in generator_digests().items()}
        states.append({**generators, **switches()})
    return states


def initial_weights() -> Source:
    """Whether `tiny`, as PyTorch and as the lab make it, depends on what was drawn before."""
    import torch

    def made(n_drawn: int, by_pytorch: bool) -> dict[str, str]:
        with generators_kept():
            seed_everything(0, quiet=True)
            torch.rand(n_drawn)
            network = seeded_network(TINY, seed=0)
            for module in network.modules() if by_pytorch else ():
                getattr(module, "reset_parameters", lambda: None)()
        return {name: tensor_digest(value) for name, value in network.state_dict().items()}

    evidence, moves = [], False
    makers = {"PyTorch's own initialisation": True, "cellrepro's seeded_network": False}
    for who, by_pytorch in makers.items():
        first, again, after = (made(n_drawn, by_pytorch) for n_drawn in (0, 0, 1))
        evidence.append(
            f"{who}: seed 0 {_short(first)}, again {_short(again)}, after one more draw "
            f"{_short(after)} ({len(_changed(first, after))} of {len(first)} tensors differ)"
        )
        moves |= not first == again == after
    return Source("initial-weights", moves, len(evidence) * len(first), tuple(evidence))


def hidden_state(folder: ImageFolder) -> Source:
    """Whether ``CellposeModel.eval`` changes the next call's result, by its shared defaults."""
    images = [image.image[:_EVAL_PIXELS, :_EVAL_PIXELS] for image in folder.train[:2]]
    plain = inference.evaluator(seeded_network(TINY, seed=0)).model  # Cellpose's own, unguarded

    def outputs(normalize: Any) -> list[str]:
        options: dict[str, Any] = {"normalize": normalize, "compute_masks": False}
        given = [plain.eval(np.atleast_3d(x), channel_axis=2, **options)[1] for x in images]
        return [value_digest(list(map(tensor_digest, each[1:3]))) for each in given]

    def written() -> str:
        found = [f"{k} {start[k]!r} to {v!r}" for k, v in shared.items() if start[k] != v]
        return ", ".join(found) or "nothing"

    shared = inference.shared_defaults()
    start = copy.deepcopy(shared)
    other = not start["normalize"]
    try:
        with generators_kept():
            before = outputs(dict(_PARTIAL))
            outputs(other)
            by_flag = written()
            after = outputs(dict(_PARTIAL))
            shared.update(start)
            stack = np.stack([np.atleast_3d(images[0])[..., :1]] * 2)
            plain.eval(stack, channel_axis=3, compute_masks=False)
            by_stack = written()
    finally:
        shared.clear()
        shared.update(start)
    evidence = (
        f"eval(normalize={_PARTIAL}) gives {_short(before)} before and {_short(after)} after "
        f"another call; {sum(map(ne, before, after))} of {len(images)} images came out otherwise",
        f"eval(normalize={other}) wrote into models.normalize_default: "
        f"{by_flag}; eval of a plain stack wrote {by_stack}",
        f"normalize_default['normalize'] is {start['normalize']} in this process now",
    )
    return Source("hidden-state", before != after, len(images), evidence)


# -- common --------------------------------------------------------------------------------


def _few(folder: ImageFolder) -> Sequence[LabelledImage]:
    import torch

    with contextlib.redirect_stderr(io.StringIO()):  # of Cellpose's bars
        return with_flows(folder.train, torch.device("cpu"), most=_MOST_IMAGES)


def _loop(images: Sequence[LabelledImage], **options: Any) -> TrainingLoop:
    """An epoch of `tiny` over images, one a step, about to begin."""
    network = seeded_network(TINY, seed=0)
    with contextlib.redirect_stderr(io.StringIO()), generators_kept():
        return TrainingLoop(network, images, (), n_epochs=1, learning_rate=0.0, **options)


def _changed(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name in sorted(a | b) if a.get(name) != b.get(name)]


def _short(value: Any) -> str:
    return value_digest(value)[:12]
