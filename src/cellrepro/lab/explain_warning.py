"""A pasted warning explained: what it means, whether it can change this training, what helps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.determinism import known_operations, modes, profiles
from cellrepro.determinism.known_operations import alert_in, base_name
from cellrepro.determinism.substitutes import SUBSTITUTES
from cellrepro.errors import BadInput
from cellrepro.lab.doctor import small_loop
from cellrepro.lab.process import Child, Setup, call
from cellrepro.progress import progress


@dataclass(frozen=True)
class Explanation:
    """A warning of PyTorch about determinism."""

    op: str  # as PyTorch calls it
    meaning: str  # why its bits may change from run to run
    affects: bool | None  # whether it can change a training asked for so; none if unknown
    why: str  # how that is known
    remedy: str

    def sentence(self) -> str:
        """All of it."""
        can = "can change" if self.affects else "cannot change"
        if self.affects is None:
            can = "may change, for all that is known,"
        return f"{self.op}: {self.meaning}\nIt {can} this training: {self.why}\n-> {self.remedy}"


def explain_warning(
    text: str,
    *,
    profile: str | Path = "cpu",
    mode: str = "strict",
    model: str = "tiny",
    store: str | Path = "outputs",
    quiet: bool = False,
) -> Explanation:
    """Say what a warning, as it was pasted, means for a training with these settings."""
    from cellrepro.model.network import find_model
    from cellrepro.store.store import Store

    modes.check_mode(mode)
    settings = profiles.load(profile)
    source = find_model(model, Store(store))
    entry, alert = known_operations.lookup(text), alert_in(text)
    if entry is None and alert is None:
        raise BadInput(
            f"{text[:80]!r} is no warning of PyTorch about determinism; expected its text, as in "
            "`put_ does not have a deterministic implementation`, or the operation's name"
        )
    if entry is None:
        return Explanation(
            op=alert or "",
            meaning="PyTorch has no deterministic implementation of it on this device.",
            affects=None,
            why="it is newer than the lab's list.",
            remedy="`cellrepro audit DATA` says whether it flips here; please report the warning.",
        )
    affects: bool | None = False
    why = (
        f"it concerns {' and '.join(entry.devices)}, and profile {settings.name} computes on "
        f"{settings.kind}."
    )
    if settings.kind in entry.devices:
        with progress(1, "a training step", quiet=quiet):
            work = "cellrepro.lab.explain_warning:calls_of_a_step"
            calls = call(work, Setup(settings), label="a training step", source=source)
        affects, why = affected(entry, calls, mode, model)
    return Explanation(entry.alert or "", entry.reason, affects, why, entry.remedy)


def affected(
    entry: known_operations.Entry, calls: Mapping[str, str], mode: str, model: str
) -> tuple[bool | None, str]:
    """Whether an operation can change a training that makes these calls, and why."""
    if not entry.ops:
        return None, "PyTorch does not say which operations it means."
    called = [calls[op] for op in entry.ops if op in calls]
    if not called:
        return False, f"a training step of {model} calls none of: {', '.join(entry.ops)}."
    where = f"a training step of {model} calls it ({called[0]})"
    if mode == "fast":
        return True, f"{where}, and mode fast fixes nothing but the seeds."
    if entry.kind == "switched":
        return False, f"{where}, and mode {mode} selects its deterministic way."
    if mode == "warn":
        return True, f"{where}, and mode warn only warns of it."
    used = [item.name for item in SUBSTITUTES if set(item.replaces) & set(entry.ops)]
    if used:
        return False, f"{where}, and mode strict puts a substitute there ({', '.join(used)})."
    return True, f"{where}, and mode strict stops at it."


def calls_of_a_step(child: Child, *, source: Any) -> dict[str, str]:
    """Inside the child: every operation of a training step, and where it is called first."""
    from cellrepro.trace.observer import Call, Observer

    found: dict[str, str] = {}

    class Places(Observer):
        def observe(self, call: Call) -> Any:
            found.setdefault(base_name(call.place.op), str(call.place))
            return call.run()

    with child.prepared() as device:
        loop, network = small_loop(source, device, seed=0, n_images=1, n_steps=2)
        with Places(network):
            loop.step()
    return found
