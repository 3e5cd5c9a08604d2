"""What makes two trainings differ outside the training step: tried here, on your data, not told.

Each probe runs the real thing (the folder's listing, Cellpose's preprocessing and augmentation,
PyTorch's loader, a fresh process, the network) and says whether this source changes anything on
this machine and how to pin it. What happens inside a step is for `cellrepro.audit_training`.

Nothing stays changed: generators, switches and Cellpose's defaults are put back.
"""

from __future__ import annotations

import contextlib
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

from cellrepro.determinism.seeding import (
    check_seed,
    generators_kept,
    item_generator,
    loader_arguments,
    seed_everything,
)
from cellrepro.errors import BadInput, whole
from cellrepro.images.folder import ImageFolder, LabelledImage, read_folder
from cellrepro.lab.process import Child, call
from cellrepro.model import cellpose_itself
from cellrepro.model.training import Loop, none_trainable, trainable, with_flows
from cellrepro.progress import progress
from cellrepro.store.digests import tensor_digest, value_digest
from cellrepro.text import amount

Data = str | Path | ImageFolder
DataSeed = int | Literal["cellpose"]

_MOST_IMAGES = 6  # flows take longer than all the rest


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
        Whether it changed something here. "No" is what was seen, not a proof for other data.
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


def look(
    data: str | Path,
    *,
    data_seed: DataSeed = "cellpose",
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
        Of the images first, then those of `cellrepro.lab.process_state`.
    """
    from cellrepro.lab import process_state  # which asks questions of the same kind

    _check_workers(workers)
    check_seed(seed)
    _check_data_seed(data_seed)
    folder = read_folder(data)
    probes: dict[str, Callable[[], Source]] = {
        "file-order": partial(file_order, folder),
        "two-readings": partial(two_readings, folder),
        "augmentation": partial(augmentation, folder, data_seed=data_seed),
        "loader": partial(loader, folder, workers=workers),
        "import-order": process_state.import_order,
        "initial-weights": partial(process_state.initial_weights, seed=seed),
        "hidden-state": partial(process_state.hidden_state, folder),
    }
    found = []
    with progress(len(probes), "sources", quiet=quiet) as bar:
        for name, probe in probes.items():
            bar.note(name)
            found.append(probe())
            bar.advance(name)
    return found


# -- files ---------------------------------------------------------------------------------


def file_order(data: Data) -> Source:
    """Whether the order in which the training images are listed changes what is trained on.

    Cellpose draws indices, so in another order the same draws are other images. Several listings
    are held against the order of cellrepro's reader, and an epoch of batches is drawn in each.
    """
    source = partial(
        Source,
        name="file-order",
        question="Does the order in which files are listed change what is trained on?",
        remedy="give all file names equally many digits (img_002, img_010) and sort them before "
        "you hand them over; cellrepro.train does, whatever the file system lists",
    )
    images = [image for image in read(data).train if trainable(image)]
    names = [image.image_path.name for image in images]
    if len(images) < 2:
        why = f"{amount(len(images), 'image')} to train on has one order only"
        return source(moves=False, evidence=(why,), n_compared=0)
    evidence, others = [f"cellrepro's reader: {_few(names)}"], []
    for label, order in _listings(images[0].image_path.parent, names).items():
        missing = sorted(set(names) - set(order))
        n_places = 0 if missing else sum(a != b for a, b in zip(names, order, strict=True))
        if missing:
            evidence.append(f"{label}: lists {len(order)} of {len(names)}, not {_few(missing)}")
            others.append(label)
        elif not n_places:
            evidence.append(f"{label}: the same order")
        else:
            n_others, n_steps = _batches_in(images, order)
            evidence.append(
                f"{label}: {_few(order)}; {n_places} of {len(names)} places hold another image, "
                f"and {n_others} of {n_steps} batches drawn with the same numbers are others"
            )
            others += [label] * bool(n_others)
    head = f"other than the reader's: {', '.join(others)}" if others else "every listing agrees"
    return source(moves=bool(others), evidence=(head, *evidence), n_compared=len(names))


def _listings(folder: Path, names: list[str]) -> dict[str, list[str]]:
    """The orders in which programs list the images of one folder, by who lists them."""
    with os.scandir(folder) as scan:
        directory = [entry.name for entry in scan if entry.name in names]
    by_cellpose = [path.name for path in cellpose_itself.listed(folder)]
    return {
        "the directory (os.scandir, Path.iterdir)": directory,
        "sorted()": sorted(names),
        "Cellpose's io.get_image_files": [name for name in by_cellpose if name in names],
        "natsorted() of a listing backwards": natsorted(sorted(names, reverse=True)),
    }


def _batches_in(images: list[LabelledImage], order: list[str]) -> tuple[int, int]:
    """Of one epoch over a few images in both orders: how many batches differ, of how many.

    Of many images those are taken that change places first, or little could be seen.
    """
    usual = [image.image_path.name for image in images]
    swapped = [pair for pair in zip(usual, order, strict=True) if pair[0] != pair[1]]
    few = {name for pair in swapped[: _MOST_IMAGES // 2] for name in pair}
    if len(usual) <= _MOST_IMAGES:
        few = set(usual)
    chosen = [image for image in images if image.image_path.name in few]
    flows = {image.image_path.name: image for image in _with_flows(chosen)}
    a, b = (
        _batches([flows[name] for name in names if name in few], data_seed="cellpose")
        for names in (usual, order)
    )
    return n_other(a, b), len(a)


def two_readings(data: Data) -> Source:
    """Whether one folder, read again here and in a fresh process, gives other numbers.

    Compared are files, decoded images and masks, and for six training images what Cellpose makes
    of them: the normalised image and the flows.
    """
    path = data.path if isinstance(data, ImageFolder) else Path(data)
    first, again = readings(None, data=path), readings(None, data=path)
    work = "cellrepro.lab.outside_the_step:readings"
    other = call(work, None, label="sources, readings", data=path.resolve())
    evidence = []
    for label, reading in (("read again here", again), ("read in a fresh process", other)):
        changed = [name for name in first | reading if first.get(name) != reading.get(name)]
        evidence.append(
            f"{label}: {len(changed)} of {amount(len(first), 'digest')} changed, "
            f"all together {short(first)} and {short(reading)}"
        )
        evidence += [
            f"{label}: {name} {first.get(name, 'none')[:12]}, then {reading.get(name, 'none')[:12]}"
            for name in changed[:3]
        ]
    return Source(
        name="two-readings",
        question="Does reading the same folder again give other images, masks or flows?",
        moves=any(reading != first for reading in (again, other)),
        evidence=tuple(evidence),
        remedy="if files differ, something writes into the folder or the disk is failing: copy it "
        "and keep its digest (sha256sum); if only flows differ, compute them once and keep them",
        n_compared=2 * len(first),
    )


def readings(child: Child | None, *, data: Path) -> dict[str, str]:
    """Digests of all that comes out of a folder, by what it is; here or inside a child."""
    folder = read_folder(data)
    found = {"files": folder.digest}
    for split in ("train", "test"):
        for image in getattr(folder, split):
            found[f"image {split}/{image.name}"] = tensor_digest(image.image)
            if image.masks is not None:
                found[f"masks {split}/{image.name}"] = tensor_digest(image.masks)
    prepared = _loop(_few_trainable(folder)).prepared
    for name, array in prepared.items():
        image, _, what = name.rpartition(" ")
        found[f"{what} train/{image}"] = tensor_digest(np.asarray(array))
    return found


# -- draws ---------------------------------------------------------------------------------


def augmentation(data: Data, *, data_seed: DataSeed = "cellpose") -> Source:
    """Whether augmentation shows the same image otherwise, and whose generator it draws from.

    Cellpose's own is called from equal states of all generators and from others, then one epoch of
    the training loop is drawn after two seeds of yours, and with another data seed than the one
    given, which is as for `cellrepro.train`.
    """
    import torch

    _check_data_seed(data_seed)
    images = _with_flows(_few_trainable(read(data)))
    prepared = list(_loop(images).prepared.values())

    def drawn(reseed: Callable[[int], Any] = lambda seed: None) -> str:
        seed_everything(0)
        reseed(1)
        return augment()

    def augment() -> str:
        shown = cellpose_itself.augmented(prepared[::2], prepared[1::2])
        return value_digest([tensor_digest(part) for part in shown])

    generators: dict[str, Callable[[int], Any]] = {
        "Python": random.seed,
        "NumPy": np.random.seed,
        "PyTorch": torch.manual_seed,
    }
    other_seed = 1 if data_seed == "cellpose" else (data_seed + 1) % 2**32
    with generators_kept():
        once, after, again = drawn(), augment(), drawn()
        drawn_from = [name for name, reseed in generators.items() if drawn(reseed) != once]
        epochs = []
        for seed in (1, 2):
            seed_everything(seed)
            epochs.append(_batches(images, data_seed=data_seed))
        other = _batches(images, data_seed=other_seed)
    held = once == again
    return Source(
        name="augmentation",
        question="Does augmentation show the same image otherwise when its generator is not put "
        "back?",
        moves=once != after or not held,
        evidence=(
            f"from one state {once[:12]} and {again[:12]}, going on from there {after[:12]}",
            f"drawn from: {', '.join(drawn_from) or 'no global generator'}",
            f"one epoch with data_seed={data_seed!r} after your own seeds 1 and 2: "
            f"{n_other(*epochs)} of {len(epochs[0])} batches differ",
            f"with data_seed={other_seed}: {n_other(epochs[0], other)} of {len(other)} differ",
        ),
        remedy="Cellpose seeds NumPy by the epoch's number, over any seed of yours: choose order "
        "and augmentation with cellrepro.train(data, data_seed=1)"
        if held
        else "it draws from a generator that no seed reaches: look for "
        "numpy.random.default_rng() without a seed",
        n_compared=len(images),
    )


def loader(data: Data, *, workers: Sequence[int] = (0, 2)) -> Source:
    """Whether a DataLoader gives another order or other crops after another draw.

    The training images are loaded shuffled, each cropped at a place drawn by whoever loads it:
    plainly, with `loader_arguments`, and with crops from `item_generator`. Each is done twice after
    equal seeds, the second time with one draw before, by each of these numbers of workers.
    """
    _check_workers(workers)
    images = [image.image for image in read(data).train]
    kinds = ("plain", "loader_arguments", "item_generator")
    orders: dict[str, set[str]] = {kind: set() for kind in kinds}
    crops: dict[str, set[str]] = {kind: set() for kind in kinds}
    evidence = []
    with generators_kept():
        for kind in kinds:
            cropped = _Cropped(images, by_item=kind == "item_generator")
            for n in workers:
                (a, x), (b, y) = (_loaded(cropped, n, e, pinned=kind != "plain") for e in (0, 1))
                orders[kind] |= {a, b}
                crops[kind] |= {x, y}
                evidence.append(
                    f"{kind}, {amount(n, 'worker')}: order {a[:12]} and {b[:12]}, "
                    f"crops {x[:12]} and {y[:12]}"
                )
    head = (
        f"distinct orders {len(orders['plain'])} plain, {len(orders['loader_arguments'])} with "
        f"loader_arguments; distinct crops {len(crops['plain'])} plain, "
        f"{len(crops['loader_arguments'])} with loader_arguments, "
        f"{len(crops['item_generator'])} with item_generator"
    )
    return Source(
        name="loader",
        question="Does a loader give another order or other crops after another draw or with "
        "other workers?",
        moves=len(orders["plain"]) > 1 or len(crops["plain"]) > 1,
        evidence=(head, *evidence),
        remedy="DataLoader(..., **loader_arguments(seed)) of cellrepro.determinism.seeding for the "
        "order, and item_generator(seed, epoch, index) for draws that depend on no worker",
        n_compared=len(images) * len(kinds) * len(workers) * 2,
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
    """Digests of the order and of the crops in one pass of a loader, after ``extra`` draws."""
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


# -- common --------------------------------------------------------------------------------


def _check_data_seed(data_seed: DataSeed) -> None:
    if data_seed != "cellpose":
        check_seed(data_seed, name="data_seed")


def _check_workers(workers: Sequence[int]) -> None:
    if isinstance(workers, str) or not isinstance(workers, Sequence) or not workers:
        raise BadInput(f"workers is {workers!r}; expected numbers of workers such as (0, 2)")
    for n in workers:
        whole("workers", n, 0)
    if len(set(workers)) != len(workers):
        raise BadInput(f"workers is {workers!r}, which names one number twice")


def read(data: Data) -> ImageFolder:
    """A folder of images, also where it is read already."""
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


def _batches(images: list[LabelledImage], *, data_seed: DataSeed) -> list[str]:
    """Digests of the batches of one epoch, one image each, as the training loop shows them."""
    shown: list[str] = []
    loop = _loop(images, shown, data_seed=data_seed)
    with _hushed(), generators_kept():
        while not loop.finished:
            loop.step()
    return shown


def _loop(images: list[LabelledImage], shown: list[str] | None = None, **options: Any) -> Loop:
    """A training loop over images, with a network that only notes what it is shown."""
    import torch

    class Onlooker(torch.nn.Module):
        device = torch.device("cpu")

        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(1))
            self.diam_labels = torch.nn.Parameter(torch.zeros(1), requires_grad=False)

        def forward(self, x: Any) -> tuple[Any]:
            if shown is not None:
                shown.append(tensor_digest(x))
            return (self.weight * torch.ones(len(x), 3, *x.shape[-2:]),)

    with _hushed(), generators_kept():
        return Loop(Onlooker(), images, (), n_epochs=1, learning_rate=0.0, **options)


@contextlib.contextmanager
def _hushed() -> Iterator[None]:
    """Keep Cellpose's bars, one for each loop over images, off the screen."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def n_other(a: Sequence[str], b: Sequence[str]) -> int:
    """How many of two equally long lists differ."""
    return sum(x != y for x, y in zip(a, b, strict=True))


def short(value: Any) -> str:
    """The first 12 hex digits of a plain value's digest."""
    return value_digest(value)[:12]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
