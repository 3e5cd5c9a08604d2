"""Tables for notebooks, as data frames: a row a thing, a column a question."""

from __future__ import annotations

import html
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cellrepro.bits.digests import value_digest
from cellrepro.determinism import modes, profiles
from cellrepro.errors import NotPossibleHere
from cellrepro.same.names import Names, place_of
from cellrepro.same.seed_spread import Spread
from cellrepro.same.weight_similarity import weight_statistics
from cellrepro.store import this_machine
from cellrepro.store.store import Repeat, Run
from cellrepro.words import grouped, share_text, span

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import pandas as pd
    from IPython.display import Markdown
    from pandas.io.formats.style import Styler

    from cellrepro.same.five_steps import Step
    from cellrepro.same.weights import WeightsComparison

_WRAPPED = 32
"""Letters; longer texts are wrapped in their column."""


def host_table() -> pd.DataFrame:
    """This machine and the versions that matter, one a row."""
    this_host = this_machine.host()
    rows = {
        "processor": this_host["processor"],
        "vector instructions": ", ".join(this_host["instructions"]) or "none of those PyTorch uses",
        "cores": this_host["cores"],
        "memory": f"{this_host['memory'] / 2**30:.0f} GiB",
        "GPU": ", ".join(gpu["name"] for gpu in this_host["gpus"]) or "none from NVIDIA",
        "system": this_host["system"],
        **this_machine.versions(),
    }
    return frame([{"what": name, "here": value} for name, value in rows.items()], "what")


def profile_table() -> pd.DataFrame:
    """The profiles, what they fix, and whether this machine can run them."""
    rows = []
    for name in profiles.names():
        profile, runs_here = profiles.load(name), "yes"
        try:
            profile.check_device()
        except NotPossibleHere:
            runs_here = f"no: no {profile.device} device"
        rows.append(
            {
                "profile": name,
                "what it is": profile.description,
                "device": profile.device,
                "threads": profile.threads or "all",
                "variables": ", ".join(f"{k}={v}" for k, v in profile.environment.items()) or "-",
                "runs here": runs_here,
            }
        )
    return frame(rows, "profile")


def switch_table() -> pd.DataFrame:
    """Every switch in every mode, as PyTorch reads it back in this process."""
    in_force = {}
    for mode in modes.MODES:
        with modes.mode_in_force(mode, device="cpu") as switches:
            in_force[mode] = switches | modes.environment(mode)
    rows = [
        {
            "switch": f"{name} (set before the process starts)" if name.isupper() else name,
            **{mode: str(found.get(name, "-")) for mode, found in in_force.items()},
        }
        for name in in_force["strict"]
    ]
    return frame(rows, "switch")


def repeat_table(repeats: Sequence[Repeat]) -> pd.DataFrame:
    """The repeats of a run: digests, objects, agreement with the ground truth, time."""
    for repeat in repeats:
        repeat.refuse_damage()
    rows = [
        {
            "repeat": repeat.manifest.repeat,
            "machine": repeat.machine,
            "weights": repeat.manifest.weights.digest[:12] if repeat.manifest.weights else "-",
            "masks": repeat.manifest.masks_digest[:12],
            "objects": repeat.manifest.n_objects,
            "AP@0.5": repeat.manifest.ap50,
            "on training images": repeat.manifest.ap50_train,
            "seconds": round(sum(repeat.manifest.seconds.values()), 1),
            "vacuous": "; ".join(repeat.manifest.vacuous) or "no",
        }
        for repeat in repeats
    ]
    return frame(rows, "repeat").round(3)


def result_table(runs: Sequence[Run]) -> pd.DataFrame:
    """The different results of some runs: one row for all repeats that came out bit for bit equal.

    The result most repeats have comes first, a network that others were trained from last. Equal
    numbers in a column mean equal bits.
    """
    repeats = [repeat for run in runs for repeat in run.repeats]
    names = Names(repeats)
    groups: dict[tuple[str, str], list[Repeat]] = defaultdict(list)
    for repeat in repeats:
        repeat.refuse_damage()
        trained = repeat.manifest.weights
        groups[trained.digest if trained else "", repeat.manifest.masks_digest].append(repeat)

    def order(members: list[Repeat]) -> tuple[bool, int]:
        return all(names.is_start(place_of(repeat)) for repeat in members), -len(members)

    ordered = sorted(groups.items(), key=lambda group: order(group[1]))
    weights = ["", *dict.fromkeys(digest for (digest, _), _ in ordered if digest)]
    masks = ["", *dict.fromkeys(digest for (_, digest), _ in ordered)]
    rows = [
        {
            "weights": f"#{weights.index(trained)}" if trained else "–",
            "masks": f"#{masks.index(found)}",
            "repeats": len(members),
            "settings": "; ".join(
                f"{name} ({n}×)"
                for name, n in Counter(names.short(place_of(one)) for one in members).items()
            ),
            "cells": members[0].manifest.n_objects,
            "AP@0.5": members[0].manifest.ap50,
        }
        for (trained, found), members in ordered
    ]
    return frame(rows, "weights")


def readable(table: pd.DataFrame, *, decimals: int = 3) -> Styler:
    """A table for the page: words to the left, long ones wrapped, numbers rounded.

    Names of images and runs come from outside, so no text is taken for HTML. ``decimals``: of
    numbers that are not whole. A dash stands for what is missing.
    """
    from pandas.io.formats.style import Styler

    shown = table.reset_index()  # rows may share a name, which a style refuses of an index
    words = [name for name in shown if any(isinstance(value, str) for value in shown[name])]
    long = [name for name in words if shown[name].map(str).map(len).max() > _WRAPPED]
    # From the content: tables of one page share no styles, and equal tables are equal output.
    identifier = value_digest([shown.to_json(), decimals])[:8]
    return (
        Styler(shown, uuid=identifier, cell_ids=False)
        .hide(axis="index")
        .format(precision=decimals, na_rep="–", thousands=" ", escape="html")
        .format_index(escape="html", axis="columns")
        .set_properties(**{"text-align": "left", "white-space": "nowrap"}, subset=words)
        .set_properties(**{"white-space": "normal", "min-width": "15em"}, subset=long)
        .set_table_styles([{"selector": "th", "props": "text-align: left; white-space: nowrap"}])
    )


