"""A bundle of in-toto, ``NAME.intoto.jsonl``: passports, their receipts, statements about models.

One statement a line, in any order. Statements of other programs are skipped, as in-toto asks for; a
line that is no JSON is damage and refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from cellrepro.comparison.verdicts import Verdict
from cellrepro.errors import no_such_file
from cellrepro.exchange.model_statement import (
    ModelStatement,
    is_model_statement,
    read_model_statement,
)
from cellrepro.exchange.passport import Passport, is_passport, read_passport
from cellrepro.exchange.receipt import Receipt, is_receipt, read_receipt
from cellrepro.exchange.signed.envelope import IN_TOTO, is_envelope, read_envelope
from cellrepro.exchange.statement import MOST_BYTES, STATEMENT, Attestation, read_payload
from cellrepro.exchange.strict_json import read_json
from cellrepro.spec.lab_command import lab_command
from samebits.errors import BadInput
from samebits.results import Result, Row
from samebits.words import amount, grouped, joined

BUNDLE_ENDING = ".intoto.jsonl"
"""Ending of a bundle's file, as in-toto names it."""
MOST_BYTES_OF_FILE = 2**28
"""Limit of what is read from one file."""
_MOST_LINES = 10_000
_MOST_BYTES_OF_LINE = 2 * MOST_BYTES  # base64 takes four bytes for three


@dataclass(frozen=True)
class BundledReceipt:
    """A receipt in a bundle."""

    receipt: Receipt
    attestation: Attestation
    """Its statement, with the signatures."""


@dataclass(frozen=True, repr=False)
class Bundle(Result):
    """The content of a bundle."""

    passports: tuple[Passport, ...]
    """Each passport once, in the order of the file."""
    receipts: tuple[BundledReceipt, ...]
    """Each receipt once, in the order of the file."""
    n_passed_over: int = 0
    """Lines of other kinds."""
    models: tuple[ModelStatement, ...] = ()
    """Statements about files with networks, without duplicates."""

    def sentence(self) -> str:
        """Say how many passports and receipts it holds."""
        runs = {passport.name for passport in self.passports}
        held = [f"passports of {amount(len(runs), 'repeat')}"]
        held.append(amount(len(self.receipts), "receipt"))
        if self.models:
            held.append(f"statements about {joined([model.file for model in self.models])}")
        if self.n_passed_over:
            held.append(f"{amount(self.n_passed_over, 'line')} of other kinds")
        return joined(held)

    def rows(self) -> Sequence[Row]:
        """Give each passport, and each receipt below it."""
        rows: list[Row] = []
        for passport in self.passports:
            rows.append(_row("passport", passport.name, passport.verdict, passport.digest))
            for each in self.receipts_of(passport):
                receipt = each.receipt
                where = f"{receipt.machine}/{receipt.repeat}"
                rows.append(_row("receipt", where, receipt.verdict, each.attestation.digest))
        return rows

    @property
    def attestations(self) -> tuple[Attestation, ...]:
        """Passports, then receipts, then statements about models."""
        return (
            *(passport.attestation for passport in self.passports),
            *(receipt.attestation for receipt in self.receipts),
            *(model.attestation for model in self.models),
        )

    def passports_of(self, run: str) -> tuple[Passport, ...]:
        """Its passports of one run, ``KEY/MACHINE/REPEAT``, in their order."""
        return self._passports_by_run.get(run, ())

    def attestations_of(self, run: str) -> Iterator[Attestation]:
        """Its passports of one run, each followed by its receipts."""
        for passport in self.passports_of(run):
            yield passport.attestation
            for receipt in self.receipts_of(passport):
                yield receipt.attestation

    def receipts_of(self, passport: Passport) -> tuple[BundledReceipt, ...]:
        """The receipts of one of its passports."""
        return self._receipts_by_passport.get(passport.digest, ())

    @cached_property
    def _passports_by_run(self) -> Mapping[str, tuple[Passport, ...]]:
        """Cached, since a bundle may hold thousands of runs."""
        by_run: dict[str, list[Passport]] = {}
        for passport in self.passports:
            by_run.setdefault(passport.name, []).append(passport)
        return {run: tuple(passports) for run, passports in by_run.items()}

    @cached_property
    def _receipts_by_passport(self) -> Mapping[str, tuple[BundledReceipt, ...]]:
        by_passport: dict[str, list[BundledReceipt]] = {}
        for each in self.receipts:
            by_passport.setdefault(each.receipt.passport, []).append(each)
        return {digest: tuple(receipts) for digest, receipts in by_passport.items()}

    @property
    def receipts_without_passport(self) -> tuple[BundledReceipt, ...]:
        """The receipts of passports that are not in it."""
        known = {passport.digest for passport in self.passports}
        return tuple(each for each in self.receipts if each.receipt.passport not in known)


def _row(kind: str, run: str, verdict: Verdict | None, digest: str) -> Row:
    return {"kind": kind, "run": run, "verdict": verdict or "", "digest": digest[:12]}


def read_bundle(path: str | Path) -> Bundle:
    """Read passports and receipts from a file.

    Parameters
    ----------
    path : str or Path
        ``NAME.intoto.jsonl``.

    Returns
    -------
    Bundle
        What is in it; no signature is checked yet. Its ``str`` counts passports and receipts.

    Raises
    ------
    BadInput
        If it is not there, a line is no JSON or a damaged statement, or none is of cellrepro.
    """
    file = Path(path)
    return parse_bundle(_text_of(file), where=str(file))


