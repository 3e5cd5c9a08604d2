"""Types of the values in stored records, which are checked: stores come from others, too."""

from __future__ import annotations

from datetime import datetime
from pathlib import PurePath
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def stays_inside(name: str) -> str:
    """Refuse a name that leads out of the folder it is joined to."""
    # Thousands of names are read at once; most of them need no closer look.
    may_have_a_root = {"/", "\\", ":"}.intersection(name[:2])
    if ".." not in name and not may_have_a_root:
        return name
    path = PurePath(name)
    if path.anchor or ".." in path.parts:
        raise ValueError(f"{name!r} leads out of the folder; expected a name inside it")
    return name


def is_on_another_computer(path: str) -> bool:
    r"""Whether a path names another computer, ``\\server\share``, which looking would log in to.

    What a file that came from someone else records is no reason for that.
    """
    return path.replace("\\", "/").startswith("//")


Inside = Annotated[str, AfterValidator(stays_inside)]
"""A name or relative path. Stores come from others, too, and paths are made of what they say."""

Count = Annotated[int, Field(ge=0, lt=2**63)]
"""A number that is never negative."""

_MOST_SECONDS = 1e9
"""The longest repeat: thirty years."""

Seconds = Annotated[float, Field(ge=0, lt=_MOST_SECONDS)]
"""A duration."""

AveragePrecision = Annotated[float, Field(ge=0, le=1)]
"""An average precision, from 0 to 1."""


def moment_of(text: str) -> datetime:
    """Parse a date and time in ISO 8601."""
    return datetime.fromisoformat(text.replace("Z", "+00:00"))  # Python 3.10 takes no Z


def _possible(text: str) -> str:
    """Refuse a date that no run can have, as it is computed with."""
    moment = moment_of(text)
    if moment.tzinfo is None or not 1970 <= moment.year < 9000:
        raise ValueError("no time after 1970 with its distance from UTC")
    return text


Timestamp = Annotated[str, AfterValidator(_possible)]
"""A date and time, ISO 8601."""


def _of_bounded_sum(seconds: dict[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    if not 0 <= total < _MOST_SECONDS:  # nor NaN
        raise ValueError(f"{total} seconds in all")
    return seconds


SecondsByPhase = Annotated[dict[str, float], AfterValidator(_of_bounded_sum)]
"""The durations of the phases of a run."""


def _with_probes(value: dict[str, Any]) -> dict[str, Any]:
    """Refuse any other value than a name with the digest of each probe."""
    name, probes = value.get("name"), value.get("probes")
    is_of_texts = isinstance(probes, dict) and all(isinstance(p, str) for p in probes.values())
    if not isinstance(name, str) or not is_of_texts:
        raise ValueError("no name with the digest of each probe")
    return value


NumericClass = Annotated[dict[str, Any], AfterValidator(_with_probes)]
"""A numeric class: its ``name``, and the digest of each of its ``probes``."""


class StoredRecord(BaseModel):
    """A part of a manifest."""

    # A diverged training has losses of NaN and infinity, for which JSON has no number.
    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="strings")
