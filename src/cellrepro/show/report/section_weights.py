"""The report on networks: which are equal, how far apart the others are, and in which layers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.names import place_of
from cellrepro.compare.weight_similarity import (
    Similarity,
    difference_distributions,
    distributions,
    layers_by_distance,
    similarity,
)
from cellrepro.compare.weights import compare_weights
from cellrepro.show.figures import training, weights
from cellrepro.show.report.page import Cell, Column, Shown, Table, figure, table, table_file
from cellrepro.show.report.section_equality import Results
from cellrepro.show.report.summary import Chapter
from cellrepro.store.store import Repeat
from cellrepro.text import amount, grouped, share_text

_MOST_NETWORKS = 12
_MOST_WORK = 1.5e9  # parameters compared for the similarity of all pairs: seconds, not hours
_MOST_OVERLAID = 4
_MOST_CURVES = 6
_MOST_LENGTHS = 2
_MOST_TENSORS = 12
_MOST_WITH_NUMBERS = 10  # networks; beyond, the shades say it and the file holds the numbers
_AS_FAR_FROM_BLACK = 0.179  # luminance that contrasts with black as much as with white
_BINS = 61  # as in the figure

_TENSORS = (
    Column("tensor", lambda row: row.name, "code"),
    Column("shape", lambda row: " × ".join(map(str, row.shape)) or "1"),
    Column("differing", lambda row: f"{row.n_differing} of {row.n}", "number"),
    Column("relative L2", lambda row: row.relative_l2, "number", "{:.3g}".format),
    Column("cosine", lambda row: row.cosine, "number", "{:.7f}".format),
    Column("largest", lambda row: row.max_abs, "number", "{:.3g}".format),
    Column("mean ± s.d. of the first", lambda row: f"{row.mean_a:.4g} ± {row.std_a:.4g}", "number"),
    Column("of the second", lambda row: f"{row.mean_b:.4g} ± {row.std_b:.4g}", "number"),
)


@dataclass(frozen=True)
class Network:
    """One of the different networks of a chapter, and the repeats that ended in it."""

    number: int
    name: str
    digest: str
    members: list[Repeat]

    @property
    def path(self) -> Path:
        """Its file, of the first that ended in it."""
        assert self.members[0].weights is not None  # only such repeats are members
        return self.members[0].weights


@dataclass(frozen=True)
class WeightsView:
    """The networks of one chapter: distances of every two of some, and the two most distant."""

    title: str
    text: str = ""
    matrices: tuple[Table, ...] = ()
    layers: Shown | None = None
    pair: str = ""
    distributions: tuple[Shown, ...] = ()
    curves: tuple[Shown, ...] = ()
    groups: Table | None = None
    tensors: Table | None = None


def weights_view(chapter: Chapter, same: Results) -> WeightsView:
    """Empty but for its title where nothing was trained or no weights are in the store."""
    trained = [repeat for repeat in chapter.repeats if repeat.manifest.weights is not None]
    networks = _networks(chapter, same, [r for r in trained if r.weights is not None])
    if not networks:
        return WeightsView(chapter.title)
    n_parameters = max(one.members[0].manifest.model.n_parameters for one in networks)
    chosen = _chosen(networks, n_parameters)
    n_members = sum(len(one.members) for one in networks)
    text = (
        f"{amount(n_members, 'run')} ended in {amount(len(networks), 'different network')} of "
        f"{grouped(n_parameters)} parameters each."
    )
    if len(chosen) < len(networks):
        text += f" Distances are shown for {len(chosen)} of them, taken evenly from the specs."
    if n_members < len(trained):
        missing = amount(len(trained) - n_members, "run")
        text += f" The weights of {missing} are not in the store."
    view: dict[str, Any] = {}
    overlaid = chosen[:_MOST_OVERLAID]
    if len(chosen) > 1:
        found = similarity([one.path for one in chosen])
        view["matrices"] = _matrices(chapter, found, chosen)
        far = _most_distant(found)
        if far is not None:
            near = [chosen[i] for i in _near_and_far(found, far[0])]
            overlaid = [chosen[far[0]], *near]
            view["pair"], view["tensors"] = _pair(*(chosen[i] for i in far))
            view["layers"] = _layers(chapter, found, chosen)
            view["distributions"] = (_differences(chapter, overlaid),)
    overlaid = [one for one in chosen if one in overlaid]
    spread = _distributions(chapter, overlaid, len(networks), n_members)
    columns = [
        Column("network", lambda one: one.number),
        Column("digest", lambda one: one.digest[:12], "code"),
        Column("runs", lambda one: len(one.members), "number"),
        Column("which", lambda one: "; ".join(map(chapter.names.label, one.members)), "long"),
    ]
    view["distributions"] = (*view.get("distributions", ()), spread)
    curves = tuple(_curves(chapter))
    return WeightsView(chapter.title, text, curves=curves, groups=table(networks, columns), **view)


def _networks(chapter: Chapter, same: Results, repeats: Sequence[Repeat]) -> list[Network]:
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in repeats:
        assert repeat.manifest.weights is not None
        groups[repeat.manifest.weights.digest].append(repeat)
    by_place: dict[str, set[str]] = defaultdict(set)
    for digest, members in groups.items():
        for member in members:
            by_place[place_of(member)].add(digest)
    networks = []
    for digest, members in groups.items():
        place, number = place_of(members[0]), same.networks[members[0].name]
        alone = len(by_place[place]) == 1
        name = chapter.names.short(place) if alone else chapter.names.label(members[0])
        n_others = len({place_of(member) for member in members}) - 1
        more = f" (and {n_others} more)" if n_others else ""
        networks.append(Network(number, f"{number}: {name}{more}", digest, members))
    return networks


def _chosen(networks: Sequence[Network], n_parameters: int) -> list[Network]:
    """As many different networks as a page shows, evenly over the specs; one of each first."""
    most = _MOST_NETWORKS
    while most > 2 and most * (most - 1) / 2 * n_parameters > _MOST_WORK:
        most -= 1
    seen: Counter[str] = Counter()
    firsts: list[Network] = []
    others: list[Network] = []
    for one in networks:
        key = one.members[0].manifest.key
        (others if seen[key] else firsts).append(one)
        seen[key] += 1
    kept = [*_evenly(firsts, most), *_evenly(others, max(0, most - len(firsts)))]
    return [one for one in networks if one in kept]


def _evenly(networks: Sequence[Network], n: int) -> list[Network]:
    """At most n of them, from the first to the last."""
    places = np.linspace(0, len(networks) - 1, min(n, len(networks)))
    return [networks[place] for place in places.round().astype(int).tolist()]


# -- distances -----------------------------------------------------------------------------


def _matrices(
    chapter: Chapter, found: Similarity, networks: Sequence[Network]
) -> tuple[Table, ...]:
    direction = np.where(np.isnan(found.cosine), np.nan, np.maximum(1 - found.cosine, 0))
    rounding = "0 is the same direction; below 1e-15 it is rounding."
    kinds = (
        ("L2 distance", "l2-distance", found.l2, "0 is equal."),
        ("1 − cosine similarity", "cosine-distance", direction, rounding),
        ("Largest difference of one parameter", "largest-difference", found.max_abs, "0 is equal."),
    )
    return tuple(
        _matrix(title, f"{file}-{chapter.data}", matrix, note, networks)
        for title, file, matrix, note in kinds
    )


def _matrix(
    title: str, file: str, matrix: np.ndarray, note: str, networks: Sequence[Network]
) -> Table:
    """A table with a field for every two networks: the farther apart, the darker."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    shown = matrix[np.isfinite(matrix) & (matrix > 0)]
    low, high = (shown.min(), shown.max()) if shown.size else (1.0, 1.0)
    with_numbers = len(networks) <= _MOST_WITH_NUMBERS

    def text(value: float) -> Cell:
        if not np.isfinite(value) or value <= 0:
            return Cell("–" if np.isnan(value) else f"{value:.1e}" if value else "0")
        place = math.log(value / low) / math.log(high / low) if high > low else 1.0
        colour = colormaps["cividis"](0.95 - 0.83 * place)[:3]
        dark = _luminance(colour) > _AS_FAR_FROM_BLACK
        return Cell(f"{value:.1e}" if with_numbers else "", colour=to_hex(colour), dark=dark)

    def beside(j: int) -> Column:
        number = str(networks[j].number)
        return Column(number, lambda i: float(matrix[i, j]), "number", text)

    each = range(len(networks))
    columns = [Column("network", lambda i: networks[i].name), *map(beside, each)]
    limits = f": from {low:.2g} to {high:.2g}" if shown.size else ""
    caption = (
        f"{title} of {amount(len(networks), 'different network')}, every one against every other, "
        f"over all their parameters. {note} The darker, the farther apart{limits}."
    )
    return table(each, columns, caption=caption, file=file)


