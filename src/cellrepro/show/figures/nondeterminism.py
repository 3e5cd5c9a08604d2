"""What moves although every seed is set: pictures and tables of audit, effect, cost and seeds.

Every picture here is a `Told`: it carries a caption and, for those who do not see it, its words.
What is drawn comes from the doors (`cellrepro.lab.audit_training`, `effects`, `cost`, `probes`),
which this room does not import; their classes are named where they are taken.
"""

from __future__ import annotations

import base64
import io
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from cellrepro.compare.metrics import compare_masks
from cellrepro.compare.weights import compare_weights
from cellrepro.determinism.known_operations import base_name
from cellrepro.determinism.substitutes import SUBSTITUTES
from cellrepro.errors import BadInput
from cellrepro.show.figures import masks, style, weights
from cellrepro.show.figures.style import SERIES, Picture
from cellrepro.text import amount, grouped, ppm_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from cellrepro.store.store import Repeat, Store

_FLIPS, _WEIGHTS = SERIES[1], SERIES[0]
_RESULTS = ("#B3DDF5", "#F6D896", "#E7C3D9", "#D9D9D9", "#FFFFFF", "#F4EFA9")
"""Backgrounds for results A, B, C …; black text is readable on each."""

_CAPTION_LETTERS = 118  # a line of a caption in a figure of `plots.WIDTH`
_MOST_PLACES = 10
_MOST_TRIALS_SHOWN = 8  # steps of a trial in a picture


class Told:
    """A picture with a caption under it, and in words for those who do not see it.

    Parameters
    ----------
    picture : Picture
    caption : str
        What to see in it.
    alt : str
        What it shows, in a sentence or two; becomes the alternative text of the image.
    """

    def __init__(self, picture: Picture, caption: str, alt: str) -> None:
        self.picture, self.alt = picture, alt
        self.caption = " ".join(caption.split())

    def png(self, *, dpi: int = 100) -> bytes:
        """Picture and caption as one PNG file.

        Parameters
        ----------
        dpi : int
            Pixels per inch.
        """
        from PIL import Image

        width = self.picture.get_figwidth()
        lines = textwrap.wrap(self.caption, round(_CAPTION_LETTERS * width / style.WIDTH))
        below = Picture(width=width, height=0.1 + 0.17 * len(lines))
        text = "\n".join(lines)
        below.text(0.01, 0.98, text, va="top", fontsize=9, color="#444444", parse_math=False)
        parts = [Image.open(io.BytesIO(one.png(dpi=dpi))) for one in (self.picture, below)]
        both = Image.new("RGB", (parts[0].width, sum(one.height for one in parts)), "white")
        both.paste(parts[0], (0, 0))
        both.paste(parts[1], (0, parts[0].height))
        buffer = io.BytesIO()
        both.save(buffer, format="PNG", optimize=True)
        return buffer.getvalue()

    def _repr_mimebundle_(self, **kwargs: Any) -> tuple[dict[str, str], dict[str, Any]]:
        content = base64.b64encode(self.png()).decode("ascii")
        return {"image/png": content, "text/plain": self.alt}, {"image/png": {"alt": self.alt}}


# -- who it was ----------------------------------------------------------------------------


