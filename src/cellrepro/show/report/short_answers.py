"""The first screen: is it the same, where not, does it matter, and what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from cellrepro.comparison.measured_axis import Axis
from cellrepro.comparison.seed_spread import Spread
from cellrepro.comparison.verdicts import Verdict
from cellrepro.comparison.within_spread import FEWEST_SEEDS
from cellrepro.show.report.summary import Chapter, JudgedSpec, Summary
from cellrepro.words import as_sentence, share_text
from samebits.modes import SUBSTITUTING
from samebits.words import amount, joined

_NOT_EQUAL = (Verdict.DIFFERENT, Verdict.WITHIN_SPREAD)
_MOST_NAMED = 3


@dataclass(frozen=True)
class ShortAnswer:
    """A question of the first screen, and its answer."""

    question: str
    text: str
    """Sentences; what stands in backquotes is a command."""


@dataclass(frozen=True)
class _Told:
    """A spec with the chapter that names it."""

    chapter: Chapter
    result: JudgedSpec

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
        return f"{name} ({self.chapter.title})" if len(self.chapter.results) == 1 else name


def _told(summary: Summary) -> list[_Told]:
    return [_Told(chapter, result) for chapter in summary.chapters for result in chapter.results]


def headline(summary: Summary) -> str:
    """Say in one sentence whether the repeats of each spec are the same."""
    counts = Counter(one.overall for one in _told(summary) if one.overall is not None)
    n = counts.total()
    n_apart = sum(counts[verdict] for verdict in _NOT_EQUAL)
    n_proved = n - n_apart - counts[Verdict.VACUOUS]
    if not n:
        return "Not known: no spec was run twice, so no two repeats can be compared."
    of_all = f"all {n} specs" if n > 1 else "the one spec"
    if n_apart == n:
        return f"No: the repeats of {of_all} differ."
    if n_apart:
        return f"Not everywhere: the repeats of {n_apart} of {n} specs differ."
    if not n_proved:
        return f"Not known: the repeats of {of_all} found or trained nothing."
    if n_proved < n:
        return f"Yes, as far as known: the repeats of {n_proved} of {n} specs are equal."
    how = (
        "bit-identical" if counts[Verdict.IDENTICAL] == n else "equal in the outlines of all cells"
    )
    return f"Yes: the repeats of {of_all} are {how}."


def short_answers(summary: Summary) -> list[ShortAnswer]:
    """Answer the other questions of the first screen, as far as there is an answer."""
    told = _told(summary)
    answers = [
        ShortAnswer("Where not?", _where_not([one for one in told if one.overall in _NOT_EQUAL])),
        ShortAnswer("Does it matter?", whether_it_matters(summary.main.spread)),
        ShortAnswer("What to do?", _what_to_do(told)),
    ]
    return [answer for answer in answers if answer.text]


def _where_not(apart: Sequence[_Told]) -> str:
    """Name the specs whose repeats differ, and in what."""
    named = [f"{one.name}: {_in_what(one)}" for one in apart[:_MOST_NAMED]]
    if len(apart) > _MOST_NAMED:
        named.append(f"and {amount(len(apart) - _MOST_NAMED, 'more spec')}")
    return f"{'; '.join(named)}." if named else ""


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
        else f"{text}, but no cell is without a match"
    )


def whether_it_matters(spread: Spread) -> str:
    """Say how many cells each thing changes, beside what a different seed changes."""
    compared = [axis for axis in spread.axes if axis.name != "seed" and axis.evidence]
    repeats = [axis for axis in compared if axis.name == "repeats"]
    others = [axis for axis in compared if axis.name != "repeats"]
    unchanged = [axis for axis in others if not axis.distribution().mean]
    less = [axis for axis in others if axis not in unchanged and spread.decide(axis.name).within]
    rest = [axis for axis in others if axis not in unchanged and axis not in less]
    clauses = [_of_repeats(spread, axis) for axis in repeats]
    seeds = spread.seeds if spread.seeds and spread.seeds.evidence else None
    if seeds:
        clauses.append(_of_seeds(spread, seeds))
    if unchanged:
        between = " or between ".join(axis.title for axis in unchanged)
        clauses.append(f"no cell is without a match between {between}")
    if less:
        clauses.append(f"{_unmatched(less)}, fewer than with seeds")
    judged = [axis for axis in rest if spread.decide(axis.name).is_judged]
    if judged:
        clauses.append(f"{_unmatched(judged)}, which is not shown to be fewer than with seeds")
    for axis in rest:
        decision = spread.decide(axis.name)
        if not decision.is_judged:
            # Few seeds are said with what they do.
            is_said = 0 < spread.n_seeds < FEWEST_SEEDS
            why = ""
            if seeds and not is_said:
                remedy = decision.remedy.replace("--seed", "`--seed`")
                why = f"; not judged beside seeds: {decision.refusal}{remedy}"
            clauses.append(f"{_unmatched([axis])}{why}")
    if compared and not seeds:
        clauses.append("what a different seed does was not measured")
    return " ".join(map(as_sentence, clauses))


def _of_repeats(spread: Spread, axis: Axis) -> str:
    """Say what the repeats of one spec change, which is what the verdict is about."""
    if axis.equal:
        return "not for the masks: the repeats of one spec have the same outlines"
    changed = axis.distribution().mean
    if not changed:
        return "hardly: the repeats of one spec differ in pixels, and every cell has its match"
    share = share_text(changed)
    does = f"the repeats of one spec leave {share} of the cells without a match on average"
    if spread.decide(axis.name).within:
        return f"less than the seed: {does}"
    return f"that is not ruled out: {does}"


def _unmatched(axes: Sequence[Axis]) -> str:
    shares = [(share_text(axis.distribution().mean), axis.title) for axis in axes]
    return joined(
        [f"{share} of the cells have no match between {title}" for share, title in shares]
    )


def _of_seeds(spread: Spread, seeds: Axis) -> str:
    share = share_text(seeds.distribution().mean)
    few = ""
    if spread.n_seeds < FEWEST_SEEDS:
        few = f" ({amount(spread.n_seeds, 'seed')}: too few to judge by)"
    return f"a different seed leaves {share} of the cells without a match{few}"


def _what_to_do(told: Sequence[_Told]) -> str:
    """Advise on what came out, the worst first."""
    apart = [one for one in told if one.overall in _NOT_EQUAL]
    held_apart = [one for one in apart if one.is_held]
    if held_apart:
        one = held_apart[0]
        mode = one.result.spec.mode
        return f"Report it: mode {mode} should keep repeats equal. {_where_they_part(one)}"
    if apart:
        n_held = sum(one.is_held and one.overall == Verdict.IDENTICAL for one in told)
        proof = (
            f"; the repeats of {amount(n_held, 'spec')} in it are bit-identical" if n_held else ""
        )
        return f"For equal repeats use `--mode strict`{proof}. {_where_they_part(apart[0])}"
    verdicts = {one.overall for one in told}
    if verdicts == {None}:
        return "Run each spec twice, with `--repeats 2`."
    if Verdict.VACUOUS in verdicts:
        return (
            "Train for more epochs, or segment with a network that has learnt something: equality "
            "over no cells proves nothing."
        )
    free = dict.fromkeys(one.result.spec.mode_in_words for one in told if not one.is_held)
    if free:
        return (
            f"Nothing for these specs. Mode {joined(list(free))} promises no equality, "
            "`--mode strict` does."
        )
    return "Nothing. To let others check a run, `cellrepro export` it."


def _where_they_part(one: _Told) -> str:
    """Give the command on the first run of a spec and the first one that is not equal to it."""
    agreement = one.result.judgement.agreement
    groups = next(
        groups for groups in (agreement.weights, agreement.masks) if groups and len(groups) > 1
    )
    first, second = sorted(min(members) for members in groups)[:2]
    machines = [result for result in one.chapter.results if result.spec.key == one.result.spec.key]
    run = one.result.spec.key if len(machines) == 1 else one.result.place
    command = f"cellrepro diverge {run}/{first} {run}/{second}"
    return f"The first step at which the two part: `{command}`."
