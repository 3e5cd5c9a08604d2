"""What makes two trainings differ outside the training step: tried here, on your data.

Generators, switches and Cellpose's defaults are put back.
"""

from __future__ import annotations

import copy
import importlib
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise, zip_longest
from operator import ne
from pathlib import Path
from typing import Any

import numpy as np
from natsort import natsorted

from cellrepro.audits.experiments_of_draws import augmentation, loader
from cellrepro.audits.one_epoch import few_images, one_epoch
from cellrepro.audits.source_of_difference import Source
from cellrepro.bits.digests import generator_digests, tensor_digest, value_digest
from cellrepro.determinism.generator_states import generators_kept
from cellrepro.determinism.modes import switches
from cellrepro.determinism.seeds import seed_everything
from cellrepro.images.folder import ImageFolder, read_folder
from cellrepro.model import inference
from cellrepro.model.encoders import TINY
from cellrepro.model.network import seeded_network
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.progress import progress
from cellrepro.words import amount, some

_EVAL_PIXELS = 512  # along an edge: enough to tell results apart
_PARTIAL = {"percentile": [1.0, 99.0]}
"""A dictionary as users pass it to ``eval``; what it leaves out is read from the defaults."""


def look(data: str | Path, *, quiet: bool = False) -> list[Source]:
    """Try every source of difference outside the training step on a folder of labelled images.

    Parameters
    ----------
    data : str or Path
        Folder in Cellpose's convention.
    quiet : bool
        Show no progress.

    Returns
    -------
    list of Source
        In the order of `cellrepro.audits.source_of_difference.EXPERIMENTS`.
    """
    folder = read_folder(data)
    experiments: list[Callable[[], Source]] = [
        partial(file_order, folder),
        partial(two_readings, folder),
        partial(augmentation, folder),
        partial(loader, folder),
        import_order,
        initial_weights,
        partial(hidden_state, folder),
    ]
    sources = []
    with progress(len(experiments), "sources", quiet=quiet) as bar:
        for experiment in experiments:
            source = experiment()
            sources.append(source)
            bar.advance(source.name)
    return sources


# -- files ---------------------------------------------------------------------------------


def file_order(folder: ImageFolder) -> Source:
    """Whether other listings put other images in the same places; Cellpose draws indices."""
    images = {image.image_path.name: tensor_digest(image.image) for image in folder.train}
    names = list(images)
    facts = [f"cellrepro's reader: {some(names, 3)}"]
    others = []
    for label, order in _listings(folder.train[0].image_path.parent, names).items():
        n_places = sum(images[a] != images.get(b) for a, b in zip_longest(names, order))
        facts.append(
            f"{label}: {some(order, 3)}; {n_places} of {len(names)} places hold another image"
        )
        if n_places:
            others.append(label)
    summary = f"other than the reader's: {', '.join(others)}" if others else "every listing agrees"
    return Source(
        name="file-order",
        moves=bool(others),
        n_compared=len(names),
        evidence=(summary, *facts),
    )


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
    in_this_process = readings(None, data=folder.path)
    task = partial(readings, data=folder.path.resolve())
    in_fresh_process = in_child(task, None, label="sources, readings")
    changed = _changed(in_this_process, in_fresh_process)
    n_digests = len(in_this_process)
    count = f"read in a fresh process: {len(changed)} of {amount(n_digests, 'digest')} changed"
    return Source(
        name="two-readings",
        moves=bool(changed),
        n_compared=n_digests,
        evidence=("; ".join([count, *changed[:3]]),),
    )


def readings(child: Child | None, *, data: Path) -> dict[str, str]:
    """Digests of files, images, masks, and of a few images normalised and their flows.

    Parameters
    ----------
    child : Child or None
        The process, if it is one of its own.
    data : Path
        Folder of labelled images.
    """
    folder = read_folder(data)
    digests = {"files": folder.digest}
    for split, images in (("train", folder.train), ("test", folder.test)):
        for image in images:
            digests[f"image {split}/{image.name}"] = tensor_digest(image.image)
            if image.masks is not None:
                digests[f"masks {split}/{image.name}"] = tensor_digest(image.masks)
    for name, array in one_epoch(few_images(folder)).prepared.items():
        digests[name] = tensor_digest(np.asarray(array))
    return digests


# -- what the process did before -----------------------------------------------------------