@dataclass(frozen=True)
class Culprit:
    """One operation on one line, with all that an audit and trainings say of it.

    Attributes
    ----------
    op, source, phase
        As in `cellrepro.trace.observer.Place`.
    modules : tuple of str
        Where it flipped, or PyTorch warned.
    flips, replays : int
        Replays that gave other bits, of those made.
    warned : bool
        Whether PyTorch warns of it.
    substitute : str or None
        What mode ``strict`` puts in its place.
    max_abs : float
        Largest difference, in the units of the operation's output.
    reason, remedy : str
    effect : Effect or None
        What it does when it alone is loose.
    no_effect_because : str
        Why there is no `effect`.
    """

    op: str
    source: str | None
    phase: str
    modules: tuple[str, ...]
    flips: int
    replays: int
    warned: bool
    substitute: str | None
    max_abs: float
    reason: str
    remedy: str
    effect: Any = None
    no_effect_because: str = "not measured"

    @property
    def name(self) -> str:
        """The operation without namespace and overload."""
        return base_name(self.op)

    @property
    def moves(self) -> bool | None:
        """Whether it changes weights or masks; None where that cannot be told."""
        if self.effect is None or not self.effect.fixed_identical:
            return None
        if self.effect.n_weights > 1 or self.effect.n_masks > 1:
            return True
        return None if self.effect.vacuous else False

    @property
    def verdict(self) -> str:
        """Warning and effect beside each other, in a few words."""
        if self.moves is None:
            effect = "an effect that cannot be told" if self.effect else "an effect not measured"
            return f"{'a warning' if self.warned else 'no warning'}, and {effect}"
        if self.moves:
            return "a warning with an effect" if self.warned else "an effect without a warning"
        if self.warned:
            return "a warning without an effect"
        return "flips without an effect" if self.flips else "no flip, no warning, no effect"


def culprits(audit: Any, effects: Mapping[str, Any] | None = None) -> tuple[Culprit, ...]:
    """The operations of an audit, one for each line of code, those that flip most first.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.
    effects : mapping of str to Effect or str, optional
        From `cellrepro.lab.seed_effect.effects_of`; an operation in it that neither flipped nor
        warned is listed too.

    Returns
    -------
    tuple of Culprit
    """
    found: dict[tuple[str, str | None, str], Culprit] = {}
    for row in (*audit.ops, *audit.warnings):
        place = (row.op, row.source, row.phase)
        modules = (row.module,) if row.module else ()
        if place not in found:
            found[place] = Culprit(
                *place,
                modules=modules,
                flips=row.flips,
                replays=row.replays,
                warned=row.warned,
                substitute=row.substitute,
                max_abs=row.max_abs,
                reason=row.reason,
                remedy=row.remedy,
            )
            continue
        one = found[place]
        found[place] = replace(
            one,
            modules=tuple(dict.fromkeys(one.modules + modules)),
            flips=one.flips + row.flips,
            replays=one.replays + row.replays,
            warned=one.warned or row.warned,
            max_abs=max(one.max_abs, row.max_abs),
        )
    effects = effects or {}
    named = {base_name(one.op) for one in found.values()}
    listed = [*found.values(), *(_unseen(op) for op in effects if base_name(op) not in named)]
    by_name = {base_name(op): value for op, value in effects.items()}
    return tuple(
        _with_effect(_with_replays(one, audit), by_name.get(one.name))
        for one in sorted(listed, key=lambda one: -one.flips)
    )


def _unseen(op: str) -> Culprit:
    """An operation that was tried though the audit saw nothing of it."""
    known = next((item for item in SUBSTITUTES if base_name(op) in item.replaces), None)
    return Culprit(
        op=op,
        source=None
        if known is None
        else f"{known.module.replace('.', '/')}.py in {known.attribute}",
        phase="backward",
        modules=(),
        flips=0,
        replays=0,
        warned=False,
        substitute=None if known is None else known.name,
        max_abs=0.0,
        reason="" if known is None else known.reason,
        remedy="",
    )


def _with_replays(one: Culprit, audit: Any) -> Culprit:
    """With the replays of an operation that did not flip, which the audit counts by kind."""
    if one.replays or not audit.n_replayed:
        return one
    replays = sum(n for op, n in audit.replays.items() if base_name(op) == one.name)
    return replace(one, replays=replays)


def _with_effect(one: Culprit, effect: Any) -> Culprit:
    if effect is None:
        return one
    if isinstance(effect, str):
        return replace(one, no_effect_because=effect)
    return replace(one, effect=effect)


