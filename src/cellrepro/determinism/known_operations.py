"""What is known of operations that may not repeat bit for bit: why, and what to do.

The knowledge is data, ``nondeterministic.yaml`` beside this file, with the source and version of
every line; `unknown_alerts` says what the installed PyTorch knows beyond it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from cellrepro.determinism.alerts import Documented, Installed, before_alert, installed
from cellrepro.determinism.profiles import device_kind
from cellrepro.determinism.substitutes import base_name as base_name
from cellrepro.errors import BadInput

DEVICES = ("cpu", "cuda", "mps")

Device = Literal["cpu", "cuda", "mps"]
Kind = Literal["error", "switched", "unlisted"]

_ORDER: tuple[Kind, ...] = ("error", "switched", "unlisted")


class Entry(BaseModel):
    """One way in which an operation may not repeat."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)

    alert: str | None
    """What PyTorch calls it in its warning or error; none where it says nothing."""
    ops: tuple[str, ...]
    """Operations of ``torch.ops.aten`` in the form of `base_name`; empty where none comes here."""
    devices: tuple[Device, ...] = Field(min_length=1)
    phase: Literal["forward", "backward", "both"]
    kind: Kind
    """``error``: no deterministic implementation; ``switched``: the remedy names the switch that
    selects one; ``unlisted``: neither an alert nor a line on PyTorch's page."""
    reason: str = Field(min_length=1)
    remedy: str = Field(min_length=1)
    source: str = Field(min_length=1)
    version: str = Field(min_length=1)
    """Of PyTorch where nothing else is named."""
    documented: tuple[str, ...] = ()
    """Its names on PyTorch's page on ``torch.use_deterministic_algorithms``."""

    @model_validator(mode="after")
    def _kind_fits(self) -> Entry:
        if self.kind == "unlisted" and (self.alert or self.documented):
            raise ValueError("an unlisted entry has neither alert nor documented names")
        if self.kind == "error" and not (self.alert or self.documented):
            raise ValueError("an error has an alert, or a name on PyTorch's page")
        return self


def _raw() -> Any:
    text = resources.files("cellrepro.determinism") / "nondeterministic.yaml"
    return yaml.safe_load(text.read_text(encoding="utf-8"))


@cache
def entries() -> tuple[Entry, ...]:
    """All of it, one entry for every alert and one for what has none, in the file's order."""
    found = []
    for fields in _raw()["entries"]:
        alerts = fields.pop("alerts") or [None]
        ops = tuple(dict.fromkeys(base_name(op) for op in fields.pop("ops")))
        found += [Entry(alert=alert, ops=ops, **fields) for alert in alerts]
    return tuple(found)


@cache
def taken_from() -> dict[str, str]:
    """Which PyTorch the list was taken from (``torch``), how, with which command, what was run."""
    return {name: str(value) for name, value in _raw()["taken_from"].items()}


def lookup(text: str) -> Entry | None:
    """What is known of an alert.

    Parameters
    ----------
    text : str
        The alert's name, or any text with the warning or error in which PyTorch names it, as it
        was pasted: time, file and category before it, lines wrapped anywhere.

    Returns
    -------
    Entry or None
        None if the text is about something else, or the alert is newer than the data.

    Examples
    --------
    >>> lookup("a.py:3: UserWarning: put_ does not have a deterministic implementation").kind
    'error'
    """
    before = before_alert(text)
    fitting = []
    for entry in entries():
        if entry.alert is None:
            continue
        letters = r"\s*".join(re.escape(letter) for letter in entry.alert if letter != " ")
        if text.strip() == entry.alert or (before and re.search(rf"(?<!\w){letters}$", before)):
            fitting.append(entry)
    return max(fitting, key=lambda entry: len(entry.alert or ""), default=None)


def for_operation(op: str, device: str) -> Entry | None:
    """What is known of an operation on a device.

    Where several entries fit, a missing implementation goes before a switch, and the file's order
    decides the rest.

    Parameters
    ----------
    op : str
        In any form that `base_name` takes.
    device : str
        ``cpu``, ``cuda`` or ``mps``, with or without an index (``cuda:0``).

    Raises
    ------
    BadInput
        If it is another device, or not the name of an operation.
    """
    kind = str(device).split(":")[0]
    if kind not in DEVICES:
        raise BadInput(f"device is {str(device)!r}; expected one of {', '.join(DEVICES)}")
    name = base_name(op)
    fitting = [entry for entry in entries() if name in entry.ops and kind in entry.devices]
    return min(fitting, key=lambda entry: _ORDER.index(entry.kind), default=None)


def may_race(
    mode: str,
    *,
    device: str,
    threads: int | None,
    loose: str | None = None,
    operations: Iterable[str] = (),
) -> str | None:
    """Why repeats may give other bits though nothing is wrong; none where no race is possible.

    Parameters
    ----------
    mode : str
    device : str
        As a profile names it.
    threads : int or None
        Of the processor; None for as many as there are.
    loose : str, optional
        The operation that mode ``strict`` left as it is.
    operations : iterable of str
        What ran, where that is known: an operation that PyTorch has neither a deterministic path
        nor an alert for may race in mode ``strict``, too.

    Examples
    --------
    >>> may_race("fast", device="cpu", threads=2)
    'mode fast lets operations add in the order in which threads arrive'
    >>> may_race("strict", device="cpu", threads=2), may_race("fast", device="cpu", threads=1)
    (None, None)
    """
    kind = device_kind(device)
    if kind == "cpu" and threads == 1:
        return None
    if mode == "warn":
        return "mode warn lets operations race that have no deterministic implementation"
    if mode != "strict":
        return f"mode {mode} lets operations add in the order in which threads arrive"
    if loose is not None:
        return f"{loose} was left loose"
    for op in dict.fromkeys(operations):
        known = for_operation(op, kind)
        if known is not None and known.kind == "unlisted":
            return f"{op} has no deterministic implementation, and PyTorch does not say so"
    return None


def unknown_alerts(found: Installed | None = None) -> list[str]:
    """What the installed PyTorch knows and the data does not; empty when it is up to date.

    Parameters
    ----------
    found : Installed, optional
        What `cellrepro.determinism.alerts.installed` read; read now if not given.

    Returns
    -------
    list of str
        Alerts by name, and lines of PyTorch's page as ``torch.nn.AvgPool3d (error, cuda)``.
    """
    found = found or installed()
    known = {entry.alert for entry in entries()}
    alerts = [alert for alert in found.alerts if alert not in known]
    lines = [
        f"{line.name} ({', '.join([line.kind, *sorted(line.devices)])})"
        for line in found.documented
        if not _covered(line)
    ]
    return [*alerts, *lines]


def _covered(line: Documented) -> bool:
    fitting = [
        entry for entry in entries() if entry.kind == line.kind and line.name in entry.documented
    ]
    devices = {device for entry in fitting for device in entry.devices}
    return bool(fitting) and line.devices <= devices
