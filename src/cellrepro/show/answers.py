"""What the commands answer: of every result the JSON document, and the same in lines of words."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from cellrepro.errors import BadInput, Damaged
from cellrepro.progress import minutes
from cellrepro.words import amount, grouped, ppm_text, share_text, some, span

if TYPE_CHECKING:
    from cellrepro.audits.doctor import Diagnosis
    from cellrepro.audits.training import TrainingAudit
    from cellrepro.changes.compare import Comparison
    from cellrepro.divergence.growth import Moment
    from cellrepro.divergence.result import Divergence
    from cellrepro.grid.point import GridRun
    from cellrepro.run.train import Outcome
    from cellrepro.same.metrics import MaskComparison
    from cellrepro.same.weights import WeightsComparison
    from cellrepro.store.store import Repeat, Run
    from cellrepro.store.unchanged import Reading

Answer = tuple[dict[str, Any], Iterable[str]]
"""A document, and lines."""


def as_text(document: Mapping[str, Any]) -> str:
    """The document as JSON; NaN and infinities, which JSON lacks, become null."""
    plain = to_jsonable_python(document, inf_nan_mode="null", fallback=lambda array: array.tolist())
    return json.dumps(plain, indent=1, allow_nan=False) + "\n"


_MOST_CHANGES = 12  # objects that are named; the JSON document names them all
_MOST_NAMES = 4
_MOST_READ = 10**9  # bytes that `list` reads in search of damage: about a second


def diagnosis(found: Diagnosis) -> Answer:
    """Of `cellrepro.diagnose`."""
    document = asdict(found)
    del document["exit_code"]
    lines = [f"{one.level:8} {one.what}\n         -> {one.remedy}" for one in found.findings]
    return document, [*lines, found.sentence()]


def audit(found: TrainingAudit) -> Answer:
    """Of `cellrepro.audit_training`."""
    document = {name: value for name, value in vars(found).items() if name != "spec"}
    document |= {"mode": found.spec.mode, "profile": found.spec.profile}
    for name in ("ops", "warnings", "suspects"):
        rows = getattr(found, name)
        effects = [row.effect.sentence() if row.effect else None for row in rows]
        document[name] = [
            {**asdict(row), "seen": row.seen, "effect_sentence": effect}
            for row, effect in zip(rows, effects, strict=True)
        ]
    return document, _audit(found)


def _audit(found: TrainingAudit) -> Iterator[str]:
    for row in found.ops:
        yield f"{row.op}, {row.phase} of {row.module or 'no module'}"
        yield f"    {row.source or 'no line of Python'}"
        warns = "warns of it" if row.warned else "does not warn of it"
        yield f"    {row.seen}, in up to {amount(row.n_elements, 'element')}; PyTorch {warns}"
        substitute = row.substitute and f"mode strict uses the substitute {row.substitute}"
        yield from (f"    {text}" for text in (row.reason, row.remedy, substitute) if text)
    for row in found.warnings:
        yield f"PyTorch warns of {row.op}, {row.phase} of {row.module or 'no module'}"
    yield found.sentence


def effects(found: TrainingAudit) -> list[str]:
    """What each operation that flips, or each suspect, does to the cells."""
    told = [
        f"effect: {row.effect.sentence()}"
        if row.effect
        else f"effect of {row.op}: not known, {row.no_effect_because or 'not measured'}"
        for row in found.ops or found.suspects
    ]
    return list(dict.fromkeys(told))


def outcome(found: Outcome) -> Answer:
    """Of `cellrepro.train` and `cellrepro.segment`."""
    judgement, training = found.judgement, found.repeats[0].manifest.training
    document = {
        "key": found.key,
        "folder": found.folder,
        "repeats": [_repeat(repeat) for repeat in found.repeats],
        "agreement": judgement.agreement,
        "verdict": judgement.overall,
        "verdicts": {"weights": judgement.weights, "masks": judgement.masks},
        "reasons": judgement.reasons,
        "compared": {"repeats": judgement.n_repeats, "images": judgement.n_images},
        "notices": found.plan.notices,
        "learning_rates": None if training is None else training.learning_rates,
    }
    return document, _outcome(found)


def _repeat(repeat: Repeat) -> dict[str, Any]:
    manifest = repeat.manifest
    return {
        "index": manifest.repeat,
        "machine": repeat.machine,
        "weights": manifest.weights.digest if manifest.weights else None,
        "masks": {name: record.digest for name, record in manifest.masks.items()},
        "objects": {name: record.n_objects for name, record in manifest.masks.items()},
        "ap50": manifest.ap50,
        "ap50_train": manifest.ap50_train,
        "train_scores": manifest.train_scores,
        "seconds": round(sum(manifest.seconds.values()), 3),
    }


def _outcome(found: Outcome) -> Iterator[str]:
    yield f"run {found.key} in {found.folder}"
    yield f"machine {found.plan.machine}"
    training = found.repeats[0].manifest.training
    if training is not None:
        rates = training.learning_rates
        rate = span(f"{rates[0]:.2g}", f"{max(rates):.2g}")
        yield f"learning rate {rate} over {amount(len(rates), 'epoch')}"
    for repeat in found.repeats:
        manifest = repeat.manifest
        score = "no ground truth" if manifest.ap50 is None else f"AP@0.5 {manifest.ap50:.3f}"
        if manifest.train_scores and manifest.ap50_train is not None:
            n_scored, n_train = len(manifest.train_scores), manifest.data.n_train
            score += f" (on {n_scored} of {n_train} training images {manifest.ap50_train:.3f})"
        weights = f"weights {manifest.weights.digest[:12]}, " if manifest.weights else ""
        found_in = amount(len(manifest.masks), "image")
        yield (
            f"  repeat {manifest.repeat}: {weights}{amount(manifest.n_objects, 'object')} in "
            f"{found_in}, {score}, {sum(manifest.seconds.values()):.1f} s"
        )
    yield found.judgement.sentence()


def comparison(found: Comparison) -> Answer:
    """Of `cellrepro.changes.compare.compare`."""
    weights = None
    if found.weights is not None:
        weights = asdict(found.weights)
        weights["per_tensor"] = [row for row in weights["per_tensor"] if row["n_differing"]]
    if weights and found.files is not None:
        weights["files"] = {
            "sizes": found.files.sizes,
            "equal": not found.files.parts,
            "differing": [part._asdict() for part in found.files.parts],
        }
    changes = [
        {"image": name, **change._asdict(), "renumbered": change.renumbered}
        for name, masks in found.masks.items()
        for change in masks.objects
    ]
    document = {
        "verdict": found.verdict,
        "differs": found.differs,
        "weights": weights,
        "masks": {name: masks.figures() for name, masks in found.masks.items()},
        "objects": {**found.n_objects, "changes": changes},
        "ppm": found.ppm,
        "environment": dict(found.environment),
        "spec": dict(found.spec),
        "ap50": found.ap50,
        "ap50_train": found.ap50_train,
        "notes": found.notes,
    }
    return document, _comparison(found)


def _comparison(found: Comparison) -> Iterator[str]:
    from cellrepro.show.mask_tables import comparison_sentence

    yield f"{found.verdict}" + (f": {', '.join(found.differs)}" if found.differs else "")
    if found.weights is not None:
        yield from _weights(found.weights)
    if found.files is not None:
        yield "  files: " + "\n    ".join(found.files.sentences())
    if found.masks:
        yield f"  masks: {comparison_sentence(found.masks)}"
    yield from _changed(found.masks)
    if found.ap50 is not None and None not in found.ap50:
        yield f"  ground truth: AP@0.5 {found.ap50[0]:.3f} and {found.ap50[1]:.3f}"
    if found.ap50_train is not None and None not in found.ap50_train:
        yield "  on training images: AP@0.5 {:.3f} and {:.3f}".format(*found.ap50_train)
    for title, differing in (("spec", found.spec), ("environment", found.environment)):
        yield from (f"  {title} {name}: {a!r} and {b!r}" for name, (a, b) in differing.items())
    yield from (f"  note: {note}" for note in found.notes)


def _weights(found: WeightsComparison) -> Iterator[str]:
    """Distances, and the tensors that only one of the two has."""
    if found.equal:
        yield f"  weights: {amount(found.n_parameters, 'parameter')}, all equal"
        return
    yield f"  weights: {found.n_differing} of {found.n_parameters} parameters differ, " + (
        "no distance over all of them"
        if math.isnan(found.l2)
        else f"L2 {found.l2:.3g} (relative {found.relative_l2:.3g}), cosine {found.cosine:.6f}, "
        f"largest {found.max_abs:.3g} in {found.max_abs_name or 'none'}"
    )
    for side, names in (("A", found.only_a), ("B", found.only_b)):
        if names:
            yield f"    only in {side}: {some(names, _MOST_NAMES)}"


def _changed(masks: Mapping[str, MaskComparison]) -> Iterator[str]:
    """The objects that are not where they were."""
    every = [(name, change) for name, result in masks.items() for change in result.objects]
    changed = [(name, change) for name, change in every if change.kind != "kept"]
    for name, change in changed[:_MOST_CHANGES]:
        sides = [", ".join(map(str, labels)) for labels in (change.labels_a, change.labels_b)]
        place = ", ".join(f"{at:.0f}" for at in change.position)
        cuts = f", cut between {change.cuts}" if change.cuts else ""
        yield (
            f"    {change.kind.value:6} {' -> '.join(side or 'nothing' for side in sides)} in "
            f"{name}, centre {place}, {change.area_a} -> {change.area_b} pixels{cuts}"
        )
    if len(changed) > _MOST_CHANGES:
        yield f"    and {len(changed) - _MOST_CHANGES} more; --json names them all"


def divergence(found: Divergence) -> Answer:
    """Of `cellrepro.diverge`."""
    names = ("a", "b", "first", "computed", "stages", "judgement", "verdict", "evidence", "notes")
    document = {
        **{name: getattr(found, name) for name in names},
        "compared": found.n_compared,
        "objects": found.comparison.n_objects,
        "ppm": found.comparison.ppm,
        "sentence": found.sentence(),
    }
    return document, _divergence(found)


def _divergence(found: Divergence) -> Iterator[str]:
    yield found.sentence()
    for stage, names in found.stages.items():
        yield f"  {stage:12} {some(list(names), _MOST_NAMES)}"
    for name, seen in vars(found.evidence).items() if found.evidence else ():
        if name == "stages_apart":
            yield from (f"  {text}" for text in seen)
        elif seen not in (None, ()) and (seen or name not in ("n_repetitions", "n_replays")):
            text = "; ".join(seen) if isinstance(seen, tuple) else seen
            yield f"  {name.removeprefix('n_').replace('_', ' '):12} {text}"
    yield from (f"  note: {note}" for note in found.notes)


def growth(moments: Sequence[Moment], a: str, b: str) -> Answer:
    """Of `cellrepro.growth`, for the names of the two runs."""
    rows = [{**asdict(one), "distance": one.relative_l2} for one in moments]
    for row in rows:
        row["ap50_a"], row["ap50_b"] = row.pop("ap50") or (None, None)
    columns = "epoch  distance  pixels                cells changed  AP@0.5 of A, of B"
    about = "distance: of the weights, relative to their length; pixels and cells: of the masks"
    lines = [f"A: {a}", f"B: {b}", columns, *map(_moment, moments)]
    return {"a": a, "b": b, "moments": rows}, [*lines, f"{about} had training ended there"]


def _moment(one: Moment) -> str:
    pixels = "–" if one.ppm is None else ppm_text(one.ppm)
    cells = "–" if one.changed is None else share_text(one.changed)
    scores = "–" if one.ap50 is None else "{:.3f}, {:.3f}".format(*one.ap50)
    return f"{one.epoch:5}  {one.relative_l2:<8.2g}  {pixels:20}  {cells:13}  {scores}"


def grid_runs(runs: Sequence[GridRun]) -> Answer:
    """How the specs of a grid ended, or what they will take."""
    lines = []
    for run in runs:
        varied = ", ".join(f"{name} {value}" for name, value in run.varied.items())
        on = f" on {run.machine}" if run.machine else ""
        takes = f"  about {_cost([run.estimate])}" if run.estimate else ""
        reason = f"  ({run.reason})" if run.reason else ""
        lines.append(f"{run.status:8} {run.key}{on}  {varied}{takes}{reason}")
    known = [run.estimate for run in runs if run.estimate]
    if known:
        n_without = sum(run.status == "planned" for run in runs) - len(known)
        rest = f"; {amount(n_without, 'spec')} more, like none in the store" if n_without else ""
        lines.append(f"all of it, one after the other: about {_cost(known)}{rest}")
    return {"runs": runs}, lines


def _cost(estimates: Sequence[Any]) -> str:
    seconds, size = (sum(getattr(one, n) for one in estimates) for n in ("seconds", "bytes"))
    return f"{minutes(seconds)} and {grouped(size / 1e6)} MB"


def stored(runs: Iterable[Run], wanted: Mapping[str, Any] | None = None) -> Answer:
    """What a store holds, a run on each machine by itself; only what has certain values."""
    from cellrepro.same.verdicts import judge
    from cellrepro.store.unchanged import Reading

    rows: list[dict[str, Any]] = []
    lines: list[str] = []
    reading = Reading(_MOST_READ)
    for run in runs:
        label = run.spec.label  # once: it costs more than all else of a row
        spec = run.spec.model_dump(mode="json")
        fields = {"key": run.key, "label": label, **spec}
        fields |= run.spec.asked if wanted else {}
        for machine, repeats in run.machines.items():
            if not _has(fields | {"machine": machine}, wanted or {}):
                continue
            judgement = judge([repeat.outcome for repeat in repeats.values()])
            damage = _damage(repeats.values(), reading)
            row = {
                "key": run.key,
                "label": label,
                "machine": machine,
                "spec": spec,
                "repeats": list(repeats),
                "verdict": "damaged" if damage else judgement.overall,
                "agreement": judgement.agreement,
                "detail": judgement.detail(),
                "damage": damage,
            }
            rows.append(row)
            told = str(row["verdict"] or "no verdict")
            if row["verdict"] == "different":
                told += f" ({row['detail']})"
            n_repeats = amount(len(repeats), "repeat")
            lines.append(f"{run.key}  {label}: {n_repeats} on {machine}, {told}")
            lines += [f"  {message}" for message in damage]
    if reading.n_files_unread:
        files = amount(reading.n_files_unread, "file")
        lines.append(
            f"{files} of weights and masks unread, so that this list comes at once: what is said "
            "of them is what was recorded; `cellrepro report` and `cellrepro compare` read them"
        )
    document = {"runs": rows, "unread": reading.n_files_unread}
    return document, lines or ["no such runs" if wanted else "no runs yet"]


def _damage(repeats: Iterable[Repeat], reading: Reading) -> list[str]:
    """What is said of every repeat whose weights or masks are not what was stored."""
    messages = []
    for repeat in repeats:
        try:
            repeat.refuse_damage(reading=reading)
        except Damaged as error:
            messages.append(str(error))
    return messages


def _has(fields: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Whether fields, those of fields with dots between, have certain values."""
    for name, value in wanted.items():
        found: Any = fields
        for part in [name] if name in fields else name.split("."):
            if not isinstance(found, Mapping) or part not in found:
                known = ", ".join(get_close_matches(part, fields, 3, 0.3) or sorted(fields))
                raise BadInput(f"--where names {name!r}, which no run has; expected {known}")
            found = found[part]
        if found != value and str(found) != str(value):
            return False
    return True