def culprit_table(found: Sequence[Culprit]) -> pd.DataFrame:
    """A column for each operation, a row for each question: where, flips, effect, substitute."""
    import pandas as pd

    columns = {}
    for one in found:
        file, line = _file_and_line(one.source)
        weights, pixels, objects = _effect_words(one)
        name = one.op if one.op not in columns else f"{one.op} at {line}"
        columns[name] = {
            "module": _modules(one.modules),
            "file": file,
            "line": line,
            "pass": one.phase,
            "replays that gave other bits": _flips(one),
            "largest difference": f"{one.max_abs:.1e}" if one.flips else "-",
            "PyTorch warns": "yes" if one.warned else "no",
            "weights that differ": weights,
            "pixels that differ": pixels,
            "objects without a match": objects,
            "substitute": one.substitute or "none",
            "so it is": one.verdict,
        }
    return pd.DataFrame(columns)


def _file_and_line(source: str | None) -> tuple[str, str]:
    """Two parts of ``FILE:LINE in FUNCTION``.

    Examples
    --------
    >>> _file_and_line("segment_anything/modeling/image_encoder.py:322 in get_rel_pos")
    ('segment_anything/modeling/image_encoder.py', '322 in get_rel_pos')
    """
    if source is None:
        return "-", "-"
    place, _, function = source.partition(" in ")
    file, _, line = place.partition(":")
    return file, " in ".join(filter(None, (line, function)))


def _modules(modules: Sequence[str]) -> str:
    if not modules:
        return "-"
    more = f" and {len(modules) - 1} more" if len(modules) > 1 else ""
    return f"{modules[0]}{more}"


def _where(one: Culprit) -> str:
    return f"{one.phase} of {_modules(one.modules)}" if one.modules else one.phase


def _flips(one: Culprit) -> str:
    if not one.replays:
        return "not replayed"
    return f"{grouped(one.flips)} of {grouped(one.replays)}"


def _effect_words(one: Culprit) -> tuple[str, str, str]:
    """Weights, pixels, objects."""
    if one.effect is None:
        return one.no_effect_because, "-", "-"
    if not one.effect.fixed_identical:
        return "cannot be told", "-", "-"
    weights = f"{100 * one.effect.weights_differing:.0f} %" if one.effect.n_weights > 1 else "none"
    if one.effect.n_masks == 1 and any("no object" in why for why in one.effect.vacuous):
        return weights, "no object found", "-"
    return weights, ppm_text(one.effect.ppm), str(one.effect.n_objects)


# -- what flipped --------------------------------------------------------------------------


def flips_by_place(audit: Any) -> Told:
    """A bar for each place whose bits flipped, and one line for everything that did not.

    Parameters
    ----------
    audit : TrainingAudit
        From `cellrepro.audit_training`.
    """
    rows = audit.ops[:_MOST_PLACES]
    names = [f"{base_name(row.op)}, {row.phase}\n{row.module or 'no module'}" for row in rows]
    shares = [100 * row.flips / row.replays for row in rows]
    texts = [
        f"{grouped(row.flips)} of {grouped(row.replays)}, "
        + ("read though nobody wrote it" if row.read_by else "PyTorch ")
        + ("" if row.read_by else "warns" if row.warned else "is silent")
        for row in rows
    ]
    if len(audit.ops) > len(rows):
        names.append(f"{amount(len(audit.ops) - len(rows), 'more place')}")
        shares.append(100 * audit.ops[len(rows)].flips / audit.ops[len(rows)].replays)
        texts.append("the largest of them")
    flipping = {row.op for row in audit.ops}
    n_kinds, n_rest = (
        len(audit.kinds.keys() - flipping),
        audit.n_replays - sum(row.replays for row in audit.ops if row.read_by is None),
    )
    names.append(
        f"everything else:\n{amount(n_kinds, 'other kind')} of operation"
        if rows
        else f"all {n_kinds} kinds\nof operation"
    )
    shares.append(0.0)
    texts.append(f"0 of {grouped(n_rest)}")
    figure = Picture(height=0.95 + 0.5 * len(names))
    axes = figure.subplots()
    axes.barh(range(len(names)), shares, color=_FLIPS, height=0.6, edgecolor="#555555", hatch="//")
    for i, (share, text) in enumerate(zip(shares, texts, strict=True)):
        axes.annotate(text, (share, i), (5, 0), textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, max(3.0, max(shares)) * 1.6)
    style.label_axes(axes, x="replays on equal inputs that gave other bits (%)")
    heading = (
        "Equal inputs, other bits: "
        + ", ".join(dict.fromkeys(base_name(row.op) for row in audit.ops))
        if flipping
        else "No operation gave other bits"
    )
    style.heading(figure, heading)
    caption = (
        f"Every operation of {amount(audit.n_steps, 'training step')} in mode "
        f"{audit.spec.mode} was run again on equal inputs, {grouped(audit.n_replays)} times in "
        f"all, at {amount(audit.threads, 'thread')}. Bars: how often the answer had other bits."
    )
    return Told(figure, caption, f"Bar chart. {audit.sentence}.")


