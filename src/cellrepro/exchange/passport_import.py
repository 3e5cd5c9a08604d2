"""Import of passports and receipts from a file into a store."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import Bundle, read_bundle
from cellrepro.exchange.kept_passports import keep_passports, kept_bundle
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.passport_check import contradictions
from cellrepro.results import Result, Row, derived
from cellrepro.spec import defaults
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.store.store import Store
from cellrepro.words import amount


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
        raise BadInput(
            f"{path} holds no passport of a run, so a store has nothing to keep of it; `cellrepro "
            f"verify {path}` holds the network's file beside it to what is attested"
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
