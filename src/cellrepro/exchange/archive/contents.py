"""What an exported file holds, each part held to the others before anything of it is used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pydantic import ValidationError

from cellrepro.errors import BadInput
from cellrepro.exchange.archive.entry_names import CRATE, PASSPORTS, SUMS, Kind, place_of
from cellrepro.exchange.archive.reading import ExportedFile
from cellrepro.exchange.bundle import Bundle, parse_bundle
from cellrepro.exchange.passport import files_digest
from cellrepro.exchange.strict_json import read_json
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.spec.spec import KEY_LENGTH, Spec
from cellrepro.store.manifest import Manifest
from cellrepro.store.seal import FIRST_SEALED_FORMAT, read_seal
from cellrepro.store.stored_run import MANIFEST, SPEC, WEIGHTS, read_spec
from cellrepro.wrong_fields import wrong_fields

_MOST_SPEC_BYTES = 2**20
_MOST_SUMS_BYTES = 2**26
_MOST_MANIFEST_BYTES = 2**24
_MOST_MANIFEST_BYTES_A_FILE = 2**11
"""A manifest may be so much larger for each file of its repeat."""
MOST_CRATE_BYTES = 2**24
"""Of the description for other programs."""
MOST_PASSPORT_BYTES = 2**26
"""Of all passports and receipts."""

Record = TypeVar("Record")


@dataclass(frozen=True)
class ReceivedRepeat:
    """One repeat of an exported file."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    spec: Spec
    """What was asked for."""
    manifest: Manifest
    """What happened."""
    digests: Mapping[str, str]
    """SHA-256 of each file that came, ``manifest.json`` among them, by its name in the repeat."""

    def inside(self, file: str) -> str:
        """The name of one of its files in the archive."""
        return f"runs/{self.name}/{file}"

    @property
    def missing(self) -> tuple[str, ...]:
        """What the manifest speaks of and did not come: weights, checkpoints."""
        return tuple(name for name in self.manifest.files if name not in self.digests)


@dataclass(frozen=True)
class Contents:
    """What an exported file holds."""

    specs: Mapping[str, Spec]
    """By key."""
    run_files: Mapping[str, Mapping[str, str]]
    """Digest of each file beside the spec of a run, the spec among them, by key."""
    repeats: Mapping[str, ReceivedRepeat]
    """By ``KEY/MACHINE/REPEAT``."""
    kept_images: Mapping[str, Mapping[str, str]]
    """Digest of each kept image, truth and seal, by the first digits of `images_digest`."""
    image_folders: Mapping[str, Mapping[str, str]]
    """Digest of each file of the image folders, by the first digits of `data_digest`."""
    networks: tuple[str, ...]
    """Digests of the networks that runs started from."""
    passports: Bundle
    """One of each repeat, and receipts of whoever replayed them."""


def read_contents(archive: ExportedFile) -> Contents:
    """Read all that an exported file says of itself."""
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
    _refuse_no_crate(archive)
    return Contents(
        specs=specs,
        run_files=groups["run"],
        repeats=repeats,
        kept_images=groups["kept"],
        image_folders=groups["input"],
        networks=tuple(groups["network"]),
        passports=_passports(archive, repeats),
    )


def _grouped(archive: ExportedFile) -> Mapping[Kind, dict[str, dict[str, str]]]:
    """Digests by the name of a file in its group, by the group, by the kind of group."""
    groups: dict[Kind, dict[str, dict[str, str]]] = defaultdict(lambda: defaultdict(dict))
    for name, digest in archive.digests.items():
        place = place_of(name)
        groups[place.kind][place.group][place.file] = digest
    return groups


# -- runs and repeats ------------------------------------------------------------------------------


def _spec(archive: ExportedFile, key: str, files: Mapping[str, str]) -> Spec:
    """The spec of a run, whose key must be the name of its folder."""
    folder = f"runs/{key}"
    if SPEC not in files:
        raise archive.refusal(f"{folder} has no {SPEC}")
    name = f"{folder}/{SPEC}"
    text = archive.content(name, most_bytes=_MOST_SPEC_BYTES)
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
    """A repeat, whose manifest must say the same as its name, its seal and its files."""
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
    said = (manifest.key, manifest.machine.name, str(manifest.repeat))
    if said != (key, machine, index):
        raise archive.refusal(f"{path} is that of {'/'.join(said)!a}")
    _refuse_other_files(archive, folder, files, manifest)
    return ReceivedRepeat(name, specs[key], manifest, files)


