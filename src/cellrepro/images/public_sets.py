"""Image sets by name: the synthetic one, which is made, and public ones, which are fetched.

The publishers give no digests. Those in ``datasets.json`` are what independent projects recorded of
the same addresses: dsb2018 constantinpape/torch-em and two others; BBBC039 OpenHCS and four others,
in 2026. Where there is none, the first download is trusted: SHA-256 of every archive and of every
converted file are recorded in ``DATA/NAME.download.json``, to which every later use is held.
"""

import json
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import tifffile
from pydantic import BaseModel, ValidationError

from cellrepro.errors import BadInput, NotPossibleHere, wrong_fields
from cellrepro.images import synthetic
from cellrepro.images.folder import is_litter, read_folder
from cellrepro.images.reading import pieces_by_label, read_bytes, read_image, read_masks
from cellrepro.store.digests import file_digest
from cellrepro.store.disk import remove_empty, write_whole
from cellrepro.text import some

SYNTHETIC = "synthetic"

_TIMEOUT = (10.0, 60.0)  # seconds to connect and between two pieces of data
LARGEST_ARCHIVE = 2**33
"""Bytes once unpacked; the largest set takes 1 GB."""

_OTHER = "nothing was kept, try again or use another mirror (--mirror URL)"

Pair = tuple[str, str, np.ndarray, np.ndarray]
"""Split, name, image and masks."""


def describe_all() -> dict[str, str]:
    """What each name means, in a line."""
    made = {SYNTHETIC: "synthetic nuclei with exact masks, the same bytes on every machine"}
    return made | {name: entry["description"] for name, entry in sorted(registry().items())}


@cache
def registry() -> dict[str, dict[str, Any]]:
    """What is known of each public set: source, licence, how to cite it, layout, archives."""
    return json.loads(Path(__file__).with_name("datasets.json").read_text(encoding="utf-8"))


class _Record(BaseModel):
    """What came at the first download, by which every later use is checked."""

    name: str
    source: str
    licence: str
    cite: str
    archives: dict[str, dict[str, Any]]  # by file: url, size (bytes), sha256, when
    files: dict[str, str]  # SHA-256 of the converted images, by path


def provide(
    name: str, *, data_dir: str | os.PathLike[str] = "data", mirror: str | None = None
) -> Path:
    """Make or fetch an image set under ``data_dir``, or check the one that is there.

    ``name`` is one of `describe_all`, ``mirror`` the address of a folder with the archives under
    their own names; digests hold for every mirror. The set appears whole as ``data_dir/name`` or
    not at all.
    """
    data = Path(data_dir)
    target, record_path = data / name, data / f"{name}.download.json"
    if name not in describe_all():
        raise BadInput(
            f"no image set is called {name!r}; known are {', '.join(describe_all())}. "
            f"For images of your own give the path of their folder"
        )
    if mirror is not None and (name == SYNTHETIC or not mirror.startswith("http")):
        raise BadInput(
            f"--mirror is {mirror!r}; expected an address that starts with http:// or https://, "
            f"for another set than {SYNTHETIC}, which is made here"
        )
    if name == SYNTHETIC:
        synthetic.write_folder(target)
        return target
    record = _read_record(record_path)
    if target.exists():
        _verify(target, record, record_path)
        return target
    data.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=data, prefix=f".{name}-") as scratch:
            archives = _download(name, Path(scratch), mirror, record, record_path)
            files = _convert(name, Path(scratch))
            about = {key: registry()[name][key] for key in ("source", "licence", "cite")}
            found = _Record(name=name, archives=archives, files=files, **about)
            # The record first: a crash in between leaves a record that the next download is held
            # to, never a folder that nothing vouches for
            write_whole(record_path, found.model_dump_json(indent=2))
            Path(scratch, name).rename(target)  # same file system, so whole or absent
    finally:
        remove_empty(data)
    return target


# --- the record -----------------------------------------------------------------------------------


def _read_record(path: Path) -> _Record | None:
    try:
        return _Record.model_validate_json(path.read_bytes()) if path.exists() else None
    except ValidationError as error:
        raise BadInput(
            f"{path}: the record of the first download cannot be read: {wrong_fields(error)}; "
            "restore it, or delete it together with the folder of the set to download it again"
        ) from error