def _luminance(colour: Sequence[float]) -> float:
    """Relative luminance of an sRGB colour, as WCAG 2.2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))


def _most_distant(found: Similarity) -> tuple[int, int] | None:
    distances = np.triu(np.nan_to_num(found.l2, nan=-1.0), 1)
    if distances.max() <= 0:
        return None
    a, b = np.unravel_index(int(distances.argmax()), distances.shape)
    return int(a), int(b)


def _near_and_far(found: Similarity, base: int) -> list[int]:
    """Of the networks that differ from one: the nearest, the middle one and the farthest."""
    distances = found.l2[base]
    others = [int(i) for i in np.argsort(distances) if distances[i] > 0]
    places = (0, (len(others) - 1) // 2, len(others) - 1)
    return list(dict.fromkeys(others[place] for place in places))


def _pair(a: Network, b: Network) -> tuple[str, Table]:
    """The two most distant networks: a sentence, and the tensors in which they differ most."""
    found = compare_weights(a.path, b.path)
    differing = [row for row in found.per_tensor if row.n_differing]
    differing.sort(key=lambda row: -np.nan_to_num(row.relative_l2, nan=-math.inf))
    shown = differing[:_MOST_TENSORS]
    text = (
        f"The two most distant networks are {a.name}, and {b.name}. {grouped(found.n_differing)} "
        f"of {grouped(found.n_parameters)} parameters differ "
        f"({share_text(found.n_differing / found.n_parameters)}); L2 distance {found.l2:.3g} "
        f"(relative {found.relative_l2:.3g}), cosine {found.cosine:.9f}, largest difference "
        f"{found.max_abs:.3g} in {found.max_abs_name}."
    )
    return text, table(
        shown, _TENSORS, caption=f"{len(shown)} of {len(differing)} differing tensors"
    )


def _layers(chapter: Chapter, found: Similarity, networks: Sequence[Network]) -> Shown:
    rows = layers_by_distance(found)
    labels = [one.name for one in networks]
    columns = [
        Column("layer", lambda row: row.layer),
        Column("pairs", lambda row: len({frozenset(pair) for pair in row.pairs})),
        Column("least", lambda row: row.least),
        Column("median", lambda row: row.median),
        Column("most", lambda row: row.most),
        Column("furthest a", lambda row: labels[row.furthest[0]]),
        Column("furthest b", lambda row: labels[row.furthest[1]]),
    ]
    return figure(
        weights.layer_distances(found, labels=labels),
        f"Relative L2 distance of every layer over all pairs of "
        f"{amount(len(labels), 'different network')}: from the least to the most, with the median. "
        "Those that differ most come first.",
        table(rows, columns, file=f"layers-{chapter.data}").data,
    )


# -- distributions -------------------------------------------------------------------------


def _differences(chapter: Chapter, networks: Sequence[Network]) -> Shown:
    """Between the first network and the others."""
    found = difference_distributions([one.path for one in networks])
    labels = [one.name for one in networks]
    rows = [
        {
            "a": labels[0],
            "b": labels[pair + 1],
            "layer": found.layers[layer],
            "from": float(found.edges[place]),
            "to": float(found.edges[place + 1]),
            "parameters": int(found.counts[pair, layer, place]),
        }
        for pair, layer, place in np.argwhere(found.counts).tolist()
    ]
    return figure(
        weights.difference_distributions(found, labels=labels),
        f"How the parameters of {amount(len(labels) - 1, 'network')}, the nearest to the "
        f"farthest, differ from those of {labels[0]}, by part of the network: logarithmic both "
        "ways, 0 in the middle.",
        table_file(f"differences-{chapter.data}", rows),
    )


def _distributions(
    chapter: Chapter, networks: Sequence[Network], n_networks: int, n_runs: int
) -> Shown:
    shown = {one.name: one.path for one in networks}
    rows = [
        {
            "network": label,
            "part": part,
            "from": float(edges[place]),
            "to": float(edges[place + 1]),
            "weights": int(counts[place]),
        }
        for label, parts in distributions(shown, bins=_BINS).items()
        for part, (counts, edges) in parts.items()
        for place in np.flatnonzero(counts).tolist()
    ]
    return figure(
        weights.weight_distributions(shown),
        f"How the weights of {len(shown)} of {amount(n_networks, 'different network')} "
        f"({amount(n_runs, 'run')}) are spread, by part of the network. Lines on top of each other "
        "are equal.",
        table_file(f"weights-{chapter.data}", rows),
    )


# -- training ------------------------------------------------------------------------------


def _curves(chapter: Chapter) -> list[Shown]:
    """Training losses, trainings of equal length together."""
    by_length: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.training is not None:
            by_length[len(repeat.manifest.training.train_losses)].append(repeat)
    most_first = sorted(by_length.values(), key=lambda repeats: -len(repeats))
    return [_curve(chapter, repeats) for repeats in most_first[:_MOST_LENGTHS]]


def _curve(chapter: Chapter, trained: Sequence[Repeat]) -> Shown:
    """As many repeats as make no more curves than can be told apart."""
    by_course: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in trained:
        assert repeat.manifest.training is not None
        by_course[repeat.manifest.training.model_dump_json()].append(repeat)
    courses = list(by_course.values())[:_MOST_CURVES]
    kept = [repeat for repeat in trained if any(repeat in course for course in courses)]
    rows: list[dict[str, Any]] = []
    for repeat in kept:
        found = repeat.manifest.training
        assert found is not None
        each = zip(found.train_losses, found.learning_rates, strict=False)
        rows += [
            {"run": repeat.name, "epoch": epoch, "loss": loss, "learning_rate": rate}
            for epoch, (loss, rate) in enumerate(each, start=1)
        ]
    left_out = len(trained) - len(kept)
    more = f" {amount(left_out, 'run')} with further curves left out." if left_out else ""
    return figure(
        training.training_curves(kept, labels=[chapter.names.label(repeat) for repeat in kept]),
        f"Loss and learning rate per epoch of {amount(len(kept), 'run')}. Runs that agree "
        f"to the last digit share one line.{more}",
        table_file(f"training-{chapter.data}", rows),
    )
