"""Whether two stored repeats differ by less than seeds do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from cellrepro.comparison.image_differences import MaskPairs
from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.pair_choice import choose
from cellrepro.comparison.repeat_facts import Sample
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.run_names import Names
from cellrepro.comparison.seed_spread import MOST_PAIRS, Spread, compared
from cellrepro.comparison.within_spread import (
    Decision,
    decide,
)
from cellrepro.words import amount, share_text, span

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.store.stored_run import Repeat, Run


def decide_between(
    a: Repeat,
    b: Repeat,
    runs: Iterable[Run],
    *,
    results: Mapping[str, MaskComparison] | None = None,
) -> Decision:
    """Decide whether two stored repeats differ by less than seeds do.

    Never within, if a and b differ in the seed.
    """
    masks = MaskPairs()
    pair = Pair(
        axis="",
        context="",
        name_a="a",
        name_b="b",
        a=a,
        b=b,
        units=("", ""),
        images=masks.differences(a, b, results),
    )
    alike = {Sample(side).facts_without("seed") for side in (a, b)}
    specs = [side.spec.model_copy(update={"seed": None}) for side in (a, b)]
    family = [
        sample
        for run in runs
        if run.spec.model_copy(update={"seed": None}) in specs  # before any manifest is read
        for sample in map(Sample, run.repeats)
        if sample.facts_without("seed") in alike
    ]
    names = Names(sample.repeat for sample in family)
    chosen, _ = choose(family, "seed", MOST_PAIRS, names)
    seeds = Axis("seed", compared(masks, chosen))
    if a.spec.seed == b.spec.seed:
        return Spread([seeds]).beside_seeds([pair], [pair])
    decision = decide([pair], seeds.evidence)
    if not seeds.evidence or pair.vacuous:
        return replace(decision, within=False)
    shares = [of_seeds.changed for of_seeds in seeds.evidence]
    text = (
        f"the seeds differ: {share_text(pair.changed)} of the cells changed; "
        f"{amount(len(shares), 'pair')} of {seeds.n_values} seeds changed "
        f"{span(share_text(min(shares)), share_text(max(shares)))}"
    )
    return Decision(False, text, changed=decision.changed)
