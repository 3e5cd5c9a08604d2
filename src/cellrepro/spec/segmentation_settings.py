"""Everything of ``CellposeModel.eval`` (4.2.1.1) that can change a mask, under Cellpose's names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from cellrepro.spec.setting_names import NamedSettings, nested, plainly_named, spelt_out
from cellrepro.wrong_fields import wrong_fields
from samebits.errors import BadInput

_Finite = Annotated[float, Field(allow_inf_nan=False)]
_Range = tuple[_Finite, _Finite]
_Channel = Annotated[int, Field(ge=0)]  # counted from 1; 0 for grey, and for none


class Normalize(NamedSettings):
    """The scaling of intensities before the network sees them."""

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
            self.refuse_ignored(set(self.changed) - {"normalize"}, "where normalize is false")
        if self.lowhigh == ():
            raise ValueError(
                "lowhigh is []; expected a low and a higher value, or such a pair for each channel"
            )
        if self.lowhigh is not None:
            names = ("percentile", "sharpen", "smooth_radius", "tile_norm_blocksize")
            self.refuse_ignored(names, "where lowhigh is given")
            pairs = self.lowhigh if isinstance(self.lowhigh[0], tuple) else (self.lowhigh,)
            if any(low >= high for low, high in pairs):
                raise ValueError(f"lowhigh is {self.lowhigh}; expected a low and a higher value")
        if not self.tile_norm_blocksize:
            self.refuse_ignored(["tile_norm_smooth3D"], "without tile_norm_blocksize")
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


class Settings(NamedSettings):
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
    normalize: Annotated[Normalize, BeforeValidator(spelt_out)] = Normalize()
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
        return nested(given) if isinstance(given, Mapping) else given

    @model_validator(mode="after")
    def _checked(self) -> Settings:
        if self.do_3D:
            self.refuse_ignored(("stitch_threshold", "flow_threshold"), "where do_3D is on")
        else:
            self.refuse_ignored(("anisotropy", "flow3D_smooth"), "where do_3D is off")
        if self.augment:
            self.refuse_ignored(["tile_overlap"], "where augment is on")
        smooth = self.flow3D_smooth if isinstance(self.flow3D_smooth, tuple) else ()
        if min((*smooth, 0)) < 0 or (not smooth and self.flow3D_smooth < 0):  # type: ignore[operator]
            raise ValueError(f"flow3D_smooth is {self.flow3D_smooth}; expected 0 or more pixels")
        return self

    def by_name(self) -> dict[str, Any]:
        """Every setting as people write it, ``normalize.sharpen``; ``channels`` only if given."""
        own = {name: getattr(self, name) for name in NAMES if "." not in name}
        of_normalize = {
            f"normalize.{n}": getattr(self.normalize, n) for n in Normalize.model_fields
        }
        by_name = {**own, **of_normalize}
        settings = {name: by_name[name] for name in NAMES}
        if self.channels is not None:
            settings[CHANNELS] = self.channels
        return settings

    def not_default(self) -> dict[str, Any]:
        """The settings that differ from their defaults, by name."""
        usual = _usual_settings()
        return {name: value for name, value in self.by_name().items() if value != usual.get(name)}

    def before_masks(self) -> dict[str, Any]:
        """The settings on which the network's output depends, by name."""
        return {name: v for name, v in self.by_name().items() if name not in AFTER_NETWORK}

    def replaced(self, **changes: Any) -> Settings:
        """A copy with some settings replaced, by name; `BadInput` if Cellpose refuses them.

        Fields of ``normalize`` are replaced one by one, also where it is given whole.
        """
        try:
            new_values = nested(changes)
            whole = new_values.get("normalize")
            if isinstance(whole, Mapping):
                del new_values["normalize"]
                for name, value in plainly_named(whole).items():
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