# -- what it does --------------------------------------------------------------------------


def results(store: Store, effect: Any) -> Told:
    """Which repeats ended in the same bits, with everything held and with one operation loose.

    Parameters
    ----------
    store : Store
        Where the repeats are.
    effect : Effect
        From `cellrepro.effect`.
    """
    rows = {
        "everything held": _repeats(store, effect.fixed_key, effect.repeats),
        f"only {base_name(effect.op)} loose": _repeats(store, effect.key, effect.repeats),
    }
    figure = Picture(height=2.6)
    panels = figure.subplots(1, 2, sharey=True)
    read = {
        "weights": lambda repeat: repeat.manifest.weights.digest,
        "masks": lambda repeat: repeat.manifest.masks_digest,
    }
    counts: dict[str, list[int]] = {}
    for panel, (what, digest) in zip(panels, read.items(), strict=True):
        letters: dict[str, str] = {}
        for y, repeats in enumerate(rows.values()):
            for x, repeat in enumerate(repeats):
                letter = letters.setdefault(digest(repeat), _letter(len(letters)))
                _box(panel, x, y, letter, list(letters.values()).index(letter))
        counts[what] = [len({digest(repeat) for repeat in repeats}) for repeats in rows.values()]
        panel.set(xlim=(0, effect.repeats), ylim=(2, 0))
        panel.set_xticks(
            np.arange(effect.repeats) + 0.5, [f"repeat {i}" for i in range(effect.repeats)]
        )
        panel.set_yticks([0.5, 1.5], list(rows), parse_math=False)
        panel.tick_params(length=0, labelsize=9)
        panel.spines[:].set_visible(False)
        style.title(panel, what)
    n = amount(effect.repeats, "repeat")
    held, loose = (
        f"{amount(weights, 'set')} of weights and {masks} of masks"
        for weights, masks in zip(counts["weights"], counts["masks"], strict=True)
    )
    style.heading(figure, f"{n} each. Held: {held}. Loose: {loose}")
    caption = (
        "Equal letters are equal bits. Above, mode strict holds everything; below, one operation "
        "is left as PyTorch has it, and nothing else changes."
    )
    alt = f"Boxes with letters. With everything held, {n} gave {held}; with only "
    return Told(figure, caption, f"{alt}{base_name(effect.op)} loose, {loose}.")


def _letter(i: int) -> str:
    return chr(ord("A") + i) if i < 26 else str(i + 1)


def _box(panel: Axes, x: int, y: int, letter: str, i: int) -> None:
    from matplotlib.patches import Rectangle

    panel.add_patch(
        Rectangle(
            (x + 0.05, y + 0.07),
            0.9,
            0.86,
            facecolor=_RESULTS[i % len(_RESULTS)],
            edgecolor="#555555",
            linewidth=0.8,
        )
    )
    panel.text(x + 0.5, y + 0.5, letter, ha="center", va="center", fontsize=15)