def _text_of(file: Path) -> bytes:
    expected = f"a passport, NAME{BUNDLE_ENDING}"
    try:
        if file.stat().st_size > MOST_BYTES_OF_FILE:
            raise _too_large(str(file))
        with file.open("rb") as stream:
            return stream.read(MOST_BYTES_OF_FILE + 1)  # it may grow meanwhile, or be a pipe
    except FileNotFoundError as error:
        raise no_such_file(file, expected=expected) from error
    except OSError as error:
        raise BadInput(f"{file} cannot be read ({error}); expected {expected}") from error


def parse_bundle(text: bytes, *, where: str) -> Bundle:
    """Parse the content of a bundle's file."""
    if len(text) > MOST_BYTES_OF_FILE:
        raise _too_large(where)
    lines = text.split(b"\n")
    if len(lines) > _MOST_LINES:
        raise _no_bundle(where, f"it has more than {_MOST_LINES} lines")
    attestations = []
    n_passed_over = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        attestation = _attestation(line.strip(), where=f"{where}, line {number}")
        if attestation is None:
            n_passed_over += 1
        else:
            attestations.append(attestation)
    if not attestations:
        raise _no_bundle(where, "it holds no passport and no receipt of cellrepro")
    return bundle_of(attestations, where=where, n_passed_over=n_passed_over)


def _attestation(line: bytes, *, where: str) -> Attestation | None:
    """Parse one line; None for a statement of another program."""
    document = read_json(line, where=where, most_bytes=_MOST_BYTES_OF_LINE)
    if is_envelope(document):
        envelope = read_envelope(document, where=where)
        if envelope.payload_type != IN_TOTO:
            return None
        inside = f"{where}, in its envelope"
        attestation = read_payload(envelope.payload, where=inside, envelope=envelope)
    elif isinstance(document, dict) and document.get("_type") == STATEMENT:
        attestation = read_payload(line, where=where)
    else:
        return None
    statement = attestation.statement
    is_ours = is_passport(statement) or is_receipt(statement) or is_model_statement(statement)
    return attestation if is_ours else None


def bundle_of(
    attestations: Iterable[Attestation], *, where: str = "a bundle", n_passed_over: int = 0
) -> Bundle:
    """Sort attestations by their kind, with all signatures of one payload together."""
    passports = []
    receipts = []
    models = []
    for attestation in _merged(attestations):
        statement = attestation.statement
        if is_passport(statement):
            passports.append(read_passport(attestation, where=where))
        elif is_receipt(statement):
            receipts.append(BundledReceipt(read_receipt(statement, where=where), attestation))
        elif is_model_statement(statement):
            models.append(read_model_statement(attestation, where=where))
        else:
            raise _no_bundle(where, f"a statement of the kind {statement.predicate_type[:80]!r}")
    return Bundle(tuple(passports), tuple(receipts), n_passed_over, tuple(models))


def bundle_text(attestations: Iterable[Attestation]) -> str:
    """The content of a bundle's file, without the last line feed."""
    return "\n".join(attestation.line() for attestation in _merged(attestations))


def grown_bundle(file: Path, attestations: Iterable[Attestation]) -> bytes:
    """The content of a bundle's file with attestations added, refused if nobody would read it.

    The lines that it has stay as they are, also those of other programs. What it already says is
    not added; a new signature of a statement is a line of its own. The file need not exist.
    """
    text = _text_of(file) if file.exists() else b""
    before = parse_bundle(text, where=str(file)).attestations if file.exists() else ()
    known = {attestation.digest: attestation for attestation in before}
    added = []
    for attestation in _merged(attestations):
        other = known.get(attestation.digest)
        both = attestation if other is None else other.together_with(attestation)
        if other is None or both.signatures - other.signatures:
            added.append(attestation)
            known[attestation.digest] = both
    if not added:
        return text
    if text and not text.endswith(b"\n"):
        text += b"\n"
    grown = text + b"".join(attestation.line().encode() + b"\n" for attestation in added)
    parse_bundle(grown, where=f"{file}, with what comes to it,")
    return grown


def _merged(attestations: Iterable[Attestation]) -> Iterable[Attestation]:
    """One attestation for each payload, with the signatures of all."""
    by_digest: dict[str, Attestation] = {}
    for attestation in attestations:
        known = by_digest.get(attestation.digest)
        by_digest[attestation.digest] = (
            attestation if known is None else known.together_with(attestation)
        )
    return by_digest.values()


def bundle_to_hand_on(bundle: Bundle, *, most_bytes: int = MOST_BYTES_OF_FILE) -> bytes:
    """The content of a bundle's file, refused if it is beyond the limits of its reader."""
    text = f"{bundle_text(bundle.attestations)}\n".encode()
    n_lines = text.count(b"\n")
    if n_lines >= _MOST_LINES or len(text) > most_bytes:
        raise BadInput(
            f"the passports and receipts of these runs are {amount(n_lines, 'line')} and "
            f"{grouped(len(text) / 1e6)} MB, more than one file takes ({_MOST_LINES - 1} lines, "
            f"{grouped(most_bytes / 1e6)} MB); export fewer runs at a time: name them, or give "
            "--where"
        )
    return text


def _too_large(where: str) -> BadInput:
    return _no_bundle(where, f"it is larger than {MOST_BYTES_OF_FILE} bytes")


def _no_bundle(where: str, why: str) -> BadInput:
    command = lab_command("export", "RUN", f"NAME{BUNDLE_ENDING}", store=None)
    return BadInput(f"{where} is no bundle of passports ({why}); expected a file of `{command}`")
