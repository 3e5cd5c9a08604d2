"""The first screen: is it the same, where not, does it matter, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cellrepro.comparison.judgement import TO_FIND_CELLS
from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.place_fields import place_of
from cellrepro.comparison.repeat_pairs import Pair
from cellrepro.comparison.seed_spread import Spread
from cellrepro.comparison.spread_axes import rule_of
from cellrepro.comparison.verdicts import Verdict
from cellrepro.comparison.within_spread import (
    AS_MUCH_HERE,
    FEWEST_SEEDS,
    LESS_HERE,
    NO_SEEDS,
    NOTHING_BESIDE,
    Decision,
    every_cell_matches,
)
from cellrepro.show.pages.parts import which
from cellrepro.show.report.summary import Chapter, JudgedSpec
from cellrepro.spec.lab_command import lab_command
from cellrepro.store.references import short_reference
from cellrepro.words import as_sentence, share_text
from samebits.modes import SUBSTITUTING
from samebits.words import amount, joined, verb_of

_NOT_EQUAL = (Verdict.DIFFERENT, Verdict.WITHIN_SPREAD)
_MOST_NAMED = 3


@dataclass(frozen=True)
class ShortAnswer:
    """A question of the first screen, and its answer."""

    question: str
    lines: Sequence[str]
    """Each of one thing; what stands in backquotes is a command."""


@dataclass(frozen=True)
class _Told:
    """A spec with the chapter that names it."""

    chapter: Chapter
    result: JudgedSpec
    is_one_of_several: bool
    """Whether the answers are of other chapters, too, so that a name needs that of its chapter."""

    @property
    def overall(self) -> Verdict | None:
        return self.result.judgement.overall

    @property
    def is_held(self) -> bool:
        """Whether its mode promises equal runs."""
        return self.result.spec.mode in SUBSTITUTING and self.result.spec.loose is None

    @property
    def name(self) -> str:
        name = self.chapter.names.of_spec(self.result.place)
        is_named = self.is_one_of_several or len(self.chapter.results) == 1
        return f"{name} ({self.chapter.title})" if is_named else name


def _told(chapters: Sequence[Chapter]) -> list[_Told]:
    several = len(_in_question(chapters)) > 1
    return [_Told(chapter, result, several) for chapter in chapters for result in chapter.results]


def _in_question(chapters: Sequence[Chapter]) -> Sequence[Chapter]:
    """The chapters of which the answers say more than that repeats are equal; all where none is."""
    return [chapter for chapter in chapters if _has_a_difference(chapter)] or chapters


def _has_a_difference(chapter: Chapter) -> bool:
    others = [axis for axis in chapter.spread.axes if axis.evidence and axis.name != "repeats"]
    return bool(others) or any(result.judgement.overall in _NOT_EQUAL for result in chapter.results)


def headline(chapters: Sequence[Chapter]) -> str:
    """Say in one sentence whether the repeats of each spec are the same."""
    counts = Counter(one.overall for one in _told(chapters) if one.overall is not None)
    n = counts.total()
    n_apart = sum(counts[verdict] for verdict in _NOT_EQUAL)
    n_proved = n - n_apart - counts[Verdict.VACUOUS]
    if not n:
        return "Not known: no spec was run twice, so no two repeats can be compared."
    repeated = "" if n == len(_told(chapters)) else "repeated "
    of_all = f"all {n} {repeated}specs" if n > 1 else f"the one {repeated}spec"
    if n_apart == n:
        return f"No: the repeats of {of_all} differ."
    if n_apart:
        return f"Not everywhere: the repeats of {n_apart} of {n} {repeated}specs differ."
    if not n_proved:
        return f"Not known: the repeats of {of_all} found or trained nothing."
    if n_proved < n:
        return f"Yes, as far as known: the repeats of {n_proved} of {n} specs are equal."
    how = (
        "bit-identical" if counts[Verdict.IDENTICAL] == n else "equal in the outlines of all cells"
    )
    return f"Yes: the repeats of {of_all} are {how}."


def short_answers(chapters: Sequence[Chapter]) -> list[ShortAnswer]:
    """Answer the other questions of the first screen, as far as there is an answer."""
    told = _told(chapters)
    answers = [
        ShortAnswer("Where not?", _where_not(told, chapters)),
        ShortAnswer("Does it matter?", _whether_it_matters(chapters)),
        ShortAnswer("What to do?", _what_to_do(told)),
    ]
    return [answer for answer in answers if answer.lines]


def _where_not(told: Sequence[_Told], chapters: Sequence[Chapter]) -> list[str]:
    """Name the specs whose repeats differ, and in what; first their chapter where it is the one."""
    apart = [one for one in told if one.overall in _NOT_EQUAL]
    named = [f"{one.name}: {_in_what(one)}" for one in apart[:_MOST_NAMED]]
    in_question = _in_question(chapters)
    if apart and len(in_question) == 1 < len(chapters):
        named[-1] += f" (all in “{in_question[0].title}”)"
    if len(apart) > _MOST_NAMED:
        named.append(f"and {amount(len(apart) - _MOST_NAMED, 'more spec')}")
    return [f"{one}." for one in named]


def _in_what(one: _Told) -> str:
    """Say whether weights or masks differ, and in how many of the cells."""
    judgement = one.result.judgement
    if judgement.masks not in _NOT_EQUAL:
        return "weights differ, masks do not"
    text = "masks differ" if judgement.weights not in _NOT_EQUAL else "weights and masks differ"
    repeats = one.chapter.spread.axis("repeats")
    own = [pair for pair in repeats.pairs if pair.a in one.result.repeats] if repeats else []
    if not own:
        return text
    changed = max(pair.changed for pair in own)
    return (
        f"{text}, {share_text(changed)} of the cells without a match"
        if changed
        else f"{text}, but every cell has a match"
    )


def _whether_it_matters(chapters: Sequence[Chapter]) -> list[str]:
    """Say of each thing that was changed how many cells it changes, repeats first."""
    is_named = len(_in_question(chapters)) > 1
    answers = [answer for chapter in chapters for answer in _matters(chapter, is_named)]
    repeats = [axis for chapter in chapters if (axis := chapter.spread.axis("repeats"))]
    modes = sorted({pair.a.spec.mode for axis in repeats for pair in axis.evidence})
    if modes and not any(axis.differing for axis in repeats):
        # Those of modes strict and portable are equal, which says nothing of other modes.
        in_modes = f"in {'mode' if len(modes) == 1 else 'modes'} {joined(modes)}"
        n_equal = _how_many_equal([pair for axis in repeats for pair in axis.evidence])
        text = f"Repeats of one spec {in_modes}: no, their cells are equal; {n_equal}."
        answers.append(_Matters(text, (0, 0)))
    return [answer.text for answer in sorted(answers, key=lambda answer: answer.order)]


def _how_many_equal(pairs: Sequence[Pair]) -> str:
    """Say how many pairs of repeats of one spec are equal in all bits."""
    n_same_bits = sum(pair.has_same_bits for pair in pairs)
    if len(pairs) == 1:
        how = "is bit-identical" if n_same_bits else "is not bit-identical"
        return f"the only pair of repeats {how}"
    if n_same_bits == len(pairs):
        return f"all {len(pairs)} pairs of repeats are bit-identical"
    is_or_are = verb_of(n_same_bits, "is", "are")
    return f"{n_same_bits or 'none'} of {len(pairs)} pairs of repeats {is_or_are} bit-identical"


@dataclass(frozen=True)
class _Matters:
    """Whether one thing matters, in a sentence."""

    text: str
    order: tuple[int, float]
    """Repeats first, as the verdict is about them; then what changes most; seeds last."""


@dataclass(frozen=True)
class _Change:
    """What was varied, and what it did to the cells: some pixels differ."""

    thing: str
    axis: Axis
    decision: Decision
    order: tuple[int, float]

    @property
    def changed(self) -> float:
        return max(pair.changed for pair in self.axis.differing)

    @property
    def share(self) -> str:
        return f"{'up to ' if len(self.axis.differing) > 1 else ''}{share_text(self.changed)}"

    @property
    def is_like_seeds(self) -> bool:
        """Whether it changes no more cells than seeds do, and is not shown to change fewer."""
        decision = self.decision
        is_open = decision.is_judged and not decision.within and not decision.exceeds_seeds
        return is_open and self.changed > 0

    @property
    def answer(self) -> str:
        """Whether it matters; of one that is like seeds `_beside_seeds` tells."""
        if not self.changed:
            return f"{every_cell_matches(self.axis.not_vacuous)}."
        share = f"{self.share} of the cells have no match"
        decision = self.decision
        if decision.within:
            return f"hardly, {share}, fewer than with another seed."
        if decision.is_judged:
            most = share_text(decision.most_between_seeds)
            return f"yes, {share}, more than between any two seeds (at most {most})."
        if decision.refusal == NO_SEEDS:
            return f"yes, {share}; {NOTHING_BESIDE}."
        remedy = decision.remedy.replace("--seed", "`--seed`")
        return f"perhaps, {share}; not judged beside other seeds: {decision.refusal}{remedy}."


def _matters(chapter: Chapter, is_named: bool) -> Iterator[_Matters]:
    """Whether each axis of a chapter matters; nothing of equal repeats."""
    spread = chapter.spread
    of_chapter = f" ({chapter.title})" if is_named else ""
    unchanged = []
    changes = []
    comparison = None
    for axis in spread.axes:
        changed = axis.distribution().mean
        if not axis.evidence:
            continue
        if axis.name == "seed":
            comparison = axis
        elif axis.name == "repeats":
            if axis.differing:
                differing = dict.fromkeys(place_of(pair.a) for pair in axis.differing)
                specs = which([*map(chapter.names.of_spec, differing)], chapter.n_specs, "spec")
                decision = spread.decide(axis.name)
                changes.append(_Change(f"repeats of {specs}", axis, decision, (0, -changed)))
        elif axis.differing:
            decision = spread.decide(axis.name)
            changes.append(_Change(_between(axis), axis, decision, (1, -changed)))
        else:
            unchanged.append(f"{axis.title} ({amount(len(axis.evidence), 'pair')})")
    for change in changes:
        if not change.is_like_seeds:
            thing = as_sentence(change.thing).removesuffix(".")
            yield _Matters(f"{thing}{of_chapter}: {change.answer}", change.order)
    like_seeds = [change for change in changes if change.is_like_seeds]
    for how_much in (LESS_HERE, AS_MUCH_HERE):
        alike = [change for change in like_seeds if change.decision.in_these_runs == how_much]
        yield from _beside_seeds(how_much, alike, of_chapter)
    if comparison is not None:
        yield _Matters(_of_seeds(spread, comparison, like_seeds, of_chapter), (3, 0))
    if unchanged:
        things = as_sentence(joined(unchanged)).removesuffix(".")
        yield _Matters(f"{things}{of_chapter}: no, the outlines are the same.", (2, 0))


def _of_seeds(spread: Spread, seeds: Axis, like_seeds: Sequence[_Change], of_chapter: str) -> str:
    """What another seed does, beside which all else is seen."""
    distribution = seeds.distribution()
    most = max(distribution.values)
    n_seeds = amount(spread.n_seeds, "seed")
    if spread.n_seeds < FEWEST_SEEDS:
        counted = f"{n_seeds}, too few to judge by"
    else:
        counted = f"at most {share_text(most)}, {n_seeds}, {amount(seeds.n_images, 'image')}"
    text = (
        f"For comparison, another seed{of_chapter}: {share_text(distribution.mean)} of the cells "
        f"have no match ({counted})."
    )
    if like_seeds:
        text += " With more seeds and images it may be shown that these changed fewer."
    return text


def _beside_seeds(how_much: str, changes: Sequence[_Change], of_chapter: str) -> Iterator[_Matters]:
    """One sentence of all that change as much beside what seeds do."""
    if changes:
        in_order = sorted(changes, key=lambda change: change.order)
        things = "; ".join(f"{change.thing}, {change.share}" for change in in_order)
        text = as_sentence(f"{how_much}{of_chapter}: {things} of the cells without a match")
        yield _Matters(text, in_order[0].order)


def _between(axis: Axis) -> str:
    """Name the two things that differ, or their kind where there are more."""
    names = {tuple(sorted((pair.name_a, pair.name_b))) for pair in axis.evidence}
    if len(names) > 1:
        return axis.title
    ((a, b),) = names
    word, _, value = b.partition(" ")
    if value and a.startswith(f"{word} "):
        return f"{a} or {value}"
    is_of_profiles = rule_of(axis.name).named_by == "profile" and axis.name != "profile"
    return f"{axis.title}{' of profiles' if is_of_profiles else ''} {a} and {b}"


def _what_to_do(told: Sequence[_Told]) -> list[str]:
    """Advise on what came out, the worst first."""
    apart = [one for one in told if one.overall in _NOT_EQUAL]
    held_apart = [one for one in apart if one.is_held]
    if held_apart:
        one = held_apart[0]
        mode = one.result.spec.mode
        return [f"Report it: mode {mode} should keep repeats equal.", _where_they_part(one)]
    if apart:
        first = min(apart, key=lambda one: one.result.judgement.masks not in _NOT_EQUAL)
        chapters = [first.chapter] if first.is_one_of_several else [one.chapter for one in told]
        held = [one for one in told if one.is_held and one.chapter in chapters]
        n_held = sum(one.overall == Verdict.IDENTICAL for one in held)
        specs = amount(n_held, "spec")
        if first.is_one_of_several:
            specs += f" ({first.chapter.title})"
        proof = f"; the repeats of {specs} in it are bit-identical" if n_held else ""
        return [f"For equal repeats use `--mode strict`{proof}.", _where_they_part(first)]
    verdicts = {one.overall for one in told}
    if verdicts == {None}:
        return ["Run each spec twice, with `--repeats 2`."]
    if Verdict.VACUOUS in verdicts:
        return [TO_FIND_CELLS]
    free = dict.fromkeys(one.result.spec.mode_in_words for one in told if not one.is_held)
    if free:
        return [
            f"Nothing for these specs. Mode {joined(list(free))} promises no equality, "
            "`--mode strict` does."
        ]
    return ["Nothing. To let others check a run, `cellrepro export` it."]


def _where_they_part(one: _Told) -> str:
    """Give the command on the first run of a spec and the first one that is not equal to it."""
    apart = one.result.judgement.agreement.first_apart or ()
    by_index = {repeat.index: repeat for repeat in one.result.repeats}
    repeats = (short_reference(by_index[number]) for number in apart)
    command = lab_command("diverge", *repeats, store=one.chapter.store_in_commands)
    which = f"repeats {joined([*map(str, apart)])} of {one.name}"
    return f"The first step at which {which} begin to differ: `{command}`."
