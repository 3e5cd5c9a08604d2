"""The contents of an exported file, checked against each other before any of them is used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from cellrepro.exchange.archive.entry_names import CRATE_FILE, PASSPORTS_FILE, EntryName, Kind
from cellrepro.exchange.archive.reading import ExportedFile
from cellrepro.exchange.bundle import Bundle, parse_bundle
from cellrepro.exchange.mask_digests import files_digest
from cellrepro.exchange.strict_json import read_json
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.manifest import Manifest
from cellrepro.store.seal import FIRST_SEALED_FORMAT, MOST_SUMS_BYTES, SUMS, read_seal
from cellrepro.store.stored_run import MANIFEST, SPEC, WEIGHTS, read_spec
from cellrepro.wrong_fields import wrong_fields
from samebits.errors import BadInput

MOST_SPEC_BYTES = 2**24
"""Limit of a spec, which has a chance for each image of the training where these are given."""
_MOST_MANIFEST_BYTES = 2**24
_MOST_MANIFEST_BYTES_A_FILE = 2**11
"""By so much the limit of a manifest grows with each file of its repeat."""
MOST_CRATE_BYTES = 2**24
"""Limit of the description for other programs."""
MOST_PASSPORT_BYTES = 2**26
"""Limit of all passports and receipts together."""

Record = TypeVar("Record")


@dataclass(frozen=True)
class ReceivedRepeat:
    """One repeat of an exported file."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    spec: Spec
    manifest: Manifest
    digests: Mapping[str, str]
    """SHA-256 of each file in the archive by its name in the repeat, ``manifest.json`` included."""

    def inside(self, file: str) -> str:
        """The name of one of its files in the archive."""
        return f"runs/{self.name}/{file}"

    @property
    def missing(self) -> tuple[str, ...]:
        """Files that the manifest lists and the archive lacks: weights, checkpoints."""
        return tuple(name for name in self.manifest.files if name not in self.digests)


@dataclass(frozen=True)
class Contents:
    """The contents of an exported file by kind."""

    run_files: Mapping[str, Mapping[str, str]]
    """SHA-256 of the spec's file and its seal by name, by key."""
    repeats: Mapping[str, ReceivedRepeat]
    """Each repeat by its name, ``KEY/MACHINE/REPEAT``."""
    kept_images: Mapping[str, Mapping[str, str]]
    """SHA-256 of kept images, truths and seal by name, by the first digits of `images_digest`."""
    image_folders: Mapping[str, Mapping[str, str]]
    """SHA-256 of each file of an image folder by name, by the first digits of `data_digest`."""
    networks: tuple[str, ...]
    """Digests of the networks from which runs started."""
    passports: Bundle
    """The passport of each repeat, with the receipts of its replays."""


def read_contents(archive: ExportedFile) -> Contents:
    """Read and cross-check everything in an exported file but images, weights and ledgers."""
    groups = _grouped(archive)
    specs = {key: _spec(archive, key, files) for key, files in groups["run"].items()}
    repeats = {
        name: _repeat(archive, name, files, specs) for name, files in groups["repeat"].items()
    }
    if not repeats:
        raise archive.refusal("it holds no run")
    for key in specs.keys() - {name.partition("/")[0] for name in repeats}:
        raise archive.refusal(f"of run {key} it holds no repeat")
    segmented = _segmented(repeats.values())
    for digits, files in groups["kept"].items():
        _refuse_strange_images(archive, digits, files, segmented.get(digits, set()))
    for digits, files in groups["input"].items():
        _refuse_strange_folder(archive, digits, files, specs)
    for digest, files in groups["network"].items():
        _refuse_strange_network(archive, digest, [*files.values()], specs)
    _refuse_strange_crate(archive)
    return Contents(
        run_files=groups["run"],
        repeats=repeats,
        kept_images=groups["kept"],
        image_folders=groups["input"],
        networks=tuple(groups["network"]),
        passports=_passports(archive, repeats),
    )


