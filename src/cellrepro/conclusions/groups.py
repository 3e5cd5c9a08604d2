"""Which group each image belongs to: read from the user's table, and which one is the control."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from cellrepro.errors import no_such_file
from cellrepro.images.image_names import image_name
from cellrepro.store.store_paths import regular_bytes
from cellrepro.words import cut
from samebits.errors import BadInput
from samebits.words import amount, some, verb_of

_MOST_BYTES = 2**24
_MOST_ROWS = 100_000
_MOST_LETTERS = 200  # of a name in the table
_MOST_GROUPS = 12  # beside the control, that are no doses
_SHOWN = 60  # letters of a name in a message
_CONTROLS = {
    *("control", "controls", "ctrl", "ctl", "untreated", "vehicle", "dmso", "mock", "pbs", "sham"),
    *("wt", "wildtype", "healthy", "normal", "negative", "placebo", "baseline", "none"),
}
"""What a control is called, in lower case and without spaces, dashes and underlines."""

GroupNames = Mapping[str, str | float]
"""The group of each image, or its dose."""
_Row = tuple[str, str]


@dataclass(frozen=True)
class Groups:
    """The images that have a group, and what is compared with what."""

    of: Mapping[str, str]
    """The group of each image that has masks on both sides, as the table writes it."""
    doses: Mapping[str, float] | None
    """The number of each group, where they are doses that a line is fitted through."""
    control: str
    """The control group, of doses the lowest."""
    treated: tuple[str, ...]
    """The groups that are compared with it, of doses the highest."""
    notes: tuple[str, ...]
    """Sentences on what was left out, and on how the control was chosen."""


def read_groups(
    groups: GroupNames | str | Path, images: Sequence[str], *, control: str | None = None
) -> Groups:
    """Find the group of each image in a table, or in a mapping."""
    if isinstance(groups, Mapping):
        who = "groups"
        rows = [(str(name), _as_text(group)) for name, group in groups.items()]
    else:
        who = str(groups)
        rows = list(_rows_of(Path(groups)))
    named, notes = _matched(rows, images, who)
    names = list(dict.fromkeys(group for _, group in rows if group in named.values()))
    if len(names) < 2:
        raise BadInput(
            f"{who}: every image with masks is of the group {cut(names[0], _SHOWN)}; expected "
            "images of two groups, as treated and control, or of several doses"
            + "".join(f"; {note}" for note in notes)
        )
    numbers = {name: _number(name) for name in names}
    doses = {name: number for name, number in numbers.items() if number is not None}
    are_numbers = len(doses) == len(names)
    if control is not None and control not in names:
        raise BadInput(
            f"the control is {cut(str(control), _SHOWN)!r}, and no image with masks is of that "
            f"group; expected one of {some(names)}"
        )
    if are_numbers and control is None:
        ordered = sorted(names, key=doses.__getitem__)
        # Two doses are two groups: a line through two means says no more.
        is_line = len({*doses.values()}) > 2
        return Groups(
            of=named,
            doses=doses if is_line else None,
            control=ordered[0],
            treated=(ordered[-1],) if is_line else tuple(ordered[1:]),
            notes=tuple(notes),
        )
    if len(names) > 1 + _MOST_GROUPS:
        raise BadInput(
            f"{who}: {len(names)} groups ({some(names, 3)}); expected at most {1 + _MOST_GROUPS}, "
            "or numbers, which are doses: check that the column group is the right one"
        )
    if control is None:
        control, said = _guessed(names)
        notes.append(said)
    treated = tuple(name for name in names if name != control)
    return Groups(of=named, doses=None, control=control, treated=treated, notes=tuple(notes))


def _as_text(group: object) -> str:
    if isinstance(group, float) and group.is_integer():
        return str(int(group))
    return str(group)


def _guessed(names: Sequence[str]) -> tuple[str, str]:
    """Choose the control by its name, else the first group, and say so."""
    for name in names:
        if re.sub(r"[\s_-]", "", name).casefold() in _CONTROLS:
            return name, f"{name} is taken for the control group, by its name"
    first = names[0]
    said = f"{first} is taken for the control group, as the first one; --control names another"
    return first, said


def _number(text: str) -> float | None:
    """The number that a group is, also with a decimal comma; none of a name such as ``1_2``."""
    try:
        number = float(text.replace(",", ".").replace("_", "?"))
    except ValueError:
        return None
    return number if math.isfinite(number) else None


# -- the names of images ---------------------------------------------------------------------


def _matched(
    rows: Sequence[_Row], images: Sequence[str], who: str
) -> tuple[dict[str, str], list[str]]:
    """Match the table with the images that have masks, and say what is left over."""
    known = frozenset(images)
    group_of: dict[str, str] = {}
    unknown = []
    for name, group in rows:
        image = _known_image(name, known)
        if image is None:
            unknown.append(cut(name, _SHOWN))
        elif image in group_of:
            raise BadInput(
                f"{who}: the image {cut(image, _SHOWN)} stands in it twice; expected one row for "
                "each image"
            )
        else:
            group_of[image] = group
    if not group_of:
        raise BadInput(
            f"{who}: no row is of an image with masks: it names {some(unknown, 3) or 'none'}, and "
            f"there are masks of {some(list(images), 3)}; expected the name of an image in the "
            "column image, with or without its ending"
        )
    notes = []
    without = [name for name in images if name not in group_of]
    if without:
        notes.append(
            f"{amount(len(without), 'image')} {verb_of(len(without), 'has', 'have')} no group and "
            f"{verb_of(len(without), 'is', 'are')} left out: {some(without)}"
        )
    if unknown:
        notes.append(
            f"{amount(len(unknown), 'row')} of the groups {verb_of(len(unknown), 'is', 'are')} of "
            f"an image without masks on both sides: {some(unknown)}"
        )
    return {image: group_of[image] for image in images if image in group_of}, notes


def _known_image(name: str, known: frozenset[str]) -> str | None:
    """Find the image that a row means: its name, that of its file, or of its masks."""
    file = PureWindowsPath(name)  # parts at slashes and backslashes
    candidates = (name, image_name(name), file.name, image_name(file.stem), image_name(file.name))
    return next((candidate for candidate in candidates if candidate in known), None)


# -- the table -------------------------------------------------------------------------------


def _rows_of(file: Path) -> Iterator[_Row]:
    """Read the columns ``image`` and ``group`` of a CSV file."""
    lines = _text_of(file).splitlines()
    head = lines[0] if lines else ""
    separator = max(",;\t", key=head.count)
    rows = csv.reader(lines, delimiter=separator)
    try:
        titles = [title.strip().casefold() for title in next(rows, [])]
        if titles.count("image") != 1 or titles.count("group") != 1:
            raise BadInput(
                f"{file}: the first line is {cut(head, _SHOWN)!r}; expected the titles image and "
                "group: `image,group`, then a line for each image, as `well_1,control`"
            )
        columns = (titles.index("image"), titles.index("group"))
        for i, row in enumerate(rows):
            if not any(field.strip() for field in row):
                continue
            if i >= _MOST_ROWS:
                raise BadInput(f"{file}: more than {_MOST_ROWS} rows; expected one for each image")
            yield _checked_row(file, rows.line_num, row, columns)
    except csv.Error as error:
        raise BadInput(f"{file}: no table with commas ({error}); save it as CSV") from error


def _checked_row(file: Path, line: int, row: Sequence[str], columns: tuple[int, int]) -> _Row:
    fields = [row[column].strip() if column < len(row) else "" for column in columns]
    if not all(fields) or max(map(len, fields)) > _MOST_LETTERS:
        raise BadInput(
            f"{file}, line {line}: image is {cut(fields[0], _SHOWN)!r} and group "
            f"{cut(fields[1], _SHOWN)!r}; expected a name in both, of up to {_MOST_LETTERS} letters"
        )
    if not all(field.isprintable() for field in fields):
        raise BadInput(
            f"{file}, line {line}: {fields[0]!a} and {fields[1]!a} hold characters that "
            "cannot be printed; rename them"
        )
    return fields[0], fields[1]


def _text_of(file: Path) -> str:
    """Read the table as text; spreadsheets save UTF-8 with a mark, or UTF-16."""
    try:
        content = regular_bytes(file, most_bytes=_MOST_BYTES)
    except FileNotFoundError as error:
        raise no_such_file(file, expected="a table of groups (CSV)") from error
    except (OSError, ValueError) as error:  # also a name with a null byte
        raise BadInput(f"{file}: {error}; expected a table of groups (CSV)") from error
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding)
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{file}: no text in UTF-8 ({error.reason}); save the table as CSV UTF-8"
        ) from error
    if "\0" in text:
        raise BadInput(f"{file}: no table but a binary file; save it as CSV UTF-8")
    return text
