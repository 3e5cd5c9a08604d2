"""The outcome of a run: all repeats of one spec on this machine, and whether they are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.comparison.judgement import TO_FIND_CELLS, EqualRepeats, Judgement
from cellrepro.comparison.verdicts import Verdict
from cellrepro.run.plan import Plan
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.manifest import Manifest
from cellrepro.store.references import short_reference
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import span
from samebits.results import Result, Row, derived
from samebits.words import amount, joined


@dataclass(frozen=True)
class Verdicts:
    """The verdicts over weights and over masks."""

    weights: Verdict | None
    """Verdict over the weights; null where nothing was trained."""
    masks: Verdict | None
    """Verdict over the masks; null where nothing was segmented."""


@dataclass(frozen=True)
class Compared:
    """The amount of results that a verdict is over."""

    repeats: int
    """Number of repeats."""
    images: int
    """Number of images of each repeat."""


@dataclass(frozen=True, repr=False)
class Outcome(Result):
    """All repeats of one spec on this machine, and whether they came out the same."""

    plan: Plan = field(repr=False)
    """The plan that was carried out."""
    repeats: tuple[Repeat, ...]
    """The stored repeats, in the order of their numbers."""
    judgement: Judgement = field(repr=False)
    """Whether weights and masks are the same in all of them."""
    stored_before: tuple[Repeat, ...] = field(default=(), repr=False)
    """The repeats that were stored already, and not run again."""
    masks_into: Path | None = None
    """Folder into which masks were written beside the store; null where none was named."""

    @derived
    def key(self) -> str:
        """Key of the spec, which names everything that was asked for."""
        return self.plan.spec.key

    @derived
    def folder(self) -> Path:
        """Folder of the run in the store."""
        return self.store.root / "runs" / self.key

    @derived
    def agreement(self) -> EqualRepeats:
        """Groups of equal repeats."""
        return self.judgement.agreement

    @derived
    def verdict(self) -> Verdict | None:
        """Verdict over all repeats; null for a single one."""
        return self.judgement.overall

    @derived
    def verdicts(self) -> Verdicts:
        """Verdicts over weights and masks each."""
        return Verdicts(weights=self.judgement.weights, masks=self.judgement.masks)

    @derived
    def reasons(self) -> tuple[str, ...]:
        """Why the verdict is vacuous, or why there is none."""
        return self.judgement.reasons

    @derived
    def compared(self) -> Compared:
        """Amount of what was compared."""
        return Compared(repeats=self.judgement.n_repeats, images=self.judgement.n_images)

    @derived
    def notices(self) -> Sequence[str]:
        """What deserves a look before the result is used, a sentence each."""
        return self.plan.notices

    @derived
    def learning_rates(self) -> Sequence[float] | None:
        """Learning rates by epoch; null where nothing was trained."""
        training = self.repeats[0].manifest.training
        return None if training is None else training.learning_rates

    @property
    def store(self) -> Store:
        """The store of the plan."""
        return self.plan.store

    @property
    def differs(self) -> bool:
        """Whether the repeats differ, or prove nothing."""
        return self.verdict not in (None, Verdict.IDENTICAL)

    def sentence(self) -> str:
        """Say the verdict over all repeats."""
        return self.judgement.sentence()

    def rows(self) -> Sequence[Row]:
        """Give one row for each repeat, with the columns that any of them fills."""
        rows: list[Row] = []
        for repeat in self.repeats:
            manifest = repeat.manifest
            row: dict[str, object] = {
                "repeat": manifest.repeat,
                "weights": manifest.weights.digest[:12] if manifest.weights else "",
                "masks": manifest.masks_digest[:12],
                "images": len(manifest.masks),
                "cells": manifest.n_objects,
                "AP@0.5": _score_text(manifest.ap50),
                "on training images": _score_text(manifest.ap50_train),
                "seconds": f"{sum(manifest.seconds.values()):.1f}",
            }
            rows.append(row)
        filled = [title for title in rows[0] if any(row[title] != "" for row in rows)]
        return [{title: row[title] for title in filled} for row in rows]

    @property
    def _warm_up(self) -> str:
        """Say why the rate that was asked for is not reached, where it is not."""
        peak = self.plan.spec.learning_rate
        if not self.learning_rates or max(self.learning_rates) >= peak:
            return ""
        return f"; Cellpose takes ten epochs to rise to {peak:g}"

    def lines(self) -> list[str]:
        """Give a line for each repeat, and the verdict over them."""
        lines = [f"run {self.key} in {self.folder}", f"machine {self.plan.machine}"]
        rates = self.learning_rates
        if rates is not None:
            rate = span(f"{rates[0]:.2g}", f"{max(rates):.2g}")
            lines.append(f"learning rate {rate} over {amount(len(rates), 'epoch')}{self._warm_up}")
        manifests = [repeat.manifest for repeat in self.repeats]
        lines += [*map(_repeat_line, manifests), *_meanings(manifests)]
        if self.masks_into is not None:
            n_files = len(self.repeats[0].manifest.masks)
            lines.append(
                f"masks and their records in {self.masks_into} ({amount(n_files, 'image')})"
            )
        lines.append(self.sentence())
        apart = self.agreement.first_apart
        if apart is not None and rates is not None:
            by_index = {repeat.index: repeat for repeat in self.repeats}
            names = (short_reference(by_index[index]) for index in apart)
            command = lab_command("diverge", *names, store=self.store.root)
            lines.append(f"  the first step at which they differ: {command}")
        if not any(repeat.manifest.n_objects for repeat in self.repeats):
            lines.append(f"{self._without_settings}{TO_FIND_CELLS}")
        return lines

    @property
    def _without_settings(self) -> str:
        """What to try first where no cell was found; empty where settings are the usual ones."""
        changed = self.plan.spec.settings.not_default()
        if not changed:
            return ""
        return f"First try the usual value of {joined([*changed])}. "


def _meanings(manifests: Sequence[Manifest]) -> Iterator[str]:
    """Say what the words of a repeat's line mean, for who has not read them before."""
    told = []
    if any(manifest.weights for manifest in manifests):
        told.append("weights: the beginning of a checksum, equal for equal networks")
    if any(manifest.ap50 is not None for manifest in manifests):
        told.append("AP@0.5: agreement with the true masks, 1 where every cell has a match")
    if told:
        yield f"  ({'; '.join(told)})"


def _score_text(ap50: float | None) -> str:
    return "" if ap50 is None else f"{ap50:.3f}"


def _repeat_line(manifest: Manifest) -> str:
    weights = f"weights {manifest.weights.digest[:12]}, " if manifest.weights else ""
    return (
        f"  repeat {manifest.repeat}: {weights}{amount(manifest.n_objects, 'cell')} in "
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
