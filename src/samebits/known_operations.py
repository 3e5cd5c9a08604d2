"""Operations that may not give the same bits again: why, and what to do.

The list is ``nondeterministic.yaml`` beside this file, with the source of every line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from samebits.errors import BadInput

_KINDS = ("error", "switched", "unlisted")
"""Kinds of entries, the gravest first; the head of the file explains them."""


@dataclass(frozen=True)
class KnownOperation:
    """One way in which an operation may not repeat."""

    alert: str | None
    """The name that PyTorch gives it in its warning; none where it says nothing."""
    ops: tuple[str, ...]
    """Names of the operations, by `base_name`."""
    devices: tuple[str, ...]
    """The kinds of devices on which it may not: ``cpu``, ``cuda``, ``mps``."""
    phase: str
    """The pass in which it may not: ``forward``, ``backward`` or ``both``."""
    kind: str
    """One of `_KINDS`."""
    reason: str
    """Why it may not repeat."""
    remedy: str
    """What to do."""
    source: str
    """Where this was read: lines of PyTorch's source, a page of a library's documentation."""
    version: str
    """The version of PyTorch, or of a library, that was read."""
    documented: tuple[str, ...] = ()
    """The names under which PyTorch's documentation lists it."""


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
    """The content of the file, whose head explains it."""
    text = resources.files("samebits") / "nondeterministic.yaml"
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
    """What gives it: ``torchvision``, or versions of PyTorch."""
    remedy: str
    """What to do."""


@cache
def alerts_elsewhere() -> dict[str, AlertElsewhere]:
    """Alerts of older versions of PyTorch and of torchvision, by name."""
    return {
        alert: AlertElsewhere(alert, giver, remedy.strip())
        for giver, alerts in _data()["elsewhere"].items()
        for alert, remedy in alerts.items()
    }


def for_operation(op: str, device: str) -> KnownOperation | None:
    """The gravest entry for an operation on a device; none if it is not known to race."""
    name, kind = base_name(op), device.partition(":")[0]
    fitting = [entry for entry in entries() if name in entry.ops and kind in entry.devices]
    return min(fitting, key=lambda entry: _KINDS.index(entry.kind), default=None)