def weights_moved(store: Store, effect: Any, *, n: int = 8) -> Told:
    """The parts of the network in which two loose repeats differ most."""
    a, b = _furthest(store, effect)
    assert a.weights is not None
    assert b.weights is not None
    picture = weights.parameter_differences(compare_weights(a.weights, b.weights), n=n)
    caption = (
        f"Two trainings that differ only in the order in which {base_name(effect.op)} added its "
        "numbers. Small differences grow with every step; longer bars have moved further."
    )
    alt = (
        f"Bar chart of the parameters that differ most: {effect.n_weights} different sets of "
        f"weights over {amount(effect.repeats, 'repeat')}, relative distance "
        f"{effect.relative_l2:.1e}."
    )
    return Told(picture, caption, alt)


def masks_moved(store: Store, effect: Any) -> Told:
    """The image on which two loose repeats differ most: outlines of both, and the difference."""
    a, b = _furthest(store, effect)
    names = sorted(a.manifest.masks)
    compared = {name: compare_masks(a.masks(name), b.masks(name)) for name in names}
    name = max(names, key=lambda one: (compared[one].n_differing, compared[one].n_objects_a))
    picture = masks.difference(
        store.image(a.manifest.data.digest, name),
        a.masks(name),
        b.masks(name),
        name_a=f"repeat {a.index}",
        name_b=f"repeat {b.index}",
    )
    one = compared[name]
    if one.n_differing:
        told = (
            f"{ppm_text(one.ppm)} of its pixels differ, the most of {amount(len(names), 'image')}"
        )
    elif one.n_objects_a:
        told = f"not one pixel of {amount(len(names), 'image')} differs"
    else:
        told = "no object was found, so this says nothing about cells; train longer"
    caption = (
        f"{name}, segmented after two trainings with only {base_name(effect.op)} loose: {told}."
    )
    return Told(picture, caption, f"Outlines of two repeats beside each other. {caption}")


def _repeats(store: Store, key: str, n: int) -> list[Repeat]:
    run = store.run(key)
    repeats = () if run is None else run.repeats
    if len(repeats) < n:
        raise BadInput(
            f"the store {store.root} holds {amount(len(repeats), 'repeat')} of {key}; expected the "
            f"{n} whose effect is shown: give the store they were trained into"
        )
    return list(repeats)[:n]


def _furthest(store: Store, effect: Any) -> tuple[Repeat, Repeat]:
    """The two loose repeats whose masks differ most, or else their weights."""
    pairs = list(combinations(_repeats(store, effect.key, effect.repeats), 2))

    def apart(pair: tuple[Repeat, Repeat]) -> tuple[int, bool]:
        a, b = pair
        differing = sum(
            compare_masks(a.masks(name), b.masks(name)).n_differing for name in a.manifest.masks
        )
        digests = [one.manifest.weights and one.manifest.weights.digest for one in pair]
        return differing, digests[0] != digests[1]

    return max(pairs, key=apart)


# -- what it costs -------------------------------------------------------------------------


