"""The comparison of a replay with the original: by digests, by pixels, and where the two part."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cellrepro.comparison.portable_promise import promised_alike
from cellrepro.comparison.seed_spread import decide_between
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.divergence.diverge import diverge
from cellrepro.errors import CellreproError
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_comparison import DigestComparison, environment_differences
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.replay import Replay
from cellrepro.explanation.compare_repeats import compare_repeats
from cellrepro.explanation.two_results import Comparison
from cellrepro.run.plan import Plan
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat


def compared(
    original: Passport,
    repeat: Repeat,
    plan: Plan,
    *,
    stored: Repeat | None,
    store: Store,
    quiet: bool,
) -> Replay:
    """Compare a replay with the original, whose repeat is ``stored`` if the store has it."""
    again = passport_of(repeat)
    digests = DigestComparison.of(original, again)
    comparison = None
    verdict = digests.verdict
    if stored is not None:
        comparison = compare_repeats(stored, repeat, store=store)
        verdict = _verdict_by_pixels(digests, comparison, stored, repeat, store)
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


def _verdict_by_pixels(
    digests: DigestComparison,
    comparison: Comparison,
    original: Repeat,
    again: Repeat,
    store: Store,
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
    runs = store.readable_runs(data_digest=original.spec.data_digest)
    spread = decide_between(original, again, runs, results=comparison.masks)
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
