"""Export of runs to one file, a zip that others check and import."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cellrepro.errors import Damaged
from cellrepro.exchange.archive.contents import MOST_CRATE_BYTES, MOST_PASSPORT_BYTES
from cellrepro.exchange.archive.entry_names import CRATE_FILE, EXPORT_ENDING, PASSPORTS_FILE
from cellrepro.exchange.archive.writing import Outgoing, write_archive
from cellrepro.exchange.bundle import bundle_to_hand_on, parse_bundle
from cellrepro.exchange.crate import CratePart, crate_json
from cellrepro.exchange.input_lookup import INPUTS, NETWORKS, find_images, find_network
from cellrepro.exchange.kept_passports import passports_of
from cellrepro.exchange.selection import select_repeats
from cellrepro.exchange.signed.signer import Signer, find_signer, fingerprint_of
from cellrepro.model.weight_sources import started_from
from cellrepro.spec import defaults
from cellrepro.spec.sent_spec import refused_elsewhere
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.seal import SUMS, read_seal
from cellrepro.store.store import Store
from cellrepro.store.store_paths import inside
from cellrepro.store.stored_run import MANIFEST, SPEC, WEIGHTS, Repeat
from cellrepro.store.unchanged import repair_of
from cellrepro.store.whole_files import new_file
from cellrepro.torch_files import is_saved_by_torch
from samebits.digests import file_digest
from samebits.errors import BadInput
from samebits.results import Result, Row, table_lines
from samebits.words import amount, grouped

_CHECKPOINTS = "checkpoints/"


@dataclass(frozen=True, repr=False)
class Exported(Result):
    """An exported file."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: tuple[str, ...]
    """KEY/MACHINE/REPEAT of each repeat that is in it."""
    bytes: int
    """Size of the file."""
    notes: tuple[str, ...]
    """What a user might expect in it and is not there, a sentence each."""
    signed_by: str | None
    """Fingerprint of the key that signed the passports in it; null where none was given."""
    _labels: tuple[str, ...]
    """What was asked for, in words, of each repeat."""

    def _held(self) -> str:
        """Count the repeats, say how large the file is, and who signed."""
        megabytes = grouped(self.bytes / 1e6)
        n_repeats = amount(len(self.runs), "repeat")
        by = "not signed" if self.signed_by is None else f"signed with {self.signed_by}"
        return f"{self.file} holds {n_repeats}, {megabytes} MB, {by}; SHA-256 {self.digest}"

    def sentence(self) -> str:
        """Say what is in the file, and what is not."""
        return "; ".join([self._held(), *self.notes])

    def rows(self) -> list[Row]:
        """Give each repeat."""
        return [
            {"repeat": name, "run": label}
            for name, label in zip(self.runs, self._labels, strict=True)
        ]

    def lines(self) -> list[str]:
        """Give what is in the file, and below it what is not."""
        return [self._held(), *table_lines(self.rows()), *(f"note: {note}" for note in self.notes)]