def cost_bars(cost: Any) -> Told:
    """The time of a step in each mode, beside plain Cellpose.

    Parameters
    ----------
    cost : Cost
        From `cellrepro.lab.cost_of_determinism.measure_cost`.
    """
    rows = cost.rows
    figure = Picture(height=1.1 + 0.62 * len(rows))
    axes = figure.subplots()
    for i, row in enumerate(rows):
        plain = row.name == "plain"
        axes.barh(
            i,
            row.ratio,
            height=0.6,
            color="#BBBBBB" if plain else _WEIGHTS,
            edgecolor="#555555",
            hatch="" if plain else "..",
        )
        axes.plot([row.lowest, row.highest], [i, i], color="black", linewidth=1.6)
        spread = "" if plain else f" {_spread(row)}"
        axes.annotate(
            f"{row.ratio:.2f}{spread}, {row.seconds:.2g} s",
            (max(row.ratio, row.highest), i),
            (6, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
        )
    axes.axvline(1, color="#444444", linewidth=1, linestyle=(0, (4, 2)))
    names = [f"{row.name}\n{textwrap.fill(row.what, 44)}" for row in rows]
    axes.set_yticks(range(len(rows)), names, parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, max(row.highest for row in rows) * 1.45)
    style.label_axes(axes, x="time of a training step; plain Cellpose is 1")
    style.heading(figure, _cost_heading(cost))
    caption = (
        f"Medians over {amount(cost.rounds, 'round')} of {amount(cost.steps, 'step')}, "
        f"{cost.encoder} on {cost.device}, {amount(cost.threads, 'thread')}; black lines go from "
        f"the lowest to the highest round. A busy machine makes them long. {' '.join(cost.notes)}"
    )
    return Told(figure, caption, f"Bar chart. {cost.sentence()}.")


def _cost_heading(cost: Any) -> str:
    row = _strict(cost)
    if row is None:
        return "Time of a training step"
    return f"Held (mode strict), a step takes {row.ratio:.2f} times as long {_spread(row)}"


def _strict(cost: Any) -> Any:
    return next((row for row in cost.rows if row.name == "strict"), None)


def _spread(row: Any) -> str:
    return f"({row.lowest:.2f} to {row.highest:.2f})"


# -- all in one ----------------------------------------------------------------------------

_COLUMNS = (
    # left edge and width in inches, and the question
    ("operation and place", 0.1, 3.05),
    ("equal inputs,\nother bits", 3.25, 1.3),
    ("does PyTorch\nwarn?", 4.7, 0.95),
    ("weights\nthat differ", 5.8, 1.25),
    ("pixels\nthat differ", 7.2, 1.0),
    ("objects\nunmatched", 8.3, 0.8),
    ("what holds it", 9.2, 1.45),
)
_SUMMARY_WIDTH, _HEAD, _ROW = 10.8, 0.6, 1.68  # inches


def summary(found: Sequence[Culprit], cost: Any = None) -> Told:
    """A row for each operation: where, how often, warned or not, effect, substitute, price.

    Parameters
    ----------
    found : sequence of Culprit
        From `culprits`.
    cost : Cost, optional
        From `cellrepro.lab.cost_of_determinism.measure_cost`.
    """
    price = None if cost is None else _strict(cost)
    n_rows = max(1, len(found))
    caption = (
        "Bars: share of the replays that gave other bits, and of the weights that differ between "
        "two repeats in which this operation alone was left loose. ppm: pixels per million. "
        "The price is that of mode strict as a whole."
    )
    figure = Picture(width=_SUMMARY_WIDTH, height=_HEAD + n_rows * _ROW + 0.1)
    figure.set_layout_engine("none")  # everything stands where the columns say, in inches
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, _SUMMARY_WIDTH), ylim=(figure.get_figheight(), 0))
    axes.set_axis_off()
    for text, left, _ in _COLUMNS:
        axes.text(left, _HEAD - 0.1, text, fontsize=9, color="#444444", va="baseline")
    for i, one in enumerate(found):
        _summary_row(axes, _HEAD + i * _ROW, one, price)
    if not found:
        axes.axhline(_HEAD, color="#444444", linewidth=1)
        axes.text(0.1, _HEAD + 0.5, "no operation moved, and PyTorch warned of none", fontsize=11)
    alt = " ".join(f"{_in_words(one)}." for one in found) or "Nothing moved."
    return Told(figure, caption, f"Table as a picture. {alt}")


