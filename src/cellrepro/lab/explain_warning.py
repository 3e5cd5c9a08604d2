"""A pasted warning explained: what it means, whether it can change this training, what helps.

Whether a training calls the operation is looked at in a real step of Cellpose's own training, not
known from a list.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cellrepro.determinism import known_operations, modes, profiles
from cellrepro.determinism.known_operations import alert_in, base_name
from cellrepro.determinism.substitutes import SUBSTITUTES
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.lab.process import Child, Setup, call
from cellrepro.progress import progress


@dataclass(frozen=True)
class Explanation:
    """A warning of PyTorch about determinism.

    Attributes
    ----------
    op : str
        What PyTorch calls it.
    meaning : str
        Why its bits may change from run to run.
    affects : bool or None
        Whether it can change a training with this profile, mode and model; none if unknown.
    why : str
        How that is known.
    remedy : str
    """

    op: str
    meaning: str
    affects: bool | None
    why: str
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
    """Say what a warning of PyTorch about determinism means for a training.

    Parameters
    ----------
    text : str
        The warning or error as it was pasted, or the name that PyTorch gives the operation.
    profile, mode, model, store
        Of the training, as for `cellrepro.train`.
    quiet : bool
        Show no progress.

    Returns
    -------
    Explanation
    """
    from cellrepro.model.network import find_model
    from cellrepro.store.store import Store

    modes.check_mode(mode)
    settings = profiles.load(profile)
    entry, alert = known_operations.lookup(text), alert_in(text)
    if entry is None and alert is None:
        shown = text if len(text) <= 80 else f"{text[:77]}..."
        raise BadInput(
            f"{shown!r} is no warning of PyTorch about determinism; expected one that says `does "
            "not have a deterministic implementation`, `defaults to a non-deterministic "
            "algorithm` or `uses CuBLAS and you have CUDA`, or PyTorch's name for the operation in "
            "such a warning, put_ for example"
        )
    source = find_model(model, Store(store))
    if entry is None:
        return Explanation(
            op=alert or "",
            meaning="PyTorch has no deterministic implementation of it on this device.",
            affects=None,
            why=f"it is newer than the lab's list, which is of PyTorch "
            f"{', '.join(known_operations.releases())}.",
            remedy="`cellrepro audit DATA` says whether it flips here; please report the warning.",
        )
    affects: bool | None = False
    why = (
        f"it concerns {' and '.join(entry.devices)}, and profile {settings.name} computes on "
        f"{settings.kind}."
    )
    if settings.kind in entry.devices:
        affects, why = affected(entry, _step_seen(settings, mode, source, quiet=quiet), mode, model)
    return Explanation(entry.alert or "", entry.reason, affects, why, entry.remedy)


@dataclass(frozen=True)
class StepSeen:
    """Where a training step calls each operation, in mode fast and in its own.

    ``stopped`` is the operation at which it stopped in its own mode; ``elsewhere`` says where it
    was seen, if not on the training's own device.
    """

    fast: Mapping[str, list[str]] = field(default_factory=dict)
    own: Mapping[str, list[str]] = field(default_factory=dict)
    stopped: str | None = None
    elsewhere: str = ""


def affected(
    entry: known_operations.Entry, seen: StepSeen, mode: str, model: str
) -> tuple[bool | None, str]:
    """Whether an operation can change a training in a mode, and how that is known."""
    names = ", ".join(entry.ops)
    looked = f"a training step of {model}{seen.elsewhere}"
    called = [place for op in entry.ops for place in seen.fast.get(op, ())]
    if not called:
        unknown = bool(seen.elsewhere) or not entry.ops
        return None if unknown else False, f"{looked} calls none of: {names or 'unknown'}."
    where = f"{looked} calls it ({called[0]})"
    if mode == "fast":
        return True, f"{where}, and mode fast fixes nothing but the seeds."
    if seen.stopped:
        return True, f"{where}, and mode {mode} stops: {seen.stopped}."
    if not any(op in seen.own for op in entry.ops):
        used = [item.name for item in SUBSTITUTES if set(item.replaces) & set(entry.ops)]
        put = f"puts a substitute in its place ({', '.join(used)})"
        return False, f"{where}, and mode {mode} {put}."
    if entry.kind == "switched":
        return False, f"{where}, and mode {mode} selects its deterministic way."
    if mode == "strict":
        return False, f"{where}, and mode strict, which stops at what may flip, let it through."
    return True, f"{where}, and mode warn only warns of it."


def _step_seen(settings: profiles.Profile, mode: str, source: Any, *, quiet: bool) -> StepSeen:
    """A training step in a child; on the CPU where this machine lacks the device."""

    def look(profile: profiles.Profile, elsewhere: str) -> StepSeen:
        with progress(3, "a training step", quiet=quiet) as bar:
            return call(
                "cellrepro.lab.explain_warning:step_seen",
                Setup(profile, mode),
                label="a training step",
                on_event=lambda event: bar.advance(event["name"]),
                source=source,
                elsewhere=elsewhere,
            )

    try:
        return look(settings, "")
    except NotPossibleHere:
        if settings.kind == "cpu":
            raise
        elsewhere = f" on the CPU, as profile {settings.name} cannot run here,"
        return look(profiles.load("cpu"), elsewhere)


# -- inside the child ----------------------------------------------------------------------


def step_seen(child: Child, *, source: Any, elsewhere: str) -> StepSeen:
    """Where each operation of a training step is called from, in two modes."""
    child.phase("import")
    from cellrepro.images.folder import read_folder
    from cellrepro.images.synthetic import write_folder
    from cellrepro.model.network import build
    from cellrepro.model.training import Loop
    from cellrepro.trace.observer import Call, Observer

    class Places(Observer):
        found: dict[str, list[str]]

        def observe(self, call: Call) -> Any:
            places = self.found.setdefault(base_name(call.place.op), [])
            if str(call.place) not in places:
                places.append(str(call.place))
            return call.run()

    profile, device, stopped = child.setup.profile, child.setup.enter(), None
    with tempfile.TemporaryDirectory() as scratch:
        write_folder(Path(scratch, "images"), n_train=1, n_test=0)
        images = read_folder(Path(scratch, "images")).train
    seen: list[dict[str, list[str]]] = []
    for mode in ("fast", child.setup.mode):
        seen.append({})
        with modes.mode_in_force(mode, tf32=profile.tf32, device=profile.kind):
            network = build(source, seed=0, device=device, dtype="float32")
            loop = Loop(network, images, (), n_epochs=2, learning_rate=1e-3, images_per_epoch=1)
            try:
                with Places(network) as places:
                    places.found = seen[-1]
                    loop.step()
            except RuntimeError as error:
                stopped = alert_in(str(error))
                if stopped is None:
                    raise
        child.phase(f"mode {mode}")
    return StepSeen(seen[0], seen[1], stopped, elsewhere)
