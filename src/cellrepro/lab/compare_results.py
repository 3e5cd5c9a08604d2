"""Two things a user names, compared: runs or repeats, mask files, folders of masks, weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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

_MASKS = (".tif", ".tiff", ".png", ".npy")
_WEIGHTS = (".safetensors", ".pth", ".pt")
"""Usual endings; which files hold weights is told by what is in them, as Cellpose's have none."""


@dataclass(frozen=True)
class Comparison:
    """What two things have in common and in what they differ."""

    verdict: Verdict
    """Over masks and weights, whichever both sides have; ``within-spread`` where the store's other
    runs show that the cells differ by less than seeds make them differ."""
    differs: tuple[str, ...]  # environment, spec, data, weights-init, weights, masks, truth
    masks: Mapping[str, MaskComparison] = field(default_factory=dict)  # by image
    weights: WeightsComparison | None = None
    environment: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    spec: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """These two where they differ: field to (a, b)."""
    ap50: tuple[float | None, float | None] | None = None  # against the ground truth, a and b
    notes: tuple[str, ...] = ()  # what was not compared, and how it stands beside what seeds do
    spread: Decision | None = None
    """On what ``within-spread`` was decided, also where it was not; None where nothing differs, or
    there is no store whose other runs could tell."""

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

    Each is ``KEY`` (then its first repeat; the same one twice: its first two) or ``KEY/REPEAT`` of
    the store, or the path of a mask file, of a folder of masks (files of equal names are compared;
    where some are called ``NAME_masks``, only those), or of a weights file.
    """
    paths = Path(a), Path(b)
    on_disk = [path.exists() for path in paths]
    named = [path.suffix.lower() in _MASKS for path in paths]
    if not any(on_disk) and not any(path.suffix.lower() in _MASKS + _WEIGHTS for path in paths):
        place = Store(store)
        return compare_repeats(*place.find_two(a, b), store=place)
    if not all(on_disk):
        raise BadInput(
            f"there is no file {paths[on_disk.index(False)]}; expected two paths that exist, or "
            "two KEY/REPEAT of the store"
        )
    if all(path.is_dir() for path in paths):
        return _compare_folders(*paths)
    if all(named):
        return _compare_files({paths[0].name: paths})
    if not any(named) and all(path.is_file() for path in paths):
        weights = compare_weights(*paths)
        return Comparison(weights.verdict, () if weights.equal else ("weights",), weights=weights)
    raise BadInput(
        f"{a} and {b} are not of one kind; expected two mask files ({', '.join(_MASKS)}), two "
        f"folders of masks, or two weights files ({', '.join(_WEIGHTS)}, or without an ending, as "
        "Cellpose's)"
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
    masks, alone = _masks_of(a, b)
    environment, notes = _environments(first, second)
    spec = _differing(a.spec.model_dump(mode="json"), b.spec.model_dump(mode="json"))
    same_data = first.data.digest == second.data.digest
    verdicts, weights = [_over_images(masks)], None
    if a.weights is not None and b.weights is not None:
        weights = compare_weights(a.weights, b.weights)
        untrained = any(m.weights is not None and not m.weights.n_changed for m in (first, second))
        verdicts.append(Verdict.VACUOUS if weights.equal and untrained else weights.verdict)
    verdict, spread = combine(verdicts), None
    if verdict == Verdict.DIFFERENT and store is not None and same_data and not alone:
        spread = decide_between(a, b, store.runs(), results=masks)
        verdict = Verdict.WITHIN_SPREAD if spread.within else verdict
        notes.append(f"beside seeds: {spread.sentence}")
    differing = {
        "environment": bool(environment),
        "spec": bool(spec),
        "data": not same_data,
        "weights-init": first.model.initial_weights != second.model.initial_weights,
        "weights": weights is not None and not weights.equal,
        "masks": _differ(_over_images(masks)),
        "truth": first.ap50 != second.ap50,
    }
    vacuous = dict.fromkeys([*first.vacuous, *second.vacuous])
    notes += [*first.switches_that_moved, *second.switches_that_moved]
    return Comparison(
        verdict=verdict,
        differs=tuple(word for word, differs in differing.items() if differs),
        masks=masks,
        weights=weights,
        environment=environment,
        spec=spec,
        ap50=(first.ap50, second.ap50),
        notes=(*alone, *notes, *(f"vacuous: {reason}" for reason in vacuous)),
        spread=spread,
    )


def compare_masks_of(a: Repeat, b: Repeat) -> Comparison:
    """Compare the masks of two repeats alone, over the images that both segmented."""
    masks, notes = _masks_of(a, b)
    return Comparison(_over_images(masks), (), masks, notes=tuple(notes))


def _over_images(masks: Mapping[str, MaskComparison]) -> Verdict:
    return combine([m.verdict for m in masks.values() if m.verdict != Verdict.VACUOUS])


def _differ(verdict: Verdict) -> bool:
    return verdict not in (Verdict.IDENTICAL, Verdict.VACUOUS)


def _environments(a: Manifest, b: Manifest) -> tuple[dict[str, tuple[Any, Any]], list[str]]:
    """Where they differ, by field; and in which probes the two machines compute other bits."""
    found = _differing(_environment(a), _environment(b))
    if a.numeric_class is None or b.numeric_class is None or a.numeric_class == b.numeric_class:
        return found, []
    found["numeric_class"] = a.numeric_class["name"], b.numeric_class["name"]
    sides = a.numeric_class["probes"], b.numeric_class["probes"]
    probes, n_probes = differing_probes(*sides), len(sides[0].keys() | sides[1].keys())
    return found, [
        f"the machines compute other bits: {len(probes)} of {n_probes} probe operations differ "
        f"({', '.join(probes[:6])}{', …' if len(probes) > 6 else ''})"
    ]


def _environment(of: Manifest) -> dict[str, Any]:
    """What a repeat depends on beside its spec, by ``FIELD`` or ``FIELD.NAME``."""
    found = {name: getattr(of, name) for name in ("device", "threads", "cpu_capability")}
    groups = {name: getattr(of, name) for name in ("versions", "variables", "switches", "host")}
    groups["machine"] = of.machine.model_dump(exclude={"versions", "numeric_class"})
    for group, values in groups.items():
        found |= {f"{group}.{name}": value for name, value in values.items()}
    return found | {"numeric_libraries": of.numeric_libraries}


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*a, *b])
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _masks_of(a: Repeat, b: Repeat) -> tuple[dict[str, MaskComparison], list[str]]:
    names_b = b.manifest.masks.keys()
    shared = [name for name in a.manifest.masks if name in names_b]
    if not shared:
        raise BadInput(
            f"{a.name} and {b.name} segmented no image of the same name; compare runs over the "
            "same images"
        )
    alone = sorted(a.manifest.masks.keys() ^ names_b)
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


# -- files ---------------------------------------------------------------------------------


def _compare_folders(a: Path, b: Path) -> Comparison:
    files_a, files_b = _mask_files(a), _mask_files(b)
    shared = [name for name in files_a if name in files_b]
    if not shared:
        raise BadInput(
            f"{a} ({len(files_a)} mask files) and {b} ({len(files_b)}) share no file name; "
            f"expected folders with masks ({', '.join(_MASKS)}) of equal names"
        )
    alone = sorted(files_a.keys() ^ files_b.keys())
    notes = [f"only one side has {', '.join(alone)}"] if alone else []
    pairs = {name: (files_a[name], files_b[name]) for name in shared}
    return _compare_files(pairs, notes, complete=not alone)


def _mask_files(folder: Path) -> dict[str, Path]:
    """The masks of a folder by name: of those called NAME_masks, where there are any."""
    files = [
        path
        for path in sorted(folder.iterdir())
        if path.suffix.lower() in _MASKS and not is_litter(path.name)
    ]
    chosen: dict[str, Path] = {}
    for path in [path for path in files if path.stem.endswith("_masks")] or files:
        other = chosen.setdefault(path.stem, path)
        if other != path:
            raise BadInput(
                f"{other} and {path.name} have one name; expected one mask file of each, remove "
                "the one that does not count"
            )
    return chosen


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
    verdict = _over_images(masks) if complete else Verdict.DIFFERENT
    differs = ("masks",) if _differ(verdict) else ()
    return Comparison(verdict, differs, masks, notes=tuple(notes))
