"""What was asked for, and the key that names it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from cellrepro.asked.choices import LedgerKind
from cellrepro.asked.hyperparameters import Hyperparameters
from cellrepro.asked.segmentation_settings import Settings
from cellrepro.asked.setting_in_words import setting_in_words
from cellrepro.asked.spec_fields import (
    FIRST_FIELDS,
    FIRST_OF_TRAINING,
    FIRST_PARAMETERS,
    OF_SEGMENTATION,
    OF_TRAINING,
    OF_WRAPPING,
    PARAMETERS,
    SETTINGS,
)
from cellrepro.bits.digests import value_digest
from cellrepro.determinism.choices import Mode
from cellrepro.determinism.field_defaults import added_later
from cellrepro.determinism.modes import check_mode, check_switches
from cellrepro.determinism.profiles import device_kind
from cellrepro.determinism.seeds import check_seed
from cellrepro.errors import BadInput
from cellrepro.words import short
from cellrepro.wrong_fields import wrong_fields

KEY_LENGTH = 16  # hex digits: 64 bits, no accidental collision below a billion specs


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


_OF_TASK = {"train": OF_TRAINING, "segment": OF_SEGMENTATION, "wrap": OF_WRAPPING}
LEAVE_OUT = {
    "settings": "a training segments with Cellpose's own settings, so that trainings can be "
    "compared: leave it out, and give it to segment with the trained network as model, KEY/REPEAT",
    "cellpose": "the lab trains with the version that is installed, whose loop its own is held to: "
    "leave it out",
}
"""What to do about an option of another task in a training, where there is more to be said."""


class Spec(Hyperparameters):
    """What was asked for, completely: the same spec gives the same key on every machine.

    Data, weights and profiles count by their content, a device by its kind; what they are called,
    where things lie, and which of several GPUs it was, is not part of it.
    """

    task: Literal["train", "segment", "wrap"] = "train"
    """What the run does; ``wrap`` is a different program that segments."""
    data: str
    """Name of the folder, for people; `data_digest` says what is in it."""
    data_digest: Digest
    """SHA-256 over the images and masks of the folder."""
    model: str
    """The network from which it starts; with a digest only a name for people."""
    model_digest: Digest | None = None
    """SHA-256 of the weights file; none where the weights follow from the seed."""
    seed: Annotated[int, AfterValidator(check_seed)] | None = None
    """Of every generator of random numbers; none only in mode ``off``."""
    data_seed: int | Literal["cellpose"] = "cellpose"
    """Of image order and augmentation; ``cellpose`` for Cellpose's own fixed order."""
    epochs: int = Field(default=0, ge=0, le=100_000)
    """Of a training."""
    batch_size: int = Field(default=1, ge=1, le=4096)
    """Crops in each step of a training."""
    learning_rate: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The highest of the schedule."""
    images_per_epoch: int | None = Field(default=None, ge=1)
    """Images that are shown in an epoch; none for every image once."""
    profile: str
    """Name of the profile."""
    profile_settings: dict[str, Any]
    """All fields of the profile."""
    mode: Annotated[Mode, BeforeValidator(check_mode)] = "strict"
    """How much is fixed."""
    ledger: LedgerKind = "off"
    """What is written down of every step."""
    loose: str | None = None
    """The one operation that is left as PyTorch has it in mode ``strict``."""
    ranks: int = Field(default=1, ge=1, le=1024)
    """Processes that share each batch of a training."""
    continued_from: str | None = None
    """The finished repeat from whose last epoch a training with a different schedule went on."""
    cellpose: str | None = Field(default=None, pattern=r"^\d+(\.\d+)+\w*$")
    """The version that segments, where it was asked for; else the one that is installed."""
    optimizer: Literal["AdamW"] = "AdamW"
    """Of a training."""
    schedule: Literal["train_seg"] = "train_seg"
    """Of the learning rate: that of `cellpose.train.train_seg`."""
    settings: Settings = Settings()
    """Of a segmentation: arguments of ``eval`` that are not the default."""
    program: tuple[str, ...] | None = None
    """What is wrapped: the command as given, or a function."""
    key_from: Literal["names", "contents"] = "names"
    """Whether names of folder and profile are part of the key, as in the first versions."""

    @model_validator(mode="before")
    @classmethod
    def _usual_seed(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        if given.get("mode") is False:  # as YAML reads ``off``
            given = given | {"mode": "off"}
        if given.get("seed") is None and given.get("mode") != "off":
            given = given | {"seed": 0}
        return given

    @field_validator("mode")
    @classmethod
    def _nothing_seeded(cls, mode: Mode, info: ValidationInfo) -> Mode:
        seeds = {name: info.data.get(name) for name in ("seed", "data_seed")}
        given = [f"{name} {seed}" for name, seed in seeds.items() if seed not in (None, "cellpose")]
        if mode == "off" and given:
            raise ValueError(
                f"mode off seeds nothing, and {' and '.join(given)} is given: leave it out (null "
                "in a grid), or use mode fast, which seeds and fixes nothing else"
            )
        precision = info.data.get("profile_settings", {}).get("dtype", "float32")
        if mode == "portable" and precision != "float32":
            raise ValueError(
                f"mode portable was asked for with a profile in {precision}, in which the order of "
                "additions cannot be made not to matter: half of the digits would be lost; use a "
                "profile in float32 (cpu, cuda), or mode strict"
            )
        check_switches(mode, info.data.get("profile_settings", {}).get("switches", {}))
        return mode

    @field_validator("profile_settings")
    @classmethod
    def _kind_of_device(cls, value: dict[str, Any]) -> dict[str, Any]:
        return value if "device" not in value else value | {"device": device_kind(value["device"])}

    @field_validator("data_seed")
    @classmethod
    def _data_seed_in_range(cls, value: int | str) -> int | str:
        return value if value == "cellpose" else check_seed(value, name="data_seed")  # type: ignore[arg-type]

    @field_validator("loose")
    @classmethod
    def _loose_in_strict(cls, value: str | None, info: ValidationInfo) -> str | None:
        mode = info.data.get("mode")
        if value is not None and mode != "strict":
            raise ValueError(f"loose names an operation: expected mode 'strict', not {mode!r}")
        return value

    @property
    def mode_in_words(self) -> str:
        """The mode in words: ``strict``, or ``strict, index_put loose``."""
        return self.mode if self.loose is None else f"{self.mode}, {self.loose} loose"

    def parameters(self) -> dict[str, Any]:
        """Give the `PARAMETERS` with their values.

        "" stands for a setting where this is no segmentation, and for `FIRST_OF_TRAINING` where it
        is no training. The batch size is that of the task; of a wrapped segmenter "".
        """
        values = {name: getattr(self, name) for name in PARAMETERS if name not in SETTINGS}
        values |= dict.fromkeys(SETTINGS, "")
        if self.task == "train":
            return values
        values |= dict.fromkeys((*FIRST_OF_TRAINING, "batch_size"), "")
        if self.task == "segment":
            for name, value in self.settings.by_name().items():
                values[name if name == "batch_size" else f"settings.{name}"] = value
        return values

    def shown_parameters(self) -> list[str]:
        """Name the `PARAMETERS` worth showing."""
        hidden = added_later(self, FIRST_FIELDS)
        changed_settings = self.settings.not_default()
        hidden |= {
            name for name in SETTINGS if name.removeprefix("settings.") not in changed_settings
        }
        if self.task != "train":
            hidden |= {*FIRST_OF_TRAINING}
        if self.task == "wrap":
            hidden |= {"batch_size", *SETTINGS}
        return [name for name in PARAMETERS if name not in hidden]

    @property
    def label(self) -> str:
        """For people: ``train nuclei, tiny, seed 0, cpu, strict``."""
        values = self.parameters()
        unsaid = self._not_in_label()
        return ", ".join(
            [
                f"{self.task} {short(self.data)}, {short(self.model)}",
                setting_in_words("seed", self.seed),
                short(self.profile),
                self.mode_in_words,
                *(
                    setting_in_words(name, values[name])
                    for name in self.shown_parameters()
                    if name not in unsaid
                ),
            ]
        )

    def _not_in_label(self) -> set[str]:
        """The first parameters, but for those of them that are other than usual."""
        unsaid = {*FIRST_PARAMETERS}
        unsaid -= self.settings.not_default().keys() & {"batch_size"}
        if self.task == "train":  # the other first fields have no one default
            for name in ("data_seed", "batch_size"):
                if getattr(self, name) != Spec.model_fields[name].default:
                    unsaid.remove(name)
        return unsaid

    @property
    def images_digest(self) -> str:
        """What the images were as arrays: of their files, and of the axes if these were named.

        One file is another array where another of its axes is taken for the channels.
        """
        axes = [self.settings.channel_axis, self.settings.z_axis]
        if axes == [None, None]:
            return self.data_digest
        return value_digest([self.data_digest, *axes])

    @property
    def key(self) -> str:
        """The first `KEY_LENGTH` hex digits of the SHA-256 of everything asked for."""
        named_by_digest = {"model"} if self.model_digest is not None else set()
        left_out = named_by_digest | added_later(self, FIRST_FIELDS)
        asked_for = self.model_dump(mode="json", exclude=left_out)
        if self.key_from == "contents":
            del asked_for["data"], asked_for["profile"]
            asked_for["profile_settings"].pop("name", None)
        return value_digest(asked_for)[:KEY_LENGTH]

    @property
    def as_in_first_versions(self) -> Spec:
        """The same, under the key that the first versions gave it."""
        return self.model_copy(update={"key_from": "names"})


def make_spec(**fields: Any) -> Spec:
    """A spec for something to be done, which is checked more strictly than one that was stored."""
    try:
        spec = Spec(**{"key_from": "contents"} | fields)
    except ValidationError as error:
        raise BadInput(wrong_fields(error, known=Spec.model_fields)) from error
    problems = _of_another_task(spec)
    if problems:
        raise BadInput("; ".join(problems))
    return spec


def _of_another_task(spec: Spec) -> list[str]:
    """A sentence for each field that has a value and does nothing in the task of a spec."""
    problems = []
    for task, names in _OF_TASK.items():
        for name in names if task != spec.task else ():
            value = getattr(spec, name)
            if value == Spec.model_fields[name].get_default(call_default_factory=True):
                continue
            if isinstance(value, Settings):
                value = value.not_default()
            advice = "leave it out"
            if spec.task == "train":
                advice = LEAVE_OUT.get(name, advice)
            problems.append(
                f"{name} is {value!r}, an option of {task} that does nothing in {spec.task}: "
                f"{advice}"
            )
    usual_batch = Spec.model_fields["batch_size"].default
    if spec.task != "train" and spec.batch_size != usual_batch:
        advice = "give settings.batch_size" if spec.task == "segment" else "leave it out"
        problems.append(
            f"batch_size is {spec.batch_size}, images a step of train, and does nothing in "
            f"{spec.task}: {advice}"
        )
    return problems
