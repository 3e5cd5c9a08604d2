"""A pasted warning of PyTorch about determinism: what it means, and what helps.

Also whether it can change the lab's training with the given settings, or any other training.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import NamedTuple

import yaml

from cellrepro.profiles import profiles
from cellrepro.spec import defaults
from samebits import known_operations, modes, torch_alerts
from samebits.errors import BadInput
from samebits.mode_names import Mode
from samebits.results import Result
from samebits.substitutes import SUBSTITUTES
from samebits.torch_alerts import alert_in
from samebits.words import joined

_SEEN_ON_PROCESSOR = "(The operations are those of a step on the processor.)"
_OTHER_FRAMEWORKS = (
    (
        "TensorFlow",
        r"(?i)tensorflow|keras|\bTF_|\btf\.",
        "tf.config.experimental.enable_op_determinism()",
    ),
    ("JAX", r"(?i)\bjax|\bxla", "XLA_FLAGS=--xla_gpu_deterministic_ops=true"),
)
"""Each framework's name, the pattern of its warnings, and its switch."""
_IF_YOURS = "where a training of yours, in Cellpose or any other framework of PyTorch,"


@dataclass(frozen=True, repr=False)
class WarningMeaning(Result):
    """The meaning of a warning of PyTorch about determinism."""

    op: str
    """The operation, by its name in PyTorch."""
    meaning: str
    """Why its bits may change from run to run."""
    training: str
    """The training that `affects` and `why` are about."""
    affects: bool | None
    """Whether the operation can change that training; None if unknown."""
    why: str
    """How that is known."""
    elsewhere: str
    """Its meaning for any other training."""
    remedy: str
    """The remedy."""
    profile: str = defaults.PROFILE
    """The profile of that training."""

    def sentence(self) -> str:
        """Say all of it, in four lines."""
        if self.affects is None:
            verb = "may, for all that is known,"
        else:
            verb = "can" if self.affects else "cannot"
        return (
            f"{self.op}: {self.meaning}\n"
            f"It {verb} change {self.training}: {self.why}\n"
            f"For any other training: {self.elsewhere}\n"
            f"-> {self.remedy}"
        )


class Influence(NamedTuple):
    """Whether an operation can change a training, and how that is known."""

    affects: bool | None
    """None if unknown."""
    why: str


def explain_warning(
    text: str,
    *,
    profile: str | Path | None = None,
    mode: Mode = defaults.MODE,
    model: str = defaults.MODEL,
    store: str | Path = defaults.STORE,
) -> WarningMeaning:
    """Say what a warning, as it was pasted, means for the lab's training with these settings.

    Parameters
    ----------
    text : str
        The warning, with time, file and category before it if they were copied, too; or the name
        of its operation.
    profile : str or Path, optional
        Name of a profile that the package brings, or a YAML file: device, threads and TF32. By
        default that of the device that the warning is about.
    mode : {"off", "fast", "warn", "strict", "portable"}
        How much of the randomness is fixed.
    model : str
        The network that is trained: a model's name, a weights file, ``KEY`` or ``KEY/REPEAT``.
    store : str or Path
        Where runs are stored, for a model that is named by its key.

    Returns
    -------
    WarningMeaning
        Its ``str`` is the explanation in four lines.

    Raises
    ------
    BadInput
        If the text is no warning of PyTorch about determinism.
    """
    from cellrepro.model.weight_sources import find_model
    from cellrepro.store.store import Store

    modes.check_mode(mode)
    find_model(model, Store(store))
    entry = torch_alerts.lookup(text)
    alert = alert_in(text)
    if entry is None and alert is None:
        alert = torch_alerts.alert_named_in(text)
        entry = torch_alerts.lookup(alert or "")
    settings = profiles.load(profile or device_of(text, entry))
    if entry is None and alert is None:
        raise _of_another_framework(text) or BadInput(
            f"{text[:80]!r} is no warning of PyTorch about determinism; expected its text, as in "
            "`put_ does not have a deterministic implementation`, or the operation's name"
        )
    training = (
        f"the lab's training of Cellpose ({model}, profile {settings.name} on {settings.device}, "
        f"mode {mode})"
    )
    if entry is None:
        assert alert is not None
        return _not_in_the_list(alert, training, settings.name)
    if settings.kind in entry.devices:
        calls = called_by_cellpose()
        effect = effect_on_training(entry, calls, mode=mode, model=model)
        if settings.kind != "cpu":
            effect = Influence(effect.affects, f"{effect.why} {_SEEN_ON_PROCESSOR}")
    else:
        devices = joined(entry.devices)
        effect = Influence(
            affects=False,
            why=f"it concerns {devices}, and profile {settings.name} computes on {settings.kind}.",
        )
    return WarningMeaning(
        op=entry.alert or "",
        meaning=entry.reason,
        training=training,
        affects=effect.affects,
        why=effect.why,
        elsewhere=_meaning_elsewhere(entry),
        remedy=entry.remedy,
        profile=settings.name,
    )


