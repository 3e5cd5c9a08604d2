"""The passports that a store keeps: those that came with runs, and receipts of whoever replayed.

They lie in ``passports/KEY/MACHINE/REPEAT.intoto.jsonl``, the passport first. Nothing is taken
away from such a file: what is kept later is added to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.exchange.attestation import Attestation
from cellrepro.exchange.bundle import ENDING, Bundle, bundle_of, bundle_text, read_bundle
from cellrepro.exchange.passport import passport_of
from cellrepro.store.store import Repeat, Store
from cellrepro.store.whole_files import write_whole

PASSPORTS = "passports"
"""Folder of a store."""


def kept_path(store: Store, name: str) -> Path:
    """Where a store keeps the passport of a repeat.

    Parameters
    ----------
    store : Store
    name : str
        ``KEY/MACHINE/REPEAT``.

    Returns
    -------
    Path
        It need not exist.
    """
    return store.root / PASSPORTS / f"{name}{ENDING}"


def kept_attestations(store: Store, name: str) -> tuple[Attestation, ...]:
    """The passport of a repeat that a store keeps, and its receipts.

    Parameters
    ----------
    store : Store
    name : str
        ``KEY/MACHINE/REPEAT``.

    Returns
    -------
    tuple of Attestation
        Passports first; empty where none is kept.

    Raises
    ------
    BadInput
        If the file cannot be read, or is of another repeat.
    """
    path = kept_path(store, name)
    if not path.exists():
        return ()
    bundle = read_bundle(path)
    for passport in bundle.passports:
        if passport.name != name:
            raise BadInput(
                f"{path} holds the passport of {passport.name}; expected that of {name}: move the "
                "file away"
            )
    return bundle.attestations


def kept_bundles(store: Store) -> Mapping[str, Bundle]:
    """Everything that a store keeps of passports and receipts.

    Parameters
    ----------
    store : Store

    Returns
    -------
    mapping of str to Bundle
        By ``KEY/MACHINE/REPEAT``, sorted; empty where nothing is kept.

    Raises
    ------
    BadInput
        If one of the files cannot be read.
    """
    folder = store.root / PASSPORTS
    files = sorted(folder.glob(f"*/*/*{ENDING}"))
    return {
        file.relative_to(folder).as_posix().removesuffix(ENDING): read_bundle(file)
        for file in files
    }


def attestations_of(store: Store, repeat: Repeat) -> tuple[Attestation, ...]:
    """The passport of a stored repeat and its receipts: as they are kept, else made now.

    Parameters
    ----------
    store : Store
    repeat : Repeat
        Of the store.

    Returns
    -------
    tuple of Attestation
        The passport first; one that is made now is not signed, and is not kept by this.

    Raises
    ------
    BadInput
        If what is kept cannot be read.
    """
    kept = kept_attestations(store, repeat.name)
    if kept:
        return kept
    passport = passport_of(repeat, run=store.run(repeat.spec.key))
    return (passport.attestation,)


def keep_attestations(store: Store, name: str, attestations: Iterable[Attestation]) -> Path:
    """Add passports and receipts to what a store keeps of a repeat.

    Parameters
    ----------
    store : Store
    name : str
        ``KEY/MACHINE/REPEAT``.
    attestations : iterable of Attestation
        What is kept already is kept once, with the signatures of both.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    BadInput
        If what is kept cannot be read, or the store cannot be written.
    """
    path = kept_path(store, name)
    kept = kept_attestations(store, name)
    bundle = bundle_of([*kept, *attestations], where=str(path))
    text = bundle_text(bundle.attestations)
    if kept and path.read_text(encoding="utf-8") == f"{text}\n":
        return path
    with store.writing():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text)
    return path