def import_order(modules: Sequence[str] = inference.IMPORTED) -> Source:
    """Whether importing Cellpose, in a fresh process, undoes a switch or moves a generator."""
    task = partial(imported, modules=list(modules))
    states = in_child(task, None, label="sources, imports")
    changes = {
        module: _changed(before, after)
        for module, (before, after) in zip(modules, pairwise(states), strict=True)
    }
    changing = [module for module, changed in changes.items() if changed]
    evidence = (
        f"allow_tf32 set to False: {states[-1]['cuda_matmul_allow_tf32']} after the imports; "
        f"changed by {', '.join(changing) or 'none of them'}",
        *(
            f"import {module} changed: {', '.join(changed) or 'nothing'}"
            for module, changed in changes.items()
        ),
    )
    return Source(
        name="import-order",
        moves=bool(changing),
        n_compared=len(modules) * len(states[0]),
        evidence=evidence,
    )


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
    makers = {
        "PyTorch's own initialisation": _reset_by_pytorch,
        "cellrepro's seeded_network": _as_it_was_made,
    }
    facts = []
    moves = False
    n_tensors = 0
    for label, initialise in makers.items():
        first = _weights_made(initialise, n_drawn=0)
        again = _weights_made(initialise, n_drawn=0)
        after_draw = _weights_made(initialise, n_drawn=1)
        n_differing = len(_changed(first, after_draw))
        facts.append(
            f"{label}: seed 0 {_short(first)}, again {_short(again)}, after one more draw "
            f"{_short(after_draw)} ({n_differing} of {len(first)} tensors differ)"
        )
        moves |= not first == again == after_draw
        n_tensors += len(first)
    return Source(
        name="initial-weights",
        moves=moves,
        n_compared=n_tensors,
        evidence=tuple(facts),
    )


def _weights_made(initialise: Callable[[Any], None], *, n_drawn: int) -> dict[str, str]:
    """Digests of the tensors of a new network, made after so many draws from one state."""
    import torch

    with generators_kept():
        seed_everything(0, quiet=True)
        torch.rand(n_drawn)
        network = seeded_network(TINY, seed=0)
        initialise(network)
    return {name: tensor_digest(value) for name, value in network.state_dict().items()}


def _reset_by_pytorch(network: Any) -> None:
    """Have every module draw its weights as PyTorch does."""
    for module in network.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()


def _as_it_was_made(network: Any) -> None:
    """Leave a network's weights as they are."""


def hidden_state(folder: ImageFolder) -> Source:
    """Whether ``CellposeModel.eval`` changes the next call's result, by its shared defaults."""
    images = [image.image[:_EVAL_PIXELS, :_EVAL_PIXELS] for image in folder.train[:2]]
    plain = inference.evaluator(seeded_network(TINY, seed=0)).model  # Cellpose's own, unguarded
    shared = inference.shared_defaults()
    start = copy.deepcopy(shared)
    other = not start["normalize"]
    try:
        with generators_kept():
            before = _outputs(plain, images, normalize=dict(_PARTIAL))
            _outputs(plain, images, normalize=other)
            written_by_flag = _written(start, shared)
            after = _outputs(plain, images, normalize=dict(_PARTIAL))
            shared.update(start)
            stack = np.stack([np.atleast_3d(images[0])[..., :1]] * 2)
            plain.eval(stack, channel_axis=3, compute_masks=False)
            written_by_stack = _written(start, shared)
    finally:
        shared.clear()
        shared.update(start)
    n_differing = sum(map(ne, before, after))
    evidence = (
        f"eval(normalize={_PARTIAL}) gives {_short(before)} before and {_short(after)} after "
        f"another call; {n_differing} of {len(images)} images came out otherwise",
        f"eval(normalize={other}) wrote into models.normalize_default: "
        f"{written_by_flag}; eval of a plain stack wrote {written_by_stack}",
        f"normalize_default['normalize'] is {start['normalize']} in this process now",
    )
    return Source(
        name="hidden-state",
        moves=before != after,
        n_compared=len(images),
        evidence=evidence,
    )


def _outputs(
    model: Any, images: Sequence[np.ndarray], *, normalize: bool | dict[str, list[float]]
) -> list[str]:
    """Digest of flows and cell probability that Cellpose's model gives for each image."""
    digests = []
    for image in images:
        _, flows, *_ = model.eval(
            np.atleast_3d(image), channel_axis=2, normalize=normalize, compute_masks=False
        )
        digests.append(value_digest([tensor_digest(array) for array in flows[1:3]]))
    return digests


def _written(start: Mapping[str, Any], shared: Mapping[str, Any]) -> str:
    """What a call wrote into Cellpose's shared defaults."""
    changes = [
        f"{name} {start[name]!r} to {value!r}"
        for name, value in shared.items()
        if start[name] != value
    ]
    return ", ".join(changes) or "nothing"


# -- common ------------------------------------------------------------------------------


def _changed(a: dict[str, Any], b: dict[str, Any]) -> list[str]:
    return [name for name in sorted(a | b) if a.get(name) != b.get(name)]


def _short(value: Any) -> str:
    return value_digest(value)[:12]