def _refuse_other_files(
    archive: ExportedFile, folder: str, files: Mapping[str, str], manifest: Manifest
) -> None:
    """Refuse files that a manifest and a seal do not name with their digest, and masks left out."""
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
    most_bytes: int = _MOST_SPEC_BYTES,
) -> Record:
    """A record of JSON that can mean one thing only."""
    read_json(text, where=f"{archive.path}, {name}", most_bytes=most_bytes)
    try:
        return parse(text)
    except (ValueError, RecursionError) as error:
        why = wrong_fields(error) if isinstance(error, ValidationError) else error
        raise archive.refusal(f"{name} is none that this version of cellrepro reads ({why})") from (
            error
        )


def _seal_of(archive: ExportedFile, name: str) -> Mapping[str, str]:
    text = archive.content(name, most_bytes=_MOST_SUMS_BYTES)
    try:
        return read_seal(text.decode())
    except ValueError as error:
        raise archive.refusal(f"{name} cannot be read ({error})") from error


def _passports(archive: ExportedFile, repeats: Mapping[str, ReceivedRepeat]) -> Bundle:
    """The passports, which must be those of the repeats, and the receipts of these passports."""
    if PASSPORTS not in archive.digests:
        raise archive.refusal(f"it has no {PASSPORTS}")
    text = archive.content(PASSPORTS, most_bytes=MOST_PASSPORT_BYTES)
    bundle = parse_bundle(text, where=f"{archive.path}, {PASSPORTS}")
    for passport in bundle.passports:
        repeat = repeats.get(passport.name)
        if repeat is None or passport.files.get(MANIFEST) != repeat.digests[MANIFEST]:
            raise archive.refusal(f"the passport of {passport.name} is of no repeat that it holds")
    for name in repeats.keys() - {passport.name for passport in bundle.passports}:
        raise archive.refusal(f"{PASSPORTS} has no passport of {name}")
    if bundle.receipts_without_passport:
        run = bundle.receipts_without_passport[0].receipt.run
        raise archive.refusal(f"{PASSPORTS} has a receipt of {run[:120]!a} without its passport")
    return bundle


# -- what lies beside the runs ---------------------------------------------------------------------


def _segmented(repeats: Iterable[ReceivedRepeat]) -> Mapping[str, set[str]]:
    """The images that the repeats segmented, by the first digits of `images_digest`."""
    images: dict[str, set[str]] = defaultdict(set)
    for repeat in repeats:
        images[repeat.spec.images_digest[:KEY_LENGTH]] |= repeat.manifest.masks.keys()
    return images


def _refuse_strange_images(
    archive: ExportedFile, digits: str, files: Mapping[str, str], images: Collection[str]
) -> None:
    """Refuse kept images that no run segmented, and those that their seal does not name."""
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
    """Refuse a folder of images that is not, to the last file, that of a run."""
    digest = files_digest(files)
    wanted = {spec.data_digest for spec in specs.values()}
    if digest not in wanted or digest[:KEY_LENGTH] != digits:
        raise archive.refusal(f"inputs/{digits} is no folder of images of one of its runs")


def _refuse_strange_network(
    archive: ExportedFile, digest: str, digests: list[str], specs: Mapping[str, Spec]
) -> None:
    """Refuse a network that no run started from, or whose name is not its digest."""
    wanted = {spec.model_digest for spec in specs.values()}
    if digests != [digest] or digest not in wanted:
        raise archive.refusal(f"networks/{digest}.safetensors is no network of one of its runs")


def _refuse_no_crate(archive: ExportedFile) -> None:
    """Refuse metadata for other programs that are no JSON-LD; nothing here ever reads them."""
    if CRATE not in archive.digests:
        raise archive.refusal(f"it has no {CRATE}")
    text = archive.content(CRATE, most_bytes=MOST_CRATE_BYTES)
    document = read_json(text, where=f"{archive.path}, {CRATE}", most_bytes=MOST_CRATE_BYTES)
    if not isinstance(document, dict) or document.keys() != {"@context", "@graph"}:
        raise archive.refusal(f"{CRATE} is no RO-Crate")