def _grouped(archive: ExportedFile) -> Mapping[Kind, dict[str, dict[str, str]]]:
    """Digests by kind, by group, by the name of a file in its group."""
    groups: dict[Kind, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for name, digest in archive.digests.items():
        entry = EntryName.parse(name)
        groups[entry.kind][entry.group][entry.file] = digest
    return groups


# -- runs and repeats ------------------------------------------------------------------------------


def _spec(archive: ExportedFile, key: str, files: Mapping[str, str]) -> Spec:
    """Read the spec of a run; its key must be the name of its folder."""
    folder = f"runs/{key}"
    if SPEC not in files:
        raise archive.refusal(f"{folder} has no {SPEC}")
    name = f"{folder}/{SPEC}"
    text = archive.content(name, most_bytes=MOST_SPEC_BYTES)
    spec = _record(archive, name, text, read_spec)
    if spec.key != key:
        raise archive.refusal(f"{name} is the spec of run {spec.key}")
    try:
        refuse_strange_variables(spec, whose=f"run {key}")
    except BadInput as error:
        raise archive.refusal(str(error)) from error
    if SUMS in files and _seal_of(archive, f"{folder}/{SUMS}") != {SPEC: files[SPEC]}:
        raise archive.refusal(f"{folder}/{SUMS} is not that of its {SPEC}")
    return spec


def _repeat(
    archive: ExportedFile, name: str, files: Mapping[str, str], specs: Mapping[str, Spec]
) -> ReceivedRepeat:
    """Read a repeat; its manifest must agree with its name, its seal and its files."""
    folder = f"runs/{name}"
    key, machine, index = name.split("/")
    if key not in specs:
        raise archive.refusal(f"{folder} has no spec")
    if MANIFEST not in files:
        raise archive.refusal(f"{folder} has no {MANIFEST}")
    path = f"{folder}/{MANIFEST}"
    most_bytes = _MOST_MANIFEST_BYTES + _MOST_MANIFEST_BYTES_A_FILE * len(files)
    text = archive.content(path, most_bytes=most_bytes)
    manifest = _record(archive, path, text, Manifest.model_validate_json, most_bytes=most_bytes)
    own_name = (manifest.key, manifest.machine.name, str(manifest.repeat))
    if own_name != (key, machine, index):
        raise archive.refusal(f"{path} is that of {'/'.join(own_name)!a}")
    _refuse_other_files(archive, folder, files, manifest)
    return ReceivedRepeat(name, specs[key], manifest, files)


def _refuse_other_files(
    archive: ExportedFile, folder: str, files: Mapping[str, str], manifest: Manifest
) -> None:
    """Refuse files whose digest the manifest or the seal lacks, and masks that are left out."""
    for name, digest in files.items():
        if name not in (MANIFEST, SUMS) and manifest.files.get(name) != digest:
            raise archive.refusal(f"{folder}/{name} is not the file of which its manifest speaks")
    mask_files = {record.file for record in manifest.masks.values()}
    for name in sorted(mask_files - files.keys()):
        raise archive.refusal(f"{folder} lacks the masks {name!a}")
    for name in sorted(name for name in files if name.startswith("masks/")):
        if name not in mask_files:
            raise archive.refusal(f"{folder}/{name} are masks of no image of its manifest")
    weights = manifest.weights
    if weights is not None and manifest.files.get(WEIGHTS) not in (None, weights.digest):
        raise archive.refusal(f"{folder}/{MANIFEST} gives its weights two digests")
    sealed = {**manifest.files, MANIFEST: files[MANIFEST]}
    if SUMS in files and _seal_of(archive, f"{folder}/{SUMS}") != sealed:
        raise archive.refusal(f"{folder}/{SUMS} does not fit its {MANIFEST}")
    if SUMS not in files and manifest.format >= FIRST_SEALED_FORMAT:
        raise archive.refusal(f"{folder} has no {SUMS}")


def _record(
    archive: ExportedFile,
    name: str,
    text: bytes,
    parse: Callable[[bytes], Record],
    *,
    most_bytes: int = MOST_SPEC_BYTES,
) -> Record:
    """Parse a record from JSON that means the same to every reader."""
    read_json(text, where=f"{archive.path}, {name}", most_bytes=most_bytes)
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        why = wrong_fields(error) if isinstance(error, ValidationError) else error
        raise archive.refusal(f"{name} is none that this version of cellrepro reads ({why})") from (
            error
        )


def _seal_of(archive: ExportedFile, name: str) -> Mapping[str, str]:
    text = archive.content(name, most_bytes=MOST_SUMS_BYTES)
    try:
        return read_seal(text.decode())
    except ValueError as error:
        raise archive.refusal(f"{name} cannot be read ({error})") from error


def _passports(archive: ExportedFile, repeats: Mapping[str, ReceivedRepeat]) -> Bundle:
    """Read the passports, which must cover the repeats and nothing else, and their receipts."""
    if PASSPORTS_FILE not in archive.digests:
        raise archive.refusal(f"it has no {PASSPORTS_FILE}")
    text = archive.content(PASSPORTS_FILE, most_bytes=MOST_PASSPORT_BYTES)
    bundle = parse_bundle(text, where=f"{archive.path}, {PASSPORTS_FILE}")
    for passport in bundle.passports:
        repeat = repeats.get(passport.name)
        if repeat is None or passport.files.get(MANIFEST) != repeat.digests[MANIFEST]:
            raise archive.refusal(f"the passport of {passport.name} is of no repeat that it holds")
    for name in repeats.keys() - {passport.name for passport in bundle.passports}:
        raise archive.refusal(f"{PASSPORTS_FILE} has no passport of {name}")
    if bundle.receipts_without_passport:
        run = bundle.receipts_without_passport[0].receipt.run
        raise archive.refusal(
            f"{PASSPORTS_FILE} has a receipt of {run[:120]!a} without its passport"
        )
    return bundle


# -- images, networks and the crate ----------------------------------------------------------------


def _segmented(repeats: Iterable[ReceivedRepeat]) -> Mapping[str, set[str]]:
    """Names of the segmented images, by the first digits of `images_digest`."""
    images: dict[str, set[str]] = defaultdict(set)
    for repeat in repeats:
        images[repeat.spec.images_digest[:KEY_LENGTH]] |= repeat.manifest.masks.keys()
    return images


def _refuse_strange_images(
    archive: ExportedFile, digits: str, files: Mapping[str, str], images: Collection[str]
) -> None:
    """Refuse kept images that no run segmented or that their seal lacks."""
    folder = f"data/{digits}"
    known = {f"{image}{ending}" for image in images for ending in (".tif", "_masks.tif")}
    for name in files.keys() - {SUMS} - known:
        raise archive.refusal(f"{folder}/{name} is no image that one of its runs segmented")
    if SUMS not in files:
        raise archive.refusal(f"{folder} has no {SUMS}")
    present = {name: digest for name, digest in files.items() if name != SUMS}
    if _seal_of(archive, f"{folder}/{SUMS}") != present:
        raise archive.refusal(f"{folder}/{SUMS} is not that of the files beside it")


def _refuse_strange_folder(
    archive: ExportedFile, digits: str, files: Mapping[str, str], specs: Mapping[str, Spec]
) -> None:
    """Refuse a folder of images that is not exactly the one of a run."""
    digest = files_digest(files)
    wanted = {spec.data_digest for spec in specs.values()}
    if digest not in wanted or digest[:KEY_LENGTH] != digits:
        raise archive.refusal(f"inputs/{digits} is no folder of images of one of its runs")


def _refuse_strange_network(
    archive: ExportedFile, digest: str, digests: list[str], specs: Mapping[str, Spec]
) -> None:
    """Refuse a network from which no run started, or whose name is not its digest."""
    wanted = {spec.model_digest for spec in specs.values()}
    if digests != [digest] or digest not in wanted:
        raise archive.refusal(f"networks/{digest}.safetensors is no network of one of its runs")


def _refuse_strange_crate(archive: ExportedFile) -> None:
    """Refuse a description for other programs that is no JSON-LD, although nothing here uses it."""
    if CRATE_FILE not in archive.digests:
        raise archive.refusal(f"it has no {CRATE_FILE}")
    text = archive.content(CRATE_FILE, most_bytes=MOST_CRATE_BYTES)
    document = read_json(text, where=f"{archive.path}, {CRATE_FILE}", most_bytes=MOST_CRATE_BYTES)
    if not isinstance(document, dict) or document.keys() != {"@context", "@graph"}:
        raise archive.refusal(f"{CRATE_FILE} is no RO-Crate")
