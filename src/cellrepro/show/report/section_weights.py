"""The section on networks: which are equal, how far apart the others are, and in which layers."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.weight_comparison import WeightsComparison, compare_weights
from cellrepro.comparison.weight_distributions import difference_distributions
from cellrepro.comparison.weight_similarity import Similarity, layers_by_distance, similarity
from cellrepro.comparison.weight_statistics import WeightStatistics
from cellrepro.show.figures import weights
from cellrepro.show.pages.parts import Cell, Figure, Table, drawn_twice, figure, table, table_file
from cellrepro.show.report.section_equality import Equality
from cellrepro.show.report.summary import Chapter
from cellrepro.show.tables.weights import statistics_table
from cellrepro.store.stored_run import Repeat
from cellrepro.words import share_text
from samebits.words import grouped

_MOST_NETWORKS = 12
_MOST_WORK = 1.5e9  # parameters times pairs of networks: seconds, not hours
_MOST_OVERLAID = 4


@dataclass(frozen=True)
class Network:
    """One of the different networks, and the runs that ended in it."""

    name: str
    """Its number, and the spec of its first run."""
    number: int
    path: Path
    members: Sequence[Repeat]


@dataclass(frozen=True)
class Matrix:
    """The distances of every two networks, by one measure."""

    title: str
    least: float
    """The least distance that is not 0."""
    most: float
    table: Table


@dataclass(frozen=True)
class Distant:
    """Figures of networks that differ."""

    layers: Figure
    layers_said: str
    """Where two are farthest apart, and which layers are equal."""
    differences: Figure
    base: Network
    others: Sequence[Network]
    """The nearest, the middle and the farthest one from the base."""
    pair: Table
    """How far apart the two most distant are."""


@dataclass(frozen=True)
class WeightsSection:
    """Distances of every two of some networks, and the two most distant."""

    n_runs: int
    """Runs whose weights are in the store."""
    n_networks: int
    """Different networks among them."""
    n_chosen: int
    """Those whose distances are shown."""
    n_missing: int
    """Runs whose weights are not in the store."""
    n_parameters: int
    matrices: Sequence[Matrix]
    statistics: Table
    layers: Table
    distant: Distant | None
    """None where no two networks are apart."""
    n_overlaid: int
    distributions: Figure


def weights_section(chapter: Chapter, equality: Equality) -> WeightsSection | None:
    """Make the section on networks; None where the store has no weights of these runs."""
    trained = [repeat for repeat in chapter.repeats if repeat.manifest.weights is not None]
    networks = _networks(chapter, equality, trained)
    if not networks:
        return None
    n_parameters = networks[0].members[0].manifest.model.n_parameters
    chosen = _chosen(networks, n_parameters)
    distances = similarity([network.path for network in chosen])
    distant = _distant(chapter, distances, chosen)
    overlaid = [distant.base, *distant.others] if distant else chosen[:_MOST_OVERLAID]
    drawn = weights.weight_histograms({network.name: network.path for network in overlaid})
    return WeightsSection(
        n_runs=sum(len(network.members) for network in networks),
        n_networks=len(networks),
        n_chosen=len(chosen),
        n_missing=len(trained) - sum(len(network.members) for network in networks),
        n_parameters=n_parameters,
        matrices=_matrices(chapter, distances, chosen) if len(chosen) > 1 else [],
        statistics=_statistics(chapter, chosen, by_layer=False),
        layers=_statistics(chapter, chosen, by_layer=True),
        distant=distant,
        n_overlaid=len(overlaid),
        distributions=figure(drawn),
    )


def _networks(chapter: Chapter, equality: Equality, trained: Sequence[Repeat]) -> list[Network]:
    """Group repeats by the network that they ended in."""
    groups: dict[int, list[Repeat]] = defaultdict(list)
    paths: dict[int, Path] = {}
    for repeat in trained:
        if repeat.weights is not None:
            number = equality.networks[repeat.name]
            groups[number].append(repeat)
            paths.setdefault(number, repeat.weights)
    n_networks_of = Counter(
        place for members in groups.values() for place in {*map(place_of, members)}
    )
    networks = []
    names = chapter.names
    for number, members in groups.items():
        first = members[0]
        place = place_of(first)
        n_others = len({place_of(repeat) for repeat in members}) - 1
        is_only = n_networks_of[place] == 1
        name = names.of_spec(place) if is_only else names.of_repeat(first)
        more = f" (and {n_others} more)" if n_others else ""
        network = Network(
            name=f"{number}: {name}{more}",
            number=number,
            path=paths[number],
            members=members,
        )
        networks.append(network)
    return networks


def _chosen(networks: Sequence[Network], n_parameters: int) -> list[Network]:
    """Choose as many networks as page and time allow, the first of each spec before others."""
    afforded = max(2, int((2 * _MOST_WORK / n_parameters) ** 0.5))
    in_turn = sorted(networks, key=lambda network: network.members[0].index)
    return sorted(in_turn[: min(_MOST_NETWORKS, afforded)], key=lambda network: network.number)


def _statistics(chapter: Chapter, networks: Sequence[Network], *, by_layer: bool) -> Table:
    """Make the table of the parameters of each network, or of each of its layers."""
    files = {network.name: network.path for network in networks}
    kinds = dict.fromkeys((field.name for field in fields(WeightStatistics)), "{:.6g}")
    kinds |= dict.fromkeys(("file, bytes", "parameters"), "count")
    rows = statistics_table(files, by_layer=by_layer).reset_index().to_dict("records")
    name = f"networks{'-by-layer' * by_layer}-{chapter.data}"
    return table(rows, kinds, file=name)


# -- distances -----------------------------------------------------------------------------


def _matrices(chapter: Chapter, similar: Similarity, networks: Sequence[Network]) -> list[Matrix]:
    """Make the tables of distances of every two networks, by three measures."""
    kinds = (
        ("L2 distance", "l2-distance", similar.l2),
        ("1 − cosine similarity", "cosine-distance", 1 - similar.cosine),
        ("Largest difference of one parameter", "largest-difference", similar.max_abs),
    )
    data = chapter.data
    return [_matrix(title, f"{file}-{data}", matrix, networks) for title, file, matrix in kinds]


def _matrix(title: str, file: str, matrix: np.ndarray, networks: Sequence[Network]) -> Matrix:
    from matplotlib import colormaps
    from matplotlib.colors import LogNorm, to_hex

    shown = matrix[np.isfinite(matrix) & (matrix > 0)]
    low, high = (float(shown.min()), float(shown.max())) if shown.size else (1.0, 1.0)
    norm = LogNorm(low, high)

    def cell(value: float) -> Cell:
        if not 0 < value < np.inf:
            return Cell("–" if np.isnan(value) else f"{value:.0f}", value=value)
        share = float(norm(value)) if low < high else 1.0
        colour = to_hex(colormaps["cividis"](0.95 - 0.83 * share))
        colours = f"background: {colour}; color: {'#fff' if share > 0.6 else '#000'}"
        return Cell(f"{value:.2g}", colours=colours, value=value)

    numbers = [str(network.number) for network in networks]
    rows = [
        {"network": network.name, **dict(zip(numbers, map(cell, values), strict=True))}
        for network, values in zip(networks, matrix.tolist(), strict=True)
    ]
    shades = table(rows, dict.fromkeys(numbers, "number"), file=file)
    return Matrix(title=title, least=low, most=high, table=shades)


def _distant(
    chapter: Chapter, distances: Similarity, networks: Sequence[Network]
) -> Distant | None:
    """Draw in which layers networks differ, and how some differ from one of the two most distant.

    None where no two are apart.
    """
    upper = np.triu(np.nan_to_num(distances.l2), 1)
    if not upper.any():
        return None
    base_index, farthest_index = map(int, np.unravel_index(upper.argmax(), upper.shape))
    from_base = distances.l2[base_index]
    by_distance = [i for i in np.argsort(from_base).tolist() if from_base[i] > 0]
    middle_index = by_distance[(len(by_distance) - 1) // 2]
    near_to_far = dict.fromkeys((by_distance[0], middle_index, farthest_index))
    base = networks[base_index]
    others = [networks[i] for i in near_to_far]
    shown = [base, *others]
    differences = difference_distributions([network.path for network in shown])
    shown_names = [network.name for network in shown]
    drawn_differences = weights.difference_histograms(differences, labels=shown_names)
    names = [network.name for network in networks]
    drawn_layers = drawn_twice(weights.layer_distances, distances, labels=names)
    rows = [
        {
            "layer": row.layer,
            "least": row.least,
            "median": row.median,
            "most": row.most,
            "furthest": " and ".join(names[i] for i in row.furthest),
        }
        for row in layers_by_distance(distances)
    ]
    farthest = networks[farthest_index]
    return Distant(
        layers=figure(drawn_layers, table_file(f"layers-{chapter.data}", rows)),
        layers_said=drawn_layers.wide.caption,
        differences=figure(drawn_differences),
        base=base,
        others=others,
        pair=_distances_of(base, farthest, compare_weights(base.path, farthest.path)),
    )


def _distances_of(a: Network, b: Network, comparison: WeightsComparison) -> Table:
    share = share_text(comparison.n_differing / comparison.n_parameters)
    rows = [
        {"": "network", "the two": a.name},
        {"": "the one farthest from it", "the two": b.name},
        {
            "": "parameters that differ",
            "the two": f"{grouped(comparison.n_differing)} of {grouped(comparison.n_parameters)}, "
            f"{share}",
        },
        {
            "": "L2 distance",
            "the two": f"{comparison.l2:.3g}, relative {comparison.relative_l2:.3g}",
        },
        {"": "cosine", "the two": f"{comparison.cosine:.9f}"},
        {
            "": "largest difference",
            "the two": f"{comparison.max_abs:.3g} in {comparison.max_abs_name}",
        },
    ]
    return table(rows, {"the two": "value"})
