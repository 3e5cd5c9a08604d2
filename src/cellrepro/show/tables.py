"""Tables for notebooks, as data frames: a row a thing, a column a question."""

from __future__ import annotations

import html
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cellrepro.compare.names import Names, place_of
from cellrepro.compare.object_changes import ObjectChange, ObjectKind
from cellrepro.compare.seed_spread import Spread
from cellrepro.compare.verdicts import Verdict
from cellrepro.determinism import modes, profiles
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.store import platform
from cellrepro.store.digests import value_digest
from cellrepro.store.store import Repeat, Run
from cellrepro.text import amount, grouped, ppm_text, share_text

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from IPython.display import Markdown
    from pandas.io.formats.style import Styler

    from cellrepro.compare.consensus import Agreement
    from cellrepro.compare.metrics import MaskComparison
    from cellrepro.compare.weights import WeightsComparison
    from cellrepro.show.report.protocol import Step

_MOST_TELLING = (
    ObjectKind.SPLIT,
    ObjectKind.MERGED,
    ObjectKind.LOST,
    ObjectKind.GAINED,
    ObjectKind.MOVED,
)
"""Few and worth a look come first: a cut cell says more than one that moved by a pixel."""

_WRAPPED = 32
"""Letters; longer texts are wrapped in their column."""

SCORES: dict[str, tuple[str, str]] = {
    "ap50": ("AP at IoU 0.5", "matched cells, of all cells of either side; 1: every cell matches"),
    "ap": ("AP, 0.5 to 0.95", "the same, averaged over ten demands on the overlap"),
    "precision50": ("precision", "share of the second side's cells that the first has as well"),
    "recall50": ("recall", "share of the first side's cells that the second has as well"),
    "mean_matched_iou": ("IoU of matches", "how well two matched cells cover each other"),
    "pq": ("panoptic quality", "matched at all, times how well matched"),
    "aji": ("AJI", "overlap cell by cell; what only one side has counts against it"),
    "dice": ("Dice", "overlap of everything that is cell, whichever cell it is"),
    "boundary_f1": ("boundary F1", "share of the outlines within 2 pixels of the other side's"),
    "vi_split": ("VI, split", "bits, 0 is best; grows where the second side cuts cells"),
    "vi_merge": ("VI, merge", "bits, 0 is best; grows where the second side joins cells"),
    "rand_error": ("adapted Rand error", "0 is best; pairs of pixels joined on one side only"),
    "count": ("cells more", "in the second side than in the first, over all images"),
    "area": ("pixels more", "per cell in the second side, where both sides have it"),
}
"""What `score_table` lists: the name a reader sees, and what it says."""


def host_table() -> pd.DataFrame:
    """This machine and the versions that matter, one a row."""
    machine = platform.host()
    rows = {
        "processor": machine["processor"],
        "vector instructions": ", ".join(machine["instructions"]) or "none of those PyTorch uses",
        "cores": machine["cores"],
        "memory": f"{machine['memory'] / 2**30:.0f} GiB",
        "GPU": ", ".join(gpu["name"] for gpu in machine["gpus"]) or "none from NVIDIA",
        "system": machine["system"],
        **platform.versions(),
    }
    return frame([{"what": name, "here": value} for name, value in rows.items()], "what")


def profile_table() -> pd.DataFrame:
    """The profiles, what they fix, and whether this machine can run them."""
    rows = []
    for name in profiles.names():
        profile = profiles.load(name)
        rows.append(
            {
                "profile": name,
                "what it is": profile.description,
                "device": profile.device,
                "threads": profile.threads or "all",
                "variables": ", ".join(f"{k}={v}" for k, v in profile.environment.items()) or "-",
                "runs here": _runs_here(profile),
            }
        )
    return frame(rows, "profile")


def _runs_here(profile: profiles.Profile) -> str:
    try:
        profile.check_device()
    except NotPossibleHere:
        return f"no: no {profile.device} device"
    return "yes"


