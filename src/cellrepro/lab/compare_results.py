"""Two things a user names, compared: runs or repeats, mask files, folders of masks, weights.

A door like `cellrepro.lab.run`: the command ``compare`` and the notebooks call it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.object_changes import ObjectKind
from cellrepro.compare.seed_spread import Decision, decide_between
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import WeightsComparison, compare_weights
from cellrepro.errors import BadInput
from cellrepro.images.folder import is_litter
from cellrepro.images.reading import read_labels
from cellrepro.store.manifest import Manifest
from cellrepro.store.platform import differing_probes
from cellrepro.store.store import Repeat, Run, Store

MASK_FILES = (".tif", ".tiff", ".png", ".npy")
WEIGHT_FILES = (".safetensors", ".pth", ".pt")
"""Usual endings; which files hold weights is told by what is in them, as Cellpose's have none."""

_SURROUNDINGS = (
    "versions",
    "device",
    "threads",
    "cpu_capability",
    "variables",
    "switches",
    "host",
    "numeric_libraries",
)


@dataclass(frozen=True)
class Comparison:
    """What two things have in common and in what they differ.

    Attributes
    ----------
    verdict : Verdict
        Over masks and weights, whichever both sides have; ``within-spread`` where the store's
        other runs show that the cells differ by less than seeds make them differ.
    differs : tuple of str
        Words: ``environment``, ``spec``, ``data``, ``weights-init``, ``weights``, ``masks``,
        ``truth``.
    masks : dict
        By image.
    weights : WeightsComparison or None
    environment : dict
        Field to (a, b), where they differ.
    spec : dict
        Field to (a, b), where they differ.
    ap50 : tuple or None
        Mean average precision at IoU 0.5 against the ground truth, of a and of b.
    notes : tuple of str
        What was not compared, and why; how a difference stands beside what seeds do.
    spread : Decision or None
        On what ``within-spread`` was decided, also where it was not; None where nothing differs,
        or there is no store whose other runs could tell.
    """

    verdict: Verdict
    differs: tuple[str, ...]
    masks: Mapping[str, MaskComparison] = field(default_factory=dict)
    weights: WeightsComparison | None = None
    environment: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    spec: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    ap50: tuple[float | None, float | None] | None = None
    notes: tuple[str, ...] = ()
    spread: Decision | None = None

    @property
    def n_objects(self) -> dict[str, int]:
        """Objects over all images: in a, in b, matched, by what became of them, renumbered."""
        kinds = [str(kind) for kind in ObjectKind]
        totals = dict.fromkeys(("a", "b", "matched", *kinds, "renumbered"), 0)
        for result in self.masks.values():
            totals["a"] += result.n_objects_a
            totals["b"] += result.n_objects_b
            totals["matched"] += result.n_matched
            totals["renumbered"] += result.n_renumbered
            for kind in kinds:
                totals[kind] += result.kinds[kind]
        return totals

    @property
    def n_unmatched(self) -> int:
        """Objects of either side without a match at IoU 0.5, over all images."""
        return sum(result.n_unmatched for result in self.masks.values())

    @property
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        n_pixels = sum(result.n_pixels for result in self.masks.values())
        n_differing = sum(result.n_differing for result in self.masks.values())
        return 1e6 * n_differing / n_pixels if n_pixels else 0.0


@dataclass(frozen=True)
class Agreement:
    """How far the masks of several repeats agree, each with each.

    Attributes
    ----------
    names : tuple of str
        ``KEY/REPEAT``, N of them.
    ppm : ndarray of float64, shape (N, N)
        Differing pixels per million, over all images.
    n_unmatched : ndarray of int, shape (N, N)
        Objects of either without a match at IoU 0.5 in the other, over all images.
    """

    names: tuple[str, ...]
    ppm: np.ndarray
    n_unmatched: np.ndarray


def agreement(repeats: Sequence[Repeat]) -> Agreement:
    """Compare the masks of every two repeats over the same images.

    Parameters
    ----------
    repeats : sequence of Repeat

    Returns
    -------
    Agreement

    Raises
    ------
    BadInput
        If two of them share no image.
    """
    n = len(repeats)
    ppm, n_unmatched = np.zeros((n, n)), np.zeros((n, n), int)
    for i in range(n):
        for j in range(i + 1, n):
            masks, _ = _masks_of(repeats[i], repeats[j])
            pair = Comparison(Verdict.DIFFERENT, (), masks)
            ppm[i, j] = ppm[j, i] = pair.ppm
            n_unmatched[i, j] = n_unmatched[j, i] = pair.n_unmatched
    return Agreement(tuple(repeat.name for repeat in repeats), ppm, n_unmatched)


