"""What `verify` answers: problems, signatures, receipts, and what a replay gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cellrepro.show.answers.answer import Answer
from cellrepro.exchange.problem import Problem, problem_lines

if TYPE_CHECKING:
    from cellrepro.exchange.receipt import EnvironmentDifference, FirstDivergence
    from cellrepro.exchange.replay import Replay
    from cellrepro.exchange.signed.envelope import SignatureCheck, SignatureState
    from cellrepro.exchange.verification import TargetKind, Verification
    from cellrepro.exchange.verified import VerifiedModel, VerifiedReceipt, VerifiedRepeat
    from cellrepro.same.verdicts import Verdict

_MOST_DIFFERENCES = 12
"""Of the environments, that are shown in lines; JSON has all."""


@dataclass(frozen=True)
class SignatureDocument:
    """Who signed."""

    state: SignatureState
    """``unknown`` is signed by nobody on your list of allowed signers, so nothing was checked."""
    fingerprint: str | None
    """Of the key."""
    signer: str | None
    """Who that is, by your list."""
    reason: str
    """Why a signature of a known key is not good; empty otherwise."""

    @classmethod
    def of(cls, check: SignatureCheck) -> SignatureDocument:
        """The same as JSON has it."""
        return cls(check.state, check.fingerprint, check.signer, check.reason)


@dataclass(frozen=True)
class ReceiptDocument:
    """What somebody's replay gave."""

    machine: str
    """On which it was computed."""
    repeat: int
    """Its number there."""
    verdict: Verdict
    """Compared with the original."""
    time: str
    """When, as the receipt says."""
    signature: SignatureDocument
    """Of the receipt."""

    @classmethod
    def of(cls, verified: VerifiedReceipt) -> ReceiptDocument:
        """The same as JSON has it."""
        receipt = verified.receipt
        signature = SignatureDocument.of(verified.signature)
        return cls(receipt.machine, receipt.repeat, receipt.verdict, receipt.time, signature)


