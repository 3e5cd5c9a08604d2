"""What one operation does to a training and its cells where it alone is left loose."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.explanation.compare_repeats import compare_masks_of
from cellrepro.run.options import TrainingOptions
from cellrepro.run.outcome import Outcome
from cellrepro.run.train import train_with
from cellrepro.store.stored_run import Repeat
from cellrepro.words import pixels_text, share_text
from samebits.known_operations import base_name
from samebits.results import Result
from samebits.words import amount, with_verb


@dataclass(frozen=True, repr=False)
class Effect(Result):
    """The largest differences between any two repeats with one operation left loose."""

    op: str
    """The operation, by its name in PyTorch."""
    key: str
    """Key of the run with this operation left as it is."""
    fixed_key: str
    """Key of the run with every operation fixed."""
    repeats: int
    """Repeats of each of the two."""
    fixed_identical: bool
    """Whether the repeats with every operation fixed were bit-identical."""
    n_weights: int
    """Different weights files among the loose repeats."""
    weights_differing: float
    """Share of the weights that differ, from 0 to 1."""
    n_masks: int
    """Different sets of masks among the loose repeats."""
    ppm: float
    """Pixels of the masks that differ, per million."""
    n_objects: int
    """Objects without a match at IoU 0.5 in the other of two repeats."""
    vacuous: tuple[str, ...] = ()
    """Why equality would prove nothing."""

    def sentence(self) -> str:
        """Say whether it matters, over how much."""
        repeats = f"with {base_name(self.op)} alone left as it is, {amount(self.repeats, 'repeat')}"
        if not self.fixed_identical:
            answer = (
                f"what {base_name(self.op)} does cannot be told, because repeats with every "
                "operation fixed differ too"
            )
        elif self.n_weights > 1:
            answer = (
                f"{repeats} end in {self.n_weights} different networks ("
                f"{self._at_most(self.n_weights)}{share_text(self.weights_differing)} of their "
                "weights differ); "
                f"{self._masks_in_words()}"
            )
        else:
            answer = (
                f"{repeats} end in the same network; a race may need more steps or more repeats to "
                "show"
            )
        return "; ".join([answer, *self.vacuous])

    def _masks_in_words(self) -> str:
        if not self.ppm:
            return "no pixel differs"
        unmatched = "every cell has a match"
        if self.n_objects:
            unmatched = f"{with_verb(self.n_objects, 'cell', 'has', 'have')} no match"
        pixels = f"{self._at_most(self.n_masks)}{pixels_text(self.ppm)}"
        return f"over all images {pixels} differ between two, and {unmatched}"

    @staticmethod
    def _at_most(n_results: int) -> str:
        """What stands before the largest difference: nothing where there is one alone."""
        return "at most " if n_results > 2 else ""


def measure_effect(
    options: TrainingOptions, op: str, *, repeats: int, quiet: bool = False
) -> Effect:
    """Train in mode ``strict`` with one operation left loose, and with none, and compare."""
    with_loose = options.model_copy(update={"loose": op})
    loose = train_with(with_loose, repeats=repeats, quiet=quiet)
    fixed = train_with(options, repeats=repeats, quiet=quiet)
    return effect_between(op, fixed, loose)


def effect_between(op: str, fixed: Outcome, loose: Outcome) -> Effect:
    """Compare the repeats of two outcomes: with nothing loose, and with one operation loose."""
    weights_files = _different_weights(loose.repeats)
    by_masks = _different_masks(loose.repeats)
    weights = [compare_weights(a, b) for a, b in combinations(weights_files, 2)]
    masks = [compare_masks_of(a, b) for a, b in combinations(by_masks, 2)]
    first_reasons, *other_reasons = [repeat.manifest.vacuous for repeat in loose.repeats]
    n_fixed_weights = len(_different_weights(fixed.repeats))
    n_fixed_masks = len(_different_masks(fixed.repeats))
    return Effect(
        op=op,
        key=loose.key,
        fixed_key=fixed.key,
        repeats=len(loose.repeats),
        fixed_identical=n_fixed_weights == n_fixed_masks == 1,
        n_weights=len(weights_files),
        weights_differing=max(
            (pair.n_differing / pair.n_parameters for pair in weights), default=0.0
        ),
        n_masks=len(by_masks),
        ppm=max((pair.ppm for pair in masks), default=0.0),
        n_objects=max((pair.totals.n_unmatched for pair in masks), default=0),
        # Only reasons of every repeat: cells in one and none in another are an effect.
        vacuous=tuple(
            reason
            for reason in first_reasons
            if all(reason in reasons for reasons in other_reasons)
        ),
    )


def _different_weights(repeats: Iterable[Repeat]) -> list[Path]:
    """A file for each distinct result of the weights."""
    files: dict[str, Path] = {}
    for repeat in repeats:
        if repeat.weights is not None:  # as of every training
            files[str(repeat.manifest.weights)] = repeat.weights
    return list(files.values())


def _different_masks(repeats: Iterable[Repeat]) -> list[Repeat]:
    """A repeat for each distinct set of masks."""
    return list({repeat.manifest.masks_digest: repeat for repeat in repeats}.values())
