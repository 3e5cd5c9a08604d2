"""What makes two trainings differ outside the training step: tried here, on your data, not told.

Each probe runs the real thing (the folder's listing, Cellpose's preprocessing and augmentation,
PyTorch's loader, a fresh process, the network) and says whether this source moves anything on this
machine and how to pin it. What happens inside a step is for `cellrepro.audit_training`.

Nothing stays changed: generators, switches and Cellpose's defaults are put back.
"""

from __future__ import annotations

import contextlib
import copy
import glob
import importlib
import io
import os
import random
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from natsort import natsorted

from cellrepro.determinism.modes import switches
from cellrepro.determinism.seeding import (
    check_seed,
    generators_kept,
    item_generator,
    loader_arguments,
    seed_everything,
)
from cellrepro.errors import BadInput
from cellrepro.images.folder import ImageFolder, LabelledImage, read_folder
from cellrepro.lab.process import Child, call
from cellrepro.model.inference import cellpose_model
from cellrepro.model.network import TINY, seeded_network
from cellrepro.model.step_timing import with_flows
from cellrepro.model.training import Loop, none_trainable, prepare, trainable
from cellrepro.progress import progress
from cellrepro.store.digests import generator_digests, tensor_digest, value_digest
from cellrepro.text import amount

_MOST_IMAGES = 6  # flows take longer than all the rest
_CROP = 256  # pixels, as in training
_EVAL_PIXELS = 512  # along an edge: enough to tell results apart
_IMPORTED = ("torchvision", "segment_anything", "cellpose.models")
"""What is imported one by one, after NumPy and PyTorch; the last brings in the network module."""


@dataclass(frozen=True)
class Source:
    """One source of difference, as it was found here.

    Attributes
    ----------
    name : str
        ``file-order``, ``two-readings``, ``augmentation``, ``loader``, ``import-order``,
        ``initial-weights`` or ``hidden-state``.
    question : str
        Whose answer `moves` is.
    moves : bool
        Whether it moved something here. "No" is what was seen, not a proof for other data.
    evidence : tuple of str
        Short facts; of digests the first 12 hex digits.
    remedy : str
        How to pin it.
    n_compared : int
        Over how many things that was seen; 0 if there was nothing to compare.
    """

    name: str
    question: str
    moves: bool
    evidence: tuple[str, ...]
    remedy: str
    n_compared: int

    @property
    def vacuous(self) -> bool:
        """Whether nothing was there to compare, so that the answer says nothing."""
        return self.n_compared == 0

    def sentence(self) -> str:
        """Question and answer in one line, with the first fact and, if it moves, the remedy."""
        if self.vacuous:
            return f"{self.question} Not tried: {self.evidence[0]}"
        answer = "Yes" if self.moves else "No"
        pin = f" To pin it: {self.remedy}" if self.moves else ""
        over = amount(self.n_compared, "comparison")
        return f"{self.question} {answer}, over {over}: {self.evidence[0]}.{pin}"


# -- all of them ---------------------------------------------------------------------------


def look(
    data: str | Path,
    *,
    data_seed: int | Literal["cellpose"] = "cellpose",
    workers: Sequence[int] = (0, 2),
    seed: int = 0,
    quiet: bool = False,
) -> list[Source]:
    """Try every source of difference outside the training step.

    Parameters
    ----------
    data : str or Path
        Folder of images with masks, as for `cellrepro.train`.
    data_seed, workers, seed
        As for `augmentation`, `loader` and `initial_weights`.
    quiet : bool
        Show no progress.

    Returns
    -------
    list of Source
        In the order of this module.

    Raises
    ------
    BadInput
        If the folder, a seed or a number of workers cannot be used.
    """
    _check_workers(workers)
    check_seed(seed)
    _check_data_seed(data_seed)
    folder = read_folder(data)
    probes: dict[str, Callable[[], Source]] = {
        "file-order": partial(file_order, folder),
        "two-readings": partial(two_readings, folder),
        "augmentation": partial(augmentation, folder, data_seed=data_seed),
        "loader": partial(loader, folder, workers=workers),
        "import-order": import_order,
        "initial-weights": partial(initial_weights, seed=seed),
        "hidden-state": partial(hidden_state, folder),
    }
    found = []
    with progress(len(probes), "sources", quiet=quiet) as bar:
        for name, probe in probes.items():
            bar.note(name)
            found.append(probe())
            bar.advance(name)
    return found