@cache
def called_by_cellpose() -> dict[str, str]:
    """The operations that a training step of Cellpose calls, and where it does so first."""
    text = resources.files("cellrepro.audits") / "called_by_cellpose.yaml"
    return yaml.safe_load(text.read_text(encoding="utf-8"))


def device_of(text: str, entry: known_operations.KnownOperation | None) -> str:
    """The device that a warning is about, ``cpu``, ``cuda`` or ``mps``: a profile's name, too.

    By its text, or else by the operation's devices; the processor where it is one of several.
    """
    named = re.findall(r"(?<![a-z])(cuda|mps|cpu)(?![a-z])|cublas", text.lower())
    if named:
        return named[0] or "cuda"
    devices = entry.devices if entry is not None else ()
    return defaults.PROFILE if "cpu" in devices or not devices else devices[0]


def _of_another_framework(text: str) -> BadInput | None:
    """The refusal of a text that names TensorFlow or JAX, with where to go from there."""
    for name, pattern, switch in _OTHER_FRAMEWORKS:
        if re.search(pattern, text):
            return BadInput(
                f"{text[:80]!r} is of {name}, and this explains warnings of PyTorch: {name}'s own "
                f"switch is {switch}. `cellrepro wrap DATA -- COMMAND` says of a program in any "
                "framework whether its masks repeat"
            )
    return None


def effect_on_training(
    entry: known_operations.KnownOperation, calls: Mapping[str, str], *, mode: Mode, model: str
) -> Influence:
    """Judge whether an operation can change a training, by the calls of Cellpose."""
    if not entry.ops:
        return Influence(None, "PyTorch does not say which operations it means.")
    called_at = [calls[op] for op in entry.ops if op in calls]
    if not called_at:
        return Influence(
            False, f"a training step of {model} calls none of: {', '.join(entry.ops)}."
        )
    call = f"a training step of {model} calls it ({called_at[0]})"
    if mode in modes.FREE:
        return Influence(True, f"{call}, and mode {mode} does not fix it.")
    if mode == "portable":
        return Influence(False, f"{call}, and mode portable computes it in a form of its own.")
    if entry.kind == "switched":
        return Influence(False, f"{call}, and mode {mode} selects its deterministic way.")
    if mode == "warn":
        return Influence(True, f"{call}, and mode warn only warns of it.")
    substitutes = [item.name for item in SUBSTITUTES if set(item.replaces) & set(entry.ops)]
    if substitutes:
        names = ", ".join(substitutes)
        return Influence(False, f"{call}, and mode strict puts a substitute there ({names}).")
    return Influence(True, f"{call}, and mode strict stops at it.")


def _not_in_the_list(alert: str, training: str, profile: str) -> WarningMeaning:
    """The meaning of a warning that no listed version of PyTorch gives."""
    known = torch_alerts.lookup_elsewhere(alert)
    first, *_, last = known_operations.releases()
    listed = f"PyTorch {first} and {last}, whose warnings are listed, do not give it"
    if known is None:
        return WarningMeaning(
            op=alert,
            meaning="Whoever gives this warning has no deterministic implementation of it.",
            training=training,
            affects=None,
            why=f"{listed}: it is of an older or a newer PyTorch, of another device, or of a "
            "library that computes with PyTorch.",
            elsewhere=f"{_IF_YOURS} gave this warning, its bits may change from run to run.",
            remedy="Say `python -c 'import torch; print(torch.__version__)'` first: with a PyTorch "
            f"before {first}, use a newer one. `cellrepro.audit(step)` says whether its bits "
            "change in a training of yours.",
            profile=profile,
        )
    return WarningMeaning(
        op=alert,
        meaning=f"{known.giver} gives this warning where its bits may change from run to run.",
        training=training,
        affects=False,
        why=f"{listed}, and Cellpose does not call it of {known.giver}."
        if known.giver == "torchvision"
        else f"{listed}, and the lab supports none before {first}.",
        elsewhere=f"{_IF_YOURS} gave this warning, its bits may change from run to run.",
        remedy=known.remedy,
        profile=profile,
    )


def _meaning_elsewhere(entry: known_operations.KnownOperation) -> str:
    """Say what a warning means for a training that is not the lab's."""
    devices = joined(entry.devices)
    call = f"{_IF_YOURS} calls it on {devices}, its bits may change from run to run"
    switch = "torch.use_deterministic_algorithms(True)"
    if entry.kind == "switched":
        return f"{call}, unless {switch} selects its deterministic way."
    if entry.kind == "error":
        return f"{call}; {switch} stops there, and with warn_only=True it only warns."
    return f"{call}; PyTorch has no switch for it."
