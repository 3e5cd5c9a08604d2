"""Two stored repeats compared: settings, environment, weights and masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from cellrepro.comparison.mask_totals import verdict_over
from cellrepro.comparison.portable_promise import promised_alike
from cellrepro.comparison.seed_spread import decide_between
from cellrepro.comparison.spread_axes import RANKS_DIFFER
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.comparison.weight_comparison import WeightsComparison, compare_weights
from cellrepro.comparison.within_spread import SAME_OUTLINES
from cellrepro.explanation.cellpose_call import IMAGE
from cellrepro.explanation.compare_weights import not_finite_notes
from cellrepro.explanation.recorded_cause import own_fields, why_of_runs
from cellrepro.explanation.store_evidence import StoreEvidence, evidence_of_store
from cellrepro.explanation.two_results import (
    ComparedMasks,
    Comparison,
    Differs,
    TwoValues,
    compare_by_image,
    follows_from_spec,
    masks_differ,
    stitching_notes,
)
from cellrepro.explanation.two_tasks import fields_of_both_tasks, maker_as_cause
from cellrepro.explanation.why import Why
from cellrepro.nested_values import flattened
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS
from cellrepro.store.manifest import Manifest
from cellrepro.store.numeric_class import differing_probes
from cellrepro.store.references import short_reference
from samebits.words import amount, some

if TYPE_CHECKING:
    from cellrepro.spec.spec import Spec
    from cellrepro.store.store import Store
    from cellrepro.store.stored_run import Repeat

_MACHINE_FIELDS = {"label", "identity", "device", "driver", "cuda", "cudnn"}
"""Fields of a manifest's machine that can change bits, and stand nowhere else in it."""

_DIGITS = 8  # of a checksum

_NOT_APPLICABLE = ""  # stands in `Spec.parameters` for a training's field in a segmentation


def compare_repeats(a: Repeat, b: Repeat, *, store: Store | None = None) -> Comparison:
    """Compare two stored repeats: settings, environment, weights and masks.

    Parameters
    ----------
    a, b : Repeat
        As `cellrepro.Store` gives them.
    store : Store, optional
        Its other runs show what seeds do; without it nothing is ``within-spread``.

    Returns
    -------
    Comparison
        The verdict, in what the two differ, and their masks image by image.

    Raises
    ------
    BadInput
        If the two have no image in common, or stored masks or weights cannot be compared.
    """
    compared = _masks_compared(a, b)
    masks = compared.by_image
    environment = _differing(environment_by_name(a.manifest), environment_by_name(b.manifest))
    spec = _differing_spec(a.spec, b.spec)
    weights = None
    if a.weights is not None and b.weights is not None:
        weights = compare_weights(a.weights, b.weights)
    of_masks = verdict_over(masks.values())
    verdict = combine([of_masks, *_verdict_on_weights(a, b, weights)])
    spread_notes: list[str] = []
    is_beside_seeds = a.spec.task == b.spec.task and _same_images(a, b)
    if verdict == Verdict.DIFFERENT and store is not None and is_beside_seeds:
        spread = decide_between(
            a, b, store.readable_runs(data_digest=a.spec.data_digest), results=masks
        )
        if spread.within:
            verdict = Verdict.WITHIN_SPREAD
        is_said = spread.reason == SAME_OUTLINES  # of the masks
        if not is_said and (a.spec.task == "train" or spread.is_judged):
            spread_notes.append(f"does it matter beside other random seeds? {spread.sentence()}")
    comparison = Comparison(
        verdict=verdict,
        differs=(),
        masks=masks,
        weights=weights,
        environment=environment,
        spec=spec,
        ap50=TwoValues(a.manifest.ap50, b.manifest.ap50),
        ap50_train=TwoValues(a.manifest.ap50_train, b.manifest.ap50_train),
    )
    return replace(
        comparison,
        differs=tuple(_differing_parts(comparison, a, b)),
        notes=(*compared.notes, *_notes(comparison, spread_notes, a, b)),
        why=None
        if verdict in (Verdict.IDENTICAL, Verdict.VACUOUS)
        else why_of_repeats(a, b, store=store if masks_differ(of_masks) else None),
    )


