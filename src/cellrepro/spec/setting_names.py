"""The names by which settings of a segmentation are given: plain, dotted, or an alias.

``normalize.sharpen``, ``normalize: {sharpen: 4}`` and ``sharpen_radius`` in the same table mean one
field. A value that is given in two ways must be given alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import (
    BaseModel,
    ConfigDict,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from cellrepro.field_defaults import defaults

_ALIASES = {"sharpen_radius": "sharpen"}  # as Cellpose's own dictionary has it

_ELSEWHERE = {
    "rescale": "Cellpose 4.2.1.1 overwrites it by 30 / diameter: give diameter",
    "use_bfloat16": "precision belongs to the profile: give --profile cellpose-default (bfloat16), "
    "or a profile with `dtype`",
    "compute_masks": "the lab compares masks, so it makes them",
    "progress": "it changes no mask",
    "interp": "Cellpose 4 has no such argument any more: it interpolates in any case",
    "net_avg": "Cellpose 4 has one network",
    "model_type": "Cellpose 4 ignores it: give --model",
    "pretrained_model": "give --model",
    "invert": "it is a field of normalize: give normalize.invert",
}
"""Arguments of Cellpose that are no settings here, and why."""


class NamedSettings(BaseModel):
    """Settings whose wrong names are refused with the nearest one; defaults are not stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        wrong = [*cls._numbers_given_as_bools(given), *cls._unknown_names(given)]
        if wrong:
            raise ValueError("; ".join(wrong))
        return plainly_named(given)

    @classmethod
    def _numbers_given_as_bools(cls, given: Mapping[Any, Any]) -> Iterable[str]:
        for name, value in given.items():
            field = cls.model_fields.get(str(_ALIASES.get(name, name)))
            if isinstance(value, bool) and field is not None and not _takes_bool(field.annotation):
                yield f"{name} is {value}: expected a number, not yes or no"

    @classmethod
    def _unknown_names(cls, given: Mapping[Any, Any]) -> Iterable[str]:
        fields = {*cls.model_fields, *_ALIASES}
        for name in given:
            if name in fields:
                continue
            near = get_close_matches(str(name), fields, 1)
            meant = f"do you mean {near[0]}?" if near else f"expected {', '.join(cls.model_fields)}"
            yield f"{name}: {_ELSEWHERE.get(str(name)) or f'no such setting; {meant}'}"

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in inner(self).items() if name in self.changed}

    @property
    def changed(self) -> list[str]:
        """Names of the fields that differ from their defaults."""
        usual = defaults(type(self))
        return [name for name in usual if getattr(self, name) != usual[name]]

    def refuse_ignored(self, names: Iterable[str], why: str) -> None:
        """Raise `ValueError` if one of these fields was changed, which Cellpose would ignore."""
        ignored = [name for name in names if name in self.changed]
        if ignored:
            raise ValueError(f"Cellpose ignores {', '.join(ignored)} {why}: leave it out")


def _takes_bool(annotation: Any) -> bool:
    """Whether a field takes a bool: a switch, or a table with a switch of the same name."""
    return isinstance(annotation, type) and issubclass(annotation, bool | NamedSettings)


def plainly_named(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Resolve aliases; a value that is given by two names must be given alike."""
    values: dict[Any, Any] = {}
    for name, value in given.items():
        plain_name = _ALIASES.get(name, name)
        first = values.setdefault(plain_name, value)
        if first != value:
            raise ValueError(
                f"{name} is {value!r}, and {first!r} by another of its names: give it once, as "
                f"{plain_name}"
            )
    return values


def spelt_out(value: Any) -> Any:
    """Write ``normalize`` as a mapping: ``eval`` also takes a bool for its field of that name."""
    if isinstance(value, NamedSettings):
        return {name: getattr(value, name) for name in value.changed}
    return {"normalize": value} if isinstance(value, bool) else value


def nested(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Write ``normalize.sharpen: 4`` as ``normalize: {sharpen: 4}``."""
    tables = {
        name: spelt_out(value) if name == "normalize" else value
        for name, value in given.items()
        if "." not in str(name)
    }
    for name, value in given.items():
        head, dot, field = str(name).partition(".")
        if dot:
            tables[head] = _with_field(tables.get(head, {}), field, value)
    return tables


def _with_field(whole: Any, field: str, value: Any) -> Any:
    """Add a field that was given by itself to a whole; given both ways, it must be given alike."""
    if not isinstance(whole, Mapping):
        raise ValueError(f"{field!r} is given of {whole!r}, which has no fields")
    plain_name = _ALIASES.get(field, field)
    fields = plainly_named(whole)
    given = fields.setdefault(plain_name, value)
    if given != value:
        raise ValueError(
            f"normalize.{plain_name} is {value!r}, and {given!r} in normalize as a whole: give it "
            "once"
        )
    return fields
