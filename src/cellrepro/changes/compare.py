"""Two things a user names, compared: runs or repeats, mask files, folders of masks, weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from cellrepro.asked import defaults
from cellrepro.changes.named import MASK_ENDINGS, Masks, kind_of, masks_of
from cellrepro.errors import BadInput
from cellrepro.images.label_image import doubt
from cellrepro.run.worker import flattened
from cellrepro.same.axes import RANKS_DIFFER
from cellrepro.same.metrics import MaskComparison, compare_masks
from cellrepro.same.over_images import MaskTotals, totals_over, verdict_over
from cellrepro.same.seed_spread import decide_between
from cellrepro.same.verdicts import Verdict, combine
from cellrepro.same.weight_files import FileComparison, compare_files
from cellrepro.same.weights import WeightsComparison, compare_weights
from cellrepro.store.manifest import ENVIRONMENT_FIELDS, Manifest
from cellrepro.store.store import Repeat, Store
from cellrepro.store.this_machine import differing_probes
from cellrepro.words import amount, some

_FEW_OBJECTS = 16  # as a foreground map or a map of classes has
_MACHINE_FIELDS = {"label", "identity", "device", "driver", "cuda", "cudnn"}
"""What of the machine in a manifest a repeat depends on, and no other field says."""


@dataclass(frozen=True)
class Comparison:
    """What two things have in common and in what they differ."""

    verdict: Verdict  # over masks and weights, whichever both sides have
    differs: tuple[str, ...]  # environment, spec, data, weights-init, weights, masks, truth
    masks: Mapping[str, MaskComparison] = field(default_factory=dict)  # by image
    weights: WeightsComparison | None = None
    environment: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    spec: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)
    """These two where they differ: field to (a, b)."""
    ap50: tuple[float | None, float | None] | None = None  # against the ground truth, a and b
    ap50_train: tuple[float | None, float | None] | None = None  # the same on training images
    files: FileComparison | None = None  # of two weights files as bytes; no part of the verdict
    notes: tuple[str, ...] = ()  # what was not compared, and how it stands beside what seeds do

    @property
    def totals(self) -> MaskTotals:
        """What adds up over all images."""
        return totals_over(self.masks.values())

    @property
    def n_objects(self) -> dict[str, int]:
        """Objects over all images: in a, in b, matched, by what became of them, renumbered."""
        return self.totals.objects_by_name()

    @property
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        return self.totals.ppm


def compare(a: str, b: str, *, store: str | Path = defaults.STORE) -> Comparison:
    """Compare two things that both have masks, or both have weights.

    Each is ``KEY`` (then its first repeat; the same one twice: its first two) or ``KEY/REPEAT`` of
    the store, or the path of a mask file, ``_seg.npy`` among them, of a folder of masks, of a
    baseline, or of a weights file.

    Masks are compared by the name of their image: ``NAME_masks.tif``, ``NAME_cp_masks.png``,
    ``NAME_seg.npy`` and the image ``NAME`` of a run belong together, and in a folder without such
    names ``NAME.tif``. A file that is given is compared with the only image of the other side,
    whatever that is called.
    """
    first, second = Path(a), Path(b)
    place, kinds, who = Store(store), {kind_of(first), kind_of(second)}, f"{a} and {b}"
    if kinds == {"run"}:
        return compare_repeats(*place.find_two(a, b), store=place)
    if "weights" in kinds and kinds <= {"weights", "run"}:
        return _compare_weights(*(_weights_of(path, place) for path in (first, second)))
    if "weights" not in kinds:
        of_a = masks_of(a, place)
        of_b = masks_of(b, place)
        if len(of_a) == len(of_b) == 1 and kinds != {"folder"}:  # whatever they are called
            of_b = dict(zip(of_a, of_b.values(), strict=True))
        return _compare_masks(of_a, of_b, who)
    raise BadInput(
        f"{who} are not of one kind, or one does not exist; expected two KEY/REPEAT of the store, "
        f"mask files ({', '.join(MASK_ENDINGS)}), folders of masks or baselines, or weights files"
    )


# -- runs ----------------------------------------------------------------------------------


def compare_repeats(a: Repeat, b: Repeat, *, store: Store | None = None) -> Comparison:
    """Compare two stored repeats: settings, environment, weights and masks.

    The other runs of ``store`` show what seeds do; without it nothing is ``within-spread``.
    """
    first, second = a.manifest, b.manifest
    masks, notes = _masks_of(a, b)
    environment = _differing(_environment(first), _environment(second))
    if "numeric_class" in environment:
        numbers = ((m.numeric_class or {}).get("probes", {}) for m in (first, second))
        probes = differing_probes(*numbers)
        notes.append(f"the machines compute other bits in {len(probes)} probes: {some(probes)}")
    asked = _differing(*(side.spec.model_dump(mode="json") | _settings(side) for side in (a, b)))
    sides = a.spec.asked, b.spec.asked  # where one only segmented, a training's fields say nothing
    spec = {name: v for name, v in asked.items() if "" not in [side.get(name) for side in sides]}
    same_data = first.data.digest == second.data.digest
    verdicts, weights = [verdict_over(masks.values())], None
    if a.weights is not None and b.weights is not None:
        weights = compare_weights(a.weights, b.weights)
        untrained = any(m.weights is not None and not m.weights.n_changed for m in (first, second))
        verdicts.append(Verdict.VACUOUS if weights.equal and untrained else weights.verdict)
    verdict = combine(verdicts)
    same_images = same_data and first.masks.keys() == second.masks.keys()
    if verdict == Verdict.DIFFERENT and store is not None and same_images:
        spread = decide_between(a, b, store.runs(), results=masks)
        verdict = Verdict.WITHIN_SPREAD if spread.within else verdict
        notes.append(f"beside seeds: {spread.sentence}")
    dtypes = {side.spec.profile_settings.get("dtype", "float32"): side for side in (a, b)}
    if len(dtypes) == 2:
        notes.append(
            "precision: " + ", ".join(f"{one.name} computed in {d}" for d, one in dtypes.items())
        )
    if "ranks" in spec:
        notes.append(RANKS_DIFFER)
    notes += _stitched(masks)
    notes += [*first.switches_that_moved, *second.switches_that_moved]
    notes += [f"vacuous: {reason}" for reason in dict.fromkeys(first.vacuous + second.vacuous)]
    notes += _not_finite(weights)
    differing = {
        "environment": bool(environment),
        "spec": bool(spec),
        "data": not same_data,
        "weights-init": first.model.initial_weights != second.model.initial_weights,
        "weights": weights is not None and not weights.equal,
        "masks": _differ(verdict_over(masks.values())),
        "truth": first.ap50 != second.ap50,
    }
    return Comparison(
        verdict,
        tuple(word for word, differs in differing.items() if differs),
        masks,
        weights,
        environment,
        spec,
        ap50=(first.ap50, second.ap50),
        ap50_train=(first.ap50_train, second.ap50_train),
        notes=tuple(notes),
    )


def compare_masks_of(a: Repeat, b: Repeat) -> Comparison:
    """Compare the masks of two repeats alone, over the images that both segmented."""
    masks, _ = _masks_of(a, b)
    return Comparison(verdict_over(masks.values()), (), masks)


def _settings(of: Repeat) -> dict[str, Any]:
    """Of a segmentation, each by its name, in the place of all together."""
    flat = {f"settings.{name}": value for name, value in of.spec.settings.flat.items()}
    return {"settings": None} | (flat if of.spec.task == "segment" else {})


def _differ(verdict: Verdict) -> bool:
    return verdict not in (Verdict.IDENTICAL, Verdict.VACUOUS)


def _environment(of: Manifest) -> dict[str, Any]:
    """What a repeat depends on beside its spec, by ``FIELD`` or ``FIELD.NAME``."""
    found = of.model_dump(include={*ENVIRONMENT_FIELDS} - {"numeric_class"})
    found["machine"] = of.machine.model_dump(include=_MACHINE_FIELDS)
    found["numeric_class"] = (of.numeric_class or {}).get("name")
    return dict(flattened(found))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*a, *b])
    return {name: (a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)}


def _masks_of(a: Repeat, b: Repeat) -> tuple[dict[str, MaskComparison], list[str]]:
    """By image, and what only one side has in a sentence."""
    of_a = {name: partial(a.masks, name) for name in a.manifest.masks}
    of_b = {name: partial(b.masks, name) for name in b.manifest.masks}
    return _compared(of_a, of_b, who=f"{a.name} and {b.name}")


def _compared(a: Masks, b: Masks, *, who: str) -> tuple[dict[str, MaskComparison], list[str]]:
    """The masks of equal names, one image at a time; and what only one side has and what may be no
    label image, in sentences."""
    masks = {}
    notes = []
    for name in [name for name in a if name in b]:
        try:
            of_a = a[name]()
            of_b = b[name]()
            result = compare_masks(of_a, of_b)
        except BadInput as error:
            raise BadInput(f"masks of {name}: {error}") from error
        masks[name] = result
        sides = (("A", of_a, result.n_objects_a), ("B", of_b, result.n_objects_b))
        notes += [
            f"{name}: {side} has {doubtful}"
            for side, labels, n_objects in sides
            if 0 < n_objects <= _FEW_OBJECTS and (doubtful := doubt(labels))
        ]
    if not masks:
        names = f"{some(list(a)) or 'none'} and {some(list(b)) or 'none'}"
        raise BadInput(
            f"{who}: {len(a)} and {len(b)} masks, and no image of the same name ({names}); "
            "expected masks of the same images: NAME_masks, NAME_cp_masks, NAME_seg.npy and NAME "
            "are those of the image NAME"
        )
    alone = sorted(a.keys() ^ b.keys())
    if alone:
        notes.insert(0, f"only one side has masks of {', '.join(alone)}")
    return masks, notes


def _stitched(masks: Mapping[str, MaskComparison]) -> Iterator[str]:
    """Of stacks, between which planes cells of one side are cut on the other."""
    for name, result in masks.items():
        cut = [change for change in result.objects if change.cut_between]
        if cut:
            yield (
                f"{name}: planes were stitched otherwise: {amount(len(cut), 'cell')} whole on one "
                f"side, in parts on the other, cut between {some(sorted({c.cuts for c in cut}))}"
            )


# -- files ---------------------------------------------------------------------------------


def _compare_masks(a: Masks, b: Masks, who: str) -> Comparison:
    masks, notes = _compared(a, b, who=who)
    verdict = verdict_over(masks.values()) if a.keys() == b.keys() else Verdict.DIFFERENT
    notes += _stitched(masks)
    return Comparison(verdict, ("masks",) if _differ(verdict) else (), masks, notes=tuple(notes))


def _weights_of(path: Path, store: Store) -> Path:
    if kind_of(path) == "weights":
        return path
    repeat = store.find(str(path))
    if repeat.weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no weights to compare")
    return repeat.weights


def _compare_weights(a: Path, b: Path) -> Comparison:
    weights = compare_weights(a, b)
    files = compare_files(a, b, same_parameters=weights.equal, checkpoints=any(weights.under))
    differs = () if weights.equal else ("weights",)
    notes = list(_not_finite(weights))
    notes += [
        f"{side} is a checkpoint; its network was found under {key!r} and nothing else was compared"
        for side, key in zip("AB", weights.under, strict=True)
        if key
    ]
    return Comparison(weights.verdict, differs, weights=weights, files=files, notes=tuple(notes))


def _not_finite(weights: WeightsComparison | None) -> Iterator[str]:
    """Of weights that are no numbers, which a training leaves that has diverged."""
    if weights is None or not weights.n_not_finite:
        return
    vacuous = "vacuous: " if weights.verdict == Verdict.VACUOUS else ""
    yield (
        f"{vacuous}{weights.n_not_finite} of {weights.n_parameters} parameters are NaN or infinite "
        "in A or B, and what is computed with them is no result; train with a lower learning rate"
    )