def switch_table() -> pd.DataFrame:
    """Every switch in every mode, as PyTorch reads it back in this process."""
    in_force = {}
    for mode in modes.MODES:
        with modes.mode_in_force(mode, device="cpu") as switches:
            in_force[mode] = switches | modes.environment(mode)
    before = "CUBLAS_WORKSPACE_CONFIG"
    names = sorted(in_force["strict"], key=lambda name: name == before)
    rows = [
        {
            "switch": f"{name} (set before the process starts)" if name == before else name,
            **{mode: str(found.get(name, "-")) for mode, found in in_force.items()},
        }
        for name in names
    ]
    return frame(rows, "switch")


def repeat_table(repeats: Sequence[Repeat]) -> pd.DataFrame:
    """The repeats of a run: digests, objects, agreement with the ground truth, time; the machine
    where they are of several."""
    several = len({repeat.machine for repeat in repeats}) > 1
    rows = []
    for repeat in repeats:
        manifest = repeat.manifest
        rows.append(
            {
                "repeat": manifest.repeat,
                **({"machine": repeat.machine} if several else {}),
                "weights": manifest.weights.digest[:12] if manifest.weights else "-",
                "masks": manifest.masks_digest[:12],
                "objects": manifest.n_objects,
                "AP@0.5": _rounded(manifest.ap50),
                "seconds": round(sum(manifest.seconds.values()), 1),
                "vacuous": "; ".join(manifest.vacuous) or "no",
            }
        )
    return frame(rows, "repeat")


def result_table(runs: Sequence[Run]) -> pd.DataFrame:
    """The different results of some runs: one row for all repeats that came out bit for bit equal.

    Parameters
    ----------
    runs : sequence of Run

    Returns
    -------
    DataFrame
        The result most repeats have comes first, a network that others were trained from last.
        Equal numbers in a column mean equal bits: results that share their weights, or their masks,
        but not both, have a row each.
    """
    names = Names.of((run.spec, repeat) for run in runs for repeat in run.repeats)
    groups: dict[tuple[str, str], list[Repeat]] = defaultdict(list)
    for run in runs:
        for repeat in run.repeats:
            trained = repeat.manifest.weights
            groups[trained.digest if trained else "", repeat.manifest.masks_digest].append(repeat)

    def order(members: list[Repeat]) -> tuple[bool, int]:
        return all(names.is_start(place_of(repeat)) for repeat in members), -len(members)

    ordered = sorted(groups.items(), key=lambda group: order(group[1]))
    numbers: list[dict[str, str]] = [{"": "–"}, {}]
    rows = []
    for digests, members in ordered:
        for known, digest in zip(numbers, digests, strict=True):
            known.setdefault(digest, f"#{len(known.keys() - {''}) + 1}")
        counts = Counter(names.short(place_of(repeat)) for repeat in members)
        rows.append(
            {
                "weights": numbers[0][digests[0]],
                "masks": numbers[1][digests[1]],
                "repeats": len(members),
                "settings": "; ".join(
                    f"{name} ({n}×)" if n > 1 else name for name, n in counts.items()
                ),
                "cells": members[0].manifest.n_objects,
                "AP@0.5": _rounded(members[0].manifest.ap50),
            }
        )
    return frame(rows, "weights")


def readable(table: pd.DataFrame, *, decimals: int = 3) -> Styler:
    """A table for the page: words to the left, long ones wrapped, numbers rounded.

    Names of images and runs come from outside, so no text is taken for HTML.

    Parameters
    ----------
    table : DataFrame
    decimals : int
        Of numbers that are not whole. A dash stands for what is missing.
    """
    from pandas.io.formats.style import Styler

    shown = table.reset_index()  # rows may share a name, which a style refuses of an index
    longest = {
        name: max((len(value) for value in shown[name] if isinstance(value, str)), default=0)
        for name in shown.columns
    }
    words = [name for name, n in longest.items() if 0 < n <= _WRAPPED]
    texts = [name for name, n in longest.items() if n > _WRAPPED]
    # From the content: tables of one page share no styles, and equal tables are equal output.
    identifier = value_digest([shown.to_json(), decimals])[:8]
    return (
        Styler(shown, uuid=identifier, cell_ids=False)
        .hide(axis="index")
        .format(precision=decimals, na_rep="–", thousands=" ", escape="html")
        .format_index(escape="html", axis="columns")
        .set_properties(**{"text-align": "left", "white-space": "nowrap"}, subset=words)
        .set_properties(
            **{"text-align": "left", "white-space": "normal", "min-width": "15em"}, subset=texts
        )
        .set_table_styles([{"selector": "th", "props": "text-align: left; white-space: nowrap"}])
    )


