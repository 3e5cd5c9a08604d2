"""The sections on time: how long runs took, and how fast they segmented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cellrepro.audits.cost import Ratio
from cellrepro.comparison.place_fields import place_of
from cellrepro.show.figures.rates import rates_by_size
from cellrepro.show.inference_rates import has_several_sizes, inference_rates
from cellrepro.show.pages.parts import Figure, Table, TableFile, figure, table, table_file
from cellrepro.show.report.summary import Chapter
from cellrepro.show.tables.runs import rate_table
from cellrepro.store.stored_run import Run

_PHASES = {
    "import": "import",
    "data": "read data",
    "model": "load model",
    "train": "train",
    "segment": "segment",
    "score": "score",
}
"""The phases of a run in their order, each with its words."""


@dataclass(frozen=True)
class CostSection:
    """How long the runs of one chapter took."""

    n_runs: int
    phases: Mapping[str, str]
    """The words of each phase that a run has."""
    rows: Sequence[TimedSpec]
    phase: str
    """The phase of which strict and fast are compared."""
    price: str
    """What strict costs beside fast; empty where no spec was carried out in both modes."""
    strict: Table
    data: TableFile | None


@dataclass(frozen=True)
class TimedSpec:
    """How long the repeats of one spec took, in the mean."""

    name: str
    seconds: Mapping[str, float]
    """By phase."""
    widths: Mapping[str, float]
    """The same of the slowest spec's time, in percent."""

    @property
    def in_all(self) -> float:
        """All phases together, seconds."""
        return sum(self.seconds.values())


def cost_section(chapter: Chapter) -> CostSection:
    """Make the section on time, with strict beside fast for the same spec."""
    from pandas import DataFrame

    repeats = [repeat for judged in chapter.judged for repeat in judged.repeats]
    each = DataFrame([repeat.manifest.seconds for repeat in repeats]).fillna(0.0)
    each = each[[phase for phase in _PHASES if phase in each]]
    seconds = each.groupby([place_of(repeat) for repeat in repeats], sort=False).mean()
    longest = float(seconds.sum(axis=1).max())
    phase = "train" if chapter.task == "train" else "segment"
    pairs = _strict_beside_fast(chapter, seconds.get(phase, {}))
    kinds = {"strict": "{:.1f}", "fast": "{:.1f}", "times as long": "{:.2f}"}
    rows = [
        {
            "spec": pair.spec,
            "strict": pair.strict,
            "fast": pair.fast,
            "times as long": pair.ratio,
        }
        for pair in pairs
    ]
    timed = [
        TimedSpec(
            name=chapter.names.of_spec(place),
            seconds=of_phase,
            widths={phase: 100 * value / longest for phase, value in of_phase.items()},
        )
        for place, of_phase in seconds.to_dict("index").items()
    ]
    return CostSection(
        n_runs=len(repeats),
        phases={phase: _PHASES[phase] for phase in each},
        rows=timed,
        phase=phase,
        price=_price([pair.ratio for pair in pairs], phase),
        strict=table(rows, kinds, file=f"strict-beside-fast-{chapter.data}"),
        data=table_file(
            f"seconds-{chapter.data}", [{"spec": row.name, **row.seconds} for row in timed]
        ),
    )


def _price(ratios: Sequence[float], phase: str) -> str:
    """What strict costs, over specs that differ from others in fast in nothing else."""
    if not ratios:
        return ""
    took = "training took" if phase == "train" else "segmenting took"
    price = Ratio.over(ratios).price(len(ratios), "pair", took=took, than="in mode fast")
    return f"Price of mode strict, over specs that differ in the mode alone: {price}."


@dataclass(frozen=True)
class _ModePair:
    """The seconds of one phase of a spec, in mode strict and in mode fast."""

    spec: str
    strict: float
    fast: float

    @property
    def ratio(self) -> float:
        return self.strict / self.fast


def _strict_beside_fast(chapter: Chapter, seconds: Mapping[str, float]) -> list[_ModePair]:
    """Pair specs that differ in nothing but the mode, on one machine."""
    axis = chapter.spread.axis("mode")
    mode_pairs = {}  # by their places: repeats that came out differently are pairs of their own
    for pair in axis.pairs if axis else []:
        sides = (pair.a, pair.b)
        by_mode = {side.spec.mode_in_words: seconds.get(place_of(side)) for side in sides}
        strict = by_mode.get("strict")
        fast = by_mode.get("fast")
        if strict and fast:
            place = place_of(pair.a)
            name = chapter.names.without(place, ("mode", "class")) or "the only setting"
            mode_pairs[place, place_of(pair.b)] = _ModePair(name, strict, fast)
    return list(mode_pairs.values())


@dataclass(frozen=True)
class RatesSection:
    """How fast runs segmented."""

    table: Table
    figure: Figure | None
    """None where all images have one size, of which a curve would be a single point."""


def rates_section(chapters: Sequence[Chapter]) -> RatesSection | None:
    """Make the section on the speed of runs that only segmented; None where none has repeats."""
    runs = [Run(judged.spec, judged.repeats) for chapter in chapters for judged in chapter.judged]
    rates = [speed for speed in inference_rates(runs) if speed.n_repeats > 1]
    if not rates:
        return None
    rows = rate_table(rates).reset_index().to_dict("records")
    shown = table(rows, dict.fromkeys(rows[0], "value"), file="rates")
    drawn = figure(rates_by_size(rates)) if has_several_sizes(rates) else None
    return RatesSection(table=shown, figure=drawn)