def markdown(text: str) -> Markdown:
    """Sentences for the page; the names in them come from outside, so nothing counts as HTML."""
    from IPython.display import Markdown

    return Markdown(html.escape(text, quote=False))


def rate_table(rates: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """How fast segmentations were, from `show.inference_rates`: of everything a second the
    median over the repeats (lowest to highest)."""

    def shown(value: Any) -> Any:
        if not isinstance(value, tuple):
            return value
        middle, low, high = map(grouped, value)
        return middle if low == high else f"{middle} ({span(low, high)})"

    rows = [{name: shown(row[name]) for name in row if name != "edge"} for row in rates]
    return frame(rows, "images").replace("", None).dropna(axis="columns", how="all")


_EQUAL = "every pair has the same outlines: no seeds are needed to judge that"


def decision_table(spread: Spread) -> pd.DataFrame:
    """Whether what was changed matters less than the seed, one row for each thing changed."""
    from cellrepro.show.figures.spread import answer

    rows = [
        {
            "changed": axis.title,
            "pairs": len(axis.evidence),
            "cells changed": share_text(axis.distribution().mean),
            "within spread": answer(spread, axis),
            "why": _EQUAL if axis.equal else spread.decide(axis.name).sentence,
        }
        for axis in spread.axes
        if axis.name != "seed" and axis.evidence
    ]
    columns = ("changed", "pairs", "cells changed", "within spread", "why")
    return frame(rows, "changed", columns=columns)


def protocol_table(steps: Sequence[Step]) -> pd.DataFrame:
    """The five steps: question, answer, over what, and what to run where there is none."""
    rows = [
        {
            **{"step": step.number, "question": step.question, "answer": step.answer},
            **{"pairs": step.n_pairs, "what is missing": step.todo.replace("`", "") or "–"},
        }
        for step in steps
    ]
    return frame(rows, "step")


def weights_table(comparisons: Mapping[str, WeightsComparison]) -> pd.DataFrame:
    """How far pairs of networks, by what each is called, lie apart: one measure a row."""
    rows: dict[str, dict[str, str]] = defaultdict(dict)
    for name, of in comparisons.items():
        rows["parameters that differ"][name] = share_text(of.n_differing / max(1, of.n_parameters))
        rows["L2 distance"][name] = f"{of.l2:.3g}"
        rows["relative L2"][name] = f"{of.relative_l2:.3g}"
        rows["cosine"][name] = f"{of.cosine:.9f}"
        rows["largest difference"][name] = f"{of.max_abs:.3g}"
        rows["in"][name] = of.max_abs_name or "–"
        rows["median ulp"][name] = "–" if of.median_ulp is None else grouped(of.median_ulp)
        rows["largest ulp"][name] = "–" if of.max_ulp is None else grouped(of.max_ulp)
    listed = [
        {"measure": measure, **values, "meaning": _MEANINGS[measure]}
        for measure, values in rows.items()
    ]
    return frame(listed, "measure")


_MEANINGS = {
    "parameters that differ": "in at least one bit",
    "L2 distance": "length of the difference of all parameters",
    "relative L2": "the same as a share of the first network's length",
    "cosine": "1 where both point the same way",
    "largest difference": "of one parameter",
    "in": "where that is",
    "median ulp": "steps between neighbouring floating-point numbers, of one parameter",
    "largest ulp": "most steps of any parameter; many where a sign changed",
}


def distance_matrix(matrix: np.ndarray, names: Sequence[str]) -> Styler:
    """How far N networks, by what each is called, lie apart from each other, dark where far.

    ``matrix``: a field of `cellrepro.similarity`, such as ``relative_l2``, of shape (N, N).
    """
    import numpy as np
    import pandas as pd

    numbers = [f"#{i}" for i in range(1, len(names) + 1)]
    labels = [f"{number} {name}" for number, name in zip(numbers, names, strict=True)]
    table = pd.DataFrame(matrix, index=pd.Index(labels, name="network"), columns=numbers)
    shown = np.where(np.isfinite(matrix) & (matrix > 0), matrix, np.nan)
    shades = np.log10(np.fmax(shown, np.nanmin(shown, initial=1.0)))
    return (
        readable(table)
        .format("{:.2g}", na_rep="–", subset=numbers)
        .background_gradient("cividis_r", axis=None, subset=numbers, gmap=shades)
        .map(lambda x: "" if 0 < x < np.inf else "background: white; color: black", subset=numbers)
    )


def statistics_table(paths: Mapping[str, Path], *, by_layer: bool = False) -> pd.DataFrame:
    """The file and the parameters of networks, by what each is called; or a row a layer."""
    rows = []
    for name, path in paths.items():
        whole, *layers = weight_statistics(path).items()
        for layer, of in layers if by_layer else [whole]:
            first = {"layer": layer} if by_layer else {"file, bytes": path.stat().st_size}
            rows.append({"network": name, **first, **of._asdict()})
    return frame(rows, "network")


def difference_table(fields: Mapping[str, tuple[Any, Any]], a: str, b: str) -> pd.DataFrame:
    """Fields in which two runs differ, side by side."""
    rows = [{"field": name, a: str(x), b: str(y)} for name, (x, y) in fields.items()]
    return frame(rows, "field", columns=("field", a, b))


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
