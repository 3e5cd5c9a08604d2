"""Which runs have certain values: of what was asked for, or of the machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from typing import TYPE_CHECKING

from yaml import YAMLError

from cellrepro.errors import BadInput
from cellrepro.yaml_values import read_yaml

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Run


def has_values(run: Run, machine: str, wanted: Mapping[str, object]) -> bool:
    """Whether the repeats of a run on one machine have certain values."""
    if not wanted:
        return True
    fields = {
        "key": run.key,
        "label": run.spec.label,
        **run.spec.model_dump(mode="json"),
        **run.spec.parameters(),
        "machine": machine,
    }
    for name, wanted_value in wanted.items():
        if not _is_equal(_field(fields, name), wanted_value):
            return False
    return True


def _is_equal(value: object, wanted: object) -> bool:
    if isinstance(wanted, str) and not isinstance(value, str):
        with suppress(YAMLError):
            return value == read_yaml(wanted)
    return value == wanted


def _field(fields: Mapping[str, object], name: str) -> object:
    """The value of a field, or of a field of one with dots between."""
    value: object = fields
    path = [name] if name in fields else name.split(".")
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            known = ", ".join(get_close_matches(part, fields, 3, 0.3) or sorted(fields))
            raise BadInput(f"--where names {name!r}, which no run has; expected {known}")
        value = value[part]
    return value
