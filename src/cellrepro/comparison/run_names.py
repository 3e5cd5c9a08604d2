"""What runs are called, wherever several are shown: by what differs among them, and nothing else.

A network that others were trained from is no result beside theirs; it is called what it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from cellrepro.comparison.place_fields import (
    BARE,
    FIELDS,
    Values,
    place_of,
    sort_key,
    value_in_words,
    values_by_place,
)
from cellrepro.spec.spec import Spec

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Repeat

START = "starting network"
"""What a run is called that others were trained from."""

_COLUMN_FIELDS = ("profile", "mode")
_USUAL_SHARE = 2 / 3
"""Of the places; a value that more of them have is the usual one."""


class Names:
    """The names of repeats that are shown together, and of specs that failed.

    There is one name of a spec (`of_spec`), and one of a repeat (`of_repeat`). `without` leaves
    fields out of the name of a spec, where a heading says them already; `parts` gives its fields
    one by one.
    """

    def __init__(self, repeats: Iterable[Repeat], failed: Mapping[str, Spec] | None = None):
        repeats = list(repeats)
        specs = dict(failed or {})
        specs.update({place_of(repeat): repeat.spec for repeat in repeats})
        machines = {place_of(repeat): repeat.manifest.machine for repeat in repeats}
        starts = _starting_places(repeats)
        if len(starts) == len(specs):  # nothing else is there to be shown
            starts = set()
        self._n_repeats = Counter(place_of(repeat) for repeat in repeats)
        self._starts = [place for place in specs if place in starts]
        self.values = values_by_place(specs, machines)
        self.shown = [place for place in specs if place not in starts]
        self.varying = self._varying_fields(self.shown)
        self._fields = self._telling_fields(self.shown)
        self._row_fields = [field for field in self._fields if field not in _COLUMN_FIELDS]

    def _varying_fields(self, places: Sequence[str]) -> list[str]:
        """Give the fields with more than one known value."""
        varying = []
        for field in FIELDS:
            known = {self.values[place][field] for place in places} - {""}
            if len(known) > 1:
                varying.append(field)
        return varying

    def _telling_fields(self, places: Sequence[str]) -> list[str]:
        """Give the fields that names need: none that follows from the others."""

        def n_names(fields: Sequence[str]) -> int:
            return len({tuple(self.values[place][field] for field in fields) for place in places})

        varying = self._varying_fields(places)
        needed = [field for field in varying if field in (*BARE, "seed")]
        for field in varying:
            if n_names([*needed, field]) > n_names(needed):
                needed.append(field)
        return needed

    @cached_property
    def usual(self) -> Values:
        """Values that most places share, by field; the name of a spec does not mention them."""
        usual = {}
        for field in self._fields:
            if field in ("seed", *BARE):
                continue
            counts = Counter(self.values[place][field] for place in self.shown)
            value, n = counts.most_common(1)[0]
            if n > _USUAL_SHARE * len(self.shown):
                usual[field] = value
        return usual

    def is_start(self, place: str) -> bool:
        """Tell whether others were trained from the runs of a place."""
        return place in self._starts

    def order(self, place: str) -> tuple:
        """Give what sorts places as tables show them."""
        fields = (*self._row_fields, *_COLUMN_FIELDS)
        values = (sort_key(field, self.values[place][field]) for field in fields)
        return self.is_start(place), *values, place

    def row(self, place: str) -> str:
        """Give the name of the row of a place in the matrix of verdicts."""
        return ", ".join(self._in_words(place, self._row_fields)) or "all else equal"

    def column(self, place: str) -> tuple[str, str]:
        """Give the column of a place in the matrix of verdicts."""
        return self.values[place]["profile"], self.values[place]["mode"]

    def of_spec(self, place: str) -> str:
        """Give the name of a spec on a machine; never empty."""
        name = self.without(place)
        if name:
            return name
        return place[:8] if len(self.shown) == 1 else "the usual spec"

    def of_repeat(self, repeat: Repeat) -> str:
        """Give the name of a repeat, with its number where several of its place are shown."""
        place = place_of(repeat)
        if self._n_repeats[place] < 2:
            return self.of_spec(place)
        spec_name = self.without(place) if len(self.shown) == 1 else self.of_spec(place)
        number = f"repeat {repeat.index}"
        return f"{spec_name}, {number}" if spec_name else number

    def parts(self, place: str, but: Collection[str] = ()) -> tuple[str, ...]:
        """Give what tells a place from the others, field by field."""
        fields = self._telling_fields(self._starts) if self.is_start(place) else self._fields
        return self._in_words(place, [field for field in fields if field not in but])

    def without(self, place: str, fields: Collection[str] = ()) -> str:
        """Give the name of a spec without some fields; empty where nothing is left."""
        if self.is_start(place):
            return ", ".join([START, *self.parts(place)])
        usual = [f for f, value in self.usual.items() if self.values[place][f] == value]
        return ", ".join(self.parts(place, {*fields, *usual}))

    def _in_words(self, place: str, fields: Iterable[str]) -> tuple[str, ...]:
        """Give its values of some fields in words, those that apply."""
        words = (value_in_words(field, self.values[place][field]) for field in fields)
        return tuple(filter(None, words))


def _starting_places(repeats: Sequence[Repeat]) -> set[str]:
    """Give the places of runs that others of them were trained from, on the same images."""
    used = {
        (repeat.spec.data_digest, repeat.spec.model_digest)
        for repeat in repeats
        if repeat.spec.task == "train" and repeat.spec.model_digest is not None
    }
    keys = set()
    for repeat in repeats:
        trained = repeat.manifest.weights
        # One that ends as it began is no other network than the one it was trained from.
        if trained is None or trained.digest == repeat.spec.model_digest:
            continue
        if (repeat.spec.data_digest, trained.digest) in used:
            keys.add(repeat.manifest.key)
    return {place_of(repeat) for repeat in repeats if repeat.manifest.key in keys}