def compare(a: str, b: str, *, store: str | Path = "outputs") -> Comparison:
    """Compare two things of the same kind.

    Parameters
    ----------
    a, b : str
        ``KEY`` (then its first repeat; the same one twice: its first two) or ``KEY/REPEAT`` of
        the store, or the paths of two mask files, two folders of masks (files of equal names are
        compared; where some are called ``NAME_masks``, only those), or two weights files:
        ``.safetensors``, or Cellpose's own, whatever they are called.
    store : str or Path

    Returns
    -------
    Comparison

    Raises
    ------
    BadInput
        If one of them is nothing of the kind, or they are of two kinds.
    """
    paths = Path(a), Path(b)
    on_disk = [path.exists() for path in paths]
    if not any(on_disk):
        place = Store(store)
        for name, path in zip((a, b), paths, strict=True):
            if path.suffix.lower() in (*MASK_FILES, *WEIGHT_FILES):
                raise BadInput(f"there is no file {name}; expected two paths that exist")
        return compare_repeats(*place.find_two(a, b), store=place)
    if not all(on_disk):
        missing = paths[on_disk.index(False)]
        raise BadInput(
            f"{missing} is not there, but {paths[on_disk.index(True)]} is a path; expected two "
            "paths, or two KEY/REPEAT of the store"
        )
    if all(path.is_dir() for path in paths):
        return _compare_folders(*paths)
    if all(path.suffix.lower() in MASK_FILES for path in paths):
        return _of_masks({paths[0].name: paths})
    if all(path.is_file() and path.suffix.lower() not in MASK_FILES for path in paths):
        weights = compare_weights(*paths)
        differs = () if weights.equal else ("weights",)
        return Comparison(weights.verdict, differs, weights=weights)
    raise BadInput(
        f"{a} and {b} are not of one kind; expected two mask files "
        f"({', '.join(MASK_FILES)}), two folders of masks, or two weights files "
        f"({', '.join(WEIGHT_FILES)}, or without an ending, as Cellpose's)"
    )


def compare_repeats(
    a: tuple[Run, Repeat], b: tuple[Run, Repeat], *, store: Store | None = None
) -> Comparison:
    """Compare two stored repeats: what was asked for, the surroundings, weights and masks.

    Parameters
    ----------
    a, b : tuple of (Run, Repeat)
    store : Store, optional
        Whose other runs tell what seeds do; without it nothing is ``within-spread``.

    Returns
    -------
    Comparison

    Raises
    ------
    BadInput
        If they share no image, or a file is missing or damaged.
    """
    (run_a, repeat_a), (run_b, repeat_b) = a, b
    first, second = repeat_a.manifest, repeat_b.manifest
    spec = _differing(run_a.spec.model_dump(mode="json"), run_b.spec.model_dump(mode="json"))
    environment = {
        f"{name}.{key}" if key else name: values
        for name in _SURROUNDINGS
        for key, values in _differing_field(getattr(first, name), getattr(second, name)).items()
    }
    for key, values in _differing(*(one.machine.model_dump() for one in (first, second))).items():
        if key not in ("versions", "numeric_class"):  # told by themselves
            environment[f"machine.{key}"] = values
    classes, moved = _numeric_classes(first, second)
    environment |= classes
    same_data = first.data.digest == second.data.digest
    masks, alone = _masks_of(repeat_a, repeat_b)
    notes = alone + moved
    weights = None
    if repeat_a.weights is not None and repeat_b.weights is not None:
        weights = compare_weights(repeat_a.weights, repeat_b.weights)
    differs = [
        word
        for word, differing in (
            ("environment", bool(environment)),
            ("spec", bool(spec)),
            ("data", not same_data),
            ("weights-init", first.model.initial_weights != second.model.initial_weights),
            ("weights", weights is not None and not weights.equal),
            ("masks", any(m.verdict not in _EQUAL for m in masks.values())),
            ("truth", first.ap50 != second.ap50),
        )
        if differing
    ]
    verdicts = [result.verdict for result in masks.values() if result.verdict != Verdict.VACUOUS]
    judged = [combine(verdicts)]
    if weights is not None:
        judged.append(_weights_verdict(weights, first, second))
    verdict, spread = combine(judged), None
    if verdict == Verdict.DIFFERENT and store is not None and same_data and not alone:
        spread = decide_between(a, b, store.runs(), results=masks)
        verdict = Verdict.WITHIN_SPREAD if spread.within else verdict
        notes.append(f"beside seeds: {spread.sentence}")
    return Comparison(
        verdict,
        tuple(differs),
        masks,
        weights,
        environment,
        spec,
        (first.ap50, second.ap50),
        (
            *notes,
            *first.switches_that_moved,
            *second.switches_that_moved,
            *(f"vacuous: {reason}" for reason in _vacuous(first, second)),
        ),
        spread,
    )


_EQUAL = (Verdict.IDENTICAL, Verdict.VACUOUS)


def _vacuous(a: Manifest, b: Manifest) -> list[str]:
    return list(dict.fromkeys([*a.vacuous, *b.vacuous]))


def _weights_verdict(weights: WeightsComparison, a: Manifest, b: Manifest) -> Verdict:
    untrained = any(m.weights is not None and m.weights.n_changed == 0 for m in (a, b))
    return Verdict.VACUOUS if weights.equal and untrained else weights.verdict