def markdown(text: str) -> Markdown:
    """Sentences for the page; the names in them come from outside, so nothing counts as HTML."""
    from IPython.display import Markdown

    return Markdown(html.escape(text, quote=False))


def comparison_sentence(masks: Mapping[str, MaskComparison], *, a: str = "A", b: str = "B") -> str:
    """How two sets of masks differ, in one sentence.

    Parameters
    ----------
    masks : dict
        By image.
    a, b : str
        What the two are called.
    """
    over = amount(len(masks), "image")
    both = f"{a[:1].upper()}{a[1:]} and {b}"
    n_a = sum(result.n_objects_a for result in masks.values())
    n_b = sum(result.n_objects_b for result in masks.values())
    if not n_a and not n_b:
        return f"Neither {a} nor {b} has a cell in any of the {over}: nothing can be compared."
    n_differing = sum(result.n_differing for result in masks.values())
    if not n_differing:
        renumbered = any(result.verdict == Verdict.SAME_OBJECTS for result in masks.values())
        also = ", some under other numbers" if renumbered else ""
        return f"{both} have the same {amount(n_a, 'cell')}{also}, pixel for pixel, on {over}."
    counts = {kind: sum(_n_of(result, kind) for result in masks.values()) for kind in ObjectKind}
    said = ", ".join(f"{n} {kind}" for kind, n in counts.items() if n)
    n_unmatched = sum(result.n_unmatched for result in masks.values())
    n_pixels = sum(result.n_pixels for result in masks.values())
    return (
        f"{both} differ: {amount(n_a, 'cell')} in {a}, {n_b} in {b}, over {over} ({said}). "
        f"{share_text(n_unmatched / (n_a + n_b))} of the cells changed, that is, have no "
        f"counterpart that overlaps by half, and {ppm_text(1e6 * n_differing / n_pixels)} of the "
        "pixels differ."
    )


def kind_table(masks: Mapping[str, MaskComparison]) -> pd.DataFrame:
    """What became of the cells, image by image, and over all images."""
    rows: list[dict[str, Any]] = [
        {
            "image": name,
            "cells A": result.n_objects_a,
            "cells B": result.n_objects_b,
            **{str(kind): _n_of(result, kind) for kind in ObjectKind},
            "renumbered": result.n_renumbered,
            "ppm": _ppm(result.ppm),
        }
        for name, result in masks.items()
    ]
    if len(rows) > 1:
        n_pixels = sum(result.n_pixels for result in masks.values())
        n_differing = sum(result.n_differing for result in masks.values())
        counted = [name for name in rows[0] if name not in ("image", "ppm")]
        summed = {name: sum(row[name] for row in rows) for name in counted}
        rows.append({"image": "all", **summed, "ppm": _ppm(1e6 * n_differing / n_pixels)})
    return frame(rows, "image")


def _ppm(value: float) -> str:
    """Without its unit, which is in the head of the column."""
    return ppm_text(value).removesuffix(" ppm")


def change_table(masks: Mapping[str, MaskComparison], *, n: int = 12) -> pd.DataFrame:
    """The cells that are not kept, the most telling first: cut and joined, lost and gained, moved.

    Parameters
    ----------
    masks : dict
        By image.
    n : int
        How many at most.
    """
    found = [
        (name, change)
        for name, result in masks.items()
        for change in result.objects
        if change.kind != ObjectKind.KEPT
    ]
    found.sort(key=lambda entry: _telling(entry[1]))
    rows = [
        {
            "image": name,
            "what": str(change.kind),
            "position": _position(change.position),
            "IoU": change.iou,
            "went (px)": change.displacement,
            "area A (px)": change.area_a,
            "area B (px)": change.area_b,
            "label A": " ".join(map(str, change.labels_a)) or "–",
            "label B": " ".join(map(str, change.labels_b)) or "–",
        }
        for name, change in found[:n]
    ]
    columns = ("image", "what", "position", "IoU", "went (px)", "area A (px)", "area B (px)")
    return frame(rows, "image", columns=(*columns, "label A", "label B"))


