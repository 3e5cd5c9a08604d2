"""Check of what a store holds beside runs: passports, what was sent, and what was left behind."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from cellrepro.errors import BadInput
from cellrepro.exchange.bundle import BUNDLE_ENDING
from cellrepro.exchange.files_on_disk import FilesOnDisk, entries_of, leftover, stray
from cellrepro.exchange.input_lookup import INPUTS, NETWORKS
from cellrepro.exchange.kept_passports import PASSPORTS_FOLDER, kept_bundle, names_of_kept
from cellrepro.exchange.passport_check import contradictions
from cellrepro.exchange.problem import Problem, Restore
from cellrepro.exchange.runs_check import StoreFindings
from cellrepro.exchange.signed.allowed_signers import AllowedSigner
from cellrepro.exchange.verified import VerifiedRepeat
from cellrepro.images.folder import folder_digest
from cellrepro.spec.spec import KEY_LENGTH
from cellrepro.store import locks
from cellrepro.store.store import Store
from cellrepro.store.store_paths import OWN_FOLDERS
from cellrepro.store.stored_run import SPEC, Repeat
from cellrepro.store.unsent_files import NOTE_ENDING, RECEIVED
from cellrepro.store.whole_files import Owner, is_being_written
from cellrepro.words import short_digest

_NETWORK = re.compile(r"[0-9a-f]{64}\.safetensors")


def check_beside_runs(check: StoreFindings, allowed: Sequence[AllowedSigner]) -> None:
    """Add the problems of what a store holds beside runs; ``allowed`` signers are believed."""
    on_disk = check.on_disk
    check.problems += _wrong_passports(check, allowed)
    check.problems += _wrong_inputs(on_disk)
    check.problems += _linked_folders(on_disk)
    check.problems += _strays(on_disk)
    check.problems += _leftovers(on_disk)


def _wrong_passports(check: StoreFindings, allowed: Sequence[AllowedSigner]) -> Iterator[Problem]:
    """Kept passports that cannot be read, are badly signed, or contradict their repeat."""
    root = check.on_disk.root
    store = Store(root)
    damaged = {problem.where for problem in check.problems}
    damaged_repeats = {"/".join(where.split("/")[:4]) for where in damaged}
    for name in names_of_kept(store):
        where = f"{PASSPORTS_FOLDER}/{name}{BUNDLE_ENDING}"
        try:
            bundle = kept_bundle(store, name)
        except BadInput as error:
            remedy = "remove it, and export or import the run again"
            yield Problem("damaged", str(error), where, remedy)
            continue
        check.n_files += 1
        for passport in bundle.passports:
            receipts = bundle.receipts_of(passport)
            verified = VerifiedRepeat.of(passport, receipts, allowed, is_here=True)
            yield from verified.bad_signatures(where)
        folder = root / "runs" / name
        is_whole = f"runs/{name}" not in damaged_repeats
        if folder.is_dir() and is_whole and f"runs/{folder.parents[1].name}/{SPEC}" not in damaged:
            for passport in bundle.passports:
                yield from contradictions(passport, Repeat(folder), where=where)


def _wrong_inputs(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Images and networks that came with runs, whose content does not fit their name."""
    root = on_disk.root
    remedy = "remove it, and import the file with which it came again"
    for folder in entries_of(root / INPUTS):
        try:
            digest = folder_digest(folder, to_train=False)
        except BadInput as error:
            yield Problem("damaged", str(error), on_disk.where(folder), remedy)
            continue
        if not digest.startswith(folder.name) or len(folder.name) < KEY_LENGTH:
            what = "a file of it has changed, is missing or was added: its digest is another one"
            yield Problem("damaged", what, on_disk.where(folder), remedy)
    for path in entries_of(root / NETWORKS):
        if _NETWORK.fullmatch(path.name) is None:
            yield stray(path, on_disk)
            continue
        digest = on_disk.digest(path) if path.is_file() else ""
        if path.name != f"{digest}.safetensors":
            what = f"it has changed: its SHA-256 is {short_digest(digest)}"
            mending = Restore(path, path.stem)
            yield Problem("damaged", what, on_disk.where(path), remedy, mending)


def _linked_folders(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Folders of the store that are symbolic links, so that repairs would be made elsewhere."""
    root = on_disk.root
    for name in OWN_FOLDERS:
        if (root / name).is_symlink():
            what = "it is a link, which the lab never makes: what it puts here would lie elsewhere"
            remedy = "remove the link, or put the folder itself there"
            yield Problem("extra", what, on_disk.where(root / name), remedy)


def _strays(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """Strange files among kept passports and among notes of what was not sent."""
    root = on_disk.root
    for area, ending in ((PASSPORTS_FOLDER, BUNDLE_ENDING), (RECEIVED, NOTE_ENDING)):
        folder = root / area
        if folder.is_symlink():  # a problem by itself
            continue
        for path in sorted(folder.rglob("*")):
            if (path.is_dir() and not path.is_symlink()) or is_being_written(path.name):
                continue
            depth = len(path.relative_to(folder).parts)
            is_ours = depth == 3 and path.name.endswith(ending) and not path.name.startswith(".")
            if not is_ours or path.is_symlink():
                yield stray(path, on_disk)


def _leftovers(on_disk: FilesOnDisk) -> Iterator[Problem]:
    """What stopped processes have left, except unfinished trainings, which can be resumed."""
    root = on_disk.root
    here = Owner.here()
    staging = root / ".staging"
    for entry in [] if staging.is_symlink() else entries_of(staging):
        folder = entry.with_name(entry.name.removesuffix(".lock"))
        owner = Owner.of(folder.name)
        is_alive = owner is not None and owner.may_be_alive(here)
        if not is_alive and not locks.is_locked(folder):
            yield leftover(entry, on_disk, "it is of work that was stopped")
    real_root = root.resolve()
    claims = (root / ".claims", *sorted((root / "unfinished").glob("*/*")))
    for area in claims:
        if not area.resolve().is_relative_to(real_root):
            continue
        for lock in sorted(area.glob("*.lock")):
            if not locks.is_locked(lock.with_suffix("")):
                yield leftover(lock, on_disk, "it is the lock of a process that is no more")