def _summary_row(axes: Axes, top: float, one: Culprit, price: Any) -> None:
    def write(column: int, y: float, text: str, **style: Any) -> None:
        left = _COLUMNS[column][1]
        axes.text(left, top + y, text, va="center", parse_math=False, **{"fontsize": 9, **style})

    axes.axhline(top, color="#444444", linewidth=1)
    write(0, 0.22, style.clipped(one.name, 34), fontsize=12, fontweight="bold")
    write(0, 0.47, style.clipped(_where(one), 50), fontsize=8)
    write(0, 0.67, style.clipped(_short_source(one.source), 50), fontsize=8, color="#444444")
    sign = {True: "≠", False: "=", None: "?"}[one.moves]
    write(0, 0.98, f"{sign} {one.verdict}", fontsize=10, fontstyle="italic")
    for i, line in enumerate(textwrap.wrap(f"Why: {one.reason}" if one.reason else "", 150)[:2]):
        write(0, 1.23 + 0.18 * i, line, fontsize=8.5, color="#444444")
    write(1, 0.22, _flips(one), fontsize=11)
    _bar(axes, 1, top, one.flips / one.replays if one.replays else 0.0, _FLIPS)
    write(2, 0.22, "yes" if one.warned else "no", fontsize=11)
    weights, pixels, objects = _effect_words(one)
    measured = one.effect is not None and one.effect.fixed_identical
    if measured:
        write(3, 0.22, weights, fontsize=11)
        _bar(axes, 3, top, one.effect.weights_differing, _WEIGHTS)
        if one.effect.n_weights > 1:
            distance = f"distance {one.effect.relative_l2:.0e}"
            write(3, 0.72, distance, fontsize=8, color="#444444")
        write(4, 0.22, textwrap.fill(pixels, 10), fontsize=11)
        write(5, 0.22, objects, fontsize=11)
        write(3, 0.98, f"over {amount(one.effect.repeats, 'repeat')}", fontsize=8, color="#444444")
    else:
        axes.text(_COLUMNS[3][1], top + 0.12, textwrap.fill(weights, 40), va="top", fontsize=9)
    if one.substitute:
        write(6, 0.22, one.substitute, fontsize=10)
        write(6, 0.47, "a tested substitute", fontsize=8, color="#444444")
        if price is not None:
            write(6, 0.79, f"price: {price.ratio:.2f} times the time", fontsize=8)
            write(6, 0.98, f"of a step {_spread(price)}", fontsize=8)
    else:
        for i, line in enumerate(textwrap.wrap(one.remedy or "nothing known", 26)[:5]):
            write(6, 0.22 + 0.19 * i, line, fontsize=8)


def _short_source(source: str | None) -> str:
    """The file without its folders.

    Examples
    --------
    >>> _short_source("segment_anything/modeling/image_encoder.py:322 in get_rel_pos")
    'image_encoder.py:322 in get_rel_pos'
    """
    return "no line of Python" if source is None else re.sub(r"^\S*/", "", source)


def _bar(axes: Axes, column: int, top: float, share: float, colour: str) -> None:
    from matplotlib.patches import Rectangle

    _, left, width = _COLUMNS[column]
    where = (left, top + 0.4)
    frame = Rectangle(where, width, 0.16, facecolor="#F2F2F2", edgecolor="#767676", linewidth=0.6)
    axes.add_patch(frame)
    if share:
        # a share that is not 0 is never drawn as nothing
        shown = max(share, 0.015) * width
        axes.add_patch(
            Rectangle(where, shown, 0.16, facecolor=colour, edgecolor="#555555", linewidth=0.6)
        )


def _in_words(one: Culprit) -> str:
    weights, pixels, objects = _effect_words(one)
    held = f"held by {one.substitute}" if one.substitute else "without a substitute"
    return (
        f"{one.name}, {_where(one)}: replays that gave other bits: {_flips(one)}; "
        f"PyTorch {'warns' if one.warned else 'does not warn'}; weights that differ: {weights}; "
        f"pixels: {pixels}; objects: {objects}; {held}; {one.verdict}"
    )


# -- seeds and epochs ----------------------------------------------------------------------


