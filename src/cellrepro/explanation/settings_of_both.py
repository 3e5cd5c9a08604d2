"""What two results record, side by side, and how a table shows a value."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from cellrepro.explanation.conditions import (
    IMAGE_CHANNELS,
    IMAGE_CROP,
    IMAGE_DEPTH,
    MODEL,
    PRECISION,
    VERSION,
)
from cellrepro.explanation.recorded_settings import (
    DRAWN,
    NOT_OF_CELLS,
    NOT_RECORDED,
    REMOVED,
    RESTORE,
    GenerationNumber,
    tell_settings,
)
from cellrepro.spec.field_words import unset_in_words
from cellrepro.words import area_text, short_digest


@dataclass(frozen=True)
class SettingOfBoth:
    """A setting, or something else that is recorded, as each of two results has it."""

    name: str
    """Cellpose's own name of it, or ``model``, ``precision``."""
    a: object
    """Its value in A; ``?`` where no file records it."""
    b: object
    """Its value in B."""

    @property
    def differs(self) -> bool:
        """Whether both record it, and not alike: one that is not set is the usual one.

        >>> SettingOfBoth("normalize.percentile", None, [1.0, 99.0]).differs
        False
        >>> SettingOfBoth("normalize.percentile", None, [3.0, 97.0]).differs
        True
        >>> SettingOfBoth("diameter", None, 30.0).differs
        True
        """
        is_same = _as_tuple(self.a) == _as_tuple(self.b)
        return self.is_recorded_by_both and not is_same and not self._are_unset_and_usual

    @property
    def _are_unset_and_usual(self) -> bool:
        """Whether one is not set and the other usual; before Cellpose 4 it looked for diameters."""
        if self.name == "diameter" or None not in (self.a, self.b):
            return False
        return is_usual_value(self.name, self.b if self.a is None else self.a)

    @property
    def may_change_cells(self) -> bool:
        """Whether it is more than a name, a path or a time."""
        return self.name not in NOT_OF_CELLS

    @property
    def is_recorded(self) -> bool:
        """Whether at least one of the two records it."""
        return not (is_missing(self.a) and is_missing(self.b))

    @property
    def is_recorded_by_both(self) -> bool:
        """Whether both record it."""
        return not (is_missing(self.a) or is_missing(self.b))

    @property
    def only_side(self) -> Literal["A", "B"]:
        """The one side that records it."""
        return "B" if is_missing(self.a) else "A"

    @property
    def only_value(self) -> object:
        """The value of the one side that records it."""
        return self.b if self.only_side == "B" else self.a

    @property
    def is_usual(self) -> bool:
        """Whether the only value that is recorded is the usual one, in whichever Cellpose."""
        return is_usual_value(self.name, self.only_value)


def _as_tuple(value: object) -> object:
    """Give a list as a tuple: channels are the one in a ``_seg.npy``, the other in a run."""
    return tuple(value) if isinstance(value, list) else value


def side_by_side(a: Mapping[str, object], b: Mapping[str, object]) -> tuple[SettingOfBoth, ...]:
    """Put what two results record beside each other, what differs first.

    Every setting of Cellpose, and what else at least one of them records: first what both record
    differently, then what one of them does not record, then what is the same, then what neither
    records.

    >>> table = side_by_side({"diameter": 42.4, "niter": None}, {"diameter": 30.0})
    >>> table[:2]  # doctest: +NORMALIZE_WHITESPACE
    (SettingOfBoth(name='diameter', a=42.4, b=30.0), SettingOfBoth(name='niter', a=None, b='?'))
    """
    from cellrepro.spec.segmentation_settings import NAMES

    names = dict.fromkeys([MODEL, *NAMES, PRECISION, VERSION, *a, *b])
    if MODEL not in a and MODEL not in b:
        del names[MODEL]
    return _sorted_table(names, a, b)


def recorded_side_by_side(
    a: Mapping[str, object], b: Mapping[str, object]
) -> tuple[SettingOfBoth, ...]:
    """Put beside each other what at least one of two results records, what differs first."""
    if not tell_settings([*a, *b]):  # then the model of all settings need not be loaded
        return _sorted_table(dict.fromkeys([*a, *b]), a, b)
    return tuple(setting for setting in side_by_side(a, b) if setting.is_recorded)