@dataclass(frozen=True)
class VerifiedRepeatDocument:
    """One repeat with its passport."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    passport: str
    """SHA-256 of the passport."""
    signature: SignatureDocument
    """Of the passport."""
    receipts: Sequence[ReceiptDocument]
    """Of whoever replayed it."""
    is_here: bool
    """Whether its files were looked at, or only what the passport says of them."""
    not_here: Sequence[str]
    """What the passport speaks of and is not here."""

    @classmethod
    def of(cls, repeat: VerifiedRepeat) -> VerifiedRepeatDocument:
        """The same as JSON has it."""
        return cls(
            name=repeat.name,
            passport=repeat.passport.digest,
            signature=SignatureDocument.of(repeat.signature),
            receipts=[ReceiptDocument.of(receipt) for receipt in repeat.receipts],
            is_here=repeat.is_here,
            not_here=repeat.not_here,
        )


@dataclass(frozen=True)
class VerifiedModelDocument:
    """A file with a network, of which something is attested."""

    file: str
    """Its name."""
    build_type: str
    """Whether it was written of a run, or is from elsewhere."""
    sha256: str
    """Of the file that is meant."""
    tensors: str | None
    """Digest over the tensors in it."""
    signature: SignatureDocument
    """Of what is attested."""
    is_here: bool
    """Whether the file lies beside, and so was looked at."""

    @classmethod
    def of(cls, verified: VerifiedModel) -> VerifiedModelDocument:
        """The same as JSON has it."""
        model = verified.model
        return cls(
            file=model.file,
            build_type=model.build_type,
            sha256=model.sha256,
            tensors=model.tensors,
            signature=SignatureDocument.of(verified.signature),
            is_here=verified.is_here,
        )


@dataclass(frozen=True)
class ReplayDocument:
    """What came of computing a run again."""

    original: str
    """``KEY/MACHINE/REPEAT`` of what was computed again."""
    repeat: str
    """The same of the replay, as it is stored."""
    weights_equal: bool | None
    """None where nothing was trained."""
    images: int
    """That both segmented."""
    equal_labels: int | None
    """Images whose masks are the same in every bit; None where only all together were compared."""
    equal_outlines: int | None
    """Images with the same outlines."""
    changed_objects: int | None
    """Cells without a counterpart; None where the masks of the original are not here."""
    first: FirstDivergence | None
    """Where the two part; None where they do not, or it could not be found."""
    environment: Mapping[str, EnvironmentDifference]
    """What numbers depend on and is not the same, by name."""
    reasons: Sequence[str]
    """Why it proves nothing, what could not be compared, what deserves a look."""

    @classmethod
    def of(cls, replay: Replay) -> ReplayDocument:
        """The same as JSON has it."""
        return cls(
            original=replay.original.name,
            repeat=replay.repeat.name,
            weights_equal=replay.digests.weights_equal,
            images=replay.digests.n_images,
            equal_labels=replay.digests.n_equal_labels,
            equal_outlines=replay.digests.n_equal_outlines,
            changed_objects=replay.n_changed_objects,
            first=replay.first_divergence,
            environment=replay.environment,
            reasons=replay.reasons,
        )


@dataclass(frozen=True)
class VerificationDocument:
    """What ``cellrepro verify --json`` prints."""

    target: str
    """As it was named."""
    kind: TargetKind
    """What that is."""
    verdict: Verdict
    """``different`` where a problem was found, else that of the replay; without one ``identical``,
    or ``vacuous`` where nothing was trained or found."""
    problems: Sequence[Problem]
    """What is not as it was made."""
    signature: SignatureDocument
    """Of the passports the one that promises least."""
    repeats: Sequence[VerifiedRepeatDocument]
    """With their passports; of a store those of which it keeps one."""
    models: Sequence[VerifiedModelDocument]
    """Files with networks, of which something is attested."""
    files: int
    """How many were held to a digest."""
    vacuous: Mapping[str, Sequence[str]]
    """Why repeats prove nothing, by their names."""
    notes: Sequence[str]
    """What deserves to be known and is no fault, a sentence each."""
    replay: ReplayDocument | None
    """None without ``--replay``, and where a problem was found."""


def verification_answer(verification: Verification) -> Answer[VerificationDocument]:
    """Answer with the verdict, who signed, what is wrong, and what the replay gave."""
    replay = verification.replay
    document = VerificationDocument(
        target=verification.target,
        kind=verification.kind,
        verdict=verification.verdict,
        problems=[Problem(p.kind, p.what, p.where, p.remedy) for p in verification.problems],
        signature=SignatureDocument.of(verification.signature),
        repeats=[VerifiedRepeatDocument.of(repeat) for repeat in verification.repeats],
        models=[VerifiedModelDocument.of(model) for model in verification.models],
        files=verification.n_files,
        vacuous=verification.vacuous,
        notes=verification.notes,
        replay=None if replay is None else ReplayDocument.of(replay),
    )
    return Answer(document, list(_lines(verification)))


def _lines(verification: Verification) -> Iterator[str]:
    yield verification.sentence()
    yield from problem_lines(verification.problems)
    for repeat in verification.repeats:
        yield f"  {repeat.name}: passport {repeat.passport.digest[:12]}, {repeat.signature}"
        for each in repeat.receipts:
            receipt = each.receipt
            yield f"    replayed on {receipt.machine}: {receipt.verdict}, {each.signature}"
        if repeat.not_here:
            yield f"    not here: {', '.join(repeat.not_here)}"
    for model in verification.models:
        yield f"  {model.model.file}: SHA-256 {model.model.sha256[:12]}, {model.signature}"
    if verification.replay is not None:
        yield from _replay_lines(verification.replay)
    for note in verification.notes:
        yield f"  {note}"


def _replay_lines(replay: Replay) -> Iterator[str]:
    differences = list(replay.environment.items())
    if differences:
        yield "  not the same there and here:"
    for name, values in differences[:_MOST_DIFFERENCES]:
        yield f"    {name}: {_shown(values.theirs)} there, {_shown(values.here)} here"
    if len(differences) > _MOST_DIFFERENCES:
        yield f"    and {len(differences) - _MOST_DIFFERENCES} more, with --json"
    for reason in replay.reasons:
        yield f"  {reason}"


def _shown(value: object) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
