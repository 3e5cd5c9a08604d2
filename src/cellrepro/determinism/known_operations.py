"""Operations that may not repeat bit for bit: why, and what to do.

The knowledge is data, ``nondeterministic.yaml`` beside this file, with the source of every line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from cellrepro.errors import BadInput

_KINDS = ("error", "switched", "unlisted")  # the gravest first


@dataclass(frozen=True)
class KnownOperation:
    """One way in which an operation may not repeat; the data's head explains its fields."""

    alert: str | None
    """The name that PyTorch gives it in its warning; none where it says nothing."""
    ops: tuple[str, ...]
    """Names of the operations, by `base_name`."""
    devices: tuple[str, ...]
    phase: str
    kind: str
    """One of `_KINDS`."""
    reason: str
    remedy: str
    source: str
    version: str
    documented: tuple[str, ...] = ()


@cache
def base_name(op: str) -> str:
    """The name under which an operation is looked up, without namespace and overload."""
    parts = op.strip().replace("::", ".").removeprefix("torch.ops.").split(".")
    named = parts[0] == "aten" or "::" in op or len(parts) > 2
    space = parts.pop(0) if named else "aten"
    name = parts[0]
    if space == "aten":
        name = name.strip("_").removeprefix("unsafe_").removesuffix("_impl")
        name = re.sub(r"(_out)?_(cpu|cuda|mps)$", "", name)
    if not name or not space:
        raise BadInput(
            f"{op!r} is not the name of an operation; expected one such as "
            "'aten.index_put.default' or 'index_put_'"
        )
    return name if space == "aten" else f"{space}.{name}"


@cache
def _data() -> dict[str, Any]:
    text = resources.files("cellrepro.determinism") / "nondeterministic.yaml"
    return yaml.safe_load(text.read_text(encoding="utf-8"))


def releases() -> dict[str, dict[str, Any]]:
    """The alerts and documented operations of each version of PyTorch covered, oldest first."""
    return _data()["releases"]


@cache
def entries() -> tuple[KnownOperation, ...]:
    """Every known operation, in the file's order; one with several alerts has an entry for each."""
    operations = []
    for fields in _data()["entries"]:
        known: dict[str, Any] = {
            name: value.strip() if isinstance(value, str) else tuple(value)
            for name, value in fields.items()
            if name != "alerts"
        }
        known["ops"] = tuple(dict.fromkeys(map(base_name, known["ops"])))
        alerts = fields["alerts"] or [None]
        operations += [KnownOperation(alert=alert, **known) for alert in alerts]
    return tuple(operations)


@dataclass(frozen=True)
class AlertElsewhere:
    """An alert that no release in the list gives."""

    alert: str
    giver: str
    """Its source: ``torchvision``, or versions of PyTorch."""
    remedy: str


@cache
def alerts_elsewhere() -> dict[str, AlertElsewhere]:
    """Alerts of older versions of PyTorch and of torchvision, by name."""
    return {
        alert: AlertElsewhere(alert, giver, remedy.strip())
        for giver, alerts in _data()["elsewhere"].items()
        for alert, remedy in alerts.items()
    }


def called_by_cellpose() -> dict[str, str]:
    """The operations that a training step of Cellpose calls, and where it does so first."""
    return _data()["called_by_cellpose"]


def for_operation(op: str, device: str) -> KnownOperation | None:
    """The gravest entry for an operation on a device; none if it is not known to race."""
    name, kind = base_name(op), device.partition(":")[0]
    fitting = [entry for entry in entries() if name in entry.ops and kind in entry.devices]
    return min(fitting, key=lambda entry: _KINDS.index(entry.kind), default=None)


def may_race(
    mode: str, *, device: str, threads: int | None, loose: str | None = None
) -> str | None:
    """Why repeats may differ in bits by a race between threads; none where there can be none."""
    if device == "cpu" and threads == 1:
        return None
    if mode == "warn":
        return "mode warn lets operations race that have no deterministic implementation"
    if mode == "off":
        return "mode off fixes nothing: neither seeds, nor the order in which threads add"
    if mode not in ("strict", "portable"):
        return f"mode {mode} lets operations add in the order in which threads arrive"
    return None if loose is None else f"{loose} was left loose"
