"""Where two segmentations of the same images diverge: from the file to the last filter."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.divergence.judge import CannotLook, Finding, Look, aligned, named
from cellrepro.divergence.result import Divergence, Evidence, Place
from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.folder import LabelledImage
from cellrepro.model.network import started_from
from cellrepro.model.stages import MADE_BY, PASSED, Stages
from cellrepro.process.calling import counting, in_child
from cellrepro.process.child import Child, Event
from cellrepro.progress import progress
from cellrepro.run.plan import Request
from cellrepro.same.metrics import compare_masks
from cellrepro.same.operation_alignment import first_divergence, judge_round_off
from cellrepro.store.ledger import LEDGER, OPERATIONS, SEGMENTATION_STAGES, LedgerRow, read_rows
from cellrepro.store.store import Repeat
from cellrepro.trace.operation_ledger import OperationRow
from cellrepro.words import amount, grouped, that_differ

_OF_IMAGES = SEGMENTATION_STAGES[SEGMENTATION_STAGES.index("decoded") :]
_WITH_CHANNELS_LAST = ("channels", "normalised")
_PARTS = {"tiles": "tile", "network": "tile"}  # what each array of a stage is; else a plane


def entries_by_stage(entries: Sequence[LedgerRow], repeat: Repeat) -> Iterator[LedgerRow]:
    """A ledger under the stages of a segmentation, without what it does not use: true masks,
    images that were not segmented, generators."""
    images = repeat.manifest.masks
    for entry in entries:
        name = entry.name
        if entry.stage == "data" and name.startswith("file "):
            if Path(name.removeprefix("file ")).stem in images:
                yield replace(entry, stage="file")
        elif entry.stage == "data":
            if name.endswith(" decoded") and name.removesuffix(" decoded") in images:
                yield replace(entry, stage="decoded")
        elif entry.stage == "masks" and not name.endswith(" masks"):
            yield replace(entry, stage="filtered")
        elif entry.stage != "rng":
            yield entry


def comparable_stages(
    sides: Sequence[list[LedgerRow]], repeats: Sequence[Repeat]
) -> list[list[LedgerRow]]:
    """Without stages of which one ledger tells nothing, as older ones do; and without the weights
    where they are those of one model in two precisions."""
    told = [{entry.stage for entry in side} for side in sides]
    left_out = PASSED.keys() - (told[0] & told[1])
    a, b = (repeat.spec for repeat in repeats)
    precisions = {spec.profile_settings.get("dtype", "float32") for spec in (a, b)}
    if (a.model, a.model_digest) == (b.model, b.model_digest) and len(precisions) == 2:
        left_out |= {"weights-init"}
    return [[entry for entry in side if entry.stage not in left_out] for side in sides]


def with_images(answer: Divergence, look: Look) -> Divergence:
    """The answer with the first stage at which an image differs, and what a closer look says."""
    assert answer.ledgers is not None
    names = list(look.repeats[0].manifest.masks)
    shown = [one for one in answer.ledgers.differences if one.stage in _OF_IMAGES]
    shown = [one for one in shown if not one.name.endswith(" stored file")]
    common = [one for one in shown if _image(one.name) in names and one.a and one.b]
    if not common:
        return answer
    image = _image(common[0].name)
    place = Place.of(common[0], answer.ledgers, step=names.index(image), image=image)
    settings = any(one.stage == "spec" for one in answer.ledgers.differences)
    data = place.stage == "decoded" or answer.ledgers.of_stage("weights-init")
    judgement = "settings" if settings else "data" if data else "unexplained"
    found = Finding(place, judgement, Evidence("ledgers"))
    try:
        found = LookAtImage(**vars(look)).at_image(found)
    except (CannotLook, CellreproError) as error:
        answer = replace(answer, notes=(*answer.notes, f"not segmented again: {error}"))
    first, place = answer.first, found.place
    assert first is not None
    first = place if first.stage == place.stage else replace(first, max_abs=place.max_abs)
    return replace(
        answer,
        first=first,
        computed=first if first.stage == place.stage else place,
        judgement=found.judgement,
        evidence=found.evidence,
        operations=found.operations,
    )


def _image(name: str) -> str:
    return name.rpartition(" ")[0]


# -- segmented again -----------------------------------------------------------------------


@dataclass
class Seen:
    """What segmenting one image again has shown."""

    arrays: dict[str, list[np.ndarray]]  # by stage
    digests: dict[str, str]
    rows: list[OperationRow]  # operations of the network
    other: Seen | None = None  # of the repetition that gave other bits
    n_repetitions: int = 0


class LookAtImage(Look):
    """A closer look at one image of two segmentations."""

    def at_image(self, found: Finding) -> Finding:
        """The stage, how far apart the two are there and later, and what made it."""
        place, stored = found.place, self._of_stored(found.place)
        if not self.again:
            return self._with_operation(found, stored)
        a, b = (repeat.spec for repeat in self.repeats)
        alike = (a.profile_settings, a.cellpose) == (b.profile_settings, b.cellpose)
        with_operations = place.stage in ("network", "flows") and found.judgement == "unexplained"
        with progress(4, f"segmenting {place.image} again", quiet=self.quiet) as bar:
            given: dict[str, Any] = {"operations": with_operations, "on_event": counting(bar)}
            if found.judgement == "unexplained" and alike:
                seen = self._again(0, place, repetitions=self.repetitions, **given)
                sides = [seen] if seen.other is None else [seen, seen.other]
            else:
                sides = [self._again(i, place, **given) for i in (0, 1)]
        evidence = Evidence(
            "segmented again",
            n_repetitions=sides[0].n_repetitions,
            arrival=tuple(
                self._held_against(seen, repeat, str(place.image))
                for seen, repeat in zip(sides, self.repeats, strict=False)
            ),
        )
        if len(sides) == 1:  # it does not differ from itself
            return self._with_operation(replace(found, evidence=evidence), stored)
        found = _measured(replace(found, evidence=evidence), *sides)
        if sides[0].other is not None:
            return self._with_operation(replace(found, judgement="race"), stored)
        return self._judged(found, *sides) if with_operations else found

    def _of_stored(self, place: Place) -> Finding | None:
        """The operation that both wrote down and that differs first."""
        if place.stage not in ("network", "flows") or place.step is None:
            return None
        rows = self.stored(OPERATIONS, OperationRow, place.step)
        return None if rows is None else self.of_rows(place, *rows)

    def _with_operation(self, found: Finding, stored: Finding | None) -> Finding:
        if stored is None:
            return found
        alignment, parting = stored.evidence.alignment, stored.evidence.parting
        evidence = replace(found.evidence, alignment=alignment, parting=parting)
        operation = {name: getattr(stored.place, name) for name in ("op", "module", "source")}
        place = replace(found.place, **operation, phase="forward", inputs=stored.place.inputs)
        return replace(found, place=place, evidence=evidence, operations=stored.operations)

    def _again(
        self,
        side: int,
        place: Place,
        *,
        on_event: Callable[[Event], None],
        operations: bool,
        repetitions: int = 0,
    ) -> Seen:
        repeat, name = self.repeats[side], str(place.image)
        pixels = self.store.image(repeat.spec.images_digest, name)
        if pixels is None:
            raise CannotLook(f"the store does not keep {name} of {repeat.name}")
        try:
            source = started_from(repeat, self.store)
        except BadInput as error:
            raise CannotLook(str(error)) from error
        if source.path is None and repeat.spec.seed is None:
            raise CannotLook(f"the random weights of {repeat.name} were not seeded (mode off)")
        stack = repeat.masks(name).ndim == 3
        request = Request(repeat.spec, Path(), source)
        task = partial(
            segmented_again,
            request=request,
            image=LabelledImage(name, pixels, None, Path(name), stack=stack),
            operations=operations,
            repetitions=repetitions,
        )
        label = f"segmenting {name} of {repeat.name} again"
        return in_child(task, request.setup, label=label, on_event=on_event)

    def _held_against(self, seen: Seen, repeat: Repeat, image: str) -> str:
        """How many stages have the bits of the stored run."""
        if not repeat.has(LEDGER):
            return "there is no ledger to hold it against"
        stored = {entry.name: entry.digest for entry in read_rows(repeat.file(LEDGER), LedgerRow)}
        both = [s for s in PASSED if f"{image} {s}" in stored and s in seen.digests]
        same = sum(stored[f"{image} {stage}"] == seen.digests[stage] for stage in both)
        return f"{same} of {amount(len(both), 'stage')} in the stored bits"

    def _judged(self, found: Finding, a: Seen, b: Seen) -> Finding:
        """The operation of the network, and whether all of them are within their error."""
        alignment = aligned(self.repeats, a.rows, b.rows)
        parting = first_divergence(alignment)
        verdict, round_off = judge_round_off(a.rows, b.rows)
        place = found.place
        if parting is not None:
            place = replace(place, **named(parting.a), inputs=parting.inputs)
        evidence = replace(
            found.evidence,
            alignment=alignment.sentence(),
            parting=None if parting is None else parting.sentence,
            round_off=round_off,
        )
        judgement = "unexplained" if verdict == "unknown" else verdict
        return Finding(place, judgement, evidence, alignment)


def segmented_again(
    child: Child,
    *,
    request: Request,
    image: LabelledImage,
    operations: bool = False,
    repetitions: int = 0,
) -> Seen:
    """Inside the child: segment an image with every stage kept, until it differs from itself."""
    from cellrepro.model.inference import segment
    from cellrepro.model.network import build
    from cellrepro.trace.operation_ledger import OperationLedger

    with child.prepared() as device, child.loosened():
        dtype = request.setup.profile.dtype
        network = build(request.model, seed=request.spec.seed, device=device, dtype=dtype)
        child.setup.seed_all()

        def pass_stages() -> Seen:
            stages = Stages(keep=True)
            with stages.watching():
                (result,) = segment(network, (image,), **request.spec.settings.arguments())
            stages.saw("decoded", image.image)
            stages.saw("flows", *result.flows.values())
            stages.saw("filtered", result.masks)
            return Seen(stages.arrays, stages.digests, [])

        seen = pass_stages()
        if operations:
            with OperationLedger(network, step=0, reference=True) as ledger:
                pass_stages()
            seen.rows = ledger.rows
        while seen.other is None and seen.n_repetitions < repetitions:
            other = pass_stages()
            seen.n_repetitions += 1
            if other.digests != seen.digests:
                seen.other = other
    child.tell("done", "segmented")
    return seen


# -- how far apart -------------------------------------------------------------------------


def _measured(found: Finding, a: Seen, b: Seen) -> Finding:
    """The first stage that differs, how far apart the two are there, and at those after it."""
    place, evidence = found.place, found.evidence
    differ = [s for s in _OF_IMAGES if a.digests.get(s) != b.digests.get(s)]
    sizes = {s: _apart(s, a.arrays.get(s, []), b.arrays.get(s, [])) for s in differ}
    if place.stage in ("flows", "filtered") and differ:  # of older ledgers, which tell no more
        place = replace(place, stage=differ[0])
    if place.stage in sizes:
        module, op = MADE_BY.get(place.stage, (None, None))
        largest, n, text = sizes[place.stage]
        place = replace(place, max_abs=largest, n_elements=n, apart=text, module=module, op=op)
    said = tuple(f"{stage}: {_size(*size)}" for stage, size in sizes.items())
    return replace(found, place=place, evidence=replace(evidence, stages_apart=said))


def _size(largest: float | None, _: int | None, text: str) -> str:
    return text if largest is None else f"largest difference {largest:.2g} {text}"


def _apart(
    stage: str, a: Sequence[np.ndarray], b: Sequence[np.ndarray]
) -> tuple[float | None, int | None, str]:
    """The largest difference, how many values differ, and where or how."""
    shapes = [[array.shape for array in side] for side in (a, b)]
    if shapes[0] != shapes[1] or not a:
        sizes = [_shapes(stage, side) for side in shapes]
        return None, None, f"{sizes[0]} in A, {sizes[1]} in B"
    if stage in ("masks", "filtered"):
        found = [compare_masks(x, y) for x, y in zip(a, b, strict=True)]
        n_pixels = sum(one.n_differing for one in found)
        n_cells = sum(one.n_unmatched for one in found)
        cells = f"{amount(n_cells, 'cell') if n_cells else 'no cell'} without a counterpart"
        return None, n_pixels, f"{that_differ(n_pixels, 'pixel')}, {cells}"
    apart = [np.abs(x.astype(np.float64) - y.astype(np.float64)) for x, y in zip(a, b, strict=True)]
    i = int(np.argmax([one.max(initial=0) for one in apart]))
    at = np.unravel_index(int(apart[i].argmax()), apart[i].shape)
    y, x = at[-3:-1] if stage in _WITH_CHANNELS_LAST else at[-2:]
    n_values = sum(one.size for one in apart)
    n_differ = sum(int(np.count_nonzero(one)) for one in apart)
    part = f" of {_part(stage, i, len(a))}" if len(a) > 1 else ""
    where = f"at y {y}, x {x}{part}, {grouped(n_differ)} of {grouped(n_values)} values"
    return float(apart[i][at]), n_differ, where


def _part(stage: str, i: int, n: int) -> str:
    if stage == "flows":
        return ("the flows", "the cell probability")[i]
    return f"{_PARTS.get(stage, 'plane')} {i + 1} of {n}"


def _shapes(stage: str, shapes: Sequence[tuple[int, ...]]) -> str:
    if not shapes:
        return "nothing"
    size = " x ".join(map(str, shapes[0]))
    return f"{amount(len(shapes), _PARTS.get(stage, 'plane'))} of {size}"
