"""Pictures of runs: images with outlines, curves, heat maps, bars.

Every function returns a `Picture`, a matplotlib figure made without pyplot: no window opens and no
global state changes, and it shows itself as the last line of a notebook cell, whichever backend is
active. Colours are Okabe and Ito's, and nothing is said by colour alone: lines differ in width and
dashes, fields hold words and signs.
"""

from __future__ import annotations

import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure

from cellrepro.compare.metrics import average_precision, compare_masks
from cellrepro.compare.metrics import categories as category_map
from cellrepro.compare.verdicts import Verdict
from cellrepro.compare.weight_histograms import distribution, magnitudes
from cellrepro.compare.weights import WeightsComparison
from cellrepro.errors import BadInput
from cellrepro.text import amount, grouped, ppm_text, share_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from cellrepro.images.folder import ImageFolder
    from cellrepro.store.store import Repeat, Store

CATEGORIES = ("background", "agree", "only_a", "only_b", "other_object")
"""What each value of a categories map means, in order: 0, 1, 2, 3, 4."""

COLOURS = {
    "a": "#56B4E9",
    "b": "#E69F00",
    "truth": "#F0E442",
    "agree": "#FFFFFF",
    "only_a": "#56B4E9",
    "only_b": "#E69F00",
    "other_object": "#CC79A7",
}
"""Okabe-Ito colours (white is faint), the same in the browser and in the static picture."""

SERIES = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#000000", "#D55E00")
"""Okabe-Ito colours for lines and bars on white; no green, so that nothing is red against green."""

VERDICT_SIGNS: dict[str, str] = {
    Verdict.IDENTICAL: "=",
    Verdict.SAME_OBJECTS: "≅",
    Verdict.WITHIN_SPREAD: "≈",
    Verdict.DIFFERENT: "≠",
    Verdict.VACUOUS: "∅",
    "failed": "×",
    "no verdict": "?",
}
"""One sign per verdict, for those who see no colours."""

VERDICT_COLOURS: dict[str, str] = {
    Verdict.IDENTICAL: "#56B4E9",
    Verdict.SAME_OBJECTS: "#B3DDF5",
    Verdict.WITHIN_SPREAD: "#F6D896",
    Verdict.DIFFERENT: "#E69F00",
    Verdict.VACUOUS: "#D9D9D9",
    "failed": "#CC79A7",
    "no verdict": "#F2F2F2",
}
"""Backgrounds on which black text is readable."""

# The share of the overlay's opacity that "agree" gets: what agrees must not shout.
AGREE_SHARE = 0.25
# Under the categories the image is dimmed, so that differences stand out on bright cells too.
DIMMED = 0.55
DARKER = 0.45
"""The share of its brightness that a colour keeps on the lines of its pattern."""
# Outlines differ in style as well as colour: (pixels on, pixels off) along the line; None is solid.
DASHES: dict[str, tuple[int, int] | None] = {"a": None, "b": (6, 4), "truth": (2, 4)}

WIDTH = 9.0
"""Inches, which suits a notebook's column."""

PHASES = ("import", "data", "model", "train", "segment")
"""The phases of a run in the order in which it passes them."""

_PHASE_COLOURS = {
    "import": "#BBBBBB",
    "data": SERIES[2],
    "model": SERIES[3],
    "train": SERIES[0],
    "segment": SERIES[1],
}
_PANEL = 480  # longer side of a picture inside a figure, pixels
_FEW = 0.002  # share of differing pixels below which each is drawn as a spot of this size
_SPOT = 5
_MANY_PLACES = 12  # beyond this many separate differences, rings would hide them
_LINES = ("-", (0, (5, 2)), (0, (1.5, 1.5)), (0, (7, 2, 1.5, 2)))
_HATCHES = ("", "///", "...", "", "\\\\\\", "++")
_LEGEND_ROWS = 12
_LEGEND_LETTERS = 110  # that fit beside each other in a figure of `WIDTH`
_SMALLEST_LETTERS = 4.5  # points
_TICK_LETTERS = 60  # of a label beside an axis; longer ones are shortened
_PANEL_LETTERS = 34  # of a name above a panel
_FIELD_LETTERS = 28  # of a line in a field of verdicts
_FEWEST_SPREAD = 16  # weights of a group below which a distribution says nothing


class Picture(Figure):
    """A figure that shows itself in a notebook, also where no plotting backend is active."""

    def __init__(self, width: float = WIDTH, height: float = 4.0):
        super().__init__(figsize=(width, height), dpi=100, layout="constrained", facecolor="white")

    def _repr_png_(self) -> bytes:
        return self.png()

    def png(self, *, dpi: int = 100) -> bytes:
        """The figure as a PNG file.

        Parameters
        ----------
        dpi : int
            Pixels per inch.
        """
        buffer = io.BytesIO()
        # No software version inside: equal pictures are equal files.
        self.savefig(buffer, format="png", dpi=dpi, metadata={"Software": None})
        return buffer.getvalue()


# -- the data ------------------------------------------------------------------------------


