"""Two things a user names, compared: runs or repeats, mask files, folders of masks, weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.metrics import MaskComparison, compare_masks
from cellrepro.compare.object_changes import ObjectKind
from cellrepro.compare.seed_spread import decide_between
from cellrepro.compare.verdicts import Verdict, combine
from cellrepro.compare.weights import WeightsComparison, compare_weights
from cellrepro.compare.within_spread import Decision
from cellrepro.errors import BadInput
from cellrepro.images.folder import is_litter
from cellrepro.images.reading import read_labels
from cellrepro.lab import defaults
from cellrepro.store.manifest import Manifest
from cellrepro.store.platform import differing_probes
from cellrepro.store.store import Repeat, Store

MASK_FILES = (".tif", ".tiff", ".png", ".npy")
WEIGHT_FILES = (".safetensors", ".pth", ".pt")
"""Usual endings; which files hold weights is told by what is in them, as Cellpose's have none."""

_ENVIRONMENT = (
    *("versions", "device", "threads", "cpu_capability"),
    *("variables", "switches", "host", "numeric_libraries"),
)
_EQUAL = (Verdict.IDENTICAL, Verdict.VACUOUS)


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
    environment, spec : dict
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
        found = self.masks.values()
        return {
            "a": sum(result.n_objects_a for result in found),
            "b": sum(result.n_objects_b for result in found),
            "matched": sum(result.n_matched for result in found),
            **{str(kind): sum(result.kinds[kind] for result in found) for kind in ObjectKind},
            "renumbered": sum(result.n_renumbered for result in found),
        }

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


def compare(a: str, b: str, *, store: str | Path = defaults.STORE) -> Comparison:
    """Compare two things of the same kind.

    Parameters
    ----------
    a, b : str
        ``KEY`` (then its first repeat; the same one twice: its first two) or ``KEY/REPEAT`` of
        the store, or the paths of two mask files, two folders of masks (files of equal names are
        compared; where some are called ``NAME_masks``, only those), or two weights files:
        ``.safetensors``, or Cellpose's own, whatever they are called.
    store : str or Path
    """
    paths = Path(a), Path(b)
    on_disk = [path.exists() for path in paths]
    if not any(on_disk):
        place = Store(store)
        for path in paths:
            if path.suffix.lower() in (*MASK_FILES, *WEIGHT_FILES):
                raise BadInput(f"there is no file {path}; expected two paths that exist")
        return compare_repeats(*place.find_two(a, b), store=place)
    if not all(on_disk):
        raise BadInput(
            f"{paths[on_disk.index(False)]} is not there, but {paths[on_disk.index(True)]} is a "
            "path; expected two paths, or two KEY/REPEAT of the store"
        )
    if all(path.is_dir() for path in paths):
        return _compare_folders(*paths)
    n_masks = sum(path.suffix.lower() in MASK_FILES for path in paths)
    if n_masks == 2:
        return _compare_files({paths[0].name: paths})
    if n_masks == 0 and all(path.is_file() for path in paths):
        weights = compare_weights(*paths)
        differs = () if weights.equal else ("weights",)
        return Comparison(weights.verdict, differs, weights=weights)
    raise BadInput(
        f"{a} and {b} are not of one kind; expected two mask files "
        f"({', '.join(MASK_FILES)}), two folders of masks, or two weights files "
        f"({', '.join(WEIGHT_FILES)}, or without an ending, as Cellpose's)"
    )


# -- runs ----------------------------------------------------------------------------------


def compare_repeats(a: Repeat, b: Repeat, *, store: Store | None = None) -> Comparison:
    """Compare two stored repeats: settings, environment, weights and masks.

    Parameters
    ----------
    a, b : Repeat
    store : Store, optional
        Whose other runs show what seeds do; without it nothing is ``within-spread``.
    """
    first, second = a.manifest, b.manifest
    spec = _differing(a.spec.model_dump(mode="json"), b.spec.model_dump(mode="json"))
    environment, notes = _environments(first, second)
    masks, alone = _masks_of(a, b)
    same_data = first.data.digest == second.data.digest
    weights = None
    if a.weights is not None and b.weights is not None:
        weights = compare_weights(a.weights, b.weights)
    differing = {
        "environment": bool(environment),
        "spec": bool(spec),
        "data": not same_data,
        "weights-init": first.model.initial_weights != second.model.initial_weights,
        "weights": weights is not None and not weights.equal,
        "masks": any(result.verdict not in _EQUAL for result in masks.values()),
        "truth": first.ap50 != second.ap50,
    }
    judged = [_over_images(masks)]
    if weights is not None:
        untrained = any(m.weights is not None and not m.weights.n_changed for m in (first, second))
        judged.append(Verdict.VACUOUS if weights.equal and untrained else weights.verdict)
    verdict, spread, beside = combine(judged), None, []
    if verdict == Verdict.DIFFERENT and store is not None and same_data and not alone:
        spread = decide_between(a, b, store.runs(), results=masks)
        verdict = Verdict.WITHIN_SPREAD if spread.within else verdict
        beside = [f"beside seeds: {spread.sentence}"]
    vacuous = dict.fromkeys([*first.vacuous, *second.vacuous])
    return Comparison(
        verdict,
        tuple(word for word, differs in differing.items() if differs),
        masks,
        weights,
        environment,
        spec,
        (first.ap50, second.ap50),
        (
            *alone,
            *notes,
            *beside,
            *first.switches_that_moved,
            *second.switches_that_moved,
            *(f"vacuous: {reason}" for reason in vacuous),
        ),
        spread,
    )