def why_of_repeats(a: Repeat, b: Repeat, *, store: Store | None) -> Why:
    """Say what probably makes two stored repeats differ, as `compare` and `explain` say it.

    The masks of other runs of ``store`` decide between several settings.
    """
    fields: Mapping[str, tuple[object, object]] = _differing_spec(a.spec, b.spec)
    maker = None
    evidence = StoreEvidence()
    if a.spec.task != b.spec.task:
        fields = fields_of_both_tasks(a.spec, b.spec, fields)
        maker = maker_as_cause(a, b)
    elif store is not None:
        runs = store.readable_runs(data_digest=a.spec.data_digest)
        evidence = evidence_of_store(a, b, runs, differing=_own_fields_of_specs)
    return why_of_runs(
        fields,
        _differing(environment_by_name(a.manifest), environment_by_name(b.manifest)),
        maker=maker,
        store=evidence,
        mode=a.spec.mode,
        find_out=_command_that_finds_out(a, b),
    )


def _command_that_finds_out(a: Repeat, b: Repeat) -> str:
    """Settings of segmentations are tried one by one; else the first step that differs is found,
    which two tasks do not have."""
    if a.spec.task != b.spec.task:
        return ""
    are_segmentations = a.spec.task == b.spec.task == "segment"
    if are_segmentations and a.spec.settings != b.spec.settings:
        words = ("explain", short_reference(a), short_reference(b), "--image", IMAGE)
        return lab_command(*words, store=a.store_folder)
    return _diverge_command(a, b)


def _diverge_command(a: Repeat, b: Repeat) -> str:
    names = short_reference(a), short_reference(b)
    return lab_command("diverge", *names, store=a.store_folder)


def _differing_parts(comparison: Comparison, a: Repeat, b: Repeat) -> Iterator[Differs]:
    """The parts in which two repeats differ, in the order of a run."""
    if any(not follows_from_spec(name, comparison.spec) for name in comparison.environment):
        yield "environment"
    if comparison.spec:
        yield "spec"
    if not _same_data(a, b):
        yield "data"
    if a.manifest.model.initial_weights != b.manifest.model.initial_weights:
        yield "weights-init"
    if comparison.weights is not None and not comparison.weights.equal:
        yield "weights"
    if masks_differ(verdict_over(comparison.masks.values())):
        yield "masks"
    if a.manifest.ap50 != b.manifest.ap50:
        yield "truth"


def compare_masks_of(a: Repeat, b: Repeat) -> Comparison:
    """Compare the masks of two repeats alone, over the images that both segmented."""
    masks = _masks_compared(a, b).by_image
    return Comparison(verdict_over(masks.values()), differs=(), masks=masks)


def _masks_compared(a: Repeat, b: Repeat) -> ComparedMasks:
    readers_a = {name: partial(a.masks, name) for name in a.manifest.masks}
    readers_b = {name: partial(b.masks, name) for name in b.manifest.masks}
    return compare_by_image(readers_a, readers_b, names=(a.name, b.name))


def _same_data(a: Repeat, b: Repeat) -> bool:
    return a.manifest.data.digest == b.manifest.data.digest


def _same_images(a: Repeat, b: Repeat) -> bool:
    return _same_data(a, b) and a.manifest.masks.keys() == b.manifest.masks.keys()


def _verdict_on_weights(a: Repeat, b: Repeat, weights: WeightsComparison | None) -> list[Verdict]:
    """The verdict over weights, if both have some; untrained equal ones prove nothing."""
    if weights is None:
        return []
    untrained = any(
        stored is not None and not stored.n_changed
        for stored in (a.manifest.weights, b.manifest.weights)
    )
    return [Verdict.VACUOUS if weights.equal and untrained else weights.verdict]


# -- settings and environment ----------------------------------------------------------------


def _differing_spec(a: Spec, b: Spec) -> dict[str, TwoValues]:
    """Fields of both specs in which they differ, none that the task of one does not have."""
    left_out = not_applicable(a) | not_applicable(b)
    differing = _differing(spec_by_name(a), spec_by_name(b))
    return {name: values for name, values in differing.items() if name not in left_out}


def _own_fields_of_specs(a: Spec, b: Spec) -> dict[str, tuple[object, object]]:
    return own_fields(_differing_spec(a, b))


def not_applicable(spec: Spec) -> set[str]:
    """Fields of a spec that its task does not have: a training's, of a segmentation."""
    parameters = spec.parameters()
    names = {name for name, value in parameters.items() if value == _NOT_APPLICABLE}
    if spec.task != "segment":
        names |= {f"settings.{name}" for name in spec.settings.by_name()}
    return names