# -- files ---------------------------------------------------------------------------------


def file_order(data: str | Path | ImageFolder) -> Source:
    """Whether the order in which the training images are listed changes what is trained on.

    Cellpose draws indices, so in another order the same draws are other images. The directory's
    own order, the alphabet's, Cellpose's ``io.get_image_files`` and the natural order after a
    listing backwards (natsort leaves names that it takes for equal, such as ``a1`` and ``a01``,
    as they came) are held against the order of cellrepro's reader; then one epoch of batches is
    drawn and augmented in each.

    Parameters
    ----------
    data : str, Path or ImageFolder
        A folder with masks, or one that is already read.

    Raises
    ------
    BadInput
        If the folder cannot be used.
    """
    question = "Does the order in which files are listed change what is trained on?"
    remedy = (
        "give all file names equally many digits (img_002, img_010) and sort them before you hand "
        "them over; cellrepro.train does, whatever the file system lists"
    )
    images = [image for image in _read(data).train if trainable(image)]
    names = [image.image_path.name for image in images]
    if len(images) < 2:
        return Source(
            "file-order",
            question,
            False,
            (f"{amount(len(images), 'image')} to train on has one order only",),
            remedy,
            0,
        )
    evidence, moved = [f"cellrepro's reader: {_few(names)}"], []
    for label, order in _listings(images[0].image_path.parent, names).items():
        if sorted(order) != sorted(names):
            missing = sorted(set(names) - set(order))
            evidence.append(f"{label}: lists {len(order)} of {len(names)}, not {_few(missing)}")
            moved.append(label)
            continue
        n_places = sum(a != b for a, b in zip(names, order, strict=True))
        if not n_places:
            evidence.append(f"{label}: the same order")
            continue
        n_steps, n_other = _batches_in(images, order)
        evidence.append(
            f"{label}: {_few(order)}; {n_places} of {len(names)} places hold another image, and "
            f"{n_other} of {n_steps} batches drawn with the same numbers are others"
        )
        if n_other:
            moved.append(label)
    head = f"other than the reader's: {', '.join(moved)}" if moved else "every listing agrees"
    return Source("file-order", question, bool(moved), (head, *evidence), remedy, len(names))


def _listings(folder: Path, names: list[str]) -> dict[str, list[str]]:
    """The orders in which programs list the images of one folder, by who lists them."""
    known = set(names)
    with os.scandir(folder) as scan:
        directory = [entry.name for entry in scan if entry.name in known]
    try:
        # Its argument is a pattern; brackets in a folder's name are none.
        found = _cellpose("io").get_image_files(glob.escape(str(folder)), "_masks")
    except ValueError:  # it knows fewer endings than the reader
        found = []
    return {
        "the directory (os.scandir, Path.iterdir)": directory,
        "sorted()": sorted(names),
        "Cellpose's io.get_image_files": [
            Path(path).name for path in found if Path(path).name in known
        ],
        "natsorted() of a listing backwards": natsorted(sorted(names, reverse=True)),
    }


