"""The judgements of a divergence, and what a first difference in each stage of a run means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, cast

from cellrepro.store.ledger import IN_EVERY_STEP

DivergenceJudgement = Literal[
    "race",
    "round-off",
    "fault",
    "unwritten-memory",
    "settings",
    "environment",
    "data",
    "draws",
    "unexplained",
]

JUDGEMENTS: Mapping[DivergenceJudgement, str] = {
    "race": "a race: computed again from equal inputs, it gives different bits, as where threads "
    "add in a changing order",
    "round-off": "round-off: every judged operation of both stays within the error of its class",
    "fault": "a fault: neither round-off nor a race explains it",
    "unwritten-memory": "unwritten memory: a result was computed from what happened to stand there",
    "settings": "the two have different settings",
    "environment": "the environments differ, the results do not",
    "data": "what went in differs",
    "draws": "different random numbers were drawn",
    "unexplained": "the operation that made them diverge was not found",
}
"""Each judgement, in words. A ``fault`` is an operation beyond the error of its class, or one that
gave different bits once, and equal ones when it is repeated where no race is possible.
"""


REMEDIES: Mapping[DivergenceJudgement, str] = {
    "race": "use `--mode strict`, which puts operations that repeat in place of those that race",
    "round-off": "use `--mode portable`, which gives the same bits everywhere, or report it beside "
    "what seeds change",
}
"""What to do about a judgement, where something can be done."""
NOT_LOOKED_FOR = "no operation is named: "
"""How the reason begins for which the operations of a step were not looked at."""


def of_round_off(verdict: str) -> DivergenceJudgement:
    """Give the judgement for a verdict of `judge_round_off`."""
    return cast(DivergenceJudgement, "unexplained" if verdict == "unknown" else verdict)


class Stage(NamedTuple):
    """A stage of a run, in words, and what a difference that begins in it means."""

    name: str
    meaning: str
    """Its meaning, for somebody who trains networks but writes none."""
    judgement: DivergenceJudgement = "unexplained"
    """The judgement where no operation explains the difference."""
    phases: tuple[str, ...] = ("forward",)
    """Phases of the operations that may explain it; others run after it."""


_TO_BACKWARD = ("forward", "backward")
_TO_UPDATE = ("forward", "backward", "update")

OF_STAGE: Mapping[str, Stage] = {
    "environment": Stage("environment", "machine, versions", "environment"),
    "spec": Stage("settings", "what was asked for", "settings"),
    "data": Stage("data", "images and true masks", "data"),
    "weights-init": Stage("initial weights", "network at the start", "data"),
    "rng": Stage("random numbers", "states of generators", "draws"),
    "batch": Stage("batch", "images shown"),
    "forward": Stage("forward", "network's answer"),
    "loss": Stage("loss", "how far it is off"),
    "backward": Stage("backward", "gradients", phases=_TO_BACKWARD),
    "update": Stage("update", "optimizer's change", phases=_TO_UPDATE),
    "weights": Stage("weights", "network after it", phases=_TO_UPDATE),
    "flows": Stage("flows", "towards cell centres"),
    "masks": Stage("masks", "outlined cells"),
    "file": Stage("file", "as it lies on disk", "data"),
    "decoded": Stage("decoded", "pixels as read", "data"),
    "channels": Stage("channels", "brought to three"),
    "normalised": Stage("normalised", "brightness set"),
    "resized": Stage("resized", "to the diameter"),
    "tiles": Stage("tiles", "cut for the network"),
    "network": Stage("network", "its answer by tile"),
    "dynamics": Stage("dynamics", "where pixels arrive"),
    "filtered": Stage("filtered", "filled, small ones out"),
}
"""By name: those of `cellrepro.store.ledger.STAGES`, then those that only segmentations have."""

COMPUTED_IN_STEP = tuple(stage for stage in IN_EVERY_STEP if stage != "rng")
"""The stages of a training step."""


def may_explain(phase: str | None, stage: str) -> bool:
    """Whether an operation of a phase runs early enough to make a stage differ."""
    return phase in OF_STAGE[stage].phases
