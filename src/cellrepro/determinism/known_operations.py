"""What is known of operations that may not repeat bit for bit: why, and what to do.

The knowledge is data, ``nondeterministic.yaml`` beside this file, with the source and version of
every line; `releases` names the versions of PyTorch that it covers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import yaml

from cellrepro.determinism.profiles import device_kind
from cellrepro.errors import BadInput

_ORDER = ("error", "switched", "unlisted")

_CUBLAS = "uses CuBLAS and you have CUDA"
_PHRASES = (
    "does not have a deterministic implementation",
    "defaults to a non-deterministic algorithm",
    _CUBLAS,
)


@dataclass(frozen=True)
class Entry:
    """One way in which an operation may not repeat."""

    alert: str | None
    """What PyTorch calls it in its warning or error; none where it says nothing."""
    ops: tuple[str, ...]
    """Operations in the form of `base_name`; empty where none of ``torch.ops.aten`` comes here."""
    devices: tuple[str, ...]
    """Of ``cpu``, ``cuda`` and ``mps``."""
    phase: str
    """``forward``, ``backward`` or ``both``."""
    kind: str
    """``error``: no deterministic implementation; ``switched``: the remedy names the switch that
    selects one; ``unlisted``: neither an alert nor a line on PyTorch's page."""
    reason: str
    remedy: str
    source: str
    version: str
    """Of PyTorch where nothing else is named."""
    documented: tuple[str, ...] = ()
    """Its names on PyTorch's page on ``torch.use_deterministic_algorithms``."""


@cache
def base_name(op: str) -> str:
    """The one name under which an operation is looked up, however it is written.

    Without namespace, overload and device, without the marks of its variants (in place, unsafe,
    implementation). An operation of another namespace than PyTorch's own keeps that.

    Raises
    ------
    BadInput
        If nothing is left.

    Examples
    --------
    >>> spellings = ("aten.index_put.default", "index_put_", "aten::_index_put_impl_")
    >>> {base_name(op) for op in (*spellings, "_unsafe_index_put", "torch.ops.aten.index_put")}
    {'index_put'}
    >>> base_name("upsample_linear1d_backward_out_cuda"), base_name("lab.sum.default")
    ('upsample_linear1d_backward', 'lab.sum')
    """
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
    """For each version of PyTorch covered, oldest first, what it alerts on and documents.

    Each holds the names of its ``alerts``, those on its page that are an ``error`` and those that
    are ``switched``, the ``source`` and the date on which that was ``read``.
    """
    return _data()["releases"]


@cache
def entries() -> tuple[Entry, ...]:
    """All of it, one entry for every alert and one for what has none, in the file's order."""
    found = []
    for fields in _data()["entries"]:
        known: dict[str, Any] = {
            name: value.strip() for name, value in fields.items() if isinstance(value, str)
        }
        known["ops"] = tuple(dict.fromkeys(map(base_name, fields["ops"])))
        known["devices"] = tuple(fields["devices"])
        known["documented"] = tuple(fields.get("documented", ()))
        found += [Entry(alert=alert, **known) for alert in fields["alerts"] or [None]]
    return tuple(found)


def _wrapped(text: str) -> str:
    """A pattern for a text that a terminal may have wrapped anywhere, within a word too."""
    return r"\s*".join(re.escape(letter) for letter in text if letter != " ")


def alert_in(message: str) -> str | None:
    """PyTorch's name for the operation in a warning or error about determinism, else none.

    The message may be pasted: with time, file and category before it, wrapped anywhere.

    Examples
    --------
    >>> alert_in("a.py:3: UserWarning: put_ does not have a deterministic implementation")
    'put_'
    """
    said = re.search("|".join(map(_wrapped, _PHRASES)), message)
    before = "" if said is None else message[: said.start()].strip()
    if said is None or not before:
        return None
    if re.fullmatch(_wrapped(_CUBLAS), said[0]):
        return "CuBLAS"
    known = [entry.alert for entry in entries() if entry.alert]
    ending = [alert for alert in known if re.search(rf"(?<!\w){_wrapped(alert)}$", before)]
    if ending:
        return max(ending, key=len)
    name = before.rpartition(": ")[2]
    return name if re.fullmatch(r"\w+( \w+)*", name) else name.split()[-1]


def lookup(text: str) -> Entry | None:
    """What is known of an alert: of its name, or of any text that `alert_in` understands.

    None if the text is about something else, or the alert is newer than the data.

    Examples
    --------
    >>> lookup("a.py:3: UserWarning: put_ does not have a deterministic implementation").kind
    'error'
    """
    named = {entry.alert: entry for entry in entries() if entry.alert}
    return named.get(text.strip()) or named.get(alert_in(text) or "")


def for_operation(op: str, device: str) -> Entry | None:
    """What is known of an operation on a device, ``cuda:0`` for example.

    Where several entries fit, a missing implementation goes before a switch, and the file's order
    decides the rest.
    """
    name, kind = base_name(op), device.partition(":")[0]
    fitting = [entry for entry in entries() if name in entry.ops and kind in entry.devices]
    return min(fitting, key=lambda entry: _ORDER.index(entry.kind), default=None)


def may_race(
    mode: str, *, device: str, threads: int | None, loose: str | None = None
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

    Examples
    --------
    >>> may_race("fast", device="cpu", threads=2)
    'mode fast lets operations add in the order in which threads arrive'
    >>> may_race("strict", device="cpu", threads=2), may_race("fast", device="cpu", threads=1)
    (None, None)
    """
    if device_kind(device) == "cpu" and threads == 1:
        return None
    if mode == "warn":
        return "mode warn lets operations race that have no deterministic implementation"
    if mode != "strict":
        return f"mode {mode} lets operations add in the order in which threads arrive"
    return None if loose is None else f"{loose} was left loose"
