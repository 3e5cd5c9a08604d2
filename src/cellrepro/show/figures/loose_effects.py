"""Figures of what one operation that is left loose does to weights and masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.show.figures import masks, style, weights
from cellrepro.show.figures.letters import draw_letters
from cellrepro.show.figures.style import Picture
from samebits.errors import BadInput
from samebits.known_operations import base_name
from samebits.words import amount

if TYPE_CHECKING:
    from cellrepro.audits.effect import Effect
    from cellrepro.store.store import Store
    from cellrepro.store.stored_run import Repeat


def results(store: Store, effect: Effect) -> Picture:
    """Draw which repeats ended in the same bits, with all fixed and with one operation loose.

    Parameters
    ----------
    store : Store
        Into which the repeats were trained.
    effect : Effect
        Of an operation of `cellrepro.audit_training`.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the store lacks a repeat.
    Damaged
        If a file of a repeat is not what was stored.
    """
    fixed = _repeats(store, effect.fixed_key, effect.repeats)
    loose = _repeats(store, effect.key, effect.repeats)
    for repeat in (*fixed, *loose):
        repeat.refuse_damage()
    loose_name = f"{base_name(effect.op)} not fixed"
    figure = Picture(height=2.6)
    left, right = figure.subplots(1, 2, sharey=True)
    weights_of = [[str(repeat.manifest.weights) for repeat in row] for row in (fixed, loose)]
    masks_of = [[repeat.manifest.masks_digest for repeat in row] for row in (fixed, loose)]
    for axes, title, digests in ((left, "weights", weights_of), (right, "masks", masks_of)):
        draw_letters(axes, digests)
        axes.set_xticks(range(effect.repeats), [f"repeat {i}" for i in range(effect.repeats)])
        axes.set_yticks(range(2), ["everything fixed", loose_name], parse_math=False)
        style.title(axes, title)
    n_fixed = _n_results(weights_of[0], masks_of[0])
    n_loose = _n_results(weights_of[1], masks_of[1])
    text = (
        f"Fixed, {amount(effect.repeats, 'repeat')} end in {n_fixed}; with "
        f"{base_name(effect.op)} alone not fixed, in {n_loose}"
    )
    caption = (
        "Equal letters are equal bits. Above, mode strict fixes everything; below, one operation "
        "is left as PyTorch has it, and nothing else changes."
    )
    return figure.described(text, caption, f"Fields with letters, {loose_name} below. {text}.")


def _n_results(weights_digests: Sequence[str], masks_digests: Sequence[str]) -> str:
    n_weights = amount(len(set(weights_digests)), "network")
    return f"{n_weights} and {amount(len(set(masks_digests)), 'set')} of masks"


def weights_changed(store: Store, effect: Effect, *, n: int = 8) -> Picture:
    """Draw the parts of the network in which two loose repeats differ most.

    Parameters
    ----------
    store : Store
        Into which the repeats were trained.
    effect : Effect
        Of an operation of `cellrepro.audit_training`.
    n : int
        Parts at most.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the store lacks a repeat.
    """
    a, b = _furthest(store, effect)
    assert a.weights is not None
    assert b.weights is not None
    figure = weights.parameter_differences(compare_weights(a.weights, b.weights), n=n)
    caption = (
        f"Two trainings that differ only in the order in which {base_name(effect.op)} added its "
        "numbers. Small differences grow with every step; longer bars changed more. All repeats "
        f"together hold {amount(effect.n_weights, 'set')} of weights."
    )
    return figure.described(figure.get_suptitle(), caption, f"Bar chart. {caption}")


def masks_changed(store: Store, effect: Effect) -> Picture:
    """Draw the image on which two loose repeats differ most: their outlines, and the difference.

    Parameters
    ----------
    store : Store
        Into which the repeats were trained.
    effect : Effect
        Of an operation of `cellrepro.audit_training`.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If the store lacks a repeat.
    """
    a, b = _furthest(store, effect)
    figure = masks.cells_changed(
        store, a, b, name_a=f"A: repeat {a.index}", name_b=f"B: repeat {b.index}"
    )
    loose = f"Segmented after two trainings with {base_name(effect.op)} alone not fixed."
    return figure.described(
        figure.get_suptitle(), f"{loose} {figure.caption}", f"{figure.alt} {loose}"
    )


def _repeats(store: Store, key: str, n: int) -> list[Repeat]:
    run = store.run(key)
    repeats = () if run is None else run.repeats
    if len(repeats) < n:
        raise BadInput(
            f"the store {store.root} holds {amount(len(repeats), 'repeat')} of {key}; expected the "
            f"{n} whose effect is shown: give the store they were trained into"
        )
    return list(repeats)[:n]


@dataclass(frozen=True)
class _Pair:
    """Two repeats, and how much they differ."""

    a: Repeat
    b: Repeat

    @property
    def distance(self) -> tuple[int, bool]:
        """Differing pixels over all images; then whether weights differ."""
        names = self.a.manifest.masks
        n_differing = [
            compare_masks(self.a.masks(name), self.b.masks(name)).n_differing for name in names
        ]
        return sum(n_differing), self.a.manifest.weights != self.b.manifest.weights


def _furthest(store: Store, effect: Effect) -> tuple[Repeat, Repeat]:
    """The two loose repeats whose masks differ most, or else their weights."""
    repeats = _repeats(store, effect.key, effect.repeats)
    pairs = [_Pair(a, b) for a, b in combinations(repeats, 2)]
    furthest = max(pairs, key=lambda pair: pair.distance)
    return furthest.a, furthest.b
