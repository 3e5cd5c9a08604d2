"""Everything of ``CellposeModel.eval`` (4.2.1.1) that can change a mask, under Cellpose's names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cache
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from cellrepro.errors import BadInput
from cellrepro.field_defaults import defaults
from cellrepro.wrong_fields import wrong_fields

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Range = tuple[_Finite, _Finite]
_Channel = Annotated[int, Field(ge=0)]  # counted from 1; 0 for grey, and for none

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


class _Named(BaseModel):
    """A model that proposes the nearest name for a wrong one, and stores no defaults."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _known_names(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        fields = {*cls.model_fields, *_ALIASES}
        wrong = []
        for name, value in given.items():
            field = cls.model_fields.get(str(_ALIASES.get(name, name)))
            is_number = field is not None and field.annotation not in (bool, Normalize)
            if isinstance(value, bool) and is_number:
                wrong.append(f"{name} is {value}: expected a number, not yes or no")
        for name in [name for name in given if name not in fields]:
            near = get_close_matches(str(name), fields, 1)
            meant = f"do you mean {near[0]}?" if near else f"expected {', '.join(cls.model_fields)}"
            wrong.append(f"{name}: {_ELSEWHERE.get(str(name)) or f'no such setting; {meant}'}")
        if wrong:
            raise ValueError("; ".join(wrong))
        return _plainly_named(given)

    @model_serializer(mode="wrap")
    def _only_what_is_set(self, inner: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return {name: value for name, value in inner(self).items() if name in self.changed}

    @property
    def changed(self) -> list[str]:
        """Names of the fields that differ from their defaults."""
        usual = defaults(type(self))
        return [name for name in usual if getattr(self, name) != usual[name]]

    def _refuse_ignored(self, names: Iterable[str], why: str) -> None:
        ignored = [name for name in names if name in self.changed]
        if ignored:
            raise ValueError(f"Cellpose ignores {', '.join(ignored)} {why}: leave it out")


_ALIASES = {"sharpen_radius": "sharpen"}  # as Cellpose's own dictionary has it


def _plainly_named(given: Mapping[Any, Any]) -> dict[Any, Any]:
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


class Normalize(_Named):
    """How intensities are scaled before the network sees them."""

    normalize: bool = True
    percentile: _Range | None = None  # to 0 and 1; none for (1, 99)
    lowhigh: _Range | tuple[_Range, ...] | None = None  # to 0 and 1, of all or of each channel
    sharpen: _Finite = Field(default=0, ge=0)  # pixels
    smooth_radius: _Finite = Field(default=0, ge=0)  # pixels
    tile_norm_blocksize: int = Field(default=0, ge=0)  # pixels
    tile_norm_smooth3D: int = Field(default=1, ge=0)
    norm3D: bool = True
    invert: bool = False

    @model_validator(mode="after")
    def _checked(self) -> Normalize:
        if not self.normalize:
            self._refuse_ignored(set(self.changed) - {"normalize"}, "where normalize is false")
        if self.lowhigh is not None:
            names = ("percentile", "sharpen", "smooth_radius", "tile_norm_blocksize")
            self._refuse_ignored(names, "where lowhigh is given")
            pairs = self.lowhigh if isinstance(self.lowhigh[0], tuple) else (self.lowhigh,)
            if any(low >= high for low, high in pairs):
                raise ValueError(f"lowhigh is {self.lowhigh}; expected a low and a higher value")
        if not self.tile_norm_blocksize:
            self._refuse_ignored(["tile_norm_smooth3D"], "without tile_norm_blocksize")
        if self.percentile is not None:
            low, high = self.percentile
            if not 0 <= low < high <= 100:
                raise ValueError(
                    f"percentile is {self.percentile}; expected 0 <= low < high <= 100"
                )
        return self

    def arguments(self) -> dict[str, Any]:
        """The fields that differ from their defaults, as ``eval`` takes them."""
        return {
            "sharpen_radius" if name == "sharpen" else name: getattr(self, name)
            for name in self.changed
        }


def _spelt_out(value: Any) -> Any:
    """Write ``normalize`` as a mapping: ``eval`` also takes a bool for its field of that name."""
    if isinstance(value, Normalize):
        return {name: getattr(value, name) for name in value.changed}
    return {"normalize": value} if isinstance(value, bool) else value


def _nested(given: Mapping[Any, Any]) -> dict[Any, Any]:
    """Write ``normalize.sharpen: 4`` as ``normalize: {sharpen: 4}``."""
    nested = {
        name: _spelt_out(value) if name == "normalize" else value
        for name, value in given.items()
        if "." not in str(name)
    }
    for name, value in given.items():
        head, dot, field = str(name).partition(".")
        if dot:
            nested[head] = _with_field(nested.get(head, {}), field, value)
    return nested


def _with_field(whole: Any, field: str, value: Any) -> Any:
    """Add a field that was given by itself to a whole; given both ways, it must be given alike."""
    if not isinstance(whole, Mapping):
        return whole  # refused by its type
    plain_name = _ALIASES.get(field, field)
    fields = _plainly_named(whole)
    given = fields.setdefault(plain_name, value)
    if given != value:
        raise ValueError(
            f"normalize.{plain_name} is {value!r}, and {given!r} in normalize as a whole: give it "
            "once"
        )
    return fields


class Settings(_Named):
    """Arguments of ``CellposeModel.eval`` (4.2.1.1), with its names and defaults.

    What Cellpose overwrites or ignores is refused, with the reason.
    """

    batch_size: int = Field(default=8, ge=1, le=4096)  # tiles that the network sees at once
    diameter: _Finite | None = Field(default=None, gt=0)  # pixels; none for 30
    flow_threshold: _Finite | None = Field(default=0.4, ge=0)  # 0 or none keeps every mask
    cellprob_threshold: _Finite = 0.0  # logit
    niter: int | None = Field(default=None, ge=1, le=100_000)  # none for 200 x diameter / 30
    min_size: int = Field(default=15, ge=-1)  # pixels; -1 keeps every mask
    max_size_fraction: _Finite = Field(default=0.4, gt=0, le=1)  # of the image
    resample: bool = True
    augment: bool = False
    tile_overlap: _Finite = Field(default=0.1, ge=0.05, le=0.5)  # Cellpose bounds it so
    bsize: int | None = Field(default=None, ge=64, le=4096)  # pixels; of CPDINO alone
    normalize: Annotated[Normalize, BeforeValidator(_spelt_out)] = Normalize()
    channels: tuple[_Channel, _Channel] | None = None  # of Cellpose 3: of cells, and of nuclei
    channel_axis: int | None = Field(default=None, ge=-4, le=3)  # of the file's array
    z_axis: int | None = Field(default=None, ge=-4, le=3)
    do_3D: bool = False
    anisotropy: _Finite | None = Field(default=None, gt=0)
    flow3D_smooth: _Finite | tuple[_Finite, _Finite, _Finite] = 0  # pixels, also by axis Z, Y, X
    stitch_threshold: _Finite = Field(default=0.0, ge=0, le=1)  # IoU of neighbouring planes

    @model_validator(mode="before")
    @classmethod
    def _fields_in_their_table(cls, given: Any) -> Any:
        return _nested(given) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _checked(self) -> Settings:
        if self.do_3D:
            self._refuse_ignored(("stitch_threshold", "flow_threshold"), "where do_3D is on")
        else:
            self._refuse_ignored(("anisotropy", "flow3D_smooth"), "where do_3D is off")
        if self.augment:
            self._refuse_ignored(["tile_overlap"], "where augment is on")
        smooth = self.flow3D_smooth if isinstance(self.flow3D_smooth, tuple) else ()
        if min((*smooth, 0)) < 0 or (not smooth and self.flow3D_smooth < 0):  # type: ignore[operator]
            raise ValueError(f"flow3D_smooth is {self.flow3D_smooth}; expected 0 or more pixels")
        return self

    def by_name(self) -> dict[str, Any]:
        """Every setting as people write it, ``normalize.sharpen``; ``channels`` only if given."""
        own = {name: getattr(self, name) for name in NAMES if "." not in name}
        nested = {f"normalize.{n}": getattr(self.normalize, n) for n in Normalize.model_fields}
        by_name = {**own, **nested}
        settings = {name: by_name[name] for name in NAMES}
        if self.channels is not None:
            settings[CHANNELS] = self.channels
        return settings

    def not_default(self) -> dict[str, Any]:
        """The settings that differ from their defaults, by name."""
        usual = _usual_settings()
        return {name: value for name, value in self.by_name().items() if value != usual.get(name)}

    def replaced(self, **changes: Any) -> Settings:
        """A copy with some settings replaced, by name; `BadInput` if Cellpose refuses them.

        Fields of ``normalize`` are replaced one by one, also where it is given whole.
        """
        try:
            new_values = _nested(changes)
            whole = new_values.get("normalize")
            if isinstance(whole, Mapping):
                del new_values["normalize"]
                for name, value in _plainly_named(whole).items():
                    new_values[f"normalize.{name}"] = value
            return Settings.model_validate({**self.not_default(), **new_values})
        except ValidationError as error:
            raise BadInput(wrong_fields(error)) from error
        except ValueError as error:
            raise BadInput(str(error)) from error

    def arguments(self) -> dict[str, Any]:
        """The arguments for ``eval`` that differ from its defaults, and the batch size.

        Axes are left out: they are those of the file, and the array was read by them.
        """
        own = [n for n in self.changed if n not in ("normalize", "channel_axis", "z_axis")]
        arguments = {name: getattr(self, name) for name in dict.fromkeys(["batch_size", *own])}
        smooth = arguments.get("flow3D_smooth")
        if isinstance(smooth, tuple):
            arguments["flow3D_smooth"] = list(smooth)  # Cellpose looks for a list
        if self.channels is not None:
            arguments[CHANNELS] = list(self.channels)
        return arguments | {"normalize": self.normalize.arguments()}


@cache
def _usual_settings() -> dict[str, Any]:
    return Settings().by_name()


CHANNELS = "channels"
"""A setting of Cellpose 2 and 3: the channel to segment and that of nuclei, 0 for grey and none."""

NAMES = (
    *(name for name in Settings.model_fields if name not in ("normalize", CHANNELS)),
    *(f"normalize.{name}" for name in Normalize.model_fields),
)
"""Every setting of Cellpose 4, as people write it: ``diameter``, ``normalize.sharpen``."""

AFTER_NETWORK = frozenset(
    {"flow_threshold", "cellprob_threshold", "niter", "min_size", "max_size_fraction"}
)
"""Settings that act on the network's output; so does flow3D_smooth, for stacks alone."""
