"""Figures of what fixed seeds do not fix: operations that flip, their effect, and the price."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput
from cellrepro.show.figures import masks, style, weights
from cellrepro.show.figures.letters import draw_letters
from cellrepro.show.figures.style import EDGE, GREY, SERIES, Picture
from cellrepro.words import amount, grouped, ppm_text, span

if TYPE_CHECKING:
    from cellrepro.audits.cost import Cost, CostRow
    from cellrepro.audits.effect import Effect
    from cellrepro.audits.training import TrainingAudit
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.store.store import Store
    from cellrepro.store.stored_run import Repeat
    from cellrepro.trace.nondeterministic_operation import NondeterministicOperation

_MOST_PLACES = 10


def flips_by_place(audit: TrainingAudit) -> Picture:
    """Draw a bar for each place of an audit whose bits flipped; below, what became of the rest.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.

    Returns
    -------
    Picture
    """
    replayed = audit.operations
    shown = audit.ops[:_MOST_PLACES]
    shares = [100 * row.flips / max(1, row.replays) for row in shown]
    n_other_kinds = len(replayed.kinds.keys() - {row.op for row in audit.ops})
    n_other_replays = replayed.n_replays - sum(
        row.replays for row in audit.ops if row.read_by is None
    )
    names = [
        *(f"{base_name(row.op)}, {row.phase}: {row.module or 'no module'}" for row in shown),
        f"everything else, {amount(n_other_kinds, 'kind')} of operation",
    ]
    texts = [*(_flips_text(row) for row in shown), f"0 of {grouped(n_other_replays)}"]
    figure = Picture(height=0.95 + 0.45 * len(names))
    axes = figure.subplots()
    bars = axes.barh(
        range(len(names)),
        [*shares, 0],
        color=SERIES[1],
        hatch="//",
        height=0.6,
        edgecolor=EDGE,
    )
    style.rows(axes, names, size=9)
    style.texts_beside(axes, bars, texts, [*shares, 0])
    style.label_axes(axes, x="replays on equal inputs that gave different bits (%)")
    operations = ", ".join(dict.fromkeys(base_name(row.op) for row in audit.ops))
    text = f"Equal inputs, different bits: {operations or 'in no operation'}"
    caption = (
        f"Every operation of {amount(replayed.n_steps, 'training step')} in mode {audit.spec.mode} "
        f"was run again on equal inputs, {grouped(replayed.n_replays)} times in all, at "
        f"{amount(replayed.threads, 'thread')}. Bars: how often the answer had different bits, in "
        f"{len(shown)} of {amount(len(audit.ops), 'place')}."
    )
    return figure.described(text, caption, f"Bar chart. {audit.sentence()}.")


def _flips_text(operation: NondeterministicOperation) -> str:
    if operation.read_by:
        reason = "read though nobody wrote it"
    elif operation.warned:
        reason = "PyTorch warns"
    else:
        reason = "PyTorch is silent"
    return f"{grouped(operation.flips)} of {grouped(operation.replays)}, {reason}"


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
    loose_name = f"only {base_name(effect.op)} loose"
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
    text = f"{amount(effect.repeats, 'repeat')} each. Fixed: {n_fixed}. Loose: {n_loose}"
    caption = (
        "Equal letters are equal bits. Above, mode strict fixes everything; below, one operation "
        "is left as PyTorch has it, and nothing else changes."
    )
    return figure.described(text, caption, f"Fields with letters, {loose_name} below. {text}.")


def _n_results(weights_digests: Sequence[str], masks_digests: Sequence[str]) -> str:
    n_weights = amount(len(set(weights_digests)), "set")
    return f"{n_weights} of weights and {len(set(masks_digests))} of masks"


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
    comparisons = {name: compare_masks(a.masks(name), b.masks(name)) for name in a.manifest.masks}

    def most(name: str) -> tuple[int, int]:
        return comparisons[name].n_differing, comparisons[name].n_objects_a

    image = max(comparisons, key=most)
    figure = masks.difference(
        store.image(a.manifest.data.images_digest, image),
        a.masks(image),
        b.masks(image),
        name_a=f"repeat {a.index}",
        name_b=f"repeat {b.index}",
    )
    loose = f"segmented after two trainings with only {base_name(effect.op)} loose"
    n_images = amount(len(comparisons), "image")
    caption = f"{image}, {loose}: {_masks_text(comparisons[image], n_images)}."
    return figure.described(figure.get_suptitle(), caption, f"Outlines of two repeats. {caption}")


def _masks_text(comparison: MaskComparison, n_images: str) -> str:
    if not comparison.n_objects_a and not comparison.n_objects_b:
        return "no object was found, so this says nothing about cells; train longer"
    if not comparison.n_differing:
        return f"no pixel differs, in {n_images}"
    return f"{ppm_text(comparison.ppm)} of its pixels differ, the most of {n_images}"


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


def cost_bars(cost: Cost) -> Picture:
    """Draw the time of a step in each mode, beside plain Cellpose.

    Parameters
    ----------
    cost : Cost
        From `cellrepro.measure_cost`.

    Returns
    -------
    Picture
    """
    figure = Picture(height=1.1 + 0.62 * len(cost.table))
    axes = figure.subplots()
    positions = range(len(cost.table))
    bars = axes.barh(
        positions,
        [row.ratio for row in cost.table],
        xerr=[
            [row.ratio - row.lowest for row in cost.table],
            [row.highest - row.ratio for row in cost.table],
        ],
        color=SERIES[3],
        hatch="..",
        height=0.6,
        edgecolor=EDGE,
    )
    texts = {row.name: f"{_ratio_text(row)}, {row.seconds:.2g} s" for row in cost.table}
    axes.axvline(1, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
    names = [f"{row.name}\n{textwrap.fill(row.what, 44)}" for row in cost.table]
    axes.set_yticks(positions, names, parse_math=False)
    axes.invert_yaxis()
    style.texts_beside(axes, bars, list(texts.values()), [row.highest for row in cost.table])
    style.label_axes(axes, x="time of a training step; plain Cellpose is 1")
    caption = (
        f"Medians over {amount(cost.rounds, 'round')} of {amount(cost.steps, 'step')}, "
        f"{cost.encoder} on {cost.device}, {amount(cost.threads, 'thread')}; black lines go from "
        f"the lowest to the highest round. A busy machine makes them long."
    )
    listed = "; ".join(f"{name} {text}" for name, text in texts.items())
    text = f"Time of a training step, plain Cellpose is 1; mode strict: {texts.get('strict')}"
    return figure.described(text, caption, f"Bar chart of ratios and seconds a step: {listed}.")


def _ratio_text(row: CostRow) -> str:
    """The median ratio, with the range over rounds where these differ."""
    ratio = f"{row.ratio:.2f}"
    reach = span(f"{row.lowest:.2f}", f"{row.highest:.2f}")
    return ratio if reach == ratio else f"{ratio} ({reach})"