def _position(position: Sequence[float]) -> str:
    """A centroid to find in a picture.

    Examples
    --------
    >>> _position((12.4, 30.6))
    'y 12, x 31'
    """
    axes = "zyx"[-len(position) :]
    return ", ".join(f"{axis} {place:.0f}" for axis, place in zip(axes, position, strict=True))


def _telling(change: ObjectChange) -> tuple[int, float, int]:
    order = _MOST_TELLING.index(change.kind)
    overlap = change.iou if change.kind == ObjectKind.MOVED else 0.0
    return order, overlap, -max(change.area_a, change.area_b)


def _n_of(result: MaskComparison, kind: ObjectKind) -> int:
    return int(result.kinds[kind])


def score_table(
    comparisons: Mapping[str, Sequence[MaskComparison]], *, fields: Iterable[str] = SCORES
) -> pd.DataFrame:
    """Every usual score, one a row, with what it says.

    Parameters
    ----------
    comparisons : dict
        By name, the comparisons of all images; the truth is the first side where there is one.
    fields : iterable of str
        Only these of `SCORES`.

    Returns
    -------
    DataFrame
        Means over the images for which a score is defined, the sum for the number of cells.
    """
    rows = []
    for field in fields:
        name, meaning = SCORES[field]
        scores = {of: _score(field, results) for of, results in comparisons.items()}
        rows.append({"score": name, **scores, "what it says": meaning})
    columns = ("score", *comparisons, "what it says")
    return frame(rows, "score", columns=columns, dtype=object)  # counts stay whole numbers


def _score(field: str, results: Sequence[MaskComparison]) -> float:
    if field == "count":
        counts = [result.n_objects_b - result.n_objects_a for result in results]
        return sum(counts) if counts else math.nan
    if field == "area":
        found = [result.mean_matched_area_difference for result in results]
    elif field == "ap":
        found = [float(result.ap.mean()) for result in results]
    else:
        found = [getattr(result, field) for result in results]
    defined = [value for value in found if not math.isnan(value)]
    return sum(defined) / len(defined) if defined else math.nan


def stability_table(agreement: Agreement, *, n: int = 10) -> pd.DataFrame:
    """The cells that fewest runs have, the least stable first.

    Parameters
    ----------
    agreement : Agreement
    n : int
        How many at most; cells that all runs have alike are left out.
    """
    unstable = [item for item in agreement.objects if item.share < 1 or item.mean_iou < 1]
    rows = [
        {
            "position": _position(item.position),
            "in": f"{item.n_runs_with} of {amount(agreement.n_runs, 'run')}",
            # One run is always at one with itself.
            "mean IoU": item.mean_iou if item.n_runs_with > 1 else math.nan,
            "area (px)": item.area,
            "in the consensus": f"yes, as {item.label}" if item.label else "no",
        }
        for item in unstable[:n]
    ]
    columns = ("position", "in", "mean IoU", "area (px)", "in the consensus")
    return frame(rows, "position", columns=columns)


def decision_table(spread: Spread) -> pd.DataFrame:
    """Whether what was changed matters less than the seed, one row for each thing changed."""
    rows = []
    for axis in spread.axes:
        if axis.name == "seed" or not axis.evidence:
            continue
        found = spread.decide(axis.name)
        answer = "no answer" if math.isnan(found.changed_ratio) else "not shown"
        answer = "yes" if found.within else "same outlines" if axis.equal else answer
        why = f"the outlines are the same in {amount(len(axis.evidence), 'pair')}"
        rows.append(
            {
                "changed": axis.title,
                "pairs": len(axis.evidence),
                "cells changed": share_text(axis.distribution().mean),
                "within spread": answer,
                "why": why if axis.equal and not found.within else found.sentence,
            }
        )
    columns = ("changed", "pairs", "cells changed", "within spread", "why")
    return frame(rows, "changed", columns=columns)