def spec_by_name(spec: Spec) -> dict[str, Any]:
    """A spec's fields, with ``settings.NAME`` for each setting of a segmentation."""
    fields = {**spec.model_dump(mode="json"), "settings": None}
    if spec.task == "segment":
        for name, value in spec.settings.by_name().items():
            fields[f"settings.{name}"] = value
    return fields


def environment_by_name(manifest: Manifest) -> dict[str, Any]:
    """What a repeat depends on beside its spec, by ``FIELD`` or ``FIELD.NAME``."""
    fields = manifest.model_dump(include={*ENVIRONMENT_FIELDS} - {"numeric_class"})
    fields["machine"] = manifest.machine.model_dump(include=_MACHINE_FIELDS)
    fields["numeric_class"] = (manifest.numeric_class or {}).get("name")
    return dict(flattened(fields))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, TwoValues]:
    names = dict.fromkeys([*a, *b])
    return {
        name: TwoValues(a.get(name), b.get(name)) for name in names if a.get(name) != b.get(name)
    }


# -- notes -----------------------------------------------------------------------------------


def _notes(
    comparison: Comparison, spread_notes: Sequence[str], a: Repeat, b: Repeat
) -> Iterator[str]:
    """Say what the figures alone do not."""
    if "numeric_class" in comparison.environment:
        yield _probe_note(a.manifest, b.manifest)
    yield from _portable_notes(comparison, a, b)
    yield from spread_notes
    yield from _precision_notes(a, b)
    yield from _initial_weights_notes(a, b)
    are_portable = a.spec.mode == b.spec.mode == "portable"
    if "ranks" in comparison.spec and not are_portable:
        yield RANKS_DIFFER
    yield from stitching_notes(comparison.masks)
    yield from a.manifest.switches_that_moved
    yield from b.manifest.switches_that_moved
    yield from _vacuous_notes(a.manifest, b.manifest)
    yield from not_finite_notes(comparison.weights)


def _probe_note(a: Manifest, b: Manifest) -> str:
    probes = differing_probes(
        (a.numeric_class or {}).get("probes", {}), (b.numeric_class or {}).get("probes", {})
    )
    who = "the machines compute"
    if a.machine.identity == b.machine.identity:
        threads = f"{amount(a.threads, 'thread')} and with {b.threads}"
        how = f"with {threads}" if a.threads != b.threads else "in the environments of A and of B"
        who = f"this one computer, {how}, computes"
    return f"{who} different bits in {amount(len(probes), 'probe')}: {some(probes)}"


def _portable_notes(comparison: Comparison, a: Repeat, b: Repeat) -> Iterator[str]:
    """Say whether mode ``portable`` kept its promise, where it makes one."""
    if not promised_alike(a.spec, b.spec):
        return
    if comparison.verdict != Verdict.DIFFERENT:
        says_something = comparison.verdict != Verdict.VACUOUS
        if says_something and "numeric_class" in comparison.environment:
            yield "mode portable: the same bits, as promised, though the machines compute otherwise"
        return
    yield (
        "mode portable promises the same bits here, and they differ: run `cellrepro doctor "
        f"--portable` on both machines, and `{_diverge_command(a, b)}`, which names the first "
        "operation that differs; please report what they say"
    )


def _precision_notes(a: Repeat, b: Repeat) -> list[str]:
    dtype_a = a.spec.precision
    dtype_b = b.spec.precision
    if dtype_a == dtype_b:
        return []
    return [f"precision: A was computed in {dtype_a}, B in {dtype_b}"]


def _initial_weights_notes(a: Repeat, b: Repeat) -> Iterator[str]:
    """Say why two trainings began with different weights."""
    first, second = (repeat.manifest.model.initial_weights for repeat in (a, b))
    if first == second:
        return
    if (a.spec.model, a.spec.model_digest) != (b.spec.model, b.spec.model_digest):
        reason = "A and B start from different networks"
    elif a.spec.precision != b.spec.precision:
        reason = (
            f"A and B start from the same network, in {a.spec.precision} in A and "
            f"{b.spec.precision} in B"
        )
    elif a.spec.seed != b.spec.seed:
        reason = "the seed draws them"
    else:
        reason = f"checksums {first[:_DIGITS]} in A, {second[:_DIGITS]} in B"
    yield f"initial weights: {reason}"


def _vacuous_notes(a: Manifest, b: Manifest) -> list[str]:
    """Say why equal results prove nothing, each reason once."""
    return [f"vacuous: {reason}" for reason in dict.fromkeys(a.vacuous + b.vacuous)]
