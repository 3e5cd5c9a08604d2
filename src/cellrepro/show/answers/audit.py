"""What `audit` answers: which operations of a training or a segmentation flip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount, grouped

if TYPE_CHECKING:
    from cellrepro.audits.segmentation import BatchAudit, BatchResult, SegmentationAudit
    from cellrepro.audits.training import TrainingAudit
    from cellrepro.determinism.choices import Mode
    from cellrepro.trace.batch_invariance import BatchInvariance
    from cellrepro.trace.nondeterministic_operation import NondeterministicOperation


@dataclass(frozen=True)
class TrainingAuditDocument:
    """What ``cellrepro audit --json`` prints of a training."""

    ops: Sequence[Mapping[str, object]]
    """Operations whose bits flip, most flips first: the fields of `NondeterministicOperation`, with
    ``seen``, how often in words, and ``effect_sentence``, what that does to the cells."""
    warnings: Sequence[Mapping[str, object]]
    """Of which PyTorch warns, in the same form."""
    n_steps: int
    """Steps that were watched, how often each operation was run again, and PyTorch's threads on the
    processor."""
    n_replays: int
    """Steps that were watched, how often each operation was run again, and PyTorch's threads on the
    processor."""
    threads: int
    """Steps that were watched, how often each operation was run again, and PyTorch's threads on the
    processor."""
    kinds: Mapping[str, int]
    """Operations by kind, and how many of each ran."""
    replays: Mapping[str, int]
    """How many were run again, by kind."""
    sentence: str
    """The result in words."""
    suspects: Sequence[Mapping[str, object]]
    """Operations that are known to flip and did not here, in the same form."""
    mode: Mode
    """In which it was watched."""
    profile: str
    """With which it was watched."""


@dataclass(frozen=True)
class SegmentationAuditDocument:
    """What ``cellrepro audit --task segment --json`` prints."""

    ops: Sequence[Mapping[str, object]]
    """As of a training, without ``effect_sentence``."""
    n_steps: int
    """Images."""
    n_replays: int
    """How often each operation was run again, and PyTorch's threads on the processor."""
    threads: int
    """How often each operation was run again, and PyTorch's threads on the processor."""
    kinds: Mapping[str, int]
    """As of a training."""
    replays: Mapping[str, int]
    """As of a training."""
    sentence: str
    """The result in words."""
    batch: BatchInvariance | None
    """None where Cellpose's network was not audited."""
    batches: Sequence[BatchResult]
    """One image segmented at several batch sizes, the smallest first."""
    image: str | None
    """The image that was segmented at each batch size."""
    n_tiles: int
    """Of that image."""
    mode: Mode
    """In which it was watched."""
    profile: str
    """With which it was watched."""
    depends_on_batch: bool
    """Whether the batch size changes the result."""
    uncompiled: Sequence[str]
    """What ``torch.compile`` made: only its uncompiled form was audited."""


def training_audit_answer(audit: TrainingAudit) -> Answer[TrainingAuditDocument]:
    """Answer with what flips, where, and what holds it still; then with the sentence over all."""
    document = TrainingAuditDocument(
        ops=[_with_effect(operation) for operation in audit.ops],
        warnings=[_with_effect(operation) for operation in audit.warnings],
        n_steps=audit.operations.n_steps,
        n_replays=audit.operations.n_replays,
        threads=audit.operations.threads,
        kinds=audit.operations.kinds,
        replays=audit.operations.replays,
        sentence=audit.sentence(),
        suspects=[_with_effect(operation) for operation in audit.suspects],
        mode=audit.spec.mode,
        profile=audit.spec.profile,
    )
    return Answer(document, list(_training_lines(audit)))


def effect_lines(audit: TrainingAudit) -> list[str]:
    """Say what each operation that flips, or each suspect, does to the cells; each line once."""
    lines = []
    for operation in audit.ops or audit.suspects:
        if operation.effect:
            lines.append(f"effect: {operation.effect.sentence()}")
        else:
            reason = operation.no_effect_because or "not measured"
            lines.append(f"effect of {operation.op}: not known, {reason}")
    return list(dict.fromkeys(lines))


def segmentation_audit_answer(audit: SegmentationAudit) -> Answer[SegmentationAuditDocument]:
    """Answer with what flips, then what depends on the batch, and what that does to the cells."""
    batches = audit.batches
    document = SegmentationAuditDocument(
        ops=[_with_seen(operation) for operation in audit.ops],
        n_steps=audit.operations.n_steps,
        n_replays=audit.operations.n_replays,
        threads=audit.operations.threads,
        kinds=audit.operations.kinds,
        replays=audit.operations.replays,
        sentence=audit.sentence(),
        batch=batches.invariance if batches else None,
        batches=batches.results if batches else (),
        image=batches.image if batches else None,
        n_tiles=batches.n_tiles if batches else 0,
        mode=audit.spec.mode,
        profile=audit.spec.profile,
        depends_on_batch=audit.depends_on_batch,
        uncompiled=audit.operations.uncompiled,
    )
    lines = [
        f"{operation.op} of {operation.module or 'no module'}, "
        f"{operation.source or 'no line of Python'}: {operation.seen}"
        for operation in audit.ops
    ]
    lines.append(audit.sentence())
    if audit.remark:
        lines.append(audit.remark)
    if batches is not None:
        lines += _batch_lines(batches)
    return Answer(document, lines)


def _with_seen(operation: NondeterministicOperation) -> dict[str, object]:
    return {**asdict(operation), "seen": operation.seen}


def _with_effect(operation: NondeterministicOperation) -> dict[str, object]:
    sentence = operation.effect.sentence() if operation.effect else None
    return {**_with_seen(operation), "effect_sentence": sentence}


def _training_lines(audit: TrainingAudit) -> Iterator[str]:
    for operation in audit.ops:
        yield f"{operation.op}, {operation.phase} of {operation.module or 'no module'}"
        yield f"    {operation.source or 'no line of Python'}"
        warns = "warns of it" if operation.warned else "does not warn of it"
        elements = amount(operation.n_elements, "element")
        yield f"    {operation.seen}, in up to {elements}; PyTorch {warns}"
        if operation.reason:
            yield f"    {operation.reason}"
        if operation.remedy:
            yield f"    {operation.remedy}"
        if operation.substitute:
            yield f"    mode strict uses the substitute {operation.substitute}"
    for operation in audit.warnings:
        module = operation.module or "no module"
        yield f"PyTorch warns of {operation.op}, {operation.phase} of {module}"
    yield audit.sentence()


def _batch_lines(batches: BatchAudit) -> Iterator[str]:
    """Say which operations depend on the batch, and what each batch size does to the cells."""
    yield f"batches of tiles: {batches.invariance.sentence()}"
    for operation in batches.invariance.ops:
        yield (
            f"    {operation.op} of {operation.module or 'no module'}, "
            f"{operation.source or 'no line of Python'}: in "
            f"{amount(operation.calls, 'call')}, by up to {operation.max_abs:.2g}"
        )
    for result in batches.results[1:]:
        yield (
            f"{batches.image}, {amount(batches.n_tiles, 'tile')}, batch size {result.batch_size} "
            f"compared with 1: {grouped(result.n_differing)} values of the network's output "
            f"differ, {result.n_changed} of {amount(result.n_cells, 'cell')} without a counterpart"
        )
