"""Why two results of one image differ: what each records, and changes between them, replayed."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from scipy.signal import fftconvolve

from cellrepro.asked import defaults
from cellrepro.asked.segmentation_settings import NAMES, Settings
from cellrepro.changes.search import (
    CHANNELS,
    CROP,
    DEPTH,
    MODEL,
    PRECISION,
    VERSION,
    Condition,
    Fit,
    Found,
    Replayed,
    as_read,
    readings,
    replay,
)
from cellrepro.changes.settings_file import read_sidecar, write_sidecar
from cellrepro.determinism import profiles
from cellrepro.determinism.seeds import seed_of
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.decoding import read_image, read_labels
from cellrepro.images.seg_file import SEG_ENDING, read_seg
from cellrepro.model.network import ModelSource, find_model, started_from
from cellrepro.process.calling import in_child
from cellrepro.process.cellpose_versions import is_installed, python_of
from cellrepro.process.child import Event
from cellrepro.process.setup import Setup
from cellrepro.progress import Progress, progress
from cellrepro.same.metrics import MaskComparison, compare_masks
from cellrepro.store.store import Repeat, Store

_LEAST_ALIKE = 0.3  # Dice coefficient of what is cell in both, where a crop lies
_ALIKE_AT_ANOTHER_SIZE = 0.6  # the same of masks brought to one size
_SAY_SECONDS = 30.0  # after which a line that stays says how far a search is
_TELLING = ("restore", "ratio", "manual_changes", "ismanual", "filename", "chan_choose")


@dataclass(frozen=True)
class Side:
    """One of two results of an image."""

    name: str
    kind: str  # stored run, _seg.npy, label image with or without its record
    masks: np.ndarray = field(repr=False)  # (Y, X) or (Z, Y, X)
    known: Condition  # by name; what is not in it nobody recorded
    recorded: Mapping[str, Any]  # what cannot be varied: versions, restoration, changes by hand
    model: ModelSource | None = None
    read: np.ndarray | None = field(default=None, repr=False)  # the image as a stored run read it

    @property
    def n_cells(self) -> int:
        """How many cells it has."""
        return int(np.count_nonzero(np.unique(self.masks)))


@dataclass(frozen=True)
class Part:
    """Where one side shows a part of the image and the other the whole of it."""

    of: str  # "a" or "b", the side that shows a part
    rows: tuple[int, int]  # pixels of the whole, the second left out
    columns: tuple[int, int]
    share: float  # of the image's pixels
    n_cells: int  # of the side that shows the whole
    n_outside: int  # of these wholly outside of the part
    n_cut: int  # and of these cut by its border


@dataclass(frozen=True)
class Commands:
    """How to make a result again."""

    shell: str  # Cellpose's command line
    python: str  # the call of Cellpose in Python
    lab: str  # this lab's command line, which takes every network and every setting


@dataclass(frozen=True)
class Explanation:
    """What two results record, what made them differ, and what remains."""

    a: Side
    b: Side
    result: MaskComparison  # over what both show of the image
    replayed: Replayed | None  # none where they are equal, or cannot be replayed
    settings: tuple[tuple[str, Any, Any], ...]  # name, and what each side has; "?" is not known
    commands: Mapping[str, Commands | None]  # of each side; none for one that was not made again
    part: Part | None = None  # where the two show different parts of the image
    why_not_replayed: str = ""

    @property
    def vacuous(self) -> bool:
        """Whether a side has no cell, and nothing is recorded that would make it so."""
        fits = [] if self.replayed is None else [self.replayed.a, self.replayed.b]
        nothing = not self.a.n_cells and not self.b.n_cells
        return nothing or any(fit.found == Found.VACUOUS for fit in fits)

    @property
    def differs(self) -> bool:
        """Whether one side has a cell, or a pixel of one, that the other lacks."""
        n_missing = self.part.n_outside + self.part.n_cut if self.part is not None else 0
        return self.result.n_differing + n_missing > 0

    @property
    def unexplained(self) -> float:
        """Share of cells that the causes leave without a counterpart, on the worse side."""
        if self.vacuous or self.replayed is None:
            return self.result.changed if self.result.n_differing else 0.0
        shares = [self.replayed.left[0] / max(1, self.replayed.n_cells)]
        if self.replayed.a.found != Found.MADE:
            shares.append(self.replayed.a.gap[0] / max(1, self.replayed.a.n_cells))
        return max(shares)


def explain(
    a: str,
    b: str,
    *,
    image: str | Path,
    model: str | None = None,
    profile: str = defaults.PROFILE,
    mode: str = defaults.MODE,
    seed: int | None = None,
    store: str | Path = defaults.STORE,
    minutes: float = defaults.SEARCH_MINUTES,
    quiet: bool = False,
) -> Explanation:
    """Replay the difference of two results of one image, one change at a time.

    Parameters
    ----------
    a, b : str
        Each a ``_seg.npy``, a label image (its settings in NAME.json beside it, or unknown), or
        ``KEY/REPEAT`` of the store.
    image : str or Path
        The image's file; its name is that of the image in stored runs.
    model : str, optional
        As for `cellrepro.segment`; default that of the sides, as far as they say.
    profile, mode, seed, store, quiet
        As for `cellrepro.segment`; the precision of the profile is that of sides that record none.
    minutes : float
        After which the search of what nobody recorded ends, half of them for each side.

    Returns
    -------
    Explanation
        What nobody recorded is searched among usual values; what no change explains is said.

    Raises
    ------
    BadInput
        If a side holds no masks of the image or of a part of it, or no network is known.
    """
    if not minutes > 0:
        raise BadInput(f"minutes is {minutes}; expected how long a search may take, above 0")
    place = Store(store)
    name = Path(image).stem
    sides = [_side(text, name, place) for text in (a, b)]
    if any(side.masks.ndim != 2 for side in sides):
        return _of_stacks(sides[0], sides[1], image)
    pixels = read_image(image)
    sides = [_with_reading(side, pixels) for side in sides]
    sides = [_placed(side, other, pixels) for side, other in (sides, sides[::-1])]
    masks = [_common(side, other) for side, other in (sides, sides[::-1])]
    result = compare_masks(*masks)
    sources = _sources(sides, model, place)
    replayed = None
    settings = profiles.load(profile)
    if result.n_differing:
        setup = Setup(settings, mode, seed_of(mode, seed))
        known = [_known(side, sources) for side in sides]
        task = partial(
            replay,
            sources=sources,
            image=pixels,
            sides=[(one, side.masks) for one, side in zip(known, sides, strict=True)],
            search_minutes=minutes,
        )
        with progress(3, "replays", quiet=quiet) as bar:
            replayed = in_child(task, setup, label="replays", on_event=_listener(bar))
    usual = {PRECISION: settings.dtype, MODEL: next(iter(sources), "?")}
    commands: dict[str, Commands | None] = {}
    for letter, side in zip("ab", sides, strict=True):
        condition: Condition | None = dict(side.known)
        if not side.known or CROP in side.known:
            condition = None  # nobody recorded how it was made
        if replayed is not None:
            fit: Fit = getattr(replayed, letter)
            condition = fit.condition if fit.found == Found.MADE else None
        commands[letter] = None
        if condition is not None:
            commands[letter] = _commands(str(image), {**usual, **condition}, sources)
    a_side, b_side = sides
    return Explanation(
        a_side, b_side, result, replayed, _table(a_side, b_side), commands, _part(*sides)
    )


def _listener(bar: Progress) -> Callable[[Event], None]:
    """What is done is counted; how far a search is, noted, and said now and then."""
    said_at = time.monotonic()

    def heard(event: Event) -> None:
        nonlocal said_at
        if event.kind == "done":
            bar.advance(event.text)
        elif event.kind == "note":
            bar.note(event.text)
            if time.monotonic() - said_at > _SAY_SECONDS:
                said_at = time.monotonic()
                bar.say(event.text)

    return heard


def _of_stacks(a: Side, b: Side, image: str | Path) -> Explanation:
    """What the files tell of two stacks, which are not replayed."""
    if a.masks.shape != b.masks.shape:
        raise BadInput(
            f"{a.name} has masks of shape {a.masks.shape}, {b.name} of {b.masks.shape}; expected "
            "two planes (Y, X), or two stacks (Z, Y, X) of one shape"
        )
    if not Path(image).is_file():
        raise BadInput(f"{image}: no such file; expected the image that both are of")
    why = (
        "stacks are not replayed, so what nobody recorded is not searched; `cellrepro segment` "
        "with the settings of one side, and one of the other's, and `compare` say what it does"
    )
    result = compare_masks(a.masks, b.masks)
    unknown: dict[str, Commands | None] = {"a": None, "b": None}
    return Explanation(a, b, result, None, _table(a, b), unknown, why_not_replayed=why)


# -- the two sides ---------------------------------------------------------------------------


def _side(text: str, image: str, store: Store) -> Side:
    path = Path(text)
    if text.endswith(SEG_ENDING) and path.exists():
        return _of_seg(path)
    if not path.exists():
        return _of_run(text, image, store)
    record = read_sidecar(path)
    masks = read_labels(path)
    if record is None:
        return Side(text, "label image", masks, {}, {})
    known: Condition = dict(Settings.model_validate(record["settings"]).flat)
    known |= {n: record[n] for n in (PRECISION,) if n in record}
    others = {n: v for n, v in record.items() if n not in ("settings", PRECISION)}
    known |= _version(record.get("versions", {}).get("cellpose"), others)
    return Side(text, "label image with its record", masks, known, others)


def _of_seg(path: Path) -> Side:
    """What the GUI records is known; what it does not, nobody knows."""
    seg = read_seg(path)
    given, known = dict(seg.settings), {}
    for name in ("diameter", "flow_threshold", "cellprob_threshold", "niter", "min_size"):
        value = given.pop(name, None)
        if value is not None:  # 0 is Cellpose's other word for none
            known[name] = value if value or name not in ("diameter", "niter") else None
    fields = given.pop("normalize_params", None) or {}
    for field_, value in fields.items():
        setting = f"normalize.{'sharpen' if field_ == 'sharpen_radius' else field_}"
        if setting in NAMES:
            known[setting] = tuple(value) if isinstance(value, list) else value
    file = Path(str(given.get("model_path") or ""))
    told = {n: given[n] for n in (*_TELLING, "model_path") if given.get(n)}
    model = None
    if file.is_file():
        model = find_model(str(file), Store(defaults.STORE))
    return Side(str(path), SEG_ENDING, seg.masks, known, told, model)


def _of_run(text: str, image: str, store: Store) -> Side:
    repeat = store.find(text)
    manifest, spec = repeat.manifest, repeat.spec
    if image not in manifest.masks:
        raise BadInput(
            f"{repeat.name} has no image {image!r}; expected --image with the file of one of "
            f"{', '.join(manifest.masks)}"
        )
    known: Condition = {**spec.settings.flat, PRECISION: spec.profile_settings.get("dtype")}
    recorded = {"machine": repeat.machine}
    known |= _version(manifest.versions.get("cellpose"), recorded)
    source = find_model(repeat.name, store) if manifest.weights else started_from(repeat, store)
    kept = store.image(spec.images_digest, image)
    masks = repeat.masks(image)
    return Side(repeat.name, "stored run", masks, known, recorded, source, kept)


def _version(version: str | None, recorded: dict[str, Any]) -> Condition:
    """The version of Cellpose, as a condition where it can be had here; else as a record."""
    try:
        if version is not None and not is_installed(version):
            python_of(version)
    except CellreproError:
        recorded[VERSION] = version
        return {}
    return {} if version is None else {VERSION: version}


def _with_reading(side: Side, pixels: np.ndarray) -> Side:
    return replace(side, known={**side.known, **_reading(side.read, pixels)})


def _reading(kept: np.ndarray | None, pixels: np.ndarray) -> Condition:
    """How a run read the image, where that is known."""
    as_given = {DEPTH: None, CHANNELS: None}
    if kept is None:
        return {}
    if np.array_equal(kept, pixels) and kept.dtype == pixels.dtype:
        return as_given
    if kept.shape[:2] != pixels.shape[:2]:
        return {}  # a crop, which its masks show
    for reading in readings(pixels):
        found = as_read(pixels, reading)
        if found.dtype == kept.dtype and np.array_equal(found, kept):
            return as_given | reading
    return {}


def _placed(side: Side, other: Side, pixels: np.ndarray) -> Side:
    """With the place of its crop, where it shows a part of the image."""
    shape = pixels.shape[:2]
    if side.masks.shape == shape:
        return side
    told = f"{side.name} has masks of shape {side.masks.shape}, and the image has {shape}"
    fits = all(n <= m for n, m in zip(side.masks.shape, shape, strict=True))
    if other.masks.shape != shape:
        raise BadInput(f"{told}; expected masks of this image, or of a part of it")
    resized = _alike_resized(side.masks, other.masks)
    crop, alike = _crop_of(side.masks, other.masks) if fits else (None, 0.0)
    if resized > max(alike, _ALIKE_AT_ANOTHER_SIZE):
        times = shape[0] / side.masks.shape[0]
        raise BadInput(
            f"{told}; they are the masks of the whole image at another size, {times:.3g} times as "
            f"small (Dice {resized:.2f} with {other.name}): bring them to the size of the image by "
            "nearest neighbour, or give the image that they were made from"
        )
    if not fits:
        raise BadInput(f"{told}; expected masks of this image, or of a part of it")
    if not side.masks.any():
        raise BadInput(f"{told}, and they hold no cell by which to find their place in the image")
    if alike < _LEAST_ALIKE:
        raise BadInput(f"{told}, and no part of {other.name} is like it; give the image of both")
    return replace(side, known={**side.known, CROP: crop})


def _crop_of(part: np.ndarray, whole: np.ndarray) -> tuple[Any, float]:
    """Where masks lie in those of the whole, and how alike the two are there (Dice)."""
    cell_part = (part > 0).astype(np.float64)
    cell_whole = (whole > 0).astype(np.float64)
    both = fftconvolve(cell_whole, cell_part[::-1, ::-1], mode="valid")
    of_whole = fftconvolve(cell_whole, np.ones_like(cell_part), mode="valid")
    alike = 2 * both / np.maximum(of_whole + cell_part.sum(), 1)
    y, x = (int(place) for place in np.unravel_index(int(alike.argmax()), alike.shape))
    height, width = part.shape
    return ((y, y + height), (x, x + width)), float(alike[y, x])


def _alike_resized(masks: np.ndarray, other: np.ndarray) -> float:
    """How alike two results are (Dice) when one is brought to the other's size."""
    rows, columns = (np.arange(n) * of // n for n, of in zip(other.shape, masks.shape, strict=True))
    cell = masks[np.ix_(rows, columns)] > 0
    in_both = int(np.count_nonzero(cell & (other > 0)))
    return 2 * in_both / max(1, int(np.count_nonzero(cell)) + int(np.count_nonzero(other)))


def _part(a: Side, b: Side) -> Part | None:
    """Where one side shows a part of the other, and what that leaves out."""
    for letter, side, whole in (("a", a, b), ("b", b, a)):
        if CROP not in side.known:
            continue
        (y0, y1), (x0, x1) = side.known[CROP]
        inside = whole.masks[y0:y1, x0:x1]
        around = whole.masks.copy()
        around[y0:y1, x0:x1] = 0
        labels = np.unique(inside[inside > 0])
        beyond = np.unique(around[around > 0])
        return Part(
            of=letter,
            rows=(y0, y1),
            columns=(x0, x1),
            share=inside.size / whole.masks.size,
            n_cells=whole.n_cells,
            n_outside=whole.n_cells - len(labels),
            n_cut=len(np.intersect1d(labels, beyond)),
        )
    return None


def _common(side: Side, other: Side) -> np.ndarray:
    """What both show of the image."""
    if CROP not in other.known:
        return side.masks
    (y0, y1), (x0, x1) = other.known[CROP]
    return np.ascontiguousarray(side.masks[y0:y1, x0:x1])


def _sources(sides: list[Side], model: str | None, store: Store) -> dict[str, ModelSource]:
    """The networks by name: one, or that of each side."""
    if model is not None:
        source = find_model(model, store)
        return {source.label: source}
    found = {side.model.digest or side.model.label: side.model for side in sides if side.model}
    if not found:
        raise BadInput(
            "neither side says which network made it; give --model: a Cellpose name, a weights "
            "file, or KEY/REPEAT"
        )
    return {source.label: source for source in found.values()}


def _known(side: Side, sources: Mapping[str, ModelSource]) -> Condition:
    if side.model is None or side.model.label not in sources:
        return side.known
    return {**side.known, MODEL: side.model.label}


def write_masks(repeat: Repeat, folder: Path) -> None:
    """Write the masks of a run for people, each with a record of how it was made beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    manifest, spec = repeat.manifest, repeat.spec
    weights = manifest.weights.digest if manifest.weights else manifest.model.initial_weights
    record = {
        "settings": spec.settings.model_dump(mode="json"),
        "model": repeat.name if manifest.weights else spec.model,
        "model_digest": weights,
        PRECISION: spec.profile_settings.get("dtype", "float32"),
        "run": repeat.name,
        "versions": manifest.versions,
    }
    for name in manifest.masks:
        path = folder / f"{name}_masks.tif"
        labels = repeat.masks(name)  # three or four planes are no colours
        tifffile.imwrite(
            path,
            labels,
            photometric="minisblack",
            compression="zlib",
            metadata={"axes": "ZYX"[-labels.ndim :]},
        )
        write_sidecar(path, record)


# -- what is told ----------------------------------------------------------------------------


def _table(a: Side, b: Side) -> tuple[tuple[str, Any, Any], ...]:
    """Every setting, and what else the two record, with what each side says."""
    names = dict.fromkeys([*NAMES, PRECISION, VERSION, CROP, *a.recorded, *b.recorded])
    sides = [{**side.recorded, **side.known} for side in (a, b)]
    rows = [(name, *(side.get(name, "?") for side in sides)) for name in names]
    return tuple(row for row in rows if row[0] != CROP or CROP in (a.known | b.known))


_FLAGS = {"augment": "--augment", "do_3D": "--do_3D", "resample": "--no_resample"}
_ON_THE_COMMAND_LINE = (
    *("diameter", "flow_threshold", "cellprob_threshold", "niter", "min_size", "batch_size"),
    *("anisotropy", "flow3D_smooth", "stitch_threshold", "channel_axis", "z_axis"),
)


def _commands(
    image: str, condition: Mapping[str, Any], sources: Mapping[str, ModelSource]
) -> Commands:
    """The command line and the Python call that Cellpose takes for a condition, and the lab's."""
    usual = Settings().flat
    source = sources.get(condition[MODEL])
    is_half = condition[PRECISION] == "bfloat16"
    told = {n: v for n, v in condition.items() if n in NAMES and v != usual[n]}
    model = str(source.path if source and source.path else condition[MODEL])
    file = f"{Path(model).parent.parent.parent.name}.pth" if _is_of_a_run(source) else model
    words = ["python", "-m", "cellpose", "--image_path", image, "--pretrained_model", file]
    lost = []
    for name, value in told.items():
        if name in _FLAGS:
            words.append(_FLAGS[name])
        elif name in _ON_THE_COMMAND_LINE:
            words += [f"--{name}", str(value)]
        elif name == "normalize.normalize":
            words.append("--no_norm")
        else:
            lost.append(name)
    if not is_half:
        lost.append("float32")
    notes = _notes(condition, source, file)
    if lost:
        notes.append(f"Cellpose's command line cannot say: {', '.join(lost)}")
    line = "   # ".join([shlex.join(words), *notes])
    options = Settings().but(**told).arguments()
    named = [n for n in options if n in told or (n == "normalize" and options[n])]
    arguments = [f"{name}={options[name]!r}" for name in named]
    python = (
        f"CellposeModel(pretrained_model={json.dumps(file)}, use_bfloat16={is_half})"
        f".eval({', '.join([_read_as(condition), *arguments])})"
    )
    lab = ["cellrepro", "segment", str(Path(image).parent), "--model", model]
    if is_half:
        lab += ["--profile", "cpu-bfloat16"]
    for name, value in told.items():
        lab += ["--set", f"{name}={json.dumps(value)}"]
    return Commands(line, python, shlex.join(lab))


def _is_of_a_run(source: ModelSource | None) -> bool:
    """Whether weights lie in a store, in a format that Cellpose does not read."""
    return source is not None and source.path is not None and source.path.suffix == ".safetensors"


def _notes(condition: Mapping[str, Any], source: ModelSource | None, file: str) -> list[str]:
    """What a command line alone does not say."""
    notes = []
    if source is not None and source.architecture not in ("cellpose", "vit-l"):
        notes.append("Cellpose loads no network of this size: take the call of this lab")
    elif _is_of_a_run(source):
        notes.append(f"after cellrepro export {condition[MODEL]} {file}")
    if not is_installed(condition.get(VERSION)):
        notes.append(f"with cellpose=={condition[VERSION]}")
    read = {name: condition[name] for name in (CROP, DEPTH, CHANNELS) if condition.get(name)}
    notes += [f"of the image with {name} {value}" for name, value in read.items()]
    return notes


def _read_as(condition: Mapping[str, Any]) -> str:
    """The image as Python gives it to Cellpose, as `cellrepro.changes.search.as_read` does."""
    image = "image"
    if condition.get(DEPTH) == "8 bit":
        image = f'({image} >> 8).astype("uint8")'
    elif condition.get(DEPTH):
        image = (
            f"np.rint(({image} - float({image}.min())) * (255 / np.ptp({image}.astype(float))))"
            '.astype("uint8")'
        )
    channels = condition.get(CHANNELS)
    if channels == "reversed":
        image += "[..., ::-1]"
    elif channels == "mean":
        image += f".mean(axis=-1).astype({image}.dtype)"
    elif channels is not None:
        places = [int(one) - 1 for one in channels.split()]
        image += f"[..., {places[0] if len(places) == 1 else places}]"
    if condition.get(CROP):
        (y0, y1), (x0, x1) = condition[CROP]
        image += f"[{y0}:{y1}, {x0}:{x1}]"
    return image