def _over_images(masks: Mapping[str, MaskComparison]) -> Verdict:
    return combine([m.verdict for m in masks.values() if m.verdict != Verdict.VACUOUS])


def _environments(a: Manifest, b: Manifest) -> tuple[dict[str, tuple[Any, Any]], list[str]]:
    """Where they differ, by field; and in which probes the two machines compute other bits."""
    found: dict[str, tuple[Any, Any]] = {}
    for name in _ENVIRONMENT:
        sides = getattr(a, name), getattr(b, name)
        if all(isinstance(side, Mapping) for side in sides):
            found |= {f"{name}.{key}": values for key, values in _differing(*sides).items()}
        elif sides[0] != sides[1]:
            found[name] = sides
    for key, values in _differing(a.machine.model_dump(), b.machine.model_dump()).items():
        if key not in ("versions", "numeric_class"):  # told by themselves
            found[f"machine.{key}"] = values
    classes = a.numeric_class, b.numeric_class
    if classes[0] is None or classes[1] is None or classes[0] == classes[1]:
        return found, []
    found["numeric_class"] = classes[0]["name"], classes[1]["name"]
    probes = differing_probes(classes[0]["probes"], classes[1]["probes"])
    n_probes = len(classes[0]["probes"].keys() | classes[1]["probes"].keys())
    return found, [
        f"the machines compute other bits: {len(probes)} of {n_probes} probe operations differ "
        f"({', '.join(probes[:6])}{', …' if len(probes) > 6 else ''})"
    ]


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*a, *b])
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _masks_of(a: Repeat, b: Repeat) -> tuple[dict[str, MaskComparison], list[str]]:
    names_a, names_b = a.manifest.masks.keys(), b.manifest.masks.keys()
    shared = [name for name in a.manifest.masks if name in names_b]
    if not shared:
        raise BadInput(
            f"{a.name} and {b.name} segmented no image of the same name; compare runs over the "
            "same images"
        )
    alone = sorted(names_a ^ names_b)
    notes = [f"only one side has masks of {', '.join(alone)}"] if alone else []
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


def masks_each_with_each(repeats: Iterable[Repeat]) -> list[Comparison]:
    """The masks of every two of some repeats, compared over the same images."""
    pairs = combinations(repeats, 2)
    found = [_masks_of(a, b)[0] for a, b in pairs]
    return [Comparison(_over_images(masks), (), masks) for masks in found]


# -- files ---------------------------------------------------------------------------------


def _compare_folders(a: Path, b: Path) -> Comparison:
    (files_a, passed_a), (files_b, passed_b) = _mask_files(a), _mask_files(b)
    shared = [name for name in files_a if name in files_b]
    if not shared:
        raise BadInput(
            f"{a} ({len(files_a)} mask files) and {b} ({len(files_b)}) share no file name; "
            f"expected folders with masks ({', '.join(MASK_FILES)}) of equal names"
        )
    alone = sorted(files_a.keys() ^ files_b.keys())
    notes = [f"only one side has {', '.join(alone)}"] if alone else []
    passed = sorted(passed_a | passed_b)
    if passed:
        notes.append(f"not compared, as others there are called NAME_masks: {', '.join(passed)}")
    pairs = {name: (files_a[name], files_b[name]) for name in shared}
    return _compare_files(pairs, notes, complete=not alone)


def _mask_files(folder: Path) -> tuple[dict[str, Path], set[str]]:
    """The masks of a folder by name; and files that might be masks beside those marked as such.

    Of the unmarked ones, an image that has its own masks is surely none.
    """
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
    others = set(files) - set(marked) if marked else set()
    return chosen, {path.name for path in others if f"{path.stem}_masks" not in chosen}


def _compare_files(
    pairs: Mapping[str, tuple[Path, Path]], notes: Sequence[str] = (), *, complete: bool = True
) -> Comparison:
    masks, notes = {}, list(notes)
    for name, paths in pairs.items():
        labels = [read_labels(path) for path in paths]  # of one image at a time
        try:
            masks[name] = compare_masks(*labels)
        except BadInput as error:
            raise BadInput(f"{name}: {error}") from error
        for side, one in zip("AB", labels, strict=True):
            notes += _doubts(f"{name} of {side}", one)
    verdict = _over_images(masks) if complete else Verdict.DIFFERENT
    differs = () if verdict in _EQUAL else ("masks",)
    return Comparison(verdict, differs, masks, notes=tuple(notes))


def _doubts(name: str, labels: np.ndarray) -> list[str]:
    """What looks like a foreground map: one object, and it in pieces."""
    from scipy import ndimage

    number = labels.max(initial=0)
    if not number or ((labels != 0) & (labels != number)).any():
        return []
    _, n_pieces = ndimage.label(labels, structure=np.ones((3,) * labels.ndim))
    if n_pieces == 1:
        return []
    return [
        f"{name} has one label ({number}) in {n_pieces} pieces, compared as one object; if this is "
        "a foreground map, label it first (scipy.ndimage.label)"
    ]
