"""Why two results of one image differ: the answer of `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from cellrepro.comparison.mask_comparison import MaskComparison
from cellrepro.comparison.mask_totals import totals_over
from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation.causes import Change, Replayed
from cellrepro.explanation.commands import Commands
from cellrepro.explanation.conditions import IMAGE_CROP, MODEL, PRECISION
from cellrepro.explanation.crops import Part, is_in_place
from cellrepro.explanation.explanation_lines import explanation_lines
from cellrepro.explanation.fit import PROBABLY_ANOTHER, Fit, Reproduced
from cellrepro.explanation.hand_edits import EffectOfHand
from cellrepro.explanation.one_size import Scaled, is_copy
from cellrepro.explanation.recorded_cause import IMAGE
from cellrepro.explanation.recorded_network import OtherNetwork
from cellrepro.explanation.search_values import NUMBERS, USUAL_NUMBERS
from cellrepro.explanation.setting_meanings import recorded_in_words
from cellrepro.explanation.settings_of_both import (
    SettingOfBoth,
    is_usual_value,
    network_diameter,
    setting_in_words,
)
from cellrepro.explanation.sides import Side
from cellrepro.explanation.why import Cause, Why
from cellrepro.model.window import Window
from cellrepro.words import share_text
from samebits.results import Result, Row, derived
from samebits.shown_text import short
from samebits.words import amount, joined, verb_of


@dataclass(frozen=True, repr=False)
class Explanation(Result):
    """Why two results differ: what each records, the causes, and what remains."""

    a: Side
    """The two results."""
    b: Side
    """The two results."""
    result: MaskComparison | None = field(repr=False)
    """Over what both show of the image; None where the two cannot be laid on each other."""
    replayed: Replayed | None = field(repr=False)
    """None where they are equal, or cannot be replayed."""
    settings: tuple[SettingOfBoth, ...]
    """Every setting, and what else the two record, what differs first."""
    commands: Mapping[str, Commands | None]
    """How to make side ``a`` and ``b`` again; None for one that was not made again, or of which too
    little is recorded."""
    part: Part | None = None
    """Where one side shows a part of the image alone."""
    scaled: Scaled | None = None
    """Where one side is larger: how many times. All that is compared is of the smaller size."""
    not_replayed: str | None = None
    """Why nothing was replayed; None where something was."""
    from_files: bool = field(default=False, repr=False)
    """Whether only what the files record was compared, as no image was given."""
    window: Window | None = None
    """The part of the image that alone was replayed; ``causes``, ``unexplained`` and ``reproduced``
    are of the cells wholly in it."""
    notes: tuple[str, ...] = ()
    """What a reader has to know beyond the remarks of either side: how the masks were read, a
    network that nobody recorded."""
    by_hand: EffectOfHand = field(default_factory=EffectOfHand, repr=False)
    """Cells that only one of the two has because of what was done by hand."""
    interrupted: bool = False
    """Whether the user ended the search, so that the causes are those found until then."""
    store_folder: Path | None = field(default=None, repr=False)
    """Of the store in which runs and networks were looked up."""
    networks_unlike_given: tuple[OtherNetwork, ...] = field(default=(), repr=False)
    """Networks that sides record, where ``model`` is another one."""
    without_model: str = field(default="", repr=False)
    """The command that makes each side again with the network that it records; empty where not
    both record one that is here."""
    from_record: Why | None = field(default=None, repr=False)
    """The cause as far as files alone tell."""

    @derived
    def verdict(self) -> Verdict:
        """The verdict, as in `compare`."""
        if self.vacuous:
            return Verdict.VACUOUS
        if self.differs or self.result is None:
            return Verdict.DIFFERENT
        return self.result.verdict

    @derived
    def changed(self) -> float | None:
        """Share of the cells of both sides without a match; None, like ``ppm``, where the two
        cannot be laid on each other."""
        return None if self.result is None else self.result.changed

    @derived
    def ppm(self) -> float | None:
        """Differing pixels per million."""
        return None if self.result is None else self.result.ppm

    @derived
    def causes(self) -> tuple[Change, ...]:
        """Changes that make the two differ, as few as explain them; the crop where masks were
        cut."""
        if self.replayed is not None:
            return self.replayed.causes
        return () if self.part is None else (_crop_as_cause(self.part),)

    @derived
    def cause(self) -> Cause | None:
        """The first of the causes, or the likely one where nothing was replayed; null where nothing
        tells."""
        return None if self.why is None else self.why.cause

    @property
    def why(self) -> Why | None:
        """Why the two differ, as it is said first; None where they do not."""
        if self.vacuous or not self.differs:
            return None
        if self.replayed is not None:
            return self._why_replayed(self.replayed)
        return self.from_record

    def _why_replayed(self, replayed: Replayed) -> Why:
        """Take causes as found where both sides, or a good part of them, were made again."""
        doubted = [letter for letter, fit in replayed.fits if fit.network_doubt]
        another = [letter for letter, fit in replayed.fits if fit.network_doubt == PROBABLY_ANOTHER]
        remains = self._maybe_by_hand(replayed)
        if replayed.causes and all(fit.came_to_something for _, fit in replayed.fits):
            if self._are_trained_apart(replayed) and self.from_record is not None:
                return self._why_trained_apart(self.from_record, replayed)
            found = [self._found(each) for each in replayed.causes]
            tried = self._found_by_trying(replayed)
            return Why(found[0], tuple(found[1:]), remains=(self.remains, *tried, *remains))
        if self.networks_unlike_given and (why := self._why_other_network(replayed)) is not None:
            return why
        doubt = ""
        if doubted:
            verb = verb_of(len(another or doubted), "was", "were")
            ways = ["with a different network", "with other settings than recorded"]
            if any(fit.found == Reproduced.MADE for _, fit in replayed.fits):
                ways.reverse()  # as it is the network of the other side
            doubt = f"{joined(another or doubted)} {verb} probably made {', or '.join(ways)}"
        elif unmade := [letter for letter, fit in replayed.fits if fit.makes_no_cell]:
            doubt = (
                f"probably a different network made {' and '.join(unmade)}, of a different image "
                f"perhaps, {self._or_other_settings(unmade)}or cells were drawn or changed by hand"
            )
        recorded = None if self.from_record is None else self.from_record.cause
        if self.from_record is not None and recorded is not None and recorded.name == IMAGE:
            return replace(self.from_record, find_out="")  # which no setting confirms
        remains = (*remains, *self._questions(replayed))
        in_time = _not_tried_text(replayed, interrupted=self.interrupted)
        doubt = f"{'; ' if in_time else ': '}{doubt}" if doubt else ""
        if self.from_record is not None and self.from_record.cause is not None:
            unconfirmed = f"segmenting again did not confirm it{in_time}{doubt}"
            return replace(self.from_record, remains=(unconfirmed, *remains), find_out="")
        return Why(None, nothing_tells=f"no cause was found{in_time}{doubt}", remains=remains)

    def _or_other_settings(self, letters: Sequence[str]) -> str:
        """Doubt a record, where there is one, else that enough was tried."""
        tell = [side.record.tells_settings for letter, side in self.sides if letter in letters]
        than = "recorded" if any(tell) else "were tried"
        return f"with other settings than {than}, "

    def _why_other_network(self, replayed: Replayed) -> Why | None:
        """Take the network as the likely cause, where a side that was not made records another."""
        unmade = {letter: fit for letter, fit in replayed.fits if not fit.came_to_something}
        others = [each for each in self.networks_unlike_given if each.letter in unmade]
        if not others:
            return None
        recorded = joined([f"{each.letter} records {short(each.name)}" for each in others])
        remains: tuple[str, ...] = ()
        if not all(unmade[each.letter].network_doubt for each in others):  # which says it below
            given = short(others[0].given)
            remains = (f"both were segmented with {given}, which --model names; {recorded}",)
        find_out = self.without_model
        of_record = self.from_record
        if of_record is not None and of_record.cause is not None and of_record.cause.name == MODEL:
            return replace(of_record, remains=remains, find_out=find_out)
        made = [letter for letter, fit in replayed.fits if fit.found == Reproduced.MADE]
        if not made:
            return None
        words = f"{made[0]} was made again with {short(others[0].given)}, and {recorded}"
        return Why(Cause(MODEL, words=words), find_out=find_out)

    def _maybe_by_hand(self, replayed: Replayed) -> tuple[str, ...]:
        """Say of a side that was made again in part what its other cells may be."""
        return tuple(
            f"{fit.exact} of {letter}'s {amount(fit.n_target, 'cell')} are made again pixel for "
            f"pixel; the other {fit.n_target - fit.exact} may have been drawn or changed by hand"
            f"{', or depend on a value that was not tried (--minutes)' if fit.stopped else ''}"
            for letter, fit in replayed.fits
            if fit.found == Reproduced.IN_PART and fit.exact < fit.n_target
        )

    def _questions(self, replayed: Replayed) -> Iterator[str]:
        """Ask what nothing that was tried answers, where time was up before more was tried."""
        none = [letter for letter, fit in replayed.fits if fit.stopped and not fit.exact]
        if not none:
            return
        question = (
            "is this the network that made them, and is the image the one that was segmented?"
        )
        if any(fit.found == Reproduced.MADE for _, fit in replayed.fits):
            tell = [side.record.tells_settings for letter, side in self.sides if letter in none]
            than = "it records" if any(tell) else "were tried"
            question = f"was it made with other settings than {than}?"
        yield f"nothing that was tried makes one cell of {' or '.join(none)} exactly: {question}"

    def _found_by_trying(self, replayed: Replayed) -> Iterator[str]:
        """Say which values no file records, so that others may do as well."""
        for cause in replayed.causes:
            if cause.name == IMAGE_CROP:  # which the masks show
                continue
            for (letter, side), value in zip(self.sides, (cause.a, cause.b), strict=True):
                if not _is_tried(side, cause.name, value):
                    continue
                against = side.against_record(cause.name, value)
                shown = f"{recorded_in_words(cause.name)} {setting_in_words(cause.name, value)}"
                why = "as no file records it"
                if against:
                    why = f"though {letter} {_record_text(cause.name, side)}"
                near = "; values near it may make the same masks" if cause.name in NUMBERS else ""
                yield f"{shown} in {letter} was found by trying, {why}{near}"
        for (letter, side), (_, fit) in zip(self.sides, replayed.fits, strict=True):
            yield from _untrue_records(letter, side, fit, causes=replayed.causes)

    def _found(self, change: Change) -> Cause:
        """Name a change as found, a network in the words of the records."""
        recorded = None if self.from_record is None else self.from_record.cause
        if recorded is not None and recorded.name == change.name == MODEL:
            return replace(recorded, a=change.a, b=change.b, confirmed=True)
        generations = (self.a.generation, self.b.generation)
        usual = network_diameter(change.name, generations)
        near = tuple(
            letter
            for (letter, side), value in zip(self.sides, (change.a, change.b), strict=True)
            if change.name in NUMBERS and _is_tried(side, change.name, value)
        )
        return Cause(change.name, change.a, change.b, confirmed=True, usual=usual, near=near)

    def _are_trained_apart(self, replayed: Replayed) -> bool:
        """Whether all that differs follows from two trainings: their networks, and precisions."""
        names = {cause.name for cause in replayed.causes}
        tasks = {side.run.spec.task for _, side in self.sides if side.run is not None}
        return MODEL in names and names <= {MODEL, PRECISION} and tasks == {"train"}

    def _why_trained_apart(self, of_trainings: Why, replayed: Replayed) -> Why:
        """Say of two networks why their trainings differ."""
        differ = "their networks alone make the masks differ"
        if len(replayed.causes) > 1:
            differ = "their networks and precisions together make the masks differ"
        return replace(of_trainings, remains=(*of_trainings.remains, differ, self.remains))

    @property
    def remains(self) -> str:
        """Say that the causes make B of A, or what share of the cells they leave unexplained."""
        where = "" if self.window is None else f" in {self.window.in_words}"
        if self.unexplained:
            rest = ", and ".join(str(each) for each in self._remainders if each.n)
            return f"unexplained: {rest}{where}{self._cut_short}"
        n_pixels = 0 if self.replayed is None else self.replayed.left.n_differing
        exactly = f"but for {amount(n_pixels, 'pixel')}" if n_pixels else "exactly"
        changed = joined([recorded_in_words(each.name) for each in self.causes])
        return f"A's settings with B's {changed} make B {exactly}{where}{self._cut_short}"

    @property
    def _cut_short(self) -> str:
        return "; the search was cut short" if self.interrupted else ""

    @derived
    def reproduced(self) -> dict[Literal["a", "b"], Fit]:
        """How near each side was made again; empty where nothing was replayed."""
        if self.replayed is None:
            return {}
        return {"a": self.replayed.a, "b": self.replayed.b}

    @property
    def vacuous(self) -> bool:
        """Whether a side has no cell, and nothing recorded makes it so."""
        if not self.a.n_cells and not self.b.n_cells:
            return True
        if self.replayed is None:
            return False
        return any(fit.found == Reproduced.VACUOUS for _, fit in self.replayed.fits)

    @property
    def is_in_place(self) -> bool:
        """Whether both show the same image, as far as a part of it says where it lies."""
        return self.part is None or self.result is None or is_in_place(self.result)

    @property
    def is_place_exact(self) -> bool:
        """Whether the place of a part is known to the pixel, as masks equal in part or a replay
        show it."""
        if self.part is None or self.replayed is None:
            return self.result is not None and is_copy(self.result)
        fit = self.replayed.a if self.part.of == "a" else self.replayed.b
        return fit.came_to_something

    @property
    def differs(self) -> bool:
        """Whether one side has a cell, or a pixel of one, that the other lacks."""
        if self.result is None:
            return True
        n_missing = 0 if self.part is None else self.part.n_outside + self.part.n_cut
        is_same = self.scaled is None and self.result.same_numbering
        return self.result.n_differing + n_missing > 0 or not is_same

    @property
    def exit_code(self) -> int:
        """1 also where nothing could be shown."""
        return int(self.differs or self.vacuous)

    @derived
    def unexplained(self) -> float:
        """Share of cells that the causes leave without a match, on the worse side."""
        if self.result is None:
            return 1.0
        if self.by_hand.explains_all:
            return 0.0
        if self.vacuous or self.replayed is None:
            return self.result.changed if self.result.n_differing else 0.0
        return max(each.n / max(1, each.of) for each in self._remainders)

    @property
    def _remainders(self) -> list[_Remainder]:
        """What the causes leave of B, and of A where that was not made again."""
        replayed = self.replayed
        if replayed is None:
            return []
        made = "with what was found" if replayed.causes else "as it was made again"
        n_b = replayed.b.n_target
        of_both = f"{n_b} in B, and {replayed.n_cells - n_b} in A {made}"
        remainders = [_Remainder(replayed.left.n_unmatched, replayed.n_cells, of_both)]
        fit = replayed.a
        if fit.found != Reproduced.MADE:
            of_a = f"{fit.n_target} in A, and {fit.of_cells - fit.n_target} as made again"
            remainders.append(_Remainder(fit.cells_left, fit.of_cells, of_a))
        return remainders

    def sentence(self) -> str:
        """Say the cause and what it leaves unexplained, then how many cells differ."""
        if self.vacuous:
            return "vacuous: a side has no cell, so that nothing is explained"
        if self.result is None:
            return f"the two cannot be laid on each other; {self._recorded()}"
        if not self.differs and self.part is not None:
            sizes = (f"{' × '.join(map(str, side.masks.shape))}" for _, side in self.sides)
            a, b = sizes
            return (
                f"the two differ in size alone (A has {a} pixels, B {b}): in the part that both "
                "show they outline the same objects, and outside of it there is no cell"
            )
        if not self.differs:
            return self._same_text(self.result)
        if self.scaled is None and not (self.result.n_differing or self.result.same_numbering):
            return (
                "the two outline the same objects, but one number is not one object on both sides"
            )
        first = "" if self.why is None else f"{self.why.sentence}; "
        differ = f"{first}{totals_over([self.result]).cells_text()}"
        return f"{differ}; {self._recorded()}" if self.from_files else differ

    def _same_text(self, result: MaskComparison) -> str:
        """Say that both have the same cells, and what they record differently nevertheless."""
        numbers = ", with different numbers" if result.verdict == Verdict.SAME_OBJECTS else ""
        same = f"the two outline the same cells{numbers}"
        names = self._recorded_differently
        if not names:
            return f"{same}: there is nothing {'else ' if numbers else ''}to explain"
        return f"{same}, though they record {joined(names)} differently: {self._of_records}"

    @property
    def _of_records(self) -> str:
        """Say of two results with the same cells which of their records is true."""
        if self.replayed is None:
            return "here that changes no cell, or one of the two was not made as it records"
        untrue = [
            text
            for (letter, side), (_, fit) in zip(self.sides, self.replayed.fits, strict=True)
            for text in _untrue_records(letter, side, fit, causes=())
        ]
        if untrue:
            return "; ".join(untrue)
        if all(fit.found == Reproduced.MADE for _, fit in self.replayed.fits):
            return "segmented again with either record, the cells are the same"
        return "with this network and image neither record makes these cells"

    @property
    def sides(self) -> list[tuple[str, Side]]:
        """Both sides, each with its letter."""
        return [("A", self.a), ("B", self.b)]

    def _recorded(self) -> str:
        """Say what the two record differently."""
        names = self._recorded_differently
        if not names:
            return "they record nothing that differs"
        return f"they record {amount(len(names), 'difference')}: {joined(names)}"

    @property
    def _recorded_differently(self) -> list[str]:
        """What both record with two values, and what may change cells."""
        return [
            recorded_in_words(setting.name)
            for setting in self.settings
            if setting.differs and setting.may_change_cells
        ]

    def rows(self) -> list[Row]:
        """Give every setting that differs between the two."""
        return [
            {"setting": recorded_in_words(setting.name), "A": setting.a, "B": setting.b}
            for setting in self.settings
            if setting.a != setting.b
        ]

    def lines(self) -> list[str]:
        """Say what differs, what each side records, what caused it, how to make each again."""
        return list(explanation_lines(self))


def _is_tried(side: Side, name: str, value: object) -> bool:
    """Whether a value was found by trying: no file records it, or one records another."""
    if side.against_record(name, value):
        return True
    is_recorded = name in {*side.known, *side.recorded}
    return not (is_recorded or is_usual_value(name, value))


@dataclass(frozen=True)
class _Remainder:
    """Cells that stay without a match."""

    n: int
    of: int
    """All of them."""
    whose: str

    def __str__(self) -> str:
        share = share_text(self.n / max(1, self.of))
        return f"{self.n} of {amount(self.of, 'cell')} ({share}; {self.whose})"


def _untrue_records(
    letter: str, side: Side, fit: Fit, *, causes: Sequence[Change]
) -> Iterator[str]:
    """Say which recorded values a side was not made with, though it is no cause."""
    said = {cause.name for cause in causes}
    for name, recorded in side.known.items():
        value = fit.believed.get(name, USUAL_NUMBERS.get(name))
        is_usual_in_both = name not in fit.believed and is_usual_value(name, recorded)
        if name in said or is_usual_in_both:
            continue
        if side.against_record(name, value):
            yield (
                f"{letter} was made with {recorded_in_words(name)} "
                f"{setting_in_words(name, value)}, though it {_record_text(name, side)}"
            )


def _record_text(name: str, side: Side) -> str:
    """Say what a side records under a name."""
    if side.known[name] is None:
        return f"records no {recorded_in_words(name)}"
    return f"records {setting_in_words(name, side.known[name])}"


def _not_tried_text(replayed: Replayed, *, interrupted: bool) -> str:
    """Say what of a search was not done when it ended; empty where all was."""
    cut = [
        (letter, fit)
        for letter, fit in replayed.fits
        if fit.stopped and (fit.n_values_left or not fit.network_doubt)  # else nothing is combined
    ]
    if not cut:
        return "; the search was cut short" if interrupted else ""
    ended = "before you ended the search" if interrupted else "in the time given"
    more = "" if interrupted else " (--minutes gives it more)"
    left = [
        f"{fit.n_values_left} of {amount(fit.n_values, 'value')} for {letter}"
        for letter, fit in cut
        if fit.n_values_left
    ]
    not_tried = joined(left) or "combinations of values"
    verb = "was" if sum(fit.n_values_left for _, fit in cut) == 1 else "were"
    return f" {ended}: {not_tried} {verb} not tried{more}"


def _crop_as_cause(part: Part) -> Change:
    """The crop of masks that were cut, rather than segmented in a crop."""
    crop = (part.rows, part.columns)
    return Change(
        name=IMAGE_CROP,
        a=crop if part.of == "a" else None,
        b=crop if part.of == "b" else None,
        cells=part.n_outside + part.n_cut,
        of_cells=part.n_cells,
    )
