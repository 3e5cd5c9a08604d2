"""The report on networks: which are equal, how far apart the others are, and in which layers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cellrepro.compare.names import place_of
from cellrepro.compare.weight_histograms import (
    DifferenceDistributions,
    difference_distributions,
    distribution,
    magnitudes,
)
from cellrepro.compare.weight_similarity import Similarity, layers_by_distance, similarity
from cellrepro.compare.weights import WeightsComparison, compare_weights
from cellrepro.show.figures import training, weights
from cellrepro.show.report.findings import Chapter, where
from cellrepro.show.report.page import Shown, figure, table_file
from cellrepro.show.report.section_equality import Results
from cellrepro.store.store import Repeat
from cellrepro.text import amount, grouped, share_text

_MOST_NETWORKS = 12
_MOST_WORK = 1.5e9  # parameters compared for the similarity of all pairs: seconds, not hours
_MOST_OVERLAID = 4
_MOST_CURVES = 6
_MOST_LENGTHS = 2
_MOST_TENSORS = 12
_MOST_WITH_NUMBERS = 10  # networks; beyond, the shades say it and the file holds the numbers
_SHADES = 9
_AS_FAR_FROM_BLACK = 0.179  # luminance that contrasts with black as much as with white
_BINS = 61  # as in the figure


def weights_view(chapter: Chapter, same: Results) -> dict[str, Any] | None:
    """The networks of a chapter; none if nothing was trained or no weights are in the store."""
    groups: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.weights is not None and repeat.weights is not None:
            groups[repeat.manifest.weights.digest].append(repeat)
    if not groups:
        return None
    n_missing = sum(r.manifest.weights is not None and r.weights is None for r in chapter.repeats)
    n_parameters = max(members[0].manifest.model.n_parameters for members in groups.values())
    numbers = {digest: same.networks[members[0].name] for digest, members in groups.items()}
    names = {digest: _network_name(chapter, numbers[digest], groups[digest]) for digest in groups}
    chosen = _chosen_networks(groups, n_parameters)
    first = [groups[digest][0] for digest in chosen]
    view: dict[str, Any] = {
        "n": len(groups),
        "n_repeats": sum(len(members) for members in groups.values()),
        "n_missing": n_missing,
        "n_parameters": grouped(n_parameters),
        "n_shown": len(chosen),
        "groups": [
            {
                "number": numbers[digest],
                "digest": digest,
                "members": [chapter.label(member) for member in members],
            }
            for digest, members in groups.items()
        ],
        "curves": _curves(chapter),
        "matrices": [],
        "pair": None,
        "layers": None,
        "differences": None,
    }
    overlaid = list(range(min(len(chosen), _MOST_OVERLAID)))
    if len(chosen) > 1:
        table = similarity([_weights(repeat) for repeat in first])
        view["matrices"] = _matrices(
            chapter, table, [names[d] for d in chosen], [numbers[d] for d in chosen]
        )
        far = _most_distant(table)
        if far is not None:
            labels = [names[chosen[i]] for i in far]
            view["pair"] = _pair_view(_weights(first[far[0]]), _weights(first[far[1]]), labels)
            view["layers"] = _layers(chapter, table, [names[digest] for digest in chosen])
            overlaid = [far[0], *_near_and_far(table, far[0])]
            view["differences"] = _differences(
                chapter, table, {i: names[chosen[i]] for i in overlaid}, far[0]
            )
    shown = {names[chosen[i]]: _weights(first[i]) for i in sorted(overlaid)}
    view["distributions"] = figure(
        weights.weight_distributions(shown),
        alt=f"Histograms of the weights of {amount(len(shown), 'network')}, by part of the "
        "network.",
        caption=f"How the weights of {len(shown)} of {amount(len(groups), 'different network')} "
        f"({amount(view['n_repeats'], 'run')}) are spread, by part of the network. Lines on top of "
        "each other are equal.",
        data=table_file(f"weights-{chapter.data}", _histogram_rows(shown)),
    )
    return view


def _weights(repeat: Repeat) -> Path:
    assert repeat.weights is not None  # only such repeats are in a group
    return repeat.weights


def _network_name(chapter: Chapter, number: int, members: Sequence[Repeat]) -> str:
    own = next(run for run, _ in chapter.runs if where(run) == place_of(members[0]))
    alone = len({r.manifest.weights.digest for r in own.repeats if r.manifest.weights}) == 1
    name = chapter.names.short(where(own)) if alone else chapter.label(members[0])
    n_others = len({place_of(member) for member in members}) - 1
    return f"{number}: {name}" + (f" (and {n_others} more)" if n_others else "")


def _chosen_networks(groups: Mapping[str, Sequence[Repeat]], n_parameters: int) -> list[str]:
    """As many different networks as a page shows, evenly over the specs; one of each first."""
    most = _MOST_NETWORKS
    while most > 2 and most * (most - 1) / 2 * n_parameters > _MOST_WORK:
        most -= 1
    order: dict[str, int] = {}
    seen: Counter[str] = Counter()
    for digest, members in groups.items():
        order[digest] = seen[members[0].manifest.key]
        seen[members[0].manifest.key] += 1
    firsts = [digest for digest in groups if not order[digest]]
    others = [digest for digest in groups if order[digest]]
    kept = {*_evenly(firsts, most), *_evenly(others, max(0, most - len(firsts)))}
    return [digest for digest in groups if digest in kept]


def _evenly(digests: Sequence[str], n: int) -> list[str]:
    """At most n of them, from the first to the last."""
    places = np.linspace(0, len(digests) - 1, min(n, len(digests)))
    return [digests[place] for place in places.round().astype(int).tolist()]


# -- matrices ------------------------------------------------------------------------------


def _matrices(
    chapter: Chapter, table: Similarity, labels: Sequence[str], numbers: Sequence[int]
) -> list[dict[str, Any]]:
    over = f"{amount(len(labels), 'different network')}, every one against every other"
    kinds = (
        ("L2 distance", "l2-distance", table.l2, "0 is equal."),
        (
            "1 − cosine similarity",
            "cosine-distance",
            np.where(np.isnan(table.cosine), np.nan, np.maximum(1 - table.cosine, 0)),
            "0 is the same direction; below 1e-15 it is rounding.",
        ),
        (
            "largest difference of one parameter",
            "largest-difference",
            table.max_abs,
            "0 is equal.",
        ),
    )
    return [
        {
            "title": title[0].upper() + title[1:],
            "caption": f"{title[0].upper()}{title[1:]} of {over}, over all their parameters. "
            f"{note} The darker, the farther apart{_limits_text(matrix)}.",
            "alt": _matrix_text(title, matrix, labels),
            "columns": numbers,
            "rows": [
                (label, _heat(matrix, i, numbers=len(labels) <= _MOST_WITH_NUMBERS))
                for i, label in enumerate(labels)
            ],
            "download": table_file(
                f"{file}-{chapter.data}",
                [
                    {
                        "network": label,
                        **{
                            str(number): float(value)
                            for number, value in zip(numbers, matrix[i], strict=True)
                        },
                    }
                    for i, label in enumerate(labels)
                ],
            ),
        }
        for title, file, matrix, note in kinds
    ]


def _matrix_text(title: str, matrix: np.ndarray, labels: Sequence[str]) -> str:
    apart = np.where(np.triu(np.ones_like(matrix), 1) > 0, matrix, np.nan)
    if np.isnan(apart).all():
        return f"{title}: nothing can be told."
    low = divmod(int(np.nanargmin(apart)), len(labels))
    high = divmod(int(np.nanargmax(apart)), len(labels))
    return (
        f"{title} from {apart[low]:.2g} ({labels[low[0]]}, and {labels[low[1]]}) to "
        f"{apart[high]:.2g} ({labels[high[0]]}, and {labels[high[1]]})."
    )


def _limits_text(matrix: np.ndarray) -> str:
    shown = matrix[np.isfinite(matrix) & (matrix > 0)]
    return f": from {shown.min():.2g} to {shown.max():.2g}" if shown.size else ""


def _heat(matrix: np.ndarray, row: int, *, numbers: bool) -> list[dict[str, Any]]:
    """Text and shade, 0 (close) to 8 (far) by the logarithm, of every field of one row."""
    shown = matrix[np.isfinite(matrix) & (matrix > 0)]
    low, high = (math.log(shown.min()), math.log(shown.max())) if shown.size else (0.0, 1.0)
    fields = []
    for column, value in enumerate(matrix[row]):
        text = "–" if np.isnan(value) else "0" if value == 0 else f"{value:.1e}"
        shade = None
        if column != row and np.isfinite(value) and value > 0:
            place = (math.log(value) - low) / (high - low) if high > low else 1.0
            shade = min(_SHADES - 1, int(place * _SHADES))
        fields.append({"text": text if numbers or not value else "", "title": text, "shade": shade})
    return fields


def shade_colours() -> list[tuple[str, bool]]:
    """Background of every shade, and whether black text is easier to read on it than white."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    colours = [colormaps["cividis"](place)[:3] for place in np.linspace(0.95, 0.12, _SHADES)]
    return [(to_hex(colour), _luminance(colour) > _AS_FAR_FROM_BLACK) for colour in colours]