def export_runs(
    runs: str | Sequence[str],
    file: str | Path,
    *,
    where: Mapping[str, object] | None = None,
    weights: bool = False,
    images: bool = False,
    sign: str | Path | None = None,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> Exported:
    """Write runs of a store into one file, a zip that `import_runs` and any other program reads.

    The same runs give the same bytes, whenever and wherever they are exported.

    Parameters
    ----------
    runs : str or sequence of str
        ``KEY`` for all repeats of a run, ``KEY/MACHINE`` for those of one machine, ``KEY/REPEAT``
        or ``KEY/MACHINE/REPEAT`` for one, a grid file for all its specs; an empty sequence with
        ``where`` means all runs.
    file : str or Path
        ``NAME.cellrepro.zip``; nothing may be there.
    where : mapping of str to object, optional
        Only runs with these values, as of ``cellrepro list --where``.
    weights : bool
        Whether trained networks go into it, and those that trainings started from.
    images : bool
        Whether the folders of images go into it, and the images that were kept.
    sign : str or Path, optional
        An OpenSSH key, ``KEY.pub`` or ``KEY``, with which the passports are signed.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    Exported
        Its ``str`` says what is in the file and what is not.

    Raises
    ------
    BadInput
        If there is no such run, the file exists, or a name cannot be used on other systems.
    Damaged
        If a stored file is no longer what was stored; nothing is written.
    """
    path = new_file(file, ending=EXPORT_ENDING, holds="runs")
    source = Store(store)
    references = [runs] if isinstance(runs, str) else list(runs)
    selection = select_repeats(source, references, where=where)
    signer = find_signer(sign)
    gathering = _Gathering(source, selection.repeats)
    files = [*gathering.runs(weights=weights)]
    if weights:
        files += gathering.networks()
    if images:
        files += [*gathering.image_folders(), *gathering.kept_images()]
    files.append(Outgoing.of_bytes(PASSPORTS_FILE, gathering.passports(signer)))
    parts = [CratePart(each.name, each.size, each.digest) for each in files]
    files.append(Outgoing.of_bytes(CRATE_FILE, _described(selection.repeats, parts)))
    digest = write_archive(path, files, quiet=quiet)
    return Exported(
        file=path,
        digest=digest,
        bytes=path.stat().st_size,
        runs=tuple(repeat.name for repeat in selection.repeats),
        _labels=tuple(repeat.spec.label for repeat in selection.repeats),
        notes=(*selection.notes, *gathering.notes),
        signed_by=fingerprint_of(signer),
    )


def _described(repeats: Sequence[Repeat], parts: Sequence[CratePart]) -> bytes:
    """The description for other programs, refused if it is beyond the limit of the importer."""
    crate = crate_json(repeats, parts)
    if len(crate) > MOST_CRATE_BYTES:
        raise BadInput(
            f"the description of {amount(len(repeats), 'repeat')} has {grouped(len(crate) / 1e6)} "
            f"MB, more than one file takes ({grouped(MOST_CRATE_BYTES / 1e6)} MB); export fewer "
            "runs at a time: name them, or give --where"
        )
    return crate


class _Gathering:
    """Gathers the files of repeats with the digests that they were stored with."""

    def __init__(self, store: Store, repeats: Sequence[Repeat]):
        self._store = store
        self._repeats = repeats
        self._specs = {repeat.spec.key: repeat.spec for repeat in repeats}
        self.notes: list[str] = []

    # -- runs

    def runs(self, *, weights: bool) -> Iterator[Outgoing]:
        """The files of the repeats, and the spec of each run."""
        n_checkpoints = 0
        n_without_weights = 0
        for repeat in self._repeats:
            names = repeat.manifest.files
            n_checkpoints += any(name.startswith(_CHECKPOINTS) for name in names)
            n_without_weights += WEIGHTS in names and not weights
            yield from self._of_repeat(repeat, weights=weights)
        for key, spec in self._specs.items():
            yield from self._sealed_folder(f"runs/{key}", [SPEC])
            self.notes += refused_elsewhere(spec)
        if n_without_weights:
            self.notes.append(
                f"the weights of {amount(n_without_weights, 'repeat')} are not in it; with "
                "--weights they are"
            )
        if n_checkpoints:
            self.notes.append(
                f"checkpoints of {amount(n_checkpoints, 'repeat')} are never exported"
            )

    def _of_repeat(self, repeat: Repeat, *, weights: bool) -> Iterator[Outgoing]:
        folder = f"runs/{repeat.name}"
        masks = {record.file for record in repeat.manifest.masks.values()}
        for name, digest in repeat.manifest.files.items():
            if name.startswith(_CHECKPOINTS) or (name == WEIGHTS and not weights):
                continue
            path = inside(repeat.folder, name)
            if path.exists():
                yield Outgoing(f"{folder}/{name}", path, digest)
            elif name in masks or name == WEIGHTS:
                usual = "copy the store again, or export without --weights where these never came"
                raise Damaged(
                    f"{path} is not there, so that {repeat.name} is not whole; "
                    f"{repair_of(path, digest) or usual}"
                )
            else:
                self.notes.append(f"{name} of {repeat.name} is not in it: it is not in the store")
        yield from self._sealed_folder(folder, [MANIFEST])

    def _sealed_folder(self, folder: str, names: Iterable[str]) -> Iterator[Outgoing]:
        """The seal of a folder, and files that it vouches for but no manifest."""
        path = inside(self._store.root, folder)
        seal = path / SUMS
        sums = seal.read_bytes() if seal.exists() else b""
        digests = read_seal(sums.decode())
        for name in names:
            digest = digests.get(name) or file_digest(path / name)
            yield Outgoing(f"{folder}/{name}", path / name, digest)
        if sums:
            yield Outgoing.of_bytes(f"{folder}/{SUMS}", sums)

    def passports(self, signer: Signer | None) -> bytes:
        """The passports of all repeats, signed if there is a signer, and their receipts."""
        bundle = passports_of(self._repeats, store=self._store, signer=signer)
        text = bundle_to_hand_on(bundle, most_bytes=MOST_PASSPORT_BYTES)
        parse_bundle(text, where=f"{PASSPORTS_FILE} of {amount(len(self._repeats), 'repeat')}")
        return text

    # -- images and networks

    def image_folders(self) -> Iterator[Outgoing]:
        """The folders of images, if they are found unchanged."""
        missing: dict[str, str] = {}
        gathered: set[str] = set()
        looked_at: set[tuple[str, str]] = set()
        for repeat in self._repeats:
            data = repeat.manifest.data
            if data.digest in gathered or (data.digest, data.path) in looked_at:
                continue
            looked_at.add((data.digest, data.path))
            folder = find_images(repeat.spec, self._store, recorded=data.path)
            if folder is None or not data.files:
                missing[data.digest] = data.path
                continue
            gathered.add(data.digest)
            missing.pop(data.digest, None)
            for name, digest in data.files.items():
                outgoing = f"{INPUTS}/{data.digest[:KEY_LENGTH]}/{name}"
                yield Outgoing(outgoing, inside(folder, name), digest)
        for digest, path in missing.items():
            self.notes.append(
                f"the images whose digest begins with {digest[:12]} are not in it: {path} does "
                "not hold them any more as they were"
            )

    def kept_images(self) -> Iterator[Outgoing]:
        """The segmented images and their ground truth that the store keeps."""
        for digits in sorted({spec.images_digest[:KEY_LENGTH] for spec in self._specs.values()}):
            folder = f"data/{digits}"
            seal = inside(self._store.root, f"{folder}/{SUMS}")
            if seal.exists():
                yield from self._sealed_folder(folder, read_seal(seal.read_text("utf-8")))

    def networks(self) -> Iterator[Outgoing]:
        """The networks from which runs started, if they are safetensors files."""
        done: set[str] = set()
        for repeat in self._repeats:
            digest = repeat.spec.model_digest
            if digest is None or digest in done:
                continue
            done.add(digest)
            path = self._network(repeat, repeat.spec)
            if path is None:
                self.notes.append(
                    f"the network {repeat.spec.model} that {repeat.spec.key} started from is not "
                    "in it: it is not where it was, or a .pth file, which is never exported"
                )
            else:
                yield Outgoing(f"{NETWORKS}/{digest}.safetensors", path, digest)

    def _network(self, repeat: Repeat, spec: Spec) -> Path | None:
        path = find_network(spec, self._store)
        if path is None:
            with suppress(BadInput):
                path = started_from(repeat, self._store).path
        return None if path is None or is_saved_by_torch(path) else path