def seed_strips(probe: Any) -> Told:
    """What the network was shown under each seed, step by step, and where its weights ended.

    Parameters
    ----------
    probe : SeedProbe
        From `cellrepro.lab.seed_effect.which_seed_moves`.
    """
    trials = probe.trials
    n_steps = min(_MOST_TRIALS_SHOWN, len(trials[0].drawn))
    letters: dict[str, str] = {}
    for trial in trials:
        letters.setdefault(trial.weights, _letter(len(letters)))
    side = 0.72
    figure = Picture(height=0.85 + len(trials) * (side + 0.04))
    grid = figure.subplots(
        len(trials), n_steps + 2, squeeze=False, width_ratios=[2.3, *[1] * n_steps, 1]
    )
    for row, trial in zip(grid, trials, strict=True):
        row[0].set_axis_off()
        row[0].text(0, 0.62, trial.what, fontsize=10, fontweight="bold", va="center")
        row[0].text(
            0, 0.28, trial.call.replace("; ", "\n"), fontsize=8, va="center", family="monospace",
            parse_math=False, linespacing=1.1,
        )  # fmt: skip
        for panel, thumbnail in zip(row[1:-1], trial.thumbnails, strict=False):
            panel.imshow(thumbnail, cmap="gray", vmin=0, vmax=255)
            panel.set_xticks([])
            panel.set_yticks([])
        letter = letters[trial.weights]
        row[-1].set(xlim=(0, 1), ylim=(1, 0))
        row[-1].set_axis_off()
        _box(row[-1], 0, 0, letter, list(letters.values()).index(letter))
    for i, panel in enumerate(grid[0][1:-1]):
        epoch, step = divmod(i, probe.steps_per_epoch)
        style.title(panel, f"epoch {epoch + 1}\nimage {step + 1}", size=8)
    style.title(grid[0][-1], "weights\nat the end", size=8)
    style.heading(figure, "What the network was shown under each seed, and what became of it")
    caption = (
        "Two rows with equal pictures saw the same images, cut and turned alike. Equal letters are "
        f"equal weights, bit for bit. All trials start from the same weights; each epoch draws "
        f"{probe.steps_per_epoch} of {probe.n_images} images."
    )
    alt = "; ".join(probe.sentence(what) for what in dict.fromkeys(t.what for t in trials))
    return Told(figure, caption, f"Rows of small images, one row a trial. {alt}.")


def learning_rate_start(rates: Sequence[float]) -> Told:
    """The learning rate of each epoch, as a share of the rate asked for.

    Parameters
    ----------
    rates : sequence of float
        From `cellrepro.model.training.learning_rates`; the largest counts as the whole.
    """
    asked = np.asarray(rates, float)
    if not asked.size or not asked.max() > 0:
        raise BadInput(
            f"the learning rates are {asked.tolist()}; expected those of 2 epochs or more"
        )
    shares = 100 * asked / asked.max()
    epochs = np.arange(1, len(rates) + 1)
    figure = Picture(height=3.5)
    axes = figure.subplots()
    axes.bar(epochs, shares, color=_WEIGHTS, edgecolor="#555555", width=0.75)
    for epoch, share in zip(epochs, shares, strict=True):
        axes.annotate(
            f"{share:.0f}", (epoch, share), (0, 3), textcoords="offset points", ha="center",
            fontsize=9, fontweight="bold" if share == 0 else "normal",
        )  # fmt: skip
    axes.annotate(
        "the first epoch trains with 0:\nnothing can change",
        (1, 6),
        (0.62, 55),
        fontsize=10,
        va="center",
        arrowprops={"arrowstyle": "->", "color": "#444444", "relpos": (0.1, 0)},
    )
    axes.set_xticks(epochs)
    axes.set_ylim(0, 115)
    style.label_axes(axes, x="epoch", y="learning rate (% of what was asked for)")
    style.heading(figure, "Cellpose's learning rate rises from 0")
    caption = (
        "A training of one epoch leaves every weight as it was, so two of them are equal whatever "
        "happened. The second epoch gets a ninth of the rate, the tenth all of it."
    )
    told = ", ".join(f"{share:.0f}" for share in shares)
    alt = f"Bar chart of the learning rate in percent by epoch: {told}."
    return Told(figure, caption, alt)
