"""Passports handed on by themselves: exported to one small file, and imported into a store."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import CellreproError
from cellrepro.exchange.bundle import BUNDLE_ENDING, Bundle, bundle_to_hand_on, read_bundle
from cellrepro.exchange.kept_passports import keep_passports, kept_bundle, passports_of
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_check import contradictions
from cellrepro.exchange.selection import select_repeats
from cellrepro.exchange.signed.signer import find_signer, fingerprint_of
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from cellrepro.spec.sent_spec import refuse_strange_variables, refused_elsewhere
from cellrepro.store.store import Store
from cellrepro.store.whole_files import new_file, whole_file
from samebits.errors import BadInput
from samebits.results import Result, Row, derived, table_lines
from samebits.words import amount

# -- export ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ExportedPassports(Result):
    """Passports in a new file."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    notes: tuple[str, ...]
    """What a user should know: what is not in it, and who will refuse it, a sentence each."""
    signed_by: str | None
    """Fingerprint of the key that signed; null where none was given."""
    _bundle: Bundle
    """Its content; of every repeat the current passport is first."""

    @derived
    def runs(self) -> list[str]:
        """KEY/MACHINE/REPEAT of each repeat whose passport is in it."""
        return [*self.passports]

    @derived
    def passports(self) -> dict[str, str]:
        """Digest of the current passport of each of them."""
        digests: dict[str, str] = {}
        for passport in self._bundle.passports:
            digests.setdefault(passport.name, passport.digest)
        return digests

    @derived
    def receipts(self) -> int:
        """Receipts that are in it, too."""
        return len(self._bundle.receipts)

    def sentence(self) -> str:
        """Say how many passports and receipts it holds, and who signed them."""
        held = f"the passports of {amount(len(self.runs), 'repeat')}"
        receipts = amount(self.receipts, "receipt")
        by = "unsigned" if self.signed_by is None else f"signed with {self.signed_by}"
        return f"{self.file} holds {held}, with {receipts}; {by}"

    def rows(self) -> Sequence[Row]:
        """Give each passport with its digest and verdict."""
        return [
            {
                "run": passport.name,
                "passport": passport.digest[:12],
                "verdict": passport.verdict or "a single repeat",
                "repeats": passport.n_repeats,
                "receipts": len(self._bundle.receipts_of(passport)),
            }
            for passport in self._bundle.passports
        ]

    def lines(self) -> Sequence[str]:
        """Give the table and the notes, and say how to sign where nobody did."""
        notes = [f"note: {note}" for note in self.notes]
        lines = [self.sentence(), *table_lines(self.rows()), *notes]
        if self.signed_by is None:
            lines.append("anyone could have written it: --sign KEY.pub says that you did")
        return lines


def export_passports(
    runs: str | Sequence[str],
    file: str | Path,
    *,
    where: Mapping[str, object] | None = None,
    sign: str | Path | None = None,
    store: str | Path = defaults.STORE,
) -> ExportedPassports:
    """Write the passports of stored runs to one small file, without weights and images.

    Parameters
    ----------
    runs : str or sequence of str
        ``KEY`` for all repeats of a run, ``KEY/MACHINE`` for those of one machine, ``KEY/REPEAT``
        or ``KEY/MACHINE/REPEAT`` for one, a grid file for all its specs; an empty sequence with
        ``where`` means all runs.
    file : str or Path
        ``NAME.intoto.jsonl``; nothing may be there.
    where : mapping of str to object, optional
        Only runs with these values, as of ``cellrepro list --where``.
    sign : str or Path, optional
        ``KEY.pub``, an Ed25519 key of OpenSSH: signed by the ssh-agent, else with the key file
        beside it.
    store : str or Path
        Folder of finished runs. The passports are kept in it, too.

    Returns
    -------
    ExportedPassports
        Its ``str`` says what is in the file. The same runs give the same bytes.

    Raises
    ------
    BadInput
        If the file exists or is named otherwise, a run is not there, or the key cannot sign.
    Damaged
        If weights or masks of a run are no longer what was stored.
    """
    path = new_file(file, ending=BUNDLE_ENDING, holds="passports")
    opened_store = Store(store)
    signer = find_signer(sign)
    references = [runs] if isinstance(runs, str) else runs
    selection = select_repeats(opened_store, references, where=where)
    specs = {repeat.spec.key: repeat.spec for repeat in selection.repeats}
    for repeat in selection.repeats:
        repeat.refuse_damage()
    bundle = passports_of(selection.repeats, store=opened_store, signer=signer)
    content = bundle_to_hand_on(bundle)
    with whole_file(path) as scratch:
        scratch.write_bytes(content)
    return ExportedPassports(
        file=path,
        digest=hashlib.sha256(content).hexdigest(),
        notes=(
            *selection.notes,
            *(note for spec in specs.values() for note in refused_elsewhere(spec)),
            *_kept_if_possible(opened_store, bundle),
        ),
        signed_by=fingerprint_of(signer),
        _bundle=bundle,
    )


