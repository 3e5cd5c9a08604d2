"""Figures of what does not repeat although every seed is set: what flips, its effect, its cost.

Of seeds, too: which of them changes what the network is shown, and why one epoch is no test.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from itertools import chain, combinations
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.determinism.known_operations import base_name
from cellrepro.errors import BadInput, whole
from cellrepro.same.metrics import compare_masks
from cellrepro.same.weights import compare_weights
from cellrepro.show.figures import masks, style, weights
from cellrepro.show.figures.style import GREY, SERIES, Picture
from cellrepro.words import amount, grouped, ppm_text, span

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.audits.cost import Cost
    from cellrepro.audits.seed_effects import SeedProbe
    from cellrepro.audits.training import Effect, TrainingAudit
    from cellrepro.store.store import Repeat, Store

_RESULTS = ("#B3DDF5", "#F6D896", "#E7C3D9", "#D9D9D9", "#FFFFFF", "#F4EFA9")
"""Backgrounds for results A, B, C …; black text is readable on each."""
_BAR: dict[str, Any] = {"height": 0.6, "edgecolor": "#555555"}
_MOST_PLACES = 10
_MOST_STEPS = 8  # of a trial


def flips_by_place(audit: TrainingAudit) -> Picture:
    """A bar for each place of an audit whose bits flipped; below, what became of the rest."""
    shown = audit.ops[:_MOST_PLACES]
    names = [f"{base_name(row.op)}, {row.phase}: {row.module or 'no module'}" for row in shown]
    shares = [100 * row.flips / max(1, row.replays) for row in shown]
    texts = []
    for row in shown:
        warns = "PyTorch warns" if row.warned else "PyTorch is silent"
        why = "read though nobody wrote it" if row.read_by else warns
        texts.append(f"{grouped(row.flips)} of {grouped(row.replays)}, {why}")
    n_kinds = len(audit.kinds.keys() - {row.op for row in audit.ops})
    names.append(f"everything else, {amount(n_kinds, 'kind')} of operation")
    n_rest = audit.n_replays - sum(row.replays for row in audit.ops if row.read_by is None)
    figure = Picture(height=0.95 + 0.45 * len(names))
    axes = figure.subplots()
    look = {"color": SERIES[1], "hatch": "//", **_BAR}
    bars = axes.barh(range(len(names)), [*shares, 0], **look)
    axes.bar_label(bars, [*texts, f"0 of {grouped(n_rest)}"], padding=4, fontsize=9)
    style.rows(axes, names, size=9)
    axes.set_xlim(0, max(3.0, *shares, 0) * 1.6)
    style.label_axes(axes, x="replays on equal inputs that gave other bits (%)")
    ops = ", ".join(dict.fromkeys(base_name(row.op) for row in audit.ops))
    text = f"Equal inputs, other bits: {ops or 'in no operation'}"
    caption = (
        f"Every operation of {amount(audit.n_steps, 'training step')} in mode {audit.spec.mode} "
        f"was run again on equal inputs, {grouped(audit.n_replays)} times in all, at "
        f"{amount(audit.threads, 'thread')}. Bars: how often the answer had other bits, in "
        f"{len(shown)} of {amount(len(audit.ops), 'place')}."
    )
    return figure.described(text, caption, f"Bar chart. {audit.sentence}.")


def results(store: Store, effect: Effect) -> Picture:
    """Which repeats ended in the same bits, with everything fixed and with one operation loose.

    ``effect`` is that of an operation of `cellrepro.audit_training`, trained into the store.
    """
    found = [_repeats(store, key, effect.repeats) for key in (effect.fixed_key, effect.key)]
    for repeat in chain(*found):
        repeat.refuse_damage()
    names = ["everything fixed", f"only {base_name(effect.op)} loose"]
    digests: dict[str, list[list[str]]] = {
        "weights": [[str(one.manifest.weights) for one in row] for row in found],
        "masks": [[one.manifest.masks_digest for one in row] for row in found],
    }
    figure = Picture(height=2.6)
    for panel, (what, of) in zip(figure.subplots(1, 2, sharey=True), digests.items(), strict=True):
        _letters(panel, of)
        panel.set_xticks(range(effect.repeats), [f"repeat {i}" for i in range(effect.repeats)])
        panel.set_yticks(range(2), names, parse_math=False)
        style.title(panel, what)
    fixed, loose = (
        f"{amount(len(set(weights)), 'set')} of weights and {len(set(found))} of masks"
        for weights, found in zip(*digests.values(), strict=True)
    )
    text = f"{amount(effect.repeats, 'repeat')} each. Fixed: {fixed}. Loose: {loose}"
    caption = (
        "Equal letters are equal bits. Above, mode strict fixes everything; below, one operation "
        "is left as PyTorch has it, and nothing else changes."
    )
    return figure.described(text, caption, f"Fields with letters, {names[1]} below. {text}.")


def _letters(axes: Axes, of: Sequence[Sequence[str]]) -> None:
    """A field with a letter for each result; equal results have equal letters."""
    from matplotlib.colors import ListedColormap

    number = {result: i for i, result in enumerate(dict.fromkeys(chain.from_iterable(of)))}
    fields = np.array([[number[result] for result in row] for row in of])
    edges = [np.arange(n + 1) - 0.5 for n in fields.shape[::-1]]
    colours = ListedColormap(_RESULTS)
    axes.pcolormesh(*edges, fields % 6, cmap=colours, vmin=0, vmax=5, edgecolors="#555555")
    axes.set_ylim(len(fields) - 0.5, -0.5)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=9)
    for (y, x), i in np.ndenumerate(fields):
        letter = chr(ord("A") + i) if i < 26 else str(i + 1)
        axes.text(x, y, letter, ha="center", va="center", fontsize=15)


def weights_changed(store: Store, effect: Effect, *, n: int = 8) -> Picture:
    """The parts of the network in which two loose repeats differ most."""
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
    """The image on which two loose repeats differ most: outlines of both, and the difference."""
    a, b = _furthest(store, effect)
    compared = {name: compare_masks(a.masks(name), b.masks(name)) for name in a.manifest.masks}
    name = max(compared, key=lambda one: (compared[one].n_differing, compared[one].n_objects_a))
    image, found = store.image(a.manifest.data.images_digest, name), compared[name]
    names = f"repeat {a.index}", f"repeat {b.index}"
    figure = masks.difference(image, a.masks(name), b.masks(name), name_a=names[0], name_b=names[1])
    text = (
        f"{ppm_text(found.ppm)} of its pixels differ, the most of {amount(len(compared), 'image')}"
    )
    if not found.n_differing:
        text = f"no pixel differs, in {amount(len(compared), 'image')}"
    if not (found.n_objects_a or found.n_objects_b):
        text = "no object was found, so this says nothing about cells; train longer"
    loose = f"segmented after two trainings with only {base_name(effect.op)} loose"
    caption = f"{name}, {loose}: {text}."
    return figure.described(figure.get_suptitle(), caption, f"Outlines of two repeats. {caption}")


def _repeats(store: Store, key: str, n: int) -> list[Repeat]:
    run = store.run(key)
    repeats = () if run is None else run.repeats
    if len(repeats) < n:
        raise BadInput(
            f"the store {store.root} holds {amount(len(repeats), 'repeat')} of {key}; expected the "
            f"{n} whose effect is shown: give the store they were trained into"
        )
    return list(repeats)[:n]


def _furthest(store: Store, effect: Effect) -> tuple[Repeat, Repeat]:
    """The two loose repeats whose masks differ most, or else their weights."""
    found = []
    for a, b in combinations(_repeats(store, effect.key, effect.repeats), 2):
        differing = (compare_masks(a.masks(m), b.masks(m)).n_differing for m in a.manifest.masks)
        found.append((sum(differing), a.manifest.weights != b.manifest.weights, a, b))
    return max(found, key=itemgetter(0, 1))[2:]


def cost_bars(cost: Cost) -> Picture:
    """The time of a step in each mode, beside plain Cellpose; from `cellrepro.measure_cost`."""
    figure = Picture(height=1.1 + 0.62 * len(cost.rows))
    axes = figure.subplots()
    ratios = [row.ratio for row in cost.rows]
    reach = np.array([(row.ratio - row.lowest, row.highest - row.ratio) for row in cost.rows]).T
    places = range(len(ratios))
    bars = axes.barh(places, ratios, xerr=reach, color=SERIES[3], hatch="..", **_BAR)
    texts = [
        f"{_with_span(row.ratio, row.lowest, row.highest)}, {row.seconds:.2g} s"
        for row in cost.rows
    ]
    axes.bar_label(bars, texts, padding=6, fontsize=9)
    axes.axvline(1, color=GREY, linewidth=1, linestyle=(0, (4, 2)))
    names = [f"{row.name}\n{textwrap.fill(row.what, 44)}" for row in cost.rows]
    axes.set_yticks(places, names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, max(row.highest for row in cost.rows) * 1.45)
    style.label_axes(axes, x="time of a training step; plain Cellpose is 1")
    caption = (
        f"Medians over {amount(cost.rounds, 'round')} of {amount(cost.steps, 'step')}, "
        f"{cost.encoder} on {cost.device}, {amount(cost.threads, 'thread')}; black lines go from "
        f"the lowest to the highest round. A busy machine makes them long."
    )
    told = {row.name: text for row, text in zip(cost.rows, texts, strict=True)}
    alt = "; ".join(map(" ".join, told.items()))
    text = f"Time of a training step, plain Cellpose is 1; mode strict: {told.get('strict')}"
    return figure.described(text, caption, f"Bar chart of ratios and seconds a step: {alt}.")


def _with_span(middle: float, low: float, high: float) -> str:
    """A ratio with the range of the rounds, where they differ."""
    reach = span(f"{low:.2f}", f"{high:.2f}")
    return f"{middle:.2f}" if reach == f"{middle:.2f}" else f"{middle:.2f} ({reach})"


def seed_strips(probe: SeedProbe) -> Picture:
    """What the network was shown under each seed, step by step, and where its weights ended."""
    trials = probe.trials
    n_steps = min(_MOST_STEPS, len(trials[0].thumbnails))
    figure = Picture(height=0.85 + 0.76 * len(trials))
    grid = figure.add_gridspec(len(trials), n_steps + 2, width_ratios=[2.3, *[1] * n_steps, 1])
    for y, trial in enumerate(trials):
        name = figure.add_subplot(grid[y, 0])
        name.set_axis_off()
        call = trial.call.replace("; ", "\n")
        name.text(0, 0.5, f"{trial.what}:\n{call}", fontsize=9, va="center", parse_math=False)
        for x, thumbnail in enumerate(trial.thumbnails[:n_steps]):
            panel = figure.add_subplot(grid[y, x + 1])
            style.image_panel(panel, np.repeat(thumbnail[..., None], 3, axis=2))
            if not y:
                epoch, step = divmod(x, probe.steps_per_epoch)
                style.title(panel, f"epoch {epoch + 1}\nimage {step + 1}", size=8)
    ends = figure.add_subplot(grid[:, -1])
    _letters(ends, [[trial.weights] for trial in trials])
    ends.set(xticks=[], yticks=[])
    style.title(ends, "weights\nat the end", size=8)
    caption = (
        "Two rows with equal pictures saw the same images, cut and turned alike. Equal letters are "
        f"equal weights, bit for bit. All trials start from the same weights; each epoch draws "
        f"{probe.steps_per_epoch} of {probe.n_images} images."
    )
    alt = "; ".join(probe.sentence(what) for what in dict.fromkeys(t.what for t in trials))
    return figure.described(
        "What the network was shown under each seed, and what became of it",
        caption,
        f"Rows of small images, one row a trial. {alt}.",
    )


def learning_rate_start(n_epochs: int = 12) -> Picture:
    """The learning rate of each epoch of Cellpose's schedule, as a share of its peak."""
    from cellrepro.model.training_loop import learning_rates

    shares = learning_rates(whole("n_epochs", n_epochs, 2), 100.0)
    figure = Picture(height=3.5)
    axes = figure.subplots()
    epochs = range(1, len(shares) + 1)
    bars = axes.bar(epochs, shares, color=SERIES[0], edgecolor="#555555", width=0.75)
    axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=9)
    axes.set_xticks(epochs)
    axes.set_ylim(0, 115)
    style.label_axes(axes, x="epoch", y="learning rate (% of its peak)")
    caption = (
        "The first epoch trains with 0: a training of one epoch leaves every weight as it was, so "
        "two of them are equal whatever happened. The second epoch gets a ninth of the rate, the "
        "tenth all of it."
    )
    told = ", ".join(f"{share:.0f}" for share in shares)
    alt = f"Bar chart of the learning rate in percent by epoch: {told}."
    return figure.described(
        "Cellpose's learning rate rises from 0: epoch 1 trains nothing", caption, alt
    )