def _masks_of(a: Repeat, b: Repeat) -> tuple[dict[str, MaskComparison], list[str]]:
    names_a, names_b = a.manifest.masks.keys(), b.manifest.masks.keys()
    shared = [name for name in a.manifest.masks if name in names_b]
    alone = sorted(names_a ^ names_b)
    notes = [f"only one side has masks of {', '.join(alone)}"] if alone else []
    if not shared:
        raise BadInput(
            f"{a.name} and {b.name} segmented no image of the same name; compare runs over the "
            "same images"
        )
    masks = {}
    for name in shared:
        sides = [repeat.masks_on_disk(name) for repeat in (a, b)]
        masks[name] = compare_masks(*(labels for labels, _ in sides))
        notes += [
            f"the masks of {name} in {repeat.name} are others than its manifest says: the file was "
            "changed or damaged after the run"
            for repeat, (_, digest) in zip((a, b), sides, strict=True)
            if digest != repeat.manifest.masks[name].digest
        ]
    return masks, notes


def _compare_folders(a: Path, b: Path) -> Comparison:
    files_a, files_b = _mask_files(a), _mask_files(b)
    shared = [name for name in files_a if name in files_b]
    if not shared:
        raise BadInput(
            f"{a} ({len(files_a)} mask files) and {b} ({len(files_b)}) share no file name; "
            f"expected folders with masks ({', '.join(MASK_FILES)}) of equal names"
        )
    alone = sorted(files_a.keys() ^ files_b.keys())
    notes = [f"only one side has {', '.join(alone)}"] if alone else []
    passed = sorted({name for folder in (a, b) for name in _passed_over(folder)})
    if passed:
        notes.append(f"not compared, as others there are called NAME_masks: {', '.join(passed)}")
    return _of_masks(
        {name: (files_a[name], files_b[name]) for name in shared},
        tuple(notes),
        complete=not alone,
    )


def _numeric_classes(a: Manifest, b: Manifest) -> tuple[dict[str, tuple[Any, Any]], list[str]]:
    """The names of two numeric classes where they differ, and in which probes they do."""
    if a.numeric_class is None or b.numeric_class is None or a.numeric_class == b.numeric_class:
        return {}, []
    probes = differing_probes(a.numeric_class["probes"], b.numeric_class["probes"])
    n_probes = len(a.numeric_class["probes"].keys() | b.numeric_class["probes"].keys())
    names = (a.numeric_class["name"], b.numeric_class["name"])
    return {"numeric_class": names}, [
        f"the machines compute other bits: {len(probes)} of {n_probes} probe operations differ "
        f"({', '.join(probes[:6])}{', …' if len(probes) > 6 else ''})"
    ]


def _mask_files(folder: Path) -> dict[str, Path]:
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in MASK_FILES and not is_litter(path.name)
    ]
    marked = [path for path in files if path.stem.endswith("_masks")]
    chosen: dict[str, Path] = {}
    for path in marked or files:
        if path.stem in chosen:
            raise BadInput(
                f"{chosen[path.stem]} and {path.name} have one name; expected one mask file of "
                "each, remove the one that does not count"
            )
        chosen[path.stem] = path
    return chosen


def _passed_over(folder: Path) -> list[str]:
    """Files that might be masks beside others that are marked as such; images are none."""
    stems = {
        path.stem: path.name
        for path in folder.iterdir()
        if path.suffix.lower() in MASK_FILES and not is_litter(path.name)
    }
    if not any(stem.endswith("_masks") for stem in stems):
        return []
    return [
        name
        for stem, name in stems.items()
        if not stem.endswith("_masks") and f"{stem}_masks" not in stems
    ]


def _of_masks(
    pairs: Mapping[str, tuple[Path, Path]],
    notes: tuple[str, ...] = (),
    *,
    complete: bool = True,
) -> Comparison:
    masks = {}
    for name, paths in pairs.items():
        labels = read_labels(paths[0]), read_labels(paths[1])  # of one image at a time
        try:
            masks[name] = compare_masks(*labels)
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from error
        notes += _remarks(name, masks[name], labels)
    verdicts = [result.verdict for result in masks.values() if result.verdict != Verdict.VACUOUS]
    verdict = combine(verdicts if complete else [*verdicts, Verdict.DIFFERENT])
    differs = ("masks",) if verdict not in _EQUAL else ()
    return Comparison(verdict, differs, masks, notes=notes)


def _remarks(
    name: str, found: MaskComparison, sides: tuple[np.ndarray, np.ndarray]
) -> tuple[str, ...]:
    """What looks like a foreground map: one object, and it in pieces."""
    from scipy import ndimage

    remarks = []
    for side, labels, n in zip("AB", sides, (found.n_objects_a, found.n_objects_b), strict=True):
        if n != 1:
            continue
        _, n_pieces = ndimage.label(labels, structure=np.ones((3,) * labels.ndim))
        if n_pieces > 1:
            remarks.append(
                f"{name} of {side} has one label ({labels.max()}) in {n_pieces} pieces, compared "
                "as one object; if this is a foreground map, label it first (scipy.ndimage.label)"
            )
    return tuple(remarks)


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = [*a, *(name for name in b if name not in a)]
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _differing_field(a: Any, b: Any) -> dict[str, tuple[Any, Any]]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return _differing(a, b)
    return {} if a == b else {"": (a, b)}