def _kept_if_possible(store: Store, bundle: Bundle) -> Iterator[str]:
    """Keep what was exported; a sentence says that the store could not be written to."""
    try:
        keep_passports(store, bundle)
    except CellreproError as error:
        yield f"the passport is not kept in the store, too: {error}"


# -- import --------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class ImportedPassports(Result):
    """Passports and receipts that a store keeps now."""

    folder: Path
    """The store."""
    new_receipts: int
    """Receipts that the store did not keep before."""
    _bundle: Bundle
    """The content of the file."""
    _n_runs_here: int
    """Number of passports whose run is in the store, too."""

    @derived
    def runs(self) -> list[str]:
        """KEY/MACHINE/REPEAT of each run whose passport came."""
        return list(dict.fromkeys(passport.name for passport in self._bundle.passports))

    @derived
    def receipts(self) -> int:
        """Receipts that came."""
        return len(self._bundle.receipts)

    def sentence(self) -> str:
        """Count the passports and receipts, and say of how many the run itself is here."""
        passports = amount(len(self._bundle.passports), "passport")
        receipts = amount(self.receipts, "receipt")
        return (
            f"{passports} and {receipts} in {self.folder}; new receipts: {self.new_receipts}; "
            f"passports of runs that are here: {self._n_runs_here}"
        )

    def rows(self) -> Sequence[Row]:
        """Give each receipt with its verdict."""
        return [
            {
                "run": each.receipt.run,
                "replayed on": each.receipt.machine,
                "verdict": str(each.receipt.verdict),
            }
            for each in self._bundle.receipts
        ]


def import_passports(file: str | Path, *, store: str | Path = defaults.STORE) -> ImportedPassports:
    """Keep passports, and the receipts of others, in a store: the report then shows them.

    Parameters
    ----------
    file : str or Path
        ``NAME.intoto.jsonl``, as `export_passports` and ``verify --receipt`` write it.
    store : str or Path
        Folder of finished runs; it need not hold those that the passports are of.

    Returns
    -------
    ImportedPassports
        Its ``str`` counts them.

    Raises
    ------
    BadInput
        If the file is no such file or holds no passport of a run, a passport sets variables that
        only a reader may set, one contradicts the run of its name that the store holds, or a
        receipt is of a passport that is neither in the file nor in the store. Nothing is written
        then.
    """
    path = Path(file)
    target = Store(store)
    bundle = _with_known_passports(read_bundle(path), target, path)
    if not bundle.passports:
        command = lab_command("verify", path, store=None)
        raise BadInput(
            f"{path} holds no passport of a run, so a store has nothing to keep of it; "
            f"`{command}` holds the network's file beside it to what is attested"
        )
    for passport in bundle.passports:
        refuse_strange_variables(passport.spec, whose=passport.name)
    n_runs_here = sum(_is_of_stored_run(passport, target, path) for passport in bundle.passports)
    before = {
        receipt.attestation.digest
        for name in dict.fromkeys(passport.name for passport in bundle.passports)
        for receipt in kept_bundle(target, name).receipts
    }
    keep_passports(target, bundle)
    new = [each for each in bundle.receipts if each.attestation.digest not in before]
    return ImportedPassports(
        folder=target.root,
        new_receipts=len(new),
        _bundle=bundle,
        _n_runs_here=n_runs_here,
    )


def _with_known_passports(bundle: Bundle, store: Store, path: Path) -> Bundle:
    """Add the passports of receipts that came alone, from those that the store keeps."""
    known = {passport.digest: passport for passport in bundle.passports}
    for each in bundle.receipts_without_passport:
        kept = [
            passport
            for passport in kept_bundle(store, each.receipt.run).passports
            if passport.digest == each.receipt.passport
        ]
        if not kept:
            raise BadInput(
                f"{path} holds a receipt of {each.receipt.run} without its passport, and the store "
                f"{store.root} keeps none of the digest {each.receipt.passport[:12]}…; expected "
                "both in one file: ask the sender for the passport, or import it first"
            )
        known |= {passport.digest: passport for passport in kept}
    return dataclasses.replace(bundle, passports=tuple(known.values()))


def _is_of_stored_run(passport: Passport, store: Store, path: Path) -> bool:
    """Whether the store holds the run of a passport; one that contradicts it is refused."""
    repeat = store.repeat(passport.key, passport.machine, passport.repeat)
    if repeat is None:
        return False
    problem = next(contradictions(passport, repeat, where=str(path)), None)
    if problem is not None:
        raise BadInput(
            f"{path}: the passport of {passport.name} is not that of the run of this name in "
            f"{store.root}: {problem.what}; nothing was imported: import it into another store "
            "with --store, and ask the sender which of the two is right"
        )
    return True