def _verify(target: Path, record: _Record | None, record_path: Path) -> None:
    """Compare a stored set with its record, file by file."""
    if record is None:
        raise BadInput(
            f"{target}: exists, but {record_path.name} does not, so nothing says what should be in "
            f"it; move the folder away to download the set, or give its path to use it as it is"
        )
    present = {
        file.relative_to(target).as_posix()
        for file in target.rglob("*.tif")
        if not is_litter(file.relative_to(target))
    }
    changed = sorted(present ^ record.files.keys())
    changed += [
        name
        for name, expected in record.files.items()
        if name in present and file_digest(target / name) != expected
    ]
    if changed:
        raise BadInput(
            f"{target}: changed, lost or added since the download: {some(changed)}; delete "
            f"{target} to download it again, after moving images of your own elsewhere"
        )


# --- downloading ----------------------------------------------------------------------------------


def _download(
    name: str, scratch: Path, mirror: str | None, record: _Record | None, record_path: Path
) -> dict[str, dict[str, Any]]:
    """Download and unpack the archives of a set; url, size (bytes), digest and time of each."""
    import pooch

    downloader = pooch.HTTPDownloader(timeout=_TIMEOUT, progressbar=sys.stderr.isatty())
    archives = {}
    for archive in registry()[name]["archives"]:
        file = scratch / archive["file"]
        known = archive["sha256"] or (record and record.archives[file.name]["sha256"])
        url = archive["url"] if mirror is None else f"{mirror.rstrip('/')}/{file.name}"
        try:
            pooch.retrieve(url, known, file.name, scratch, downloader=downloader)
        except OSError as error:
            if error.errno is not None:
                raise  # the disk's; those of requests have no number
            answer = getattr(error, "response", None)
            if answer is not None:
                answer.close()  # pooch 1.9.0 leaves the connection open
            raise NotPossibleHere(
                f"{url}: cannot be fetched, or the download broke off ({error}); check network and "
                "proxy, try again, give another folder that holds the file with --mirror URL, or "
                f"download it from {registry()[name]['source']} and make train/ and test/ of it"
            ) from error
        except ValueError as error:
            raise BadInput(
                f"{url}: not the file that the registry or the first download recorded ({error}); "
                "try again, or another mirror (--mirror URL); if the publisher really changed the "
                f"set, delete {record_path} to accept the new one"
            ) from error
        _unpack(file)
        archives[file.name] = {
            "url": url,
            "size": file.stat().st_size,
            "sha256": file_digest(file),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if known is None:
            print(
                f"note: nobody has published a digest of {file.name}, so this first download is "
                f"trusted; every later one is held to its SHA-256, kept in {record_path}",
                file=sys.stderr,
            )
    return archives


def _unpack(file: Path) -> None:
    """Unpack an archive that stays within bounds: a small one may declare terabytes.

    What unpacks to more than it declares is cut there by `zipfile`, and fails its checksum; names
    that lead out of the archive are made to stay inside.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            n_bytes = sum(info.file_size for info in archive.infolist())
            if n_bytes > LARGEST_ARCHIVE:
                raise BadInput(
                    f"{file.name}: unpacks to {n_bytes} bytes, expected at most {LARGEST_ARCHIVE}; "
                    f"{_OTHER}"
                )
            archive.extractall(_unpacked(file))
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise BadInput(
            f"{file.name}: damaged, no zip file, encrypted or packed in an unknown way ({error}); "
            f"{_OTHER}"
        ) from error


def _unpacked(file: Path) -> Path:
    return file.with_name(f"{file.name}.unzip")


# --- converting -----------------------------------------------------------------------------------


def _convert(name: str, scratch: Path) -> dict[str, str]:
    """Turn the unpacked archives into ``scratch/name``, in Cellpose's convention; its digests."""
    entry = registry()[name]
    unpacked = [_unpacked(scratch / archive["file"]) for archive in entry["archives"]]
    (scratch / name).mkdir()
    try:
        for split, stem, image, masks in _LAYOUTS[entry["layout"]](*unpacked):
            _save(scratch / name / split / f"{stem}.tif", image)
            labels = masks.astype(np.uint16 if masks.max() < 2**16 else np.int32)
            _save(scratch / name / split / f"{stem}_masks.tif", labels)
        return read_folder(scratch / name).files
    except BadInput as error:
        raise BadInput(
            f"{name}: the archives are not what they were, see {entry['source']}; {_OTHER}. {error}"
        ) from error


def _save(path: Path, pixels: np.ndarray) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    photometric = "rgb" if pixels.ndim == 3 else "minisblack"
    tifffile.imwrite(path, pixels, photometric=photometric, compression="zlib")


def _visible(folder: Path, pattern: str) -> list[Path]:
    """The files of an archive that match, but the hidden twins that macOS leaves."""
    found = sorted(folder.rglob(pattern))
    return [f for f in found if not f.name.startswith(".") and "__MACOSX" not in f.parts]


def _first_channel(file: Path) -> np.ndarray:
    pixels = read_image(file)
    return pixels if pixels.ndim == 2 else pixels[..., 0]


def _images_and_masks(folder: Path) -> Iterator[Pair]:
    """``SET/train/images/NAME.tif`` with ``SET/train/masks/NAME.tif``; likewise ``test``."""
    for file in _visible(folder, "images/*.tif*"):
        split = file.parents[1].name
        if split in ("train", "test"):
            masks = read_masks(file.parents[1] / "masks" / file.name)
            yield split, file.stem, read_image(file), masks


def _bbbc039(images: Path, masks: Path, metadata: Path) -> Iterator[Pair]:
    """``images/NAME.tif``, ``masks/NAME.png`` and lists of names in ``metadata/``.

    Masks are colour images; an object is a connected region of one value in the first channel
    (https://gist.github.com/jccaicedo/15e811722fca51e3ae90e8b43057f075, where skimage's ``label``
    joins equal values at edges and corners).
    """
    for split, file in {"train": "metadata/training.txt", "test": "metadata/test.txt"}.items():
        names = read_bytes(metadata / file).decode(errors="replace").split()
        for name in (PurePosixPath(line).stem for line in names):
            image = read_image(images / "images" / f"{name}.tif")
            colours = _first_channel(masks / "masks" / f"{name}.png")
            yield split, name, image, label_by_value(colours)


def _one_mask_per_object(folder: Path) -> Iterator[Pair]:
    """``ID/images/ID.png`` with one black and white ``ID/masks/OBJECT.png`` for every object.

    Objects are numbered in the order of their file names; a pixel claimed twice stays with the
    first. A grey image stored as three equal channels becomes one.
    """
    for file in _visible(folder, "images/*.png"):
        image = read_image(file)
        if image.ndim == 3 and (image == image[..., :1]).all():
            image = image[..., 0]
        masks = np.zeros(image.shape[:2], np.int32)
        for number, part in enumerate(_visible(file.parents[1], "masks/*.png"), start=1):
            covered = _first_channel(part)
            if covered.shape != masks.shape:
                raise BadInput(f"{part}: (Y, X) = {covered.shape}, expected {masks.shape}")
            masks[(covered > 0) & (masks == 0)] = number
        yield "train", file.stem, image, masks


_LAYOUTS: dict[str, Any] = {
    "images-and-masks": _images_and_masks,
    "bbbc039": _bbbc039,
    "one-mask-per-object": _one_mask_per_object,
}


def label_by_value(values: np.ndarray) -> np.ndarray:
    """Number the connected regions of equal value (8-connectivity), those of small values first.

    >>> label_by_value(np.array([[3, 3, 7], [0, 0, 7], [3, 0, 0]]))
    array([[1, 1, 3],
           [0, 0, 3],
           [2, 0, 0]], dtype=int32)
    """
    labels = np.zeros(values.shape, np.int32)
    n_labels = 0
    for _, box, regions, n_regions in pieces_by_label(values):
        labels[box][regions > 0] = regions[regions > 0] + n_labels
        n_labels += n_regions
    return labels
