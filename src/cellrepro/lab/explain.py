"""Why two results of one image differ: what each records, and changes between them, replayed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tifffile
from scipy.signal import fftconvolve

from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.determinism import profiles
from cellrepro.determinism.seeding import seed_of
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.reading import read_image, read_labels
from cellrepro.images.seg_file import SEG_ENDING, read_seg
from cellrepro.images.sidecar import read_sidecar, write_sidecar
from cellrepro.lab import defaults
from cellrepro.lab.environments import is_installed, python_of
from cellrepro.lab.process import Setup, call
from cellrepro.lab.replay import (
    CHANNELS,
    CROP,
    DEPTH,
    MODEL,
    PRECISION,
    VERSION,
    Condition,
    Replayed,
    as_read,
    readings,
)
from cellrepro.model.network import ModelSource, find_model, started_from
from cellrepro.progress import progress
from cellrepro.store.settings import NAMES, Settings
from cellrepro.store.store import Repeat, Store

_LEAST_ALIKE = 0.3  # Dice coefficient of what is cell in both, where a crop lies
_TELLING = ("restore", "ratio", "manual_changes", "ismanual", "filename", "chan_choose")


@dataclass(frozen=True)
class Side:
    """One of two results of an image."""

    name: str
    kind: str  # stored run, _seg.npy, label image with or without its record
    masks: np.ndarray = field(repr=False)  # (Y, X)
    known: Condition  # by name; what is not in it nobody recorded
    recorded: Mapping[str, Any]  # what cannot be varied: versions, restoration, changes by hand
    model: ModelSource | None = None


@dataclass(frozen=True)
class Explanation:
    """What two results record, what made them differ, and what remains."""

    a: Side
    b: Side
    result: MaskComparison  # over what both show of the image
    replayed: Replayed | None  # none where they are equal
    settings: tuple[tuple[str, Any, Any], ...]  # name, and what each side has; "?" is not known
    commands: Mapping[str, tuple[str, str]]  # of each side, the command line and the Python call

    @property
    def unexplained(self) -> float:
        """Share of cells that the causes leave without a counterpart."""
        if self.replayed is None:
            return 0.0
        return self.replayed.left[0] / max(1, self.replayed.n_cells)


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

    Returns
    -------
    Explanation
        What nobody recorded is searched among usual values; what no change explains is said.
    """
    place, pixels = Store(store), read_image(image)
    name = Path(image).stem
    sides = [_side(text, name, pixels, place) for text in (a, b)]
    sides = [_placed(side, other, pixels) for side, other in (sides, sides[::-1])]
    masks = [_common(side, other) for side, other in (sides, sides[::-1])]
    result = compare_masks(*masks)
    sources = _sources(sides, model, place)
    replayed = None
    settings = profiles.load(profile)
    if result.n_differing:
        work, setup = "cellrepro.lab.replay:replay", Setup(settings, mode, seed_of(mode, seed))
        known = [(_known(side, sources), side.masks) for side in sides]
        with progress(3, "replays", quiet=quiet) as bar:
            given: Any = {"sources": sources, "image": pixels, "sides": known}
            replayed = call(work, setup, label="replays", on_event=bar.heard, **given)
    conditions = [side.known for side in sides]
    if replayed is not None:
        conditions = [replayed.a.condition, replayed.b.condition]
    usual = {PRECISION: settings.dtype, MODEL: next(iter(sources), "?")}
    commands = {
        letter: _commands(str(image), {**usual, **condition}, sources)
        for letter, condition in zip("ab", conditions, strict=True)
    }
    a_side, b_side = sides
    table = _table(a_side, b_side)
    return Explanation(a_side, b_side, result, replayed, table, commands)


# -- the two sides ---------------------------------------------------------------------------


def _side(text: str, image: str, pixels: np.ndarray, store: Store) -> Side:
    path = Path(text)
    if text.endswith(SEG_ENDING) and path.exists():
        return _of_seg(path)
    if not path.exists():
        return _of_run(text, image, pixels, store)
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


def _of_run(text: str, image: str, pixels: np.ndarray, store: Store) -> Side:
    repeat = store.find(text)
    manifest, spec = repeat.manifest, repeat.spec
    if image not in manifest.masks:
        raise BadInput(
            f"{repeat.name} has no image {image!r}; expected --image with the file of one of "
            f"{', '.join(manifest.masks)}"
        )
    known: Condition = {**spec.settings.flat, PRECISION: spec.profile_settings.get("dtype")}
    known |= _reading(store.image(spec.images_digest, image), pixels)
    recorded = {"machine": repeat.machine}
    known |= _version(manifest.versions.get("cellpose"), recorded)
    source = find_model(repeat.name, store) if manifest.weights else started_from(repeat, store)
    return Side(repeat.name, "stored run", repeat.masks(image), known, recorded, source)


def _version(version: str | None, recorded: dict[str, Any]) -> Condition:
    """The version of Cellpose, as a condition where it can be had here; else as a record."""
    try:
        if version is not None and not is_installed(version):
            python_of(version)
    except CellreproError:
        recorded[VERSION] = version
        return {}
    return {} if version is None else {VERSION: version}


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
    if side.masks.ndim != 2 or not fits or other.masks.shape != shape:
        raise BadInput(f"{told}; expected masks of this image, or of a part of it")
    whole, part = ((masks > 0).astype(np.float64) for masks in (other.masks, side.masks))
    both, of_whole = (
        fftconvolve(whole, of[::-1, ::-1], mode="valid") for of in (part, np.ones_like(part))
    )
    alike = 2 * both / np.maximum(of_whole + part.sum(), 1)
    y, x = np.unravel_index(int(alike.argmax()), alike.shape)
    if alike[y, x] < _LEAST_ALIKE:
        raise BadInput(f"{told}, and no part of {other.name} is like it; give the image of both")
    height, width = part.shape
    crop = ((int(y), int(y) + height), (int(x), int(x) + width))
    return Side(
        side.name, side.kind, side.masks, {**side.known, CROP: crop}, side.recorded, side.model
    )


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
) -> tuple[str, str]:
    """The command line and the Python call that Cellpose itself takes for a condition."""
    usual, source = Settings().flat, sources.get(condition[MODEL])
    model = str(source.path if source and source.path else condition[MODEL])
    told = {n: v for n, v in condition.items() if n in NAMES and v != usual[n]}
    words = ["python", "-m", "cellpose", "--image_path", image, "--pretrained_model", model]
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
    line = shlex.join(words)
    if condition[PRECISION] != "bfloat16":
        lost.append("float32")
    if not is_installed(condition.get(VERSION)):
        line += f"   # with cellpose=={condition[VERSION]}"
    if lost:
        line += f"   # Cellpose's command line cannot say: {', '.join(lost)}"
    options = Settings().but(**told).arguments()
    named = [n for n in options if n in told or (n == "normalize" and options[n])]
    arguments = [f"{name}={options[name]!r}" for name in named]
    half = condition[PRECISION] == "bfloat16"
    python = (
        f"CellposeModel(pretrained_model={json.dumps(model)}, use_bfloat16={half})"
        f".eval({', '.join(['image', *arguments])})"
    )
    return line, python