def protocol_table(steps: Sequence[Step]) -> pd.DataFrame:
    """The five steps: question, answer, over what, and what to run where there is none."""
    rows = [
        {
            "step": step.number,
            "question": step.question,
            "answer": step.answer,
            "pairs": step.n_pairs,
            "what is missing": step.todo.replace("`", "") or "–",
        }
        for step in steps
    ]
    return frame(rows, "step")


def weights_table(comparisons: Mapping[str, WeightsComparison]) -> pd.DataFrame:
    """How far pairs of networks lie apart, one measure a row, with what it says.

    Parameters
    ----------
    comparisons : dict
        By what the pair is called.
    """
    rows = [
        {
            "measure": measure,
            **{name: told(of) for name, of in comparisons.items()},
            "meaning": says,
        }
        for measure, (says, told) in _DISTANCES.items()
    ]
    return frame(rows, "measure")


_DISTANCES: dict[str, tuple[str, Callable[[WeightsComparison], str]]] = {
    "parameters that differ": (
        "in at least one bit",
        lambda of: share_text(of.n_differing / max(1, of.n_parameters)),
    ),
    "L2 distance": ("length of the difference of all parameters", lambda of: f"{of.l2:.3g}"),
    "relative L2": (
        "the same as a share of the first network's length",
        lambda of: f"{of.relative_l2:.3g}",
    ),
    "cosine": ("1 where both point the same way", lambda of: f"{of.cosine:.9f}"),
    "largest difference": ("of one parameter", lambda of: f"{of.max_abs:.3g}"),
    "in": ("where that is", lambda of: of.max_abs_name or "–"),
    "median ulp": (
        "steps between neighbouring floating-point numbers, of one parameter",
        lambda of: "–" if of.median_ulp is None else grouped(of.median_ulp),
    ),
    "largest ulp": (
        "most steps of any parameter; many where a sign changed",
        lambda of: "–" if of.max_ulp is None else grouped(of.max_ulp),
    ),
}


def distance_matrix(matrix: np.ndarray, names: Sequence[str]) -> Styler:
    """How far N networks lie apart from each other, dark where they are near.

    Parameters
    ----------
    matrix : ndarray of float, shape (N, N)
        A field of `cellrepro.compare.Similarity`, such as ``relative_l2``.
    names : sequence of str
        What the networks are called.

    Returns
    -------
    Styler
        Shaded by powers of ten; zeros and what is not defined stay white.
    """
    import numpy as np
    import pandas as pd

    if np.shape(matrix) != (len(names), len(names)):
        raise BadInput(
            f"the matrix has shape {np.shape(matrix)}, and there are {len(names)} names; expected "
            f"{(len(names), len(names))}"
        )
    numbers = [f"#{i}" for i in range(1, len(names) + 1)]
    labels = [f"{number} {name}" for number, name in zip(numbers, names, strict=True)]
    table = pd.DataFrame(matrix, index=pd.Index(labels, name="network"), columns=numbers)
    shown = np.where(np.isfinite(matrix) & (matrix > 0), matrix, np.nan)
    least = np.nanmin(shown) if np.isfinite(shown).any() else 1.0
    return (
        readable(table)
        .format("{:.2g}", na_rep="–", subset=numbers)
        .background_gradient(
            "cividis", axis=None, subset=numbers, gmap=np.log10(np.fmax(shown, least))
        )
        .map(lambda x: "" if 0 < x < np.inf else "background: white; color: black", subset=numbers)
    )


def difference_table(fields: Mapping[str, tuple[Any, Any]], a: str, b: str) -> pd.DataFrame:
    """Fields in which two runs differ, side by side."""
    rows = [{"field": name, a: str(x), b: str(y)} for name, (x, y) in fields.items()]
    return frame(rows, "field", columns=("field", a, b))


def _rounded(score: float | None) -> float | None:
    return None if score is None else round(score, 3)


def frame(
    rows: Sequence[Mapping[str, Any]],
    index: str,
    *,
    columns: Sequence[str] | None = None,
    dtype: type | None = None,
) -> pd.DataFrame:
    """Rows as a table, one column of which names them."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns, dtype=dtype).set_index(index)
