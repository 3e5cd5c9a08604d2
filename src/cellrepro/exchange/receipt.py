"""A receipt: the outcome of replaying the run of a passport on another machine.

It is an in-toto Statement with the predicate of a Simple Verification Result (SVR) v0.2, a young
format that may change and that only this file knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from pydantic import JsonValue

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.archive.entry_names import REPEAT_NAME
from cellrepro.exchange.json_records import (
    CamelCaseRecord,
    JsonObject,
    JsonRecord,
    as_json,
    read_record,
    why_not_read,
)
from cellrepro.exchange.passport import MACHINE, Passport
from cellrepro.exchange.statement import TIME, TIME_EXAMPLE, ResourceDescriptor, Sha256, Statement
from samebits.errors import BadInput

VERIFICATION_RESULT = "https://in-toto.io/attestation/svr/v0.2"
PROPERTIES = {
    verdict: f"CELLREPRO_{verdict.name}"
    for verdict in (Verdict.IDENTICAL, Verdict.SAME_OBJECTS, Verdict.WITHIN_SPREAD)
}
"""The verified property of weights and masks; ``different`` and ``vacuous`` have none."""
VERSION = 1
"""Version of the extension ``cellrepro``."""


@dataclass(frozen=True)
class FirstDivergence(JsonRecord):
    """Where the replay first parted from the original."""

    stage: str
    """One of the stages of ``diverge``: ``data``, ``forward``, ``masks`` …"""
    step: int | None = None
    """Step of the training, from 0; null outside of it."""
    op: str | None = None
    """The operation, where it is known."""
    module: str | None = None
    """The part of the network that called it."""
    source: str | None = None
    """File and line."""
    judgement: str | None = None
    """Why, in one word or sentence, where it is known."""


@dataclass(frozen=True)
class EnvironmentDifference(JsonRecord):
    """One thing that numbers depend on, and that is not the same."""

    theirs: JsonValue
    """As the passport says."""
    here: JsonValue
    """As it was in the replay."""


@dataclass(frozen=True)
class Receipt(JsonRecord):
    """The outcome of a replay."""

    verdict: Verdict
    passport: Sha256
    """Digest of the passport that was replayed."""
    run: str
    """KEY/MACHINE/REPEAT of the original."""
    machine: str
    """Name of the machine of the replay."""
    repeat: int
    """Number of the replay there."""
    time: str
    """Time of the comparison: RFC 3339, UTC."""
    packages: dict[str, str]
    """Versions of Python and of the numeric libraries in the replay, by name."""
    weights_equal: bool | None = None
    """Whether the weights have the same digest; None if nothing was trained."""
    n_images: int = 0
    """Images that were compared."""
    n_equal_labels: int | None = None
    """Images whose masks are the same in every bit; None if only all together were compared."""
    n_equal_outlines: int | None = None
    """Images with the same outlines."""
    n_objects: int | None = None
    """Cells of the original; None if the masks themselves were not compared."""
    n_changed_objects: int | None = None
    """Cells that only one of the two has; None if the masks were not compared."""
    first_divergence: FirstDivergence | None = None
    """Where they part; None if they do not, or it could not be found."""
    environment_differences: dict[str, EnvironmentDifference] = field(default_factory=dict)
    """By name, such as ``versions.torch`` or ``threads``."""
    reasons: tuple[str, ...] = ()
    """Sentences: why it is ``vacuous``, what could not be compared."""


# -- as a statement ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verifier(CamelCaseRecord):
    """Who verified, and against which passport."""

    id: str
    policies: tuple[ResourceDescriptor, ...]


@dataclass(frozen=True)
class VerificationResult(CamelCaseRecord):
    """The predicate of a receipt: the properties that were verified (SVR v0.2)."""

    verifier: Verifier
    time_created: str
    properties: tuple[str, ...]
    cellrepro: JsonObject = field(default_factory=dict)
    """Extension: the details, as `Receipt` reads them."""


def receipt_statement(receipt: Receipt, passport: Passport) -> Statement:
    """Write a receipt as a statement about the weights and masks of its passport."""
    if receipt.passport != passport.digest:
        raise BadInput(
            f"the receipt is of the passport {receipt.passport[:12]}…, and the one given is "
            f"{passport.digest[:12]}…; expected the passport that was replayed"
        )
    name = PROPERTIES.get(receipt.verdict)
    result = VerificationResult(
        verifier=Verifier(
            id=f"{MACHINE}{receipt.machine}",
            policies=(ResourceDescriptor(name=passport.name, digest={"sha256": passport.digest}),),
        ),
        time_created=receipt.time,
        properties=() if name is None else (name,),
        cellrepro={"version": VERSION, **as_json(receipt)},
    )
    return Statement(
        subject=passport.results,
        predicate_type=VERIFICATION_RESULT,
        predicate=as_json(result),
    )


def is_receipt(statement: Statement) -> bool:
    """Whether a statement is a receipt of cellrepro, of any version."""
    return statement.predicate_type == VERIFICATION_RESULT and "cellrepro" in statement.predicate


def read_receipt(statement: Statement, *, where: str) -> Receipt:
    """Validate a receipt; one that contradicts itself is refused."""
    try:
        result = read_record(VerificationResult, statement.predicate)
        version = result.cellrepro.get("version")
        if version != VERSION:
            raise ValueError(f"its version is {version!r}, this one reads {VERSION}")
        receipt = read_record(Receipt, result.cellrepro)
        _refuse_contradictions(result, receipt)
    except (ValueError, RecursionError) as error:
        raise BadInput(
            f"{where}: no receipt that this version of cellrepro reads ({why_not_read(error)}); "
            "update cellrepro, or ask the sender for the file as it was made"
        ) from error
    return receipt


def _refuse_contradictions(result: VerificationResult, receipt: Receipt) -> None:
    """Refuse a receipt whose standard fields disagree with its extension."""
    name = PROPERTIES.get(receipt.verdict)
    properties = [each for each in result.properties if each.startswith("CELLREPRO_")]
    if properties != ([] if name is None else [name]):
        raise ValueError(
            f"its properties are {properties[:3]}, and its verdict is {receipt.verdict}"
        )
    if re.fullmatch(REPEAT_NAME, receipt.run) is None:
        raise ValueError(f"its run is {receipt.run[:80]!r}, not KEY/MACHINE/REPEAT")
    if TIME.fullmatch(receipt.time) is None:
        raise ValueError(f"its time is {receipt.time[:40]!r}, not of the kind {TIME_EXAMPLE}")
    if result.verifier.id != f"{MACHINE}{receipt.machine}" or result.time_created != receipt.time:
        raise ValueError("the machine or the time of its verifier are others than its own")
    if receipt.passport not in [policy.sha256 for policy in result.verifier.policies]:
        raise ValueError("the digest of its passport is not among its policies")