def data_at_a_glance(folder: ImageFolder, *, n: int = 6) -> Picture:
    """Some images of a folder with the outlines of their masks, by name.

    Parameters
    ----------
    folder : ImageFolder
        From `cellrepro.read_folder`.
    n : int
        How many images at most; training and test images are both shown if there are both.

    Returns
    -------
    Picture
        Each panel says whether it is a training or a test image, how large it is (pixels) and
        how many objects its masks hold.
    """
    chosen = _from_both(folder.train, folder.test, n)
    if not chosen:
        raise BadInput(f"{folder.path} holds no images to show; expected one or more")
    n_columns = min(3, len(chosen))
    n_rows = -(-len(chosen) // n_columns)
    figure = Picture(height=0.5 + n_rows * (WIDTH / n_columns + 0.3))
    panels = figure.subplots(n_rows, n_columns, squeeze=False).ravel()
    for panel, (split, item) in zip(panels, chosen, strict=False):
        height, width = item.image.shape[:2]
        n_objects = "no masks"
        outlines = {}
        if item.masks is not None:
            n_objects = amount(len(np.unique(item.masks[item.masks > 0])), "object")
            outlines = {"truth": item.masks}
        _show(panel, with_outlines(grey_image(item.image), outlines, solid=True))
        name = _clipped(item.name, _PANEL_LETTERS)
        _title(panel, f"{split}: {name}\n{width} × {height} pixels, {n_objects}")
        _frame(panel, dashed=split == "test")
    for panel in panels[len(chosen) :]:
        panel.set_axis_off()
    of = f"{len(chosen)} of {len(folder.train) + len(folder.test)} images"
    _heading(
        figure,
        f"{of} of {folder.path.name}: {len(folder.train)} to train (solid frame), "
        f"{len(folder.test)} to test (dashed frame)",
    )
    return figure


def _from_both(train: Sequence[Any], test: Sequence[Any], n: int) -> list[tuple[str, Any]]:
    """Up to n images, at least a third of them test images where there are enough."""
    n_test = min(len(test), max(n - len(train), -(-n // 3)))
    n_train = min(len(train), n - n_test)
    return [("train", item) for item in train[:n_train]] + [
        ("test", item) for item in test[:n_test]
    ]


# -- training ------------------------------------------------------------------------------


def training_curves(repeats: Sequence[Repeat], *, labels: Sequence[str] | None = None) -> Picture:
    """Loss and learning rate of every epoch, one line per different course of training.

    Parameters
    ----------
    repeats : sequence of Repeat
        Those that trained are drawn.
    labels : sequence of str, optional
        What to call them; ``KEY/REPEAT`` by default.

    Returns
    -------
    Picture
        Repeats whose losses and rates are equal to the last digit share one line and one entry
        of the legend, which names them all. Lines drawn later are thinner and dashed, so that
        one on top of another leaves both visible. Markers are losses on the test images, at the
        epochs at which these were evaluated.

    Raises
    ------
    BadInput
        If none of the repeats trained.
    """
    courses = _equal_courses(repeats, _labels(repeats, labels))
    if not courses:
        raise BadInput(
            f"none of the {len(repeats)} repeats trained, so there is no loss to draw; give "
            "repeats of `train`"
        )
    n_drawn = sum(len(names) for _, names in courses)
    figure = Picture(height=5.4)
    loss, rate = figure.subplots(2, 1, sharex=True, height_ratios=(2, 1))
    for i, (training, _) in enumerate(courses):
        epochs = np.arange(1, len(training.train_losses) + 1)
        style = _line_style(i, len(courses))
        loss.plot(epochs, training.train_losses, **style)
        tested = [
            (e, t) for e, t in zip(epochs, training.test_losses, strict=False) if t is not None
        ]
        loss.plot(
            [epoch for epoch, _ in tested],
            [value for _, value in tested],
            linestyle="none",
            marker="osD^v<>"[i % 7],
            markersize=9 - min(i, 5),
            markerfacecolor="none",
            markeredgecolor=style["color"],
            markeredgewidth=1.6,
        )
        rate.plot(epochs, training.learning_rates, **style)
    _label_axes(loss, y="loss (Cellpose's, no unit)")
    _label_axes(rate, x="epoch", y="learning rate")
    _whole_numbers(rate)
    _training_legend(figure, courses)
    if n_drawn == 1:
        text = "one repeat"
    elif len(courses) == 1:
        text = f"all {n_drawn} repeats follow one curve, to the last digit"
    else:
        text = f"{n_drawn} repeats, {len(courses)} different curves"
    _heading(figure, f"Training loss: {text}")
    return figure


def _equal_courses(repeats: Sequence[Repeat], labels: Sequence[str]) -> list[tuple[Any, list[str]]]:
    """Each different course of training with the labels of the repeats that took it."""
    found: dict[str, tuple[Any, list[str]]] = {}
    for repeat, label in zip(repeats, labels, strict=True):
        training = repeat.manifest.training
        if training is not None:
            found.setdefault(training.model_dump_json(), (training, []))[1].append(label)
    return list(found.values())


def _training_legend(figure: Picture, courses: Sequence[tuple[Any, list[str]]]) -> None:
    from matplotlib.lines import Line2D

    handles: list[Any] = []
    for i, (_, names) in enumerate(courses[:_LEGEND_ROWS]):
        shown = " = ".join(names[:2]) + (f" = {len(names) - 2} more" if len(names) > 2 else "")
        handles.append(Line2D([], [], **_line_style(i, len(courses)), label=shown))
    if len(courses) > _LEGEND_ROWS:
        more = len(courses) - _LEGEND_ROWS
        handles.append(Line2D([], [], linestyle="none", label=f"and {more} more curves"))
    handles.append(Line2D([], [], color="#444444", linewidth=2, label="line: training images"))
    marker: dict[str, Any] = {
        "marker": "o",
        "markerfacecolor": "none",
        "markeredgecolor": "#444444",
    }
    handles.append(
        Line2D([], [], linestyle="none", markersize=8, label="marker: test images", **marker)
    )
    _legend(figure, handles, most_columns=3)


# -- masks ---------------------------------------------------------------------------------


def masks_beside_truth(
    store: Store, repeat: Repeat, *, n: int = 3, names: Sequence[str] | None = None
) -> Picture:
    """Images of one repeat beside their ground truth and what the network found.

    Parameters
    ----------
    store : Store
        Where the repeat and its images are.
    repeat : Repeat
    n : int
        How many images, in order of their names.
    names : sequence of str, optional
        Which images instead.

    Returns
    -------
    Picture
        A row per image: the image, the outlines of the ground truth, the outlines found, with
        counts and average precision at IoU 0.5. Images without ground truth have two columns.

    Raises
    ------
    BadInput
        If the repeat holds no masks of such an image.
    """
    manifest = repeat.manifest
    chosen = list(names) if names is not None else sorted(manifest.masks)[:n]
    unknown = [name for name in chosen if name not in manifest.masks]
    if unknown or not chosen:
        raise BadInput(
            f"{repeat.name} holds no masks of {unknown or 'any image'}; it holds those of "
            f"{sorted(manifest.masks)[:8]}"
        )
    truths = {name: store.truth(manifest.data.digest, name) for name in chosen}
    with_truth = any(truth is not None for truth in truths.values())
    n_columns = 3 if with_truth else 2
    side = WIDTH / 3
    figure = Picture(width=side * n_columns, height=0.4 + len(chosen) * (side + 0.05))
    grid = figure.subplots(len(chosen), n_columns, squeeze=False)
    for row, name in zip(grid, chosen, strict=True):
        _masks_row(row, store, repeat, name, truths[name])
    _heading(figure, f"Found by {repeat.name}: {len(chosen)} of {len(manifest.masks)} images")
    return figure


def _masks_row(
    row: Sequence[Axes], store: Store, repeat: Repeat, name: str, truth: np.ndarray | None
) -> None:
    record = repeat.manifest.masks[name]
    masks = repeat.masks(name)
    name = _clipped(name, _PANEL_LETTERS)
    image = store.image(repeat.manifest.data.digest, name)
    background = grey_image(image) if image is not None else np.zeros(masks.shape, np.uint8)
    _show(row[0], with_outlines(background, {}))
    _title(row[0], name if image is not None else f"{name}\n(the image was not kept)")
    _show(row[-1], with_outlines(background, {"a": masks}))
    score = ""
    if truth is not None:
        score = f", AP@0.5 {_score(average_precision(truth, masks)[0])}"
    _title(row[-1], f"found: {amount(record.n_objects, 'object')}{score}")
    if len(row) == 3 and truth is not None:
        _show(row[1], with_outlines(background, {"truth": truth}, solid=True))
        n_true = len(np.unique(truth[truth > 0]))
        _title(row[1], f"ground truth: {amount(n_true, 'object')}")
    elif len(row) == 3:
        row[1].set_axis_off()
        _note(row[1], "no ground truth")


def difference(
    image: np.ndarray | None,
    a: np.ndarray,
    b: np.ndarray,
    *,
    name_a: str = "A",
    name_b: str = "B",
    truth: np.ndarray | None = None,
) -> Picture:
    """Two label images of one image side by side, and where they differ.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C), or None
        Without it the outlines stand on black.
    a, b : ndarray of int, shape (Y, X)
        Label images, 0 is background; neither side is the truth.
    name_a, name_b : str
        What the two are called.
    truth : ndarray of int, shape (Y, X), optional
        Ground truth; adds a second row, with each of the two against it.

    Returns
    -------
    Picture
        Where less than one pixel in a hundred differs, the map shows each as a larger spot, and
        rings point at places that are few and small. Counts are of true pixels.
    """
    result = compare_masks(a, b)
    name_a, name_b = _clipped(name_a, _PANEL_LETTERS), _clipped(name_b, _PANEL_LETTERS)
    background = grey_image(image) if image is not None else np.zeros(result.shape, np.uint8)
    n_rows = 1 if truth is None else 2
    panel_height = WIDTH / 3 * min(1.6, result.shape[0] / result.shape[1])
    figure = Picture(height=0.9 + n_rows * (panel_height + 0.3))
    grid = figure.subplots(n_rows, 3, squeeze=False)
    for panel, key, name, labels, n in (
        (grid[0][0], "a", name_a, a, result.n_objects_a),
        (grid[0][1], "b", name_b, b, result.n_objects_b),
    ):
        _show(panel, with_outlines(background, {key: labels}))
        _title(panel, f"{name}: {amount(n, 'object')}")
    _show_categories(grid[0][2], background, category_map(a, b))
    _title(grid[0][2], f"where they differ: {ppm_text(result.ppm)}")
    if truth is not None:
        _truth_row(grid[1], background, truth, {name_a: a, name_b: b})
    _difference_legend(figure, name_a, name_b, with_truth=truth is not None)
    _heading(
        figure,
        "The two outline the same objects"
        if result.n_differing == 0
        else f"{grouped(result.n_differing)} of {grouped(result.n_pixels)} pixels differ; "
        f"objects lost {len(result.lost)}, gained {len(result.gained)}",
    )
    return figure


def _truth_row(
    row: Sequence[Axes], background: np.ndarray, truth: np.ndarray, masks: Mapping[str, np.ndarray]
) -> None:
    for panel, (name, labels) in zip(row, masks.items(), strict=False):
        _show_categories(panel, background, category_map(truth, labels))
        score = _score(average_precision(truth, labels)[0])
        _title(panel, f"{name}\nagainst the truth: AP@0.5 {score}")
    _show(row[2], with_outlines(background, {"truth": truth}, solid=True))
    _title(row[2], f"ground truth: {amount(len(np.unique(truth[truth > 0])), 'object')}")


def _show_categories(panel: Axes, background: np.ndarray, categories: np.ndarray) -> None:
    picture, map_ = category_picture(background, categories)
    _show(panel, picture)
    _ring(panel, map_ >= 2)


def _grown(map_: np.ndarray) -> np.ndarray:
    """Every differing pixel as a spot that can be seen in a small figure."""
    from scipy import ndimage

    spots = ndimage.maximum_filter(np.where(map_ >= 2, map_, 0), size=_SPOT)
    return np.where(spots > 0, spots, map_)


def _ring(panel: Axes, differs: np.ndarray) -> None:
    """Circle the places that differ where they are few and small enough to be overlooked."""
    from matplotlib.patches import Circle
    from scipy import ndimage

    near = 6
    places, n = ndimage.label(ndimage.binary_dilation(differs, iterations=near))
    if n > _MANY_PLACES:
        return
    for rows, columns in ndimage.find_objects(places):
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if max(height, width) < _PANEL / 8:
            centre = (columns.start + width / 2, rows.start + height / 2)
            panel.add_patch(
                Circle(centre, max(height, width) / 2 + near, fill=False, ec="white", lw=1)
            )


def _patterned(category: str, hatch: str, label: str) -> Any:
    from matplotlib.patches import Patch

    return Patch(
        facecolor=COLOURS[category], edgecolor="#404040", linewidth=0, hatch=hatch, label=label
    )


def _difference_legend(figure: Picture, name_a: str, name_b: str, *, with_truth: bool) -> None:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    only_a, only_b = f"only {name_a}", f"only {name_b}"
    if with_truth:
        only_a += " (below: only the truth)"
        only_b += " (below: only found)"
    handles: list[Any] = [
        Line2D([], [], color=COLOURS["a"], linewidth=2.5, label=name_a),
        Line2D([], [], color=COLOURS["b"], linewidth=2.5, linestyle=(0, (3, 1.5)), label=name_b),
        _patterned("only_a", "////", only_a),
        _patterned("only_b", "\\\\\\\\", only_b),
        _patterned("other_object", "...", "another object"),
        Patch(facecolor="#8C8C8C", label="the same object"),
    ]
    _legend(figure, handles)


# -- verdicts ------------------------------------------------------------------------------


def verdict_matrix(rows: Iterable[tuple[str, str, str, str]]) -> Picture:
    """A field per row and column with its verdict as word, sign and colour.

    Parameters
    ----------
    rows : iterable of (row label, column label, verdict, text)
        The verdict is a word of the project, ``failed`` or ``no verdict``; the text stands
        under it, for example over how many repeats it was reached. Fields that are not given
        stay empty; of two that fall together both are written.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If there is nothing to show, or a word is no verdict.
    """
    cells = list(rows)
    unknown = sorted({verdict for _, _, verdict, _ in cells} - VERDICT_SIGNS.keys())
    if unknown or not cells:
        raise BadInput(
            f"{unknown} are no verdicts; expected {', '.join(VERDICT_SIGNS)}"
            if unknown
            else "no verdict was given to show; give (row, column, verdict, text)"
        )
    row_labels = list(dict.fromkeys(row for row, _, _, _ in cells))
    columns = list(dict.fromkeys(column for _, column, _, _ in cells))
    row_names, column_names = (
        ["\n".join(_clipped(line, _FIELD_LETTERS) for line in label.splitlines()) for label in all_]
        for all_ in (row_labels, columns)
    )
    beside, above = (
        0.09 * max(len(line) for name in names for line in (name.splitlines() or [""]))
        for names in (row_names, column_names)
    )  # inches
    figure = Picture(
        width=min(WIDTH, 0.5 + beside + max(1.7, above) * len(columns)),
        height=1.0 + 0.75 * len(row_labels),
    )
    axes = figure.subplots()
    placed: dict[tuple[int, int], list[tuple[str, str]]] = {}
    for row, column, verdict, text in cells:
        place = row_labels.index(row), columns.index(column)
        placed.setdefault(place, []).append((str(verdict), text))
    for (y, x), entries in placed.items():
        for i, (verdict, text) in enumerate(entries):
            _verdict_field(axes, x, y + i / len(entries), 1 / len(entries), verdict, text)
    axes.set(xlim=(0, len(columns)), ylim=(len(row_labels), 0))
    axes.set_xticks([i + 0.5 for i in range(len(columns))], column_names, parse_math=False)
    axes.set_yticks([i + 0.5 for i in range(len(row_labels))], row_names, parse_math=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    return figure


def _verdict_field(axes: Axes, x: float, y: float, height: float, verdict: str, text: str) -> None:
    from matplotlib.patches import Rectangle

    gap = 0.04
    axes.add_patch(
        Rectangle(
            (x + gap / 2, y + gap / 2 * height),
            1 - gap,
            height * (1 - gap),
            facecolor=VERDICT_COLOURS[verdict],
            edgecolor="#555555",
            linewidth=0.8,
            hatch="///" if verdict in (Verdict.VACUOUS, "failed") else None,
        )
    )
    box = {"facecolor": VERDICT_COLOURS[verdict], "edgecolor": "none", "pad": 1.5}
    lines = [f"{VERDICT_SIGNS[verdict]} {verdict}", *text.splitlines()]
    label = "\n".join(_clipped(line, _FIELD_LETTERS) for line in lines)
    axes.text(
        x + 0.5,
        y + height / 2,
        label,
        ha="center",
        va="center",
        fontsize=9,
        parse_math=False,
        bbox=box,
    )


def scores(rows: Sequence[tuple[str, str, float]], *, label: str = "AP@0.5") -> Picture:
    """One point per repeat: its score, by run.

    Parameters
    ----------
    rows : sequence of (label, group, score)
        A line per label; groups (a profile, say) differ in height, colour and marker. Equal scores
        of one group are one point; those of one line are counted beside the first.
    label : str
        Of the axis, which shows a span of 0.1 or more, so that small differences look small.

    Returns
    -------
    Picture
    """
    from matplotlib.lines import Line2D

    if not rows:
        raise BadInput("no score was given to draw; give (label, group, score)")
    labels = list(dict.fromkeys(name for name, _, _ in rows))
    groups = list(dict.fromkeys(group for _, group, _ in rows))
    n_of = Counter((name, value) for name, _, value in rows)
    noted: set[tuple[str, float]] = set()
    figure = Picture(height=1.3 + max(0.34, 0.13 * len(groups)) * len(labels))
    axes = figure.subplots()
    for name, group, value in dict.fromkeys(rows):
        i = groups.index(group)
        y = labels.index(name) + (i - (len(groups) - 1) / 2) * 0.7 / len(groups)
        axes.plot(value, y, **_point_style(i))
        if (name, value) in noted:  # by another group: points below each other share one note
            continue
        noted.add((name, value))
        n = n_of[name, value]
        note = f"{value:.3f}" + (f" ({n}×)" if n > 1 else "")
        # The least of a line stands left of its point, so that it does not cover the others.
        left = any(row == name and value < other for row, other in n_of) and all(
            value <= other for row, other in n_of if row == name
        )
        axes.annotate(
            note, (value, y), (-8 if left else 8, 0), textcoords="offset points", va="center",
            ha="right" if left else "left", fontsize=8,
        )  # fmt: skip
    values = [value for _, _, value in rows]
    middle, span = (min(values) + max(values)) / 2, max(0.1, 1.5 * (max(values) - min(values)))
    axes.set_xlim(max(-span / 50, middle - span / 2), min(1.04, middle + span / 2) + span * 0.06)
    axes.set_yticks(range(len(labels)), _clipped_all(labels), parse_math=False)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    for edge in range(1, len(labels)):
        axes.axhline(edge - 0.5, color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    _label_axes(axes, x=f"{label} (0: no object found right, 1: all)")
    if len(groups) > 1:
        handles = [Line2D([], [], label=group, **_point_style(i)) for i, group in enumerate(groups)]
        _legend(figure, handles)
    return figure


def _point_style(i: int) -> dict[str, Any]:
    return {
        "marker": "osD^v<>"[i % 7],
        "color": SERIES[i % len(SERIES)],
        "markersize": 7,
        "linestyle": "none",
    }


# -- weights -------------------------------------------------------------------------------


def similarity(
    matrix: np.ndarray,
    labels: Sequence[str],
    *,
    title: str,
    log: bool = False,
    fmt: str = ".2g",
    columns: Sequence[str] | None = None,
) -> Picture:
    """A square table of numbers with shades.

    Parameters
    ----------
    matrix : ndarray of float, shape (N, N)
        For example a field of `cellrepro.compare.Similarity`. NaN is shown as a dash.
    labels : sequence of str
        Of the N rows and columns.
    title : str
    log : bool
        Shade by the logarithm; entries that are not positive, such as zeros, stay white.
    fmt : str
        How numbers are written, as in ``format(number, fmt)``.
    columns : sequence of str, optional
        Shorter labels for the columns.

    Returns
    -------
    Picture
        Dark is small. Where numbers would not fit their fields, only the shades are drawn.
    """
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, Normalize

    matrix = np.asarray(matrix, dtype=float)
    n = len(labels)
    tilted = columns is None
    columns = labels if columns is None else columns
    if matrix.shape != (n, n) or len(columns) != n:
        raise BadInput(
            f"the matrix has shape {matrix.shape}, and there are {n} labels and {len(columns)} of "
            f"columns; expected {(n, n)} and {n}"
        )
    labels, columns = _clipped_all(labels), _clipped_all(columns)
    shown = matrix[np.isfinite(matrix) & ((matrix > 0) if log else True)]
    low, high = (shown.min(), shown.max()) if shown.size else (1.0, 10.0)
    if low == high:
        low, high = (low / 2, high * 2) if log else (low - 0.5, high + 0.5)
    norm = (LogNorm if log else Normalize)(low, high)
    values = np.ma.masked_invalid(np.where(matrix > 0, matrix, np.nan) if log else matrix)
    texts = [["–" if np.isnan(x) else "0" if x == 0 else format(x, fmt) for x in r] for r in matrix]
    beside, below = (0.068 * max(map(len, names), default=0) for names in (labels, columns))
    field = min(0.62, (WIDTH - 1.2 - beside) / max(n, 1))  # inches
    figure = Picture(
        width=min(WIDTH, 1.2 + beside + max(2.0, field * n)),
        height=0.6 + max(1.2, field * n) + 0.2 + 0.65 * below,
    )
    axes = figure.subplots()
    colours = colormaps["cividis"].with_extremes(bad="white")
    picture = axes.imshow(values, cmap=colours, norm=norm)
    tilt: dict[str, Any] = {"rotation": 40, "ha": "right"} if tilted else {}
    axes.set_xticks(range(n), columns, parse_math=False, fontsize=8, **tilt)
    axes.set_yticks(range(n), labels, parse_math=False, fontsize=8)
    size = min(8.0, 72 * field / (0.68 * max((len(t) for row in texts for t in row), default=1)))
    if size >= _SMALLEST_LETTERS:
        _write_fields(axes, texts, values, norm, size)
    axes.set_xticks(np.arange(n + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(n + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="white", linewidth=1.5)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_visible(False)
    bar = figure.colorbar(picture, ax=axes, fraction=0.04, pad=0.02)
    bar.ax.tick_params(labelsize=8)
    _title(axes, title)
    return figure


def _write_fields(
    axes: Axes, texts: Sequence[Sequence[str]], values: Any, norm: Any, size: float
) -> None:
    masked = np.ma.getmaskarray(values)
    for y, row in enumerate(texts):
        for x, text in enumerate(row):
            dark = not masked[y, x] and float(norm(values[y, x])) < 0.55
            written = axes.text(
                x,
                y,
                text,
                ha="center",
                va="center",
                color="white" if dark else "black",
                fontsize=size,
            )
            written.set_in_layout(False)  # inside its field anyway; measuring hundreds is slow


def weight_distributions(paths: Mapping[str, Path | str], *, n: int = 9) -> Picture:
    """How the weights of each part of the network are spread, runs overlaid.

    Parameters
    ----------
    paths : mapping of str to Path
        Label to safetensors file.
    n : int
        How many layer groups at most: those with most weights, in the network's order.

    Returns
    -------
    Picture
        Histograms over common intervals: the share of the group's weights in each, on a
        logarithmic axis. Later lines are thinner and dashed, so equal ones stay visible.
    """
    if not paths:
        raise BadInput("no weights file was given to draw; give a mapping of label to path")
    largest: dict[str, float] = {}
    for path in paths.values():
        for group, magnitude in magnitudes(path).items():
            largest[group] = max(largest.get(group, 0.0), magnitude)
    counted = {label: distribution(path, bins=61, limits=largest) for label, path in paths.items()}
    sizes = {
        group: max(int(d[group][0].sum()) for d in counted.values() if group in d)
        for group in largest
    }
    many = [group for group in sizes if sizes[group] >= _FEWEST_SPREAD] or list(sizes)
    most = sorted(many, key=lambda group: -sizes[group])[:n]
    groups = [group for group in largest if group in most]
    floor = 0.5 / max(sizes.values())  # below one weight, so that empty intervals reach the axis
    n_columns = min(3, len(groups))
    n_rows = -(-len(groups) // n_columns)
    figure = Picture(height=1.2 + 1.75 * n_rows)
    panels = figure.subplots(n_rows, n_columns, squeeze=False, sharey=True).ravel()
    for panel, group in zip(panels, groups, strict=False):
        for i, histograms in enumerate(counted.values()):
            if group in histograms:
                counts, edges = histograms[group]
                share = np.maximum(counts / max(1, counts.sum()), floor)
                panel.stairs(share, edges, baseline=None, **_line_style(i, len(counted)))
        panel.set_ylim(floor, 1.5)
        logarithmic(panel, "y")
        panel.locator_params(axis="x", nbins=4)
        panel.tick_params(labelsize=8)
        _title(panel, f"{group} ({grouped(sizes[group])})", size=9)
    for panel in panels[len(groups) :]:
        panel.set_axis_off()
    for panel in panels[max(0, len(groups) - n_columns) : len(groups)]:
        panel.set_xlabel("weight (no unit)", fontsize=9)
    figure.supylabel("share of the weights", fontsize=9)
    _line_legend(figure, list(paths))
    heading = f"Weights of {amount(len(paths), 'network')} by part (number of weights)"
    if len(groups) < len(largest):
        heading += f": {len(groups)} of {len(largest)} parts"
    _heading(figure, heading)
    return figure


def parameter_differences(weights: WeightsComparison, *, n: int = 12) -> Picture:
    """The tensors of two networks that differ most.

    Parameters
    ----------
    weights : WeightsComparison
        From `cellrepro.compare_weights`.
    n : int
        How many tensors at most.

    Returns
    -------
    Picture
        Bars of the relative L2 distance, the length of the difference over the length of the
        tensor; beside each how many of its parameters differ in their bits.
    """
    differing = [row for row in weights.per_tensor if row.n_differing]
    # A NaN (another shape) and an infinity (all zero in one) cannot be drawn, but come first.
    order = sorted(differing, key=lambda row: -np.nan_to_num(row.relative_l2, nan=np.inf))[:n]
    figure = Picture(height=1.2 + 0.3 * max(2, len(order)))
    axes = figure.subplots()
    if not order:
        axes.set_axis_off()
        alone = len(weights.only_a) + len(weights.only_b)
        _note(
            axes,
            f"no parameter of the {weights.n_tensors} tensors differs"
            if not alone
            else f"they share no tensor that differs; {amount(alone, 'tensor')} on one side only",
        )
        return figure
    lengths = [row.relative_l2 if np.isfinite(row.relative_l2) else 0.0 for row in order]
    positive = [length for length in lengths if length > 0]
    wide = bool(positive) and max(positive) > 30 * min(positive)
    axes.barh(range(len(order)), lengths, color=SERIES[0], height=0.65, log=wide)
    for i, (row, length) in enumerate(zip(order, lengths, strict=True)):
        text = f"{share_text(row.n_differing / max(1, row.n))} of {grouped(row.n)}"
        if not np.isfinite(row.relative_l2):
            text = "other shape" if row.shape != row.shape_b else f"not finite; {text}"
        axes.annotate(
            text,
            (length, i),
            (4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
            color="#444444",
        )
    axes.set_yticks(
        range(len(order)), _clipped_all(row.name for row in order), parse_math=False, fontsize=8
    )
    axes.invert_yaxis()
    if wide:
        axes.set_xlim(min(positive) / 3, max(positive) * (max(positive) / min(positive)) ** 0.25)
    else:
        axes.set_xlim(0, max(lengths, default=0) * 1.25 or 1)
    scale = "logarithmic; " if wide else ""
    _label_axes(axes, x=f"relative L2 distance ({scale}beside: share of parameters that differ)")
    _heading(
        figure,
        f"{len(order)} of {len(differing)} differing tensors "
        f"({weights.n_tensors} in all): those that differ most",
    )
    return figure


# -- time ----------------------------------------------------------------------------------


def times(rows: Sequence[tuple[str, Mapping[str, float]]]) -> Picture:
    """Seconds per phase, one bar per run.

    Parameters
    ----------
    rows : sequence of (label, mapping of phase to seconds)
        For example ``(name, repeat.manifest.seconds)``.

    Returns
    -------
    Picture
        Phases differ in colour and hatching; the sum stands at the end of each bar.
    """
    if not rows:
        raise BadInput("no times were given to draw; give (label, seconds by phase)")
    named = dict.fromkeys(phase for _, seconds in rows for phase in seconds)
    phases = [p for p in PHASES if p in named] + [p for p in named if p not in PHASES]
    figure = Picture(height=1.2 + 0.32 * len(rows))
    axes = figure.subplots()
    left = np.zeros(len(rows))
    for i, phase in enumerate(phases):
        lengths = np.array([seconds.get(phase, 0.0) for _, seconds in rows])
        axes.barh(
            range(len(rows)),
            lengths,
            left=left,
            height=0.68,
            label=phase,
            color=_PHASE_COLOURS.get(phase, SERIES[i % len(SERIES)]),
            edgecolor="white",
            hatch=_HATCHES[i % len(_HATCHES)],
            linewidth=0.6,
        )
        left = left + lengths
    for i, total in enumerate(left):
        axes.annotate(
            f"{total:.1f}", (total, i), (4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(
        range(len(rows)), _clipped_all(label for label, _ in rows), parse_math=False, fontsize=8
    )
    axes.invert_yaxis()
    axes.set_xlim(0, float(left.max()) * 1.08 or 1)
    _label_axes(axes, x="seconds")
    handles, _ = axes.get_legend_handles_labels()
    _legend(figure, handles)
    return figure


def inference_times(repeats: Sequence[Repeat], *, labels: Sequence[str] | None = None) -> Picture:
    """Seconds that each image took to segment, a line of points per repeat.

    Parameters
    ----------
    repeats : sequence of Repeat
    labels : sequence of str, optional
        What to call them; ``KEY/REPEAT`` by default.

    Returns
    -------
    Picture
        A point per image and a bar at the median. The first image of a process often takes
        longer, because libraries prepare themselves; it is drawn as a hollow diamond.
    """
    timed = [
        (label, [record.seconds for record in repeat.manifest.masks.values()])
        for repeat, label in zip(repeats, _labels(repeats, labels), strict=True)
        if repeat.manifest.masks
    ]
    if not timed:
        raise BadInput(f"none of the {len(repeats)} repeats segmented an image")
    from matplotlib.lines import Line2D

    figure = Picture(height=1.4 + 0.32 * len(timed))
    axes = figure.subplots()
    first: dict[str, Any] = {
        "marker": "D",
        "markerfacecolor": "none",
        "markersize": 6,
        "linestyle": "none",
    }
    other: dict[str, Any] = {"marker": "o", "markersize": 5, "alpha": 0.7, "linestyle": "none"}
    middle: dict[str, Any] = {
        "marker": "|",
        "markersize": 14,
        "markeredgewidth": 2.2,
        "linestyle": "none",
    }
    colours = SERIES[1], SERIES[0], SERIES[4]
    for i, (_, seconds) in enumerate(timed):
        axes.plot(seconds[:1], [i], color=colours[0], **first)
        axes.plot(seconds[1:], [i] * (len(seconds) - 1), color=colours[1], **other)
        axes.plot(float(np.median(seconds)), i, color=colours[2], **middle)
    axes.set_yticks(
        range(len(timed)), _clipped_all(label for label, _ in timed), parse_math=False, fontsize=8
    )
    axes.set_ylim(len(timed) - 0.4, -0.6)
    axes.set_xlim(left=0)
    axes.grid(axis="x", color="#DDDDDD", linewidth=0.8)
    axes.set_axisbelow(True)
    _label_axes(axes, x="seconds per image")
    handles = [
        Line2D([], [], color=colour, label=text, **style)
        for colour, text, style in zip(
            colours,
            ("first image", "further images", "median"),
            (first, other, middle),
            strict=True,
        )
    ]
    _legend(figure, handles)
    n_images = sum(len(seconds) for _, seconds in timed)
    _heading(
        figure,
        f"Time to segment: {amount(len(timed), 'repeat')}, {amount(n_images, 'image')} in all",
    )
    return figure


# -- drawing label images, shared with the explorer ----------------------------------------


def grey_image(image: np.ndarray) -> np.ndarray:
    """An image in 8 bit, each channel stretched from its 1st to its 99th percentile.

    Parameters
    ----------
    image : ndarray, shape (Y, X) or (Y, X, C)
        Any real dtype; channels are averaged. Values that are not finite are drawn black.

    Returns
    -------
    ndarray of uint8, shape (Y, X)
    """
    values = np.asarray(image, dtype=np.float64)
    values = values[..., None] if values.ndim == 2 else values
    values = np.where(np.isfinite(values), values, 0.0)
    low, high = np.percentile(values, (1, 99), axis=(0, 1))
    flat = low == high
    low, high = np.where(flat, values.min((0, 1)), low), np.where(flat, values.max((0, 1)), high)
    stretched = np.clip((values - low) / np.where(low == high, 1, high - low), 0, 1)
    return np.rint(stretched.mean(axis=2) * 255).astype(np.uint8)


def with_outlines(
    background: np.ndarray, outlines: Mapping[str, np.ndarray], *, solid: bool = False
) -> np.ndarray:
    """A grey image with the outlines of label images, enlarged or shrunk to a panel.

    Parameters
    ----------
    background : ndarray of uint8, shape (Y, X)
    outlines : mapping of str to ndarray of int, shape (Y, X)
        By the keys of `DASHES`, which choose colour and dashes; 0 is background.
    solid : bool
        Draw every line solid, where there is only one kind.

    Returns
    -------
    ndarray of uint8, shape (Y', X', 3)
    """
    shape = panel_shape(background.shape)
    picture = np.repeat(enlarged(background, shape)[..., None], 3, axis=2)
    thickness = 1 if shape[0] < background.shape[0] else 2
    for key, labels in outlines.items():
        lines = outlined(
            enlarged(labels, shape), thickness=thickness, dash=None if solid else DASHES[key]
        )
        painted(picture, lines, COLOURS[key])
    return picture


def category_picture(
    background: np.ndarray, categories: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """A dimmed image under the colours of a categories map, enlarged or shrunk to a panel.

    Parameters
    ----------
    background : ndarray of uint8, shape (Y, X)
    categories : ndarray of int, shape (Y, X)
        Positions in `CATEGORIES`.

    Returns
    -------
    picture : ndarray of uint8, shape (Y', X', 3)
    drawn : ndarray of int, shape (Y', X')
        The map as drawn: where few pixels differ, each is a larger spot.
    """
    shape = panel_shape(categories.shape)
    picture = np.rint(np.repeat(enlarged(background, shape)[..., None], 3, axis=2) * DIMMED)
    picture = picture.astype(np.uint8)
    drawn = enlarged_categories(categories, shape)
    if np.count_nonzero(categories >= 2) < _FEW * categories.size:
        drawn = _grown(drawn)
    return in_category_colours(picture, drawn), drawn


def in_category_colours(picture: np.ndarray, categories: np.ndarray) -> np.ndarray:
    """Paint the categories over a picture of their size, each with its pattern.

    Parameters
    ----------
    picture : ndarray of uint8, shape (Y, X, 3)
        Changed in place.
    categories : ndarray of int, shape (Y, X)
        Positions in `CATEGORIES`.

    Returns
    -------
    ndarray of uint8, shape (Y, X, 3)
        The picture.
    """
    for value, name in enumerate(CATEGORIES[1:], start=1):
        here = categories == value
        painted(picture, here, COLOURS[name], 0.85 * (AGREE_SHARE if name == "agree" else 1))
        lined = here & hatched(value, here.shape)
        picture[lined] = np.rint(picture[lined] * DARKER).astype(np.uint8)
    return picture


def hatched(category: int, shape: tuple[int, int], *, unit: int = 1) -> np.ndarray:
    """Which pixels of a picture lie on the pattern of a category, for those who see no colours.

    Parameters
    ----------
    category : int
        2 (only A) has lines that rise, 3 (only B) lines that fall, 4 (other object) dots.
    shape : tuple of int
        (Y, X) of the picture, pixels.
    unit : int
        Pixels of the picture in one of the page.

    Returns
    -------
    ndarray of bool, shape (Y, X)
        The browser's `onPattern` is the same rule.
    """
    y, x = np.ogrid[: shape[0], : shape[1]]
    if category == 2:
        return (x + y) % (8 * unit) < 2 * unit
    if category == 3:
        return (x - y) % (8 * unit) < 2 * unit
    if category == 4:
        return (x % (6 * unit) < 3 * unit) & (y % (6 * unit) < 3 * unit)
    return np.zeros(shape, bool)


def outlined(
    labels: np.ndarray, *, thickness: int, dash: tuple[int, int] | None = None
) -> np.ndarray:
    """Which pixels of a label image lie on the inner border of their object.

    Parameters
    ----------
    labels : ndarray of int, shape (Y, X)
        0 is background. Enlarge it first: lines are as fine as its pixels.
    thickness : int
        Width of the line, in pixels.
    dash : tuple of int, optional
        Pixels on and pixels off along the line. A solid line if not given.

    Returns
    -------
    ndarray of bool, shape (Y, X)
        Objects are closed at the edge of the image. The browser's `outline` is the same rule.
    """
    t = thickness
    height, width = labels.shape
    around = np.pad(labels, t)
    here = around[t:-t, t:-t]
    rows, columns = slice(t, t + height), slice(t, t + width)
    upright = (around[rows, :width] != here) | (around[rows, 2 * t :] != here)
    level = (around[:height, columns] != here) | (around[2 * t :, columns] != here)
    border = (upright | level) & (here > 0)
    if dash is None:
        return border
    on, off = dash
    y, x = np.ogrid[:height, :width]
    # An upright stretch of border is dashed along y, a level one along x.
    return border & (np.where(upright, y, x) % (on + off) < on)


def enlarged(array: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """An array sampled at the pixels of a panel of that shape (nearest neighbour)."""
    y, x = (
        ((np.arange(n_new) + 0.5) * n_old / n_new).astype(int)
        for n_new, n_old in zip(shape, array.shape, strict=True)
    )
    return array[np.ix_(y, x)]


def enlarged_categories(categories: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """The same for categories, keeping every differing pixel visible when the panel is smaller."""
    panel = enlarged(categories, shape)
    if shape[0] < categories.shape[0]:
        y, x = np.nonzero(categories >= 2)
        scaled = y * shape[0] // categories.shape[0], x * shape[1] // categories.shape[1]
        panel[scaled] = categories[y, x]
    return panel


def painted(picture: np.ndarray, where: np.ndarray, colour: str, opacity: float = 1.0) -> None:
    """Lay a colour over the chosen pixels of an RGB picture, in place."""
    rgb = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    picture[where] = np.rint(picture[where] * (1 - opacity) + rgb * opacity).astype(np.uint8)


# -- small parts ---------------------------------------------------------------------------


def _labels(repeats: Sequence[Repeat], labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        return [f"{repeat.manifest.key[:8]}/{repeat.manifest.repeat}" for repeat in repeats]
    if len(labels) != len(repeats):
        raise BadInput(
            f"{len(labels)} labels were given for {len(repeats)} repeats; give one for each"
        )
    return list(labels)


def panel_shape(shape: Sequence[int]) -> tuple[int, int]:
    """Rows and columns of the panel that an image of this shape is enlarged or shrunk to."""
    scale = _PANEL / max(shape[0], shape[1])
    return max(1, round(shape[0] * scale)), max(1, round(shape[1] * scale))


def _line_style(i: int, n: int) -> dict[str, Any]:
    """Line i of n: each one thinner than the one before and dashed otherwise."""
    return {
        "color": SERIES[i % len(SERIES)],
        "linestyle": _LINES[min(i, 1 + (i - 1) % 3)] if i else "-",
        "linewidth": 5.0 if i == 0 and n > 1 else max(1.2, 2.6 - 0.3 * i),
        "alpha": 0.55 if i == 0 and n > 1 else 1.0,
    }


def _line_legend(figure: Picture, labels: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    handles = [
        Line2D([], [], **_line_style(i, len(labels)), label=label) for i, label in enumerate(labels)
    ]
    _legend(figure, handles)


def _legend(figure: Picture, handles: Sequence[Any], *, most_columns: int = 6) -> None:
    """Below the axes, in as many columns as its labels leave room for."""
    labels = [_clipped(str(handle.get_label()), _LEGEND_LETTERS) for handle in handles]
    longest = max(map(len, labels)) + 8
    n_columns = max(1, min(most_columns, len(labels), int(_LEGEND_LETTERS * 1.1) // longest))
    legend = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=n_columns,
        fontsize=9,
        frameon=False,
        handlelength=3,
    )
    for text in legend.get_texts():
        text.set_parse_math(False)


def _show(panel: Axes, picture: np.ndarray) -> None:
    panel.imshow(picture)
    panel.set_xticks([])
    panel.set_yticks([])


def _frame(panel: Axes, *, dashed: bool) -> None:
    for spine in panel.spines.values():
        spine.set(linewidth=2, edgecolor=SERIES[1] if dashed else SERIES[0])
        spine.set_linestyle((0, (4, 2)) if dashed else "-")


def _title(axes: Axes, text: str, *, size: float = 10) -> None:
    lines = "\n".join(_clipped(line) for line in text.splitlines())
    axes.set_title(lines, fontsize=size, parse_math=False)


def _heading(figure: Picture, text: str) -> None:
    figure.suptitle(_clipped(text, _LEGEND_LETTERS), fontsize=11, parse_math=False)


def _note(axes: Axes, text: str) -> None:
    axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes, fontsize=10)


def _label_axes(axes: Axes, *, x: str = "", y: str = "") -> None:
    axes.set_xlabel(x, fontsize=9)
    axes.set_ylabel(y, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.spines[["top", "right"]].set_visible(False)


def logarithmic(axes: Axes, which: str) -> None:
    """Scale the x or the y axis by powers of ten; its limits are set before.

    Without minor ticks and mathematical text, which take longer to draw than all else.
    """
    from matplotlib.ticker import LogLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    axes.set(**{f"{which}scale": "log"})
    axes.minorticks_off()
    low, high = axis.get_view_interval()
    if high < 1e3 * low:  # powers of ten alone would be too few
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(lambda value, _: _in_powers(value))


def _in_powers(value: float) -> str:
    exponent = math.floor(math.log10(value) + 1e-9)
    factor = f"{value / 10.0**exponent:.2g}"
    return power_text(exponent) if factor == "1" else f"{factor}·{power_text(exponent)}"


def power_text(exponent: int) -> str:
    """A power of ten as text.

    Examples
    --------
    >>> power_text(-12)
    '10⁻¹²'
    """
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _clipped(text: str, most: int = _TICK_LETTERS) -> str:
    """A text without its middle where it would crowd out the drawing; one line, no tabs."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most // 2 - 1]} … {text[2 - most // 2 :]}"


def _clipped_all(texts: Iterable[str]) -> list[str]:
    return [_clipped(text) for text in texts]


def _score(value: float) -> str:
    return "undefined" if np.isnan(value) else f"{value:.3f}"