def _luminance(colour: Sequence[float]) -> float:
    """Relative luminance of an sRGB colour, as WCAG 2.2 defines it."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour]
    return float(np.dot((0.2126, 0.7152, 0.0722), linear))


def _near_and_far(table: Similarity, base: int) -> list[int]:
    """Of the networks that differ from one: the nearest, the middle one and the farthest."""
    distances = table.l2[base]
    others = [int(i) for i in np.argsort(distances) if distances[i] > 0]
    places = (0, (len(others) - 1) // 2, len(others) - 1)
    return list(dict.fromkeys(others[place] for place in places))


def _most_distant(table: Similarity) -> tuple[int, int] | None:
    distances = np.triu(np.nan_to_num(table.l2, nan=-1.0), 1)
    if distances.max() <= 0:
        return None
    a, b = np.unravel_index(int(distances.argmax()), distances.shape)
    return int(a), int(b)


# -- the two most distant networks ---------------------------------------------------------


def _pair_view(a: Path, b: Path, labels: Sequence[str]) -> dict[str, Any]:
    result = compare_weights(a, b)
    differing = sorted(
        (row for row in result.per_tensor if row.n_differing),
        key=lambda row: -math.inf if math.isnan(row.relative_l2) else -row.relative_l2,
    )
    return {
        "a": labels[0],
        "b": labels[1],
        "text": _pair_text(result),
        "rows": differing[:_MOST_TENSORS],
        "n_differing": len(differing),
    }


def _pair_text(result: WeightsComparison) -> str:
    return (
        f"{grouped(result.n_differing)} of {grouped(result.n_parameters)} parameters "
        f"differ ({share_text(result.n_differing / result.n_parameters)}); L2 distance "
        f"{result.l2:.3g} (relative {result.relative_l2:.3g}), cosine {result.cosine:.9f}, largest "
        f"difference {result.max_abs:.3g} in {result.max_abs_name}."
    )


# -- layers and distributions --------------------------------------------------------------


def _layers(chapter: Chapter, table: Similarity, labels: Sequence[str]) -> Shown:
    rows = layers_by_distance(table)
    first = "; ".join(f"{row.layer} (median {row.median:.2g})" for row in rows[:3])
    return figure(
        weights.layer_distances(table, labels=labels),
        alt=f"The layers that part most, by relative L2 distance: {first}."
        if rows
        else "No two networks can be compared layer by layer.",
        caption=f"Relative L2 distance of every layer over all pairs of "
        f"{amount(len(labels), 'different network')}: from the least to the most, with the median. "
        "Those that part most come first.",
        data=table_file(
            f"layers-{chapter.data}",
            [
                {
                    "layer": row.layer,
                    "pairs": len({frozenset(pair) for pair in row.pairs}),
                    "least": row.least,
                    "median": row.median,
                    "most": row.most,
                    "furthest_a": labels[row.furthest[0]],
                    "furthest_b": labels[row.furthest[1]],
                }
                for row in rows
            ],
        ),
    )


def _differences(
    chapter: Chapter, table: Similarity, named: Mapping[int, str], base: int
) -> Shown | None:
    """Between one network and the others that are overlaid, as far as they are alike."""
    others = [i for i in named if i != base and not np.isnan(table.l2[base, i])]
    if not others:
        return None
    members = [base, *others]
    found = difference_distributions([table.paths[i] for i in members])
    labels = [named[i] for i in members]
    equal = found.n_zero.sum(1) / found.counts.sum((1, 2))
    return figure(
        weights.difference_distributions(found, labels=labels),
        alt="Histograms of the differences of parameters by part of the network, between "
        f"{labels[0]} and "
        + "; ".join(
            f"{label} ({share_text(float(share))} of the parameters equal)"
            for label, share in zip(labels[1:], equal, strict=True)
        )
        + ".",
        caption=f"How the parameters of {amount(len(others), 'network')}, the nearest to the "
        f"farthest, differ from those of {labels[0]}, by part of the network: logarithmic both "
        "ways, 0 in the middle.",
        data=table_file(f"differences-{chapter.data}", _difference_rows(found, labels)),
    )


def _difference_rows(found: DifferenceDistributions, labels: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "a": labels[i],
            "b": labels[j],
            "layer": found.layers[layer],
            "from": float(found.edges[place]),
            "to": float(found.edges[place + 1]),
            "parameters": int(found.counts[pair, layer, place]),
        }
        for pair, (i, j) in enumerate(found.pairs)
        for layer, place in np.argwhere(found.counts[pair]).tolist()
    ]


def _histogram_rows(shown: Mapping[str, Path]) -> list[dict[str, Any]]:
    """What `plots.weight_distributions` draws, without empty intervals."""
    largest: dict[str, float] = {}
    for path in shown.values():
        for part, magnitude in magnitudes(path).items():
            largest[part] = max(largest.get(part, 0.0), magnitude)
    return [
        {
            "network": label,
            "part": part,
            "from": float(edges[place]),
            "to": float(edges[place + 1]),
            "weights": int(counts[place]),
        }
        for label, path in shown.items()
        for part, (counts, edges) in distribution(path, largest, bins=_BINS).items()
        for place in np.flatnonzero(counts).tolist()
    ]


# -- training ------------------------------------------------------------------------------


def _curves(chapter: Chapter) -> list[Shown]:
    """Training losses, trainings of equal length together."""
    by_length: dict[int, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        if repeat.manifest.training is not None:
            by_length[len(repeat.manifest.training.train_losses)].append(repeat)
    most_first = sorted(by_length, key=lambda length: -len(by_length[length]))
    return [_curve(chapter, by_length[length]) for length in most_first[:_MOST_LENGTHS]]


def _curve(chapter: Chapter, trained: Sequence[Repeat]) -> Shown:
    """As many repeats as make no more curves than can be told apart."""
    seen: set[str] = set()
    kept = []
    for repeat in trained:
        assert repeat.manifest.training is not None
        course = repeat.manifest.training.model_dump_json()
        if course in seen or len(seen) < _MOST_CURVES:
            seen.add(course)
            kept.append(repeat)
    left_out = len(trained) - len(kept)
    last = [r.manifest.training.train_losses[-1] for r in kept if r.manifest.training]
    return figure(
        training.training_curves(kept, labels=[chapter.label(repeat) for repeat in kept]),
        alt=f"Training loss and learning rate of every epoch, {amount(len(seen), 'curve')}; the "
        f"last loss is {min(last):.6g} to {max(last):.6g}.",
        caption=f"Loss and learning rate per epoch of {amount(len(kept), 'run')}. Runs that "
        "agree to the last digit share one line."
        + (f" {amount(left_out, 'run')} with further curves left out." if left_out else ""),
        data=table_file(
            f"training-{chapter.data}",
            [
                {"run": repeat.name, "epoch": epoch, "loss": loss, "learning_rate": rate}
                for repeat in kept
                if repeat.manifest.training is not None
                for epoch, (loss, rate) in enumerate(
                    zip(
                        repeat.manifest.training.train_losses,
                        repeat.manifest.training.learning_rates,
                        strict=False,
                    ),
                    start=1,
                )
            ],
        ),
    )
