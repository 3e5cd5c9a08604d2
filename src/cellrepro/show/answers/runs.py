"""What `train`, `segment` and `wrap` answer: the repeats of a run, and their verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.words import amount, span

if TYPE_CHECKING:
    from cellrepro.run.outcome import Outcome
    from cellrepro.same.verdicts import Groups, Verdict
    from cellrepro.store.manifest import Manifest
    from cellrepro.store.store import Repeat


@dataclass(frozen=True)
class RepeatDocument:
    """One repeat in the JSON of a run. Digests are lower-case hex."""

    index: int
    """Its number, from 0."""
    machine: str
    """On which it was computed: its name in the store."""
    weights: str | None
    """Digest of the network that was trained; none where none was."""
    masks: Mapping[str, str]
    """Digests by image."""
    objects: Mapping[str, int]
    """How many, by image."""
    ap50: float | None
    """Mean AP at IoU 0.5 against the ground truth; none where there is no truth."""
    ap50_train: float | None
    """The same on training images; none where these were not segmented."""
    train_scores: Mapping[str, float | None]
    """The same by training image."""
    seconds: float
    """Of all its phases together."""


@dataclass(frozen=True)
class VerdictsDocument:
    """Verdicts by what was compared; none where there was nothing to compare."""

    weights: Verdict | None
    """None where nothing was trained."""
    masks: Verdict | None
    """None where nothing was segmented."""


@dataclass(frozen=True)
class ComparedDocument:
    """Over how much the verdict is."""

    repeats: int
    """How many."""
    images: int
    """How many of each repeat."""


@dataclass(frozen=True)
class RunDocument:
    """What ``cellrepro train --json`` prints, and `segment` and `wrap`."""

    key: str
    """Names everything that was asked for."""
    folder: Path
    """Of the run in the store."""
    repeats: Sequence[RepeatDocument]
    """In the order of their numbers."""
    agreement: Mapping[str, Groups | None]
    """Groups of equal repeats: by ``weights``, by ``masks`` and by ``outlines``."""
    verdict: Verdict | None
    """Over all repeats; None for a single one."""
    verdicts: VerdictsDocument
    """The same for weights and masks each."""
    reasons: Sequence[str]
    """Why the verdict is vacuous, or why there is none."""
    compared: ComparedDocument
    """How much was compared."""
    notices: Sequence[str]
    """What deserves a look before the result is used, a sentence each."""
    learning_rates: Sequence[float] | None
    """By epoch; none where nothing was trained."""


def run_answer(outcome: Outcome) -> Answer[RunDocument]:
    """Answer with each repeat, and with the verdict over them."""
    judgement = outcome.judgement
    training = outcome.repeats[0].manifest.training
    document = RunDocument(
        key=outcome.key,
        folder=outcome.folder,
        repeats=[_repeat_document(repeat) for repeat in outcome.repeats],
        agreement=asdict(judgement.agreement),
        verdict=judgement.overall,
        verdicts=VerdictsDocument(weights=judgement.weights, masks=judgement.masks),
        reasons=judgement.reasons,
        compared=ComparedDocument(repeats=judgement.n_repeats, images=judgement.n_images),
        notices=outcome.plan.notices,
        learning_rates=None if training is None else training.learning_rates,
    )
    return Answer(document, list(_run_lines(outcome)))


def _repeat_document(repeat: Repeat) -> RepeatDocument:
    manifest = repeat.manifest
    return RepeatDocument(
        index=manifest.repeat,
        machine=repeat.machine,
        weights=manifest.weights.digest if manifest.weights else None,
        masks={name: record.digest for name, record in manifest.masks.items()},
        objects={name: record.n_objects for name, record in manifest.masks.items()},
        ap50=manifest.ap50,
        ap50_train=manifest.ap50_train,
        train_scores=manifest.train_scores,
        seconds=round(sum(manifest.seconds.values()), 3),
    )


def _run_lines(outcome: Outcome) -> Iterator[str]:
    yield f"run {outcome.key} in {outcome.folder}"
    yield f"machine {outcome.plan.machine}"
    training = outcome.repeats[0].manifest.training
    if training is not None:
        rates = training.learning_rates
        rate = span(f"{rates[0]:.2g}", f"{max(rates):.2g}")
        yield f"learning rate {rate} over {amount(len(rates), 'epoch')}"
    for repeat in outcome.repeats:
        yield _repeat_line(repeat.manifest)
    yield outcome.judgement.sentence()


def _repeat_line(manifest: Manifest) -> str:
    weights = f"weights {manifest.weights.digest[:12]}, " if manifest.weights else ""
    return (
        f"  repeat {manifest.repeat}: {weights}{amount(manifest.n_objects, 'object')} in "
        f"{amount(len(manifest.masks), 'image')}, {_score(manifest)}, "
        f"{sum(manifest.seconds.values()):.1f} s"
    )


def _score(manifest: Manifest) -> str:
    """Say how well masks agree with the ground truth, and those of training images with theirs."""
    score = "no ground truth" if manifest.ap50 is None else f"AP@0.5 {manifest.ap50:.3f}"
    if manifest.train_scores and manifest.ap50_train is not None:
        n_scored = len(manifest.train_scores)
        n_train = manifest.data.n_train
        score += f" (on {n_scored} of {n_train} training images {manifest.ap50_train:.3f})"
    return score