def _batches_in(images: list[LabelledImage], order: list[str]) -> tuple[int, int]:
    """One epoch over a few images in both orders: its batches, and how many of them differ.

    Of many images those are taken that change places first, or little could be seen.
    """
    by_name = {image.image_path.name: image for image in images}
    usual = list(by_name)
    parted = [pair for pair in zip(usual, order, strict=True) if pair[0] != pair[1]]
    few = {name for pair in parted[: _MOST_IMAGES // 2] for name in pair}
    if len(usual) <= _MOST_IMAGES:
        few = set(usual)
    planes = {
        image.image_path.name: image
        for image in _with_flows([by_name[n] for n in usual if n in few])
    }
    a, b = (
        _batches([planes[name] for name in names if name in few], data_seed="cellpose")
        for names in (usual, order)
    )
    return len(a), sum(x != y for x, y in zip(a, b, strict=True))


def two_readings(data: str | Path | ImageFolder) -> Source:
    """Whether one folder, read again here and in a fresh process, gives other numbers.

    Compared are the files' bytes, every decoded image and its masks, and for the first six
    training images what Cellpose's own preprocessing makes of them: the normalised image and the
    flows.

    Parameters
    ----------
    data : str, Path or ImageFolder
        A folder with masks; it is read anew in any case.

    Raises
    ------
    BadInput
        If the folder cannot be used.
    """
    path = data.path if isinstance(data, ImageFolder) else Path(data)
    first, again = _readings(read_folder(path)), _readings(read_folder(path))
    other = _in_child("readings", {"data": str(path.resolve())})
    evidence = []
    for label, reading in (("read again here", again), ("read in a fresh process", other)):
        changed = [name for name in first | reading if first.get(name) != reading.get(name)]
        evidence.append(
            f"{label}: {len(changed)} of {amount(len(first), 'digest')} changed, "
            f"all together {_short(first)} and {_short(reading)}"
        )
        evidence += [
            f"{label}: {name} {first.get(name, 'none')[:12]}, then {reading.get(name, 'none')[:12]}"
            for name in changed[:3]
        ]
    return Source(
        "two-readings",
        "Does reading the same folder again give other images, masks or flows?",
        any(reading != first for reading in (again, other)),
        tuple(evidence),
        "if files differ, something writes into the folder or the disk is failing: copy it and "
        "keep its digest (sha256sum); if only flows differ, compute them once and keep them",
        2 * len(first),
    )


def _readings(folder: ImageFolder) -> dict[str, str]:
    """Digests of all that comes out of a folder, by what it is."""
    found = {"files": folder.digest}
    for split in ("train", "test"):
        for image in getattr(folder, split):
            found[f"image {split}/{image.name}"] = tensor_digest(image.image)
            if image.masks is not None:
                found[f"masks {split}/{image.name}"] = tensor_digest(image.masks)
    few = _few_trainable(folder)
    with _hushed(), generators_kept():
        normalised, flows, *_ = prepare(_onlooker([]), few, ())
    for image, pixels, planes in zip(few, normalised, flows, strict=True):
        found[f"normalised train/{image.name}"] = tensor_digest(np.asarray(pixels))
        found[f"flows train/{image.name}"] = tensor_digest(np.asarray(planes))
    return found


# -- draws ---------------------------------------------------------------------------------


def augmentation(
    data: str | Path | ImageFolder, *, data_seed: int | Literal["cellpose"] = "cellpose"
) -> Source:
    """Whether augmentation shows the same image otherwise, and whose generator it draws from.

    Cellpose's ``random_rotate_and_resize`` is called twice from one state of all generators, once
    more going on from there, and with each generator seeded otherwise alone. Then one epoch of
    the training loop is drawn after two seeds of yours, and with another data seed.

    Parameters
    ----------
    data : str, Path or ImageFolder
        A folder with masks, or one that is already read.
    data_seed : int or "cellpose"
        As for `cellrepro.train`.

    Raises
    ------
    BadInput
        If the folder or the seed cannot be used.
    """
    _check_data_seed(data_seed)
    images = _with_flows(_few_trainable(_read(data)))
    with generators_kept():
        augment = _augmentation_of(images)
        seed_everything(0)
        once, after = augment(), augment()
        seed_everything(0)
        again = augment()
        moved_by = [name for name, reseed in _generators().items() if _moves(augment, reseed, once)]
        epochs = []
        for seed in (1, 2):
            seed_everything(seed)
            epochs.append(_batches(images, data_seed=data_seed))
        other_seed = 1 if data_seed == "cellpose" else (data_seed + 1) % 2**32
        other = _batches(images, data_seed=other_seed)
    held = once == again
    return Source(
        "augmentation",
        "Does augmentation show the same image otherwise when its generator is not put back?",
        once != after or not held,
        (
            f"from one state {once[:12]} and {again[:12]}, going on from there {after[:12]}",
            f"drawn from: {', '.join(moved_by) or 'no global generator'}",
            f"one epoch with data_seed={data_seed!r} after your own seeds 1 and 2: "
            f"{_n_other(*epochs)} of {len(epochs[0])} batches differ",
            f"with data_seed={other_seed}: {_n_other(epochs[0], other)} of {len(other)} differ",
        ),
        "Cellpose seeds NumPy by the epoch's number, over any seed of yours: choose order and "
        "augmentation with cellrepro.train(data, data_seed=1)"
        if held
        else "it draws from a generator that no seed reaches: look for "
        "numpy.random.default_rng() without a seed",
        len(images),
    )


def _check_data_seed(data_seed: int | Literal["cellpose"]) -> None:
    if data_seed != "cellpose":
        check_seed(data_seed, name="data_seed")


def _augmentation_of(images: list[LabelledImage]) -> Callable[[], str]:
    """Cellpose's augmentation of these images, as training calls it; answers with a digest."""
    transforms = _cellpose("transforms")
    with _hushed():
        pixels, flows, *_ = prepare(_onlooker([]), images, ())

    def augment() -> str:
        shown, targets, _ = transforms.random_rotate_and_resize(
            [np.asarray(image) for image in pixels],
            lbls=[planes[1:] for planes in flows],
            rescale=np.ones(len(pixels), "float32"),
            bsize=_CROP,
            scale_range=0.5,
        )
        return value_digest([tensor_digest(shown), tensor_digest(targets)])

    return augment


def _generators() -> dict[str, Callable[[int], Any]]:
    import torch

    return {"Python": random.seed, "NumPy": np.random.seed, "PyTorch": torch.manual_seed}


def _moves(draw: Callable[[], str], reseed: Callable[[int], Any], usual: str) -> bool:
    """Whether a draw differs from the usual one if one generator alone is seeded otherwise."""
    seed_everything(0)
    reseed(1)
    return draw() != usual


def loader(data: str | Path | ImageFolder, *, workers: Sequence[int] = (0, 2)) -> Source:
    """Whether a DataLoader gives another order or other crops after another draw.

    The training images are loaded shuffled, each cropped at a place drawn from NumPy's global
    generator by whoever loads it: without more arguments, with
    `cellrepro.determinism.seeding.loader_arguments`, and with crops drawn from
    `cellrepro.determinism.seeding.item_generator`. Each is done twice, after generators were seeded
    alike, but the second time one number was drawn before.

    Parameters
    ----------
    data : str, Path or ImageFolder
        A folder with masks, or one that is already read.
    workers : sequence of int
        Numbers of worker processes to try.

    Raises
    ------
    BadInput
        If the folder or a number of workers cannot be used.
    """
    _check_workers(workers)
    images = [image.image for image in _read(data).train]
    kinds = {
        "plain": _Cropped(images, by_item=False),
        "loader_arguments": _Cropped(images, by_item=False),
        "item_generator": _Cropped(images, by_item=True),
    }
    passes: dict[str, dict[int, list[tuple[str, str]]]] = {kind: {} for kind in kinds}
    evidence = []
    with generators_kept():
        for kind, cropped in kinds.items():
            for n in workers:
                pair = [_loaded(cropped, n, extra, pinned=kind != "plain") for extra in (0, 1)]
                passes[kind][n] = pair
                (order, crops), (other_order, other_crops) = pair
                evidence.append(
                    f"{kind}, {amount(n, 'worker')}: order {order[:12]} and {other_order[:12]}, "
                    f"crops {crops[:12]} and {other_crops[:12]}"
                )
    orders = {kind: _values(passes[kind], 0) for kind in kinds}
    crops_of = {kind: _values(passes[kind], 1) for kind in kinds}
    head = (
        f"distinct orders {len(orders['plain'])} plain, {len(orders['loader_arguments'])} with "
        f"loader_arguments; distinct crops {len(crops_of['plain'])} plain, "
        f"{len(crops_of['loader_arguments'])} with loader_arguments, "
        f"{len(crops_of['item_generator'])} with item_generator"
    )
    return Source(
        "loader",
        "Does a loader give another order or other crops after another draw or with other workers?",
        len(orders["plain"]) > 1 or len(crops_of["plain"]) > 1,
        (head, *evidence),
        "DataLoader(..., **loader_arguments(seed)) of cellrepro.determinism.seeding for the order, "
        "and "
        "item_generator(seed, epoch, index) for draws that depend on no worker",
        len(images) * len(kinds) * len(workers) * 2,
    )


class _Cropped:
    """Images as a loader's dataset: index and digest of a crop drawn by whoever loads it."""

    def __init__(self, images: list[np.ndarray], *, by_item: bool):
        self._images, self._by_item = images, by_item

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, index: int) -> tuple[int, str]:
        image = self._images[index]
        generator = item_generator(0, epoch=0, index=index) if self._by_item else None
        draw = generator.random if generator is not None else np.random.random_sample
        y, x = (int(draw() * size / 2) for size in image.shape[:2])
        crop = image[y : y + -(-image.shape[0] // 2), x : x + -(-image.shape[1] // 2)]
        # The place goes in too: on even background two places look alike.
        return index, value_digest([y, x, tensor_digest(crop)])


def _loaded(cropped: _Cropped, n_workers: int, extra: int, *, pinned: bool) -> tuple[str, str]:
    """Digest of the order and of each image's crop in one pass of a loader."""
    import torch
    from torch.utils.data import DataLoader

    seed_everything(0)
    torch.rand(extra)
    np.random.random_sample(extra)
    with warnings.catch_warnings():
        # Python 3.12 warns of every fork of a process with threads, which PyTorch's loader makes.
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        batches: DataLoader[Any] = DataLoader(
            cropped,  # type: ignore[arg-type]
            batch_size=None,
            shuffle=True,
            num_workers=n_workers,
            **(loader_arguments(0) if pinned else {}),
        )
        seen = [(int(index), crop) for index, crop in batches]
    return value_digest([index for index, _ in seen]), value_digest(sorted(seen))


def _values(passes: dict[int, list[tuple[str, str]]], which: int) -> set[str]:
    return {one[which] for pair in passes.values() for one in pair}


def _check_workers(workers: Sequence[int]) -> None:
    whole = not isinstance(workers, str) and isinstance(workers, Sequence) and len(workers) > 0
    if not whole or any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in workers):
        raise BadInput(f"workers is {workers!r}; expected numbers of workers such as (0, 2)")
    if len(set(workers)) != len(workers):
        raise BadInput(f"workers is {workers!r}, which names one number twice")


# -- imports -------------------------------------------------------------------------------


def import_order() -> Source:
    """Whether importing Cellpose undoes a switch that was set, or moves a generator.

    In a fresh process the generators are seeded, ``torch.backends.cuda.matmul.allow_tf32`` is set
    to False, and torchvision, segment_anything and Cellpose are imported one by one; switches,
    generators and environment variables are read before and after each. At last the switch is set
    to False again, as one does who imports first.

    Raises
    ------
    RunFailed
        If one of them cannot be imported.
    """
    answer = _in_child("imports", {"modules": list(_IMPORTED)})
    evidence, moved = [], []
    for stage in answer["stages"]:
        name, drawn, switched = stage["module"], stage["generators"], stage["switches"]
        if drawn or switched:
            moved.append(name)
        evidence.append(
            f"import {name}: generators moved: {', '.join(drawn) or 'none'}; switches changed: "
            + (", ".join(f"{k} {a!r} to {b!r}" for k, (a, b) in switched.items()) or "none")
            + (f"; variables changed: {', '.join(v)}" if (v := stage["variables"]) else "")
        )
    return Source(
        "import-order",
        "Does importing Cellpose undo what was set before, or move a generator?",
        bool(moved),
        (
            f"allow_tf32 set to False: {answer['set_before']} after the imports, "
            f"{answer['set_after']} when set after them"
            + (f"; moved by {', '.join(moved)}" if moved else ""),
            *evidence,
            f"generators {answer['before'][:12]} before the imports, {answer['after'][:12]} after",
        ),
        "import Cellpose first, then seed and set switches; the modes of cellrepro do so and "
        "read the switches back",
        len(answer["stages"]) * answer["n_read"],
    )


def _imports(modules: list[str]) -> dict[str, Any]:
    """Import modules one by one in this fresh process, and say what each of them moved."""
    import torch

    seed_everything(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    before, variables = _state(), dict(os.environ)
    first, stages = before, []
    for module in modules:
        importlib.import_module(module)
        after, now = _state(), dict(os.environ)
        stages.append(
            {
                "module": module,
                "generators": [
                    name
                    for name in first["generators"]
                    if before["generators"][name] != after["generators"][name]
                ],
                "switches": {
                    name: (value, after["switches"][name])
                    for name, value in before["switches"].items()
                    if value != after["switches"][name]
                },
                "variables": sorted(
                    name for name in variables | now if variables.get(name) != now.get(name)
                ),
            }
        )
        before, variables = after, now
    set_before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    return {
        "stages": stages,
        "set_before": set_before,
        "set_after": torch.backends.cuda.matmul.allow_tf32,
        "before": value_digest(first["generators"]),
        "after": value_digest(before["generators"]),
        "n_read": len(first["generators"]) + len(first["switches"]),
    }


def _state() -> dict[str, dict[str, Any]]:
    return {"generators": generator_digests(), "switches": switches()}


# -- weights -------------------------------------------------------------------------------


def initial_weights(*, seed: int = 0) -> Source:
    """Whether the initial weights depend on what was drawn before they were made.

    `tiny` is made with one seed twice, with the next seed, and after one number drawn from every
    global generator; then the same network is initialised as PyTorch does it, by the
    ``reset_parameters`` of its layers after ``torch.manual_seed``, alike.

    Parameters
    ----------
    seed : int
        In [0, 2**32).

    Raises
    ------
    BadInput
        If the seed is out of range.
    """
    check_seed(seed)
    next_seed = (seed + 1) % 2**32
    found: dict[str, list[dict[str, str]]] = {}
    with generators_kept():
        for kind, make in (
            ("cellrepro's seeded_network", partial(seeded_network, TINY)),
            ("PyTorch's own initialisation", _as_pytorch),
        ):
            found[kind] = []
            for use, n_drawn in ((seed, 0), (seed, 0), (next_seed, 0), (seed, 1)):
                seed_everything(use)
                _draw(n_drawn)
                found[kind].append(_weights(make(seed=use)))
    evidence = []
    for kind, (first, again, other, after) in found.items():
        evidence.append(
            f"{kind}: seed {seed} {_short(first)}, again {_short(again)}, seed {next_seed} "
            f"{_short(other)}, seed {seed} after one more draw {_short(after)} "
            f"({_n_changed(first, after)} of {len(first)} tensors differ)"
        )
    plain = found["PyTorch's own initialisation"]
    ours = found["cellrepro's seeded_network"]
    return Source(
        "initial-weights",
        "Do the initial weights depend on what was drawn before the network was made?",
        any(first != again or first != after for first, again, _, after in (plain, ours)),
        (evidence[1], evidence[0]),
        "start from one file of weights and compare its digest, or draw them from a generator of "
        "their own, as cellrepro.model.network.seeded_network does",
        sum(len(networks[0]) for networks in found.values()),
    )


def _draw(n: int) -> None:
    import torch

    for _ in range(n):
        random.random()
        np.random.random_sample()
        torch.rand(1)


def _as_pytorch(*, seed: int) -> Any:
    """`tiny` with the weights that its layers draw by themselves, from where PyTorch is now."""
    network = seeded_network(TINY, seed=seed)
    for module in network.modules():
        reset = getattr(module, "reset_parameters", None)
        if reset is not None:
            reset()
    return network


def _weights(network: Any) -> dict[str, str]:
    return {name: tensor_digest(value) for name, value in network.state_dict().items()}


# -- hidden state --------------------------------------------------------------------------

_PARTIAL = {"percentile": [1.0, 99.0]}
"""A dictionary as users pass it to ``eval``; what it leaves out is read from the defaults."""


def hidden_state(data: str | Path | ImageFolder) -> Source:
    """Whether one call of ``CellposeModel.eval`` changes the result of the next.

    ``models.normalize_default`` is shared by the whole process, and ``eval`` writes into it. An
    image is segmented by a call that passes a dictionary of a few normalisation parameters, before
    and after another call that turns normalisation off (or on, where it was off).

    Parameters
    ----------
    data : str, Path or ImageFolder
        A folder with masks, or one that is already read.

    Raises
    ------
    BadInput
        If the folder cannot be used.
    """
    images = [image.image[:_EVAL_PIXELS, :_EVAL_PIXELS] for image in _read(data).train[:2]]
    defaults = _cellpose("models").normalize_default
    network = seeded_network(TINY, seed=0)
    network.eval()
    model = cellpose_model(network)

    def outputs(normalize: Any) -> list[str]:
        return [_output(model, image, normalize) for image in images]

    with _put_back(defaults), generators_kept():
        start = copy.deepcopy(defaults)
        plain = outputs(True)
        _set_back(defaults, start)
        before, again = outputs(dict(_PARTIAL)), outputs(dict(_PARTIAL))
        outputs(not start["normalize"])
        written = {name: (start[name], now) for name, now in defaults.items() if start[name] != now}
        after, plain_after = outputs(dict(_PARTIAL)), outputs(True)
    n_moved = _n_other(again, after)
    changed = ", ".join(f"{name} {a!r} to {b!r}" for name, (a, b) in written.items())
    return Source(
        "hidden-state",
        "Does a call of Cellpose's eval change the result of a later call?",
        n_moved > 0 or plain != plain_after,
        (
            f"eval(normalize={_PARTIAL}) gives {_short(again)} before and {_short(after)} after "
            f"another call; {n_moved} of {amount(len(images), 'image')} came out otherwise",
            f"called twice with nothing between: {_short(before)} and {_short(again)}",
            f"eval(normalize={not start['normalize']}) wrote into models.normalize_default: "
            f"{changed or 'nothing'}",
            f"eval(normalize=True) gives {_short(plain)} before and {_short(plain_after)} after",
            f"normalize_default['normalize'] is {start['normalize']} in this process now",
        ),
        "pass every parameter you rely on, 'normalize': True among them, or run each analysis in "
        "a process of its own, as cellrepro does",
        2 * len(images),
    )


def _output(model: Any, image: np.ndarray, normalize: Any) -> str:
    """Digest of what the network says of one image: flows and cell probability."""
    _, flows, _ = model.eval(
        image,
        channel_axis=None if image.ndim == 2 else -1,
        normalize=normalize,
        compute_masks=False,
    )
    return value_digest([tensor_digest(np.asarray(part)) for part in flows[1:3]])


@contextlib.contextmanager
def _put_back(shared: dict[str, Any]) -> Iterator[None]:
    """Give a shared dictionary its content back, also when the block raises."""
    start = copy.deepcopy(shared)
    try:
        yield
    finally:
        _set_back(shared, start)


def _set_back(shared: dict[str, Any], content: dict[str, Any]) -> None:
    shared.clear()
    shared.update(copy.deepcopy(content))


# -- common --------------------------------------------------------------------------------


def _cellpose(name: str) -> Any:
    """A module of Cellpose itself: what is probed is not the lab's use of it."""
    return importlib.import_module(f"cellpose.{name}")


def _read(data: str | Path | ImageFolder) -> ImageFolder:
    return data if isinstance(data, ImageFolder) else read_folder(data)


def _few_trainable(folder: ImageFolder) -> list[LabelledImage]:
    few = [image for image in folder.train if trainable(image)][:_MOST_IMAGES]
    if not few:
        raise BadInput(f"{folder.path}: {none_trainable(folder.train)}")
    return few


def _with_flows(images: list[LabelledImage]) -> list[LabelledImage]:
    import torch

    with _hushed():
        return with_flows(images, torch.device("cpu"))


def _batches(images: list[LabelledImage], *, data_seed: int | Literal["cellpose"]) -> list[str]:
    """Digests of the batches of one epoch, one image each, as the training loop shows them."""
    shown: list[str] = []
    with _hushed(), generators_kept():
        loop = Loop(
            _onlooker(shown), images, (), n_epochs=1, learning_rate=0.0, data_seed=data_seed
        )
        while not loop.finished:
            loop.step()
    return shown


def _onlooker(shown: list[str]) -> Any:
    """Stands where the training loop has its network, and notes the digest of what it is shown."""
    import torch

    class Onlooker(torch.nn.Module):
        device = torch.device("cpu")

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.diam_labels = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

        def forward(self, x: Any) -> tuple[Any]:
            shown.append(tensor_digest(x))
            return (self.weight * torch.ones(len(x), 3, *x.shape[-2:]),)

    return Onlooker()


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keep Cellpose's bars, one for each loop over images, off the screen."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def _n_other(a: Sequence[str], b: Sequence[str]) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))


def _n_changed(a: dict[str, str], b: dict[str, str]) -> int:
    return sum(a[name] != b[name] for name in a)


def _short(value: Any) -> str:
    return value_digest(value)[:12]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")


# -- the child -----------------------------------------------------------------------------


def _in_child(probe: str, options: dict[str, Any]) -> Any:
    work = "cellrepro.lab.outside_the_step:probed"
    return call(work, None, label=f"sources, {probe}", probe=probe, options=options)


def probed(child: Child, *, probe: str, options: dict[str, Any]) -> Any:
    """What a probe needs a fresh process for."""
    if probe == "readings":
        return _readings(read_folder(options["data"]))
    return _imports(options["modules"])