def _sorted_table(
    names: Iterable[str], a: Mapping[str, object], b: Mapping[str, object]
) -> tuple[SettingOfBoth, ...]:
    table = [
        SettingOfBoth(name, a.get(name, NOT_RECORDED), b.get(name, NOT_RECORDED)) for name in names
    ]
    return tuple(sorted(table, key=_urgency))


def network_diameter(name: str, generations: Iterable[GenerationNumber | None] = ()) -> str:
    """Give the diameter that Cellpose 4 takes where none is set; empty for other names, versions.

    >>> network_diameter("diameter"), network_diameter("diameter", ["3", "4"])
    ('30', '')
    """
    is_of_4 = not {"2", "3"} & set(generations)
    return usual_text(name) if name == "diameter" and is_of_4 else ""


def is_missing(value: object) -> bool:
    """Whether a value of a side stands for one that no file records."""
    return isinstance(value, str) and value == NOT_RECORDED


def _urgency(setting: SettingOfBoth) -> int:
    """Rank in the table, from differing settings to what neither side records."""
    if not setting.is_recorded:
        return 4
    if setting.differs:
        return 0 if setting.may_change_cells else 1
    return 3 if setting.is_recorded_by_both else 2


def is_usual_value(name: str, value: object, generation: GenerationNumber | None = None) -> bool:
    """Whether a value is Cellpose's usual one, however that is written.

    >>> is_usual_value("flow_threshold", 0.4), is_usual_value("diameter", 42.4)
    (True, False)
    """
    from cellrepro.explanation.recorded_commands import is_usual
    from cellrepro.spec.segmentation_settings import Settings

    if name in (DRAWN, REMOVED, RESTORE):
        return not value
    if name == "diameter":  # none is 30 in Cellpose 4, and looked for in those before it
        return value is None or (value == 30 and generation in (None, "4"))
    if name == "channels":
        return value in (None, [0, 0], (0, 0))
    usual = Settings().by_name()
    return name in usual and is_usual(name, value, usual[name])


def usual_text(name: str) -> str:
    """Give Cellpose 4's usual value of a setting as a table shows it; empty for what has none.

    >>> usual_text("diameter"), usual_text("flow_threshold"), usual_text("model")
    ('30', '0.4', '')
    """
    from cellrepro.spec.segmentation_settings import Settings

    if name == "diameter":
        return "30"
    usual = Settings().by_name()
    return setting_text(usual[name]) if name in usual else ""


# -- values in words --------------------------------------------------------------------------

_UNCHANGED = {
    IMAGE_CROP: "the whole image",
    IMAGE_DEPTH: "as in its file",
    IMAGE_CHANNELS: "as in its file",
}
"""How an image was read where nothing was changed."""


def value_text(name: str, value: object) -> str:
    """Write a value of a setting of this name as it stands, without quotes."""
    if value is None:
        return _UNCHANGED.get(name) or unset_in_words(name)
    return _crop_text(value) if name == IMAGE_CROP else str(value)


def setting_in_words(name: str, value: object, *, unset_as: str = "") -> str:
    """Give a value of a setting of this name as a table shows it.

    ``unset_as`` is what Cellpose takes where none is set, as `network_diameter` gives it.

    >>> setting_in_words("diameter", None, unset_as="30"), setting_in_words("niter", None)
    ('not set (as if 30)', 'not set')
    """
    if value is None:
        text = value_text(name, value)
        return f"{text} (as if {unset_as})" if unset_as else text
    return _crop_text(value) if name == IMAGE_CROP else setting_text(value)


def _crop_text(crop: object) -> str:
    """Say where a crop lies.

    >>> _crop_text(((30, 170), (20, 160)))
    'rows 30 to 169 and columns 20 to 159'
    """
    if not isinstance(crop, list | tuple):
        return setting_text(crop)
    rows, columns = crop
    return area_text(rows, columns)


def setting_text(value: object) -> str:
    """Give a value as a table shows it.

    >>> setting_text(42.400001525878906), setting_text(30.0), setting_text(None)
    ('42.4', '30', 'none')
    >>> setting_text((1.0, 99.0)), setting_text(True), setting_text("?")
    ('1, 99', 'yes', 'not recorded')
    """
    if is_missing(value):
        return "not recorded"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list | tuple):
        return ", ".join(setting_text(each) for each in value) or "none"
    if isinstance(value, Mapping):
        return " ".join(setting_text(each) for each in value.values() if each is not None)
    return short_digest(str(value))
