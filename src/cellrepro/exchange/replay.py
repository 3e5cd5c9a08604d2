"""A replay: a recorded run computed again on this machine, and compared with the original."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from cellrepro.comparison.portable_promise import promised_alike
from cellrepro.comparison.seed_spread import decide_between
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.divergence.diverge import diverge
from cellrepro.divergence.result import Divergence
from cellrepro.errors import CellreproError
from cellrepro.exchange.passport import Passport, utc_time
from cellrepro.exchange.passport_comparison import DigestComparison, environment_differences
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.plan_again import RecordedRun, plan_again
from cellrepro.exchange.receipt import EnvironmentDifference, FirstDivergence, Receipt
from cellrepro.exchange.replay_request import ReplayRequest
from cellrepro.exchange.strict_json import cut
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.explanation.two_results import Comparison
from cellrepro.progress import print_note
from cellrepro.results import Result, Row, derived
from cellrepro.run.plan import Plan
from cellrepro.run.repeats import RepeatMaking
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import amount

_MOST_DIFFERENCES = 12
"""Limit of the differences of environments in a terminal; JSON has all."""


@dataclass(frozen=True, repr=False)
class Replay(Result):
    """A recorded run computed again, compared with the original."""

    verdict: Verdict
    """The verdict on weights and masks; ``vacuous`` where equality proves nothing."""
    environment: Mapping[str, EnvironmentDifference]
    """What numbers depend on and is not the same, by name."""
    reasons: tuple[str, ...]
    """Why it proves nothing, what could not be compared, what deserves a look."""
    passport: Passport = field(repr=False)
    """The passport of the original."""
    _repeat: Repeat
    _digests: DigestComparison
    _comparison: Comparison | None
    """Comparison of masks and weights; None where those of the original are not here."""
    _divergence: Divergence | None = None
    """Where the two part; None where they do not, or one of the ledgers is not here."""

    @derived
    def original(self) -> str:
        """``KEY/MACHINE/REPEAT`` of the original."""
        return self.passport.name

    @derived
    def repeat(self) -> str:
        """``KEY/MACHINE/REPEAT`` of the replay in the store."""
        return self._repeat.name

    @derived
    def weights_equal(self) -> bool | None:
        """Whether the weights are the same in every bit; null where nothing was trained."""
        return self._digests.weights_equal

    @derived
    def images(self) -> int:
        """Images that both segmented."""
        return self._digests.n_images

    @derived
    def equal_labels(self) -> int | None:
        """Images whose masks are the same in every bit; null where only all together were
        compared."""
        return self._digests.n_equal_labels

    @derived
    def equal_outlines(self) -> int | None:
        """Images with the same outlines."""
        return self._digests.n_equal_outlines

    @derived
    def changed_objects(self) -> int | None:
        """Cells without a counterpart; null where the masks of the original are not here."""
        if self._comparison is None:
            return None
        kinds = self._comparison.totals.kinds
        return int(kinds["lost"] + kinds["gained"])

    @derived
    def first(self) -> FirstDivergence | None:
        """Where the two part; null where they do not, or it could not be found."""
        divergence = self._divergence
        if divergence is None or divergence.first is None:
            return None
        first = divergence.where or divergence.first
        # If environments differ, the operation shows in which phase that becomes visible.
        return FirstDivergence(
            stage=first.phase or first.stage,
            step=first.step,
            op=first.op,
            module=first.module,
            source=first.source,
            judgement=divergence.judgement,
        )

    @property
    def differs(self) -> bool:
        """Whether it is not shown that the run can be computed again."""
        return self.verdict != Verdict.IDENTICAL

    def sentence(self) -> str:
        """Say the verdict, over what it is, and where the two part."""
        parts = [f"{self.verdict}: {self.original} computed again as {self.repeat}"]
        digests = self._digests
        if digests.weights_equal is not None:
            parts.append(f"weights {'equal' if digests.weights_equal else 'differ'}")
        parts.append(_masks_in_words(digests))
        if self._divergence is not None and self._divergence.first is not None:
            parts.append(f"they part at {self._divergence.sentence()}")
        return "; ".join(parts)

    def rows(self) -> Sequence[Row]:
        """Give what is not the same in the environments."""
        return [
            {"environment": name, "there": values.theirs, "here": values.here}
            for name, values in self.environment.items()
        ]

    def lines(self) -> Sequence[str]:
        """Give what is not the same there and here, and what deserves a look."""
        return [self.sentence(), *self.remarks()]

    def remarks(self) -> Iterator[str]:
        """Say what follows its sentence."""
        differences = list(self.environment.items())
        if differences:
            yield "  not the same there and here:"
        for name, values in differences[:_MOST_DIFFERENCES]:
            yield f"    {name}: {_shown(values.theirs)} there, {_shown(values.here)} here"
        if len(differences) > _MOST_DIFFERENCES:
            yield f"    and {len(differences) - _MOST_DIFFERENCES} more, with --json"
        for reason in self.reasons:
            yield f"  {reason}"

    def receipt(self) -> Receipt:
        """Make the receipt of this replay."""
        original = self.passport
        n_objects = original.all_masks.n_objects if original.all_masks else 0
        return Receipt(
            verdict=self.verdict,
            passport=original.digest,
            run=original.name,
            machine=self._repeat.machine,
            repeat=self._repeat.index,
            time=utc_time(datetime.now(timezone.utc)),
            packages=passport_of(self._repeat).packages,
            weights_equal=self.weights_equal,
            n_images=self.images,
            n_equal_labels=self.equal_labels,
            n_equal_outlines=self.equal_outlines,
            n_objects=None if self._comparison is None else n_objects,
            n_changed_objects=self.changed_objects,
            first_divergence=self.first,
            environment_differences=dict(self.environment),
            reasons=self.reasons,
        )


def _shown(value: object) -> str:
    return cut("nothing" if value is None else str(value), 60)


def _masks_in_words(digests: DigestComparison) -> str:
    n_images = amount(digests.n_images, "image")
    if not digests.n_images:
        return "no image was segmented"
    if digests.labels_equal:
        return f"the masks of {n_images} are equal"
    if digests.n_equal_labels is None or digests.n_equal_outlines is None:
        return f"the masks of {n_images} are not all equal"
    return (
        f"of {n_images} {digests.n_equal_labels} with equal masks, "
        f"{digests.n_equal_outlines} with equal outlines"
    )


def replay(
    original: Passport,
    request: ReplayRequest,
    *,
    stored: Repeat | None,
    store: Store,
    quiet: bool = False,
) -> Replay:
    """Compute a run again, as a new repeat in a process of its own, and compare the two."""
    recorded = _recorded(original, stored)
    plan = plan_again(recorded, request, store)
    repeat = _made(plan, quiet=quiet)
    return _compared(original, repeat, plan, stored=stored, store=store, quiet=quiet)


def _recorded(original: Passport, stored: Repeat | None) -> RecordedRun:
    if stored is None:
        return RecordedRun(original.name, original.spec)
    manifest = stored.manifest
    return RecordedRun(
        original.name,
        original.spec,
        data_path=manifest.data.path,
        model_path=manifest.model.path,
    )


def _made(plan: Plan, *, quiet: bool) -> Repeat:
    """Compute one more repeat; a stored one is never taken, since it may come from elsewhere."""
    run = plan.store.run(plan.spec.key)
    taken = run.machines.get(plan.machine, {}) if run is not None else {}
    index = max(taken, default=-1) + 1
    if not quiet:
        print_note(f"computed again as {plan.spec.key}/{plan.machine}/{index}")
        for notice in plan.notices:
            print_note(notice)
    return RepeatMaking(plan, index, label=f"{plan.spec.task} again", quiet=quiet).made()


# -- the comparison ------------------------------------------------------------------------


def _compared(
    original: Passport,
    repeat: Repeat,
    plan: Plan,
    *,
    stored: Repeat | None,
    store: Store,
    quiet: bool,
) -> Replay:
    again = passport_of(repeat)
    digests = DigestComparison.of(original, again)
    comparison = None
    verdict = digests.verdict
    if stored is not None:
        comparison = compare_repeats(stored, repeat, store=store)
        verdict = _verdict_by_pixels(digests, comparison, _TwoRepeats(stored, repeat), store)
    if original.vacuous or again.vacuous:
        verdict = combine([verdict, Verdict.VACUOUS])
    replayed = Replay(
        verdict=verdict,
        environment=environment_differences(original, again),
        reasons=tuple(_reasons(original, again, verdict, comparison, plan.spec)),
        passport=original,
        _repeat=repeat,
        _digests=digests,
        _comparison=comparison,
    )
    if verdict in (Verdict.IDENTICAL, Verdict.VACUOUS):
        return replayed
    if stored is None:
        reason = (
            "the run itself is not in the store, only its passport: where the two part cannot be "
            "found without its ledger"
        )
        return replace(replayed, reasons=(*replayed.reasons, reason))
    return _with_divergence(replayed, stored, plan, store, quiet=quiet)


@dataclass(frozen=True)
class _TwoRepeats:
    """A run from elsewhere, and its replay."""

    original: Repeat
    again: Repeat


def _verdict_by_pixels(
    digests: DigestComparison, comparison: Comparison, repeats: _TwoRepeats, store: Store
) -> Verdict:
    """The verdict by pixels, limited by what digests already show to differ."""
    if digests.verdict == Verdict.IDENTICAL:
        return digests.verdict
    if comparison.weights is not None or digests.weights_equal is not False:
        return comparison.verdict
    # The weights were not sent but their digests differ; masks show by how much.
    verdict = combine([comparison.verdict, Verdict.DIFFERENT])
    if verdict != Verdict.DIFFERENT:
        return verdict
    runs = store.readable_runs(data_digest=repeats.original.spec.data_digest)
    spread = decide_between(repeats.original, repeats.again, runs, results=comparison.masks)
    return Verdict.WITHIN_SPREAD if spread.within else verdict


def _reasons(
    original: Passport,
    again: Passport,
    verdict: Verdict,
    comparison: Comparison | None,
    spec: Spec,
) -> Iterator[str]:
    for reason in dict.fromkeys((*original.vacuous, *again.vacuous)):
        yield f"vacuous: {reason}"
    if original.starting_weights != again.starting_weights:
        yield "the network that it started from is not the one that the passport names"
    if original.spec.profile_settings != spec.profile_settings:
        yield (
            f"it was asked for with profile {original.spec.profile}, and computed again with "
            f"{spec.profile}, as a run of its own"
        )
    if comparison is not None:
        yield from comparison.notes
    elif verdict == Verdict.DIFFERENT and promised_alike(original.spec, spec):
        yield (
            "mode portable promises the same bits here, and they differ: run `cellrepro doctor "
            "--portable` on both machines; please report what it says"
        )


def _with_divergence(
    replayed: Replay, stored: Repeat, plan: Plan, store: Store, *, quiet: bool
) -> Replay:
    """Find the first step at which the two part, as far as their ledgers show it."""
    try:
        divergence = diverge(
            stored.name, replayed.repeat, data=plan.request.data, store=store.root, quiet=quiet
        )
    except CellreproError as error:
        reason = f"where the two part could not be found: {error}"
        return replace(replayed, reasons=(*replayed.reasons, reason))
    return replace(replayed, _divergence=divergence, reasons=(*replayed.reasons, *divergence.notes))
