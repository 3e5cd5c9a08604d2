"""Named public image sets, downloaded once and turned into Cellpose's convention.

The publishers give no digests. Those in ``datasets.json`` are what independent projects recorded
of the same addresses: dsb2018 constantinpape/torch-em and two others; BBBC039 OpenHCS and four
others, in 2026. Where there is none, the first download is trusted: size and SHA-256 of every
archive and of every converted file are recorded in ``DATA/NAME.download.json`` and checked at
every later use, without network. A set is there whole or not at all.
"""

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import tifffile
from scipy import ndimage

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.images.folder import folder_digest
from cellrepro.images.reading import read_image, read_masks

__all__ = ["DataSet", "describe", "fetch", "names"]

_REGISTRY = Path(__file__).with_name("datasets.json")
_TIMEOUT = (10.0, 60.0)  # seconds to connect and between two pieces of data
_CHUNK = 2**16  # bytes
# Bytes once unpacked; the largest image of the known sets takes 5 MB, the largest set 1 GB
_LARGEST_MEMBER = 2**28
_LARGEST_ARCHIVE = 2**33


@dataclass(frozen=True)
class Archive:
    """One file to download; `sha256` is None where nobody has published or measured it."""

    file: str
    url: str
    sha256: str | None


@dataclass(frozen=True)
class DataSet:
    """What the registry knows about an image set."""

    name: str
    description: str
    source: str
    licence: str
    cite: str
    layout: str
    archives: tuple[Archive, ...]


def names() -> list[str]:
    """List the image sets that `fetch` knows.

    Examples
    --------
    >>> names()
    ['bbbc038', 'bbbc039', 'dsb2018']
    """
    return sorted(_registry())


def describe(name: str) -> DataSet:
    """Return what is known about an image set: source, licence, how to cite it.

    Raises
    ------
    BadInput
        No set has this name.
    """
    try:
        return _registry()[name]
    except KeyError:
        raise BadInput(
            f"no image set is called {name!r}; known are {', '.join(names())}. "
            f"For images of your own give the path of their folder"
        ) from None


def fetch(
    name: str,
    *,
    data_dir: str | os.PathLike[str] = "data",
    mirror: str | None = None,
    progress: bool = False,
) -> Path:
    """Return the folder of a public image set, downloading it at the first use.

    Parameters
    ----------
    name : str
        One of `names`.
    data_dir : path-like
        Where sets are kept; the folder is ``data_dir/name``.
    mirror : str, optional
        A mirror that holds the archives under their own file names, instead of the publisher.
        The registry's digests and the record of the first download hold for every mirror.
    progress : bool
        Whether to show on standard error how it goes, and what is taken on trust.

    Returns
    -------
    Path
        A folder that `cellrepro.images.folder.read_folder` reads.

    Raises
    ------
    BadInput
        The name is unknown; or what is stored, or what was downloaded, is not what was recorded,
        is damaged or is laid out in another way than expected. Nothing is written.
    NotPossibleHere
        The server cannot be reached or does not have the file, or the disk is full. Nothing is
        written.
    """
    dataset = describe(name)
    data_path = Path(data_dir)
    target = data_path / name
    record_path = data_path / f"{name}.download.json"
    if data_path.exists() and not data_path.is_dir():
        raise BadInput(f"{data_path}: a file, but a data folder was expected; give another one")
    record = _read_record(record_path)
    if target.exists():
        _verify(target, record, record_path)
        return target
    with (
        _made_if_needed(data_path),
        tempfile.TemporaryDirectory(dir=data_path, prefix=f".{name}-") as scratch,
    ):
        downloads, staged = Path(scratch, "archives"), Path(scratch, name)
        archives = _download(dataset, downloads, mirror, progress)
        _check_archives(dataset, archives, record, record_path)
        unknown = [archive.file for archive in dataset.archives if archive.sha256 is None]
        if unknown and record is None and progress:
            print(
                f"note: nobody has published a digest of {', '.join(unknown)}, so this first "
                f"download is trusted; its SHA-256 is kept in {record_path}, and every later "
                "download and use is held to it",
                file=sys.stderr,
            )
        _convert(dataset, downloads, staged)
        # The record first: a crash in between leaves a record that the next download is held to,
        # never a folder that nothing vouches for
        _write_record(record_path, dataset, archives, folder_digest(staged).files)
        try:
            staged.rename(target)  # same file system, so whole or absent
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # another process was faster
            _verify(target, _read_record(record_path), record_path)
    return target


@cache
def _registry() -> Mapping[str, DataSet]:
    entries = json.loads(_REGISTRY.read_text(encoding="utf-8"))
    return {
        name: DataSet(
            name=name,
            archives=tuple(Archive(**archive) for archive in entry.pop("archives")),
            **entry,
        )
        for name, entry in entries.items()
    }


@contextlib.contextmanager
def _made_if_needed(folder: Path) -> Iterator[None]:
    """Make a folder for one block; say what the disk refused, and leave no empty folder behind."""
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise NotPossibleHere(
                f"{folder}: no space left on the disk; free some or give another data folder"
            ) from error
        if isinstance(error, FileExistsError | NotADirectoryError | PermissionError):
            raise BadInput(
                f"{folder}: cannot be written to ({error.strerror}); give another data folder"
            ) from error
        raise NotPossibleHere(
            f"{folder}: the disk refuses ({error.strerror or error}); give another data folder"
        ) from error
    finally:
        if not existed:
            with contextlib.suppress(OSError):
                folder.rmdir()  # only succeeds on an empty one


# --- the record -----------------------------------------------------------------------------------


def _read_record(path: Path) -> dict[str, Any] | None:
    """Return what was recorded at the first download, or None before it."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise BadInput(
            f"{path}: the record of the first download cannot be read ({error}); restore it, or "
            f"delete it together with {path.name.removesuffix('.download.json')}/ to download again"
        ) from error
    if not (
        isinstance(record, dict)
        and isinstance(record.get("archives"), dict)
        and isinstance(record.get("files"), dict)
    ):
        raise BadInput(
            f"{path}: no record of a download, expected 'archives' and 'files'; restore it, or "
            f"delete it together with {path.name.removesuffix('.download.json')}/ to download again"
        )
    return record


def _write_record(
    path: Path,
    dataset: DataSet,
    archives: Mapping[str, Mapping[str, Any]],
    files: Mapping[str, str],
) -> None:
    """Write the record beside the folder, whole or not at all."""
    record = {
        "name": dataset.name,
        "source": dataset.source,
        "licence": dataset.licence,
        "cite": dataset.cite,
        "archives": archives,
        "files": files,
    }
    with tempfile.NamedTemporaryFile(
        "w", dir=path.parent, prefix=f".{path.name}-", encoding="utf-8", delete=False
    ) as scratch:
        try:
            json.dump(record, scratch, indent=2)
            scratch.write("\n")
            scratch.close()
            Path(scratch.name).chmod(0o644)  # temporary files are private
            Path(scratch.name).replace(path)
        except BaseException:
            Path(scratch.name).unlink(missing_ok=True)
            raise


def _verify(target: Path, record: Mapping[str, Any] | None, record_path: Path) -> None:
    """Compare a stored set with its record, file by file."""
    remedy = f"delete {target} to download it again"
    if record is None:
        raise BadInput(
            f"{target}: exists, but {record_path.name} does not, so nothing says what should be in "
            f"it; move the folder away to download the set, or give its path to use it as it is"
        )
    for file, expected in sorted(record["files"].items()):
        try:
            actual = _sha256(target / file)
        except OSError as error:
            raise BadInput(
                f"{target / file}: cannot be read since the download ({error.strerror}); {remedy}"
            ) from error
        if actual != expected:
            raise BadInput(
                f"{target / file}: changed since the download, expected SHA-256 {expected}, found "
                f"{actual}; {remedy}"
            )
    added = sorted(folder_digest(target).files.keys() - record["files"].keys())
    if added:
        raise BadInput(
            f"{target / added[0]}: was not in the download; move it to a folder of your own, or "
            f"{remedy}"
        )


# --- downloading ----------------------------------------------------------------------------------


def _download(
    dataset: DataSet, downloads: Path, mirror: str | None, progress: bool
) -> dict[str, dict[str, Any]]:
    """Download the archives of a set; return url, size (bytes), digest and time of each."""
    import pooch

    urls = {
        archive.file: archive.url if mirror is None else f"{mirror.rstrip('/')}/{archive.file}"
        for archive in dataset.archives
    }
    # Digests are checked here rather than by pooch, whose message does not say what to do
    fetcher = pooch.create(
        path=downloads, base_url="", registry=dict.fromkeys(urls), urls=urls, retry_if_failed=0
    )
    downloader = pooch.HTTPDownloader(timeout=_TIMEOUT, chunk_size=_CHUNK, progressbar=progress)
    archives = {}
    for file, url in urls.items():
        with _network_errors(dataset, url):
            stored = Path(fetcher.fetch(file, downloader=downloader))
        archives[file] = {
            "url": url,
            "size": stored.stat().st_size,
            "sha256": _sha256(stored),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }
    return archives


@contextlib.contextmanager
def _network_errors(dataset: DataSet, url: str) -> Iterator[None]:
    """Turn what requests raises into an answer for the user."""
    import requests

    by_hand = (
        f"or download it where there is a network from {dataset.source}, turn it into train/ and "
        f"test/ with NAME.tif and NAME_masks.tif, and give that folder"
    )
    try:
        yield
    except requests.exceptions.HTTPError as error:
        answer = error.response
        status = "an error"
        if answer is not None:
            status = f"{answer.status_code} {answer.reason}"
            answer.close()  # pooch 1.9.0 leaves the connection open
        raise NotPossibleHere(
            f"{url}: the server answers {status}; look at {dataset.source} for the new address "
            f"and name the folder that holds the file with --mirror URL, {by_hand}"
        ) from error
    except requests.exceptions.Timeout as error:
        raise NotPossibleHere(
            f"{url}: no answer within {_TIMEOUT[0]:g} s, or a pause of more than "
            f"{_TIMEOUT[1]:g} s; try again later, {by_hand}"
        ) from error
    except requests.exceptions.ChunkedEncodingError as error:
        raise NotPossibleHere(
            f"{url}: the download broke off before its end, nothing was kept; try again, {by_hand}"
        ) from error
    except (
        requests.exceptions.MissingSchema,
        requests.exceptions.InvalidSchema,
        requests.exceptions.InvalidURL,
    ) as error:
        raise BadInput(
            f"{url}: not an address; --mirror URL starts with http:// or https://"
        ) from error
    except requests.exceptions.RequestException as error:
        raise NotPossibleHere(
            f"{url}: cannot be reached ({type(error).__name__}); check the network and the proxy "
            f"settings, {by_hand}"
        ) from error


def _check_archives(
    dataset: DataSet,
    archives: Mapping[str, Mapping[str, Any]],
    record: Mapping[str, Any] | None,
    record_path: Path,
) -> None:
    """Hold a download to the registry's digests, and to those of the first download."""
    recorded = {} if record is None else record["archives"]
    for archive in dataset.archives:
        actual = archives[archive.file]
        first = recorded.get(archive.file, {})
        expectations = [
            (archive.sha256, None, "the registry", "try again, or another mirror (--mirror URL)"),
            (
                first.get("sha256"),
                first.get("size"),
                f"the first download ({first.get('when')})",
                f"try again, or another mirror (--mirror URL); if the publisher really changed the "
                f"set, delete {record_path} to accept the new one",
            ),
        ]
        for sha256, size, where, remedy in expectations:
            if sha256 is not None and sha256 != actual["sha256"]:
                expected_size = "" if size is None else f" ({size} bytes)"
                raise BadInput(
                    f"{actual['url']}: not the file of {where}, expected SHA-256 "
                    f"{sha256}{expected_size}, found {actual['sha256']} ({actual['size']} bytes); "
                    f"{remedy}"
                )


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- converting -----------------------------------------------------------------------------------


class _Members:
    """The files of one zip archive, read by name and never unpacked.

    Nothing is written under a name from the archive, so a name with ``..`` could do no harm; an
    archive that has one is refused all the same, as somebody put it there.
    """

    def __init__(self, path: Path, scratch: Path):
        self.path = path
        self._scratch = scratch
        self._zip = zipfile.ZipFile(path)
        self.names = []
        self._refuse_bomb()
        for info in self._zip.infolist():
            member = PurePosixPath(info.filename.replace("\\", "/"))
            outside = (
                member.is_absolute() or ".." in member.parts or re.match(r"[A-Za-z]:", str(member))
            )
            if outside or stat.S_ISLNK(info.external_attr >> 16):
                raise BadInput(
                    f"{path.name}: holds {info.filename!r}, which leads out of the archive, so it "
                    f"is not what the publisher would give; nothing was kept, use another mirror "
                    f"(--mirror URL)"
                )
            # macOS leaves a hidden twin of each file
            hidden = any(part.startswith(".") or part == "__MACOSX" for part in member.parts)
            if not info.is_dir() and not hidden:
                self.names.append(info.filename)

    def _refuse_bomb(self) -> None:
        """Refuse an archive that says of itself that it unpacks to what no image set needs."""
        sizes = [info.file_size for info in self._zip.infolist()]
        if max(sizes, default=0) > _LARGEST_MEMBER or sum(sizes) > _LARGEST_ARCHIVE:
            raise BadInput(
                f"{self.path.name}: unpacks to {sum(sizes)} bytes, the largest file to "
                f"{max(sizes)}, expected at most {_LARGEST_ARCHIVE} and {_LARGEST_MEMBER}; nothing "
                f"was kept, use another mirror (--mirror URL)"
            )

    def close(self) -> None:
        self._zip.close()

    def match(self, pattern: str) -> dict[str, re.Match[str]]:
        """Return the members whose whole name matches, sorted."""
        found = {name: re.fullmatch(pattern, name) for name in sorted(self.names)}
        return {name: match for name, match in found.items() if match}

    def text(self, name: str) -> str:
        return self._content(name).decode("utf-8")

    def _content(self, name: str) -> bytes:
        """A member's bytes; what unpacks to more than it declares fails before it fills memory.

        ``ZipFile.read`` unpacks all of it first (Python 3.13), a bounded read stops at the bound.
        """
        info = self._zip.getinfo(name)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotImplementedError(f"compression method {info.compress_type}")
        with self._zip.open(info) as stream:
            return stream.read(info.file_size + 1)

    def image(self, name: str) -> np.ndarray:
        return self._read(name, read_image)

    def masks(self, name: str) -> np.ndarray:
        return self._read(name, read_masks)

    def _read(self, name: str, read: Callable[[Path], np.ndarray]) -> np.ndarray:
        scratch = self._scratch / f"member{PurePosixPath(name).suffix.lower()}"
        scratch.write_bytes(self._content(name))
        try:
            return read(scratch)
        except BadInput as error:
            raise BadInput(str(error).replace(str(scratch), f"{self.path.name}:{name}")) from error


def _convert(dataset: DataSet, downloads: Path, staged: Path) -> None:
    """Turn the archives of a set into `staged`, a folder in Cellpose's convention."""
    staged.mkdir()
    with contextlib.ExitStack() as stack:
        try:
            archives = []
            for archive in dataset.archives:
                members = _Members(downloads / archive.file, downloads)
                stack.callback(members.close)
                archives.append(members)
            n_images = _LAYOUTS[dataset.layout](archives, staged)
        except (zipfile.BadZipFile, zlib.error, EOFError, UnicodeDecodeError) as error:
            raise BadInput(
                f"{dataset.name}: an archive is damaged or is no zip file ({error}); nothing was "
                f"kept, try again or use another mirror (--mirror URL)"
            ) from error
        except (RuntimeError, NotImplementedError) as error:
            if isinstance(error, NotPossibleHere):
                raise
            raise BadInput(
                f"{dataset.name}: an archive is encrypted or packed in an unknown way ({error}); "
                f"nothing was kept, use another mirror (--mirror URL)"
            ) from error
    if not n_images:
        raise BadInput(
            f"{dataset.name}: the archives hold no images where they were expected (layout "
            f"{dataset.layout!r}), so the publisher may have rearranged them; see {dataset.source}"
        )


def _save_pair(folder: Path, name: str, image: np.ndarray, masks: np.ndarray) -> None:
    """Write one image and its labels, losslessly."""
    if image.shape[:2] != masks.shape:
        raise BadInput(
            f"{name}: the image has (Y, X) = {image.shape[:2]}, its mask {masks.shape}, so the "
            f"archives do not belong together; nothing was kept, use another mirror (--mirror URL)"
        )
    folder.mkdir(exist_ok=True)
    labels = masks.astype(np.uint16 if masks.max() < 2**16 else np.int32)
    photometric = "rgb" if image.ndim == 3 else "minisblack"
    tifffile.imwrite(folder / f"{name}.tif", image, photometric=photometric, compression="zlib")
    tifffile.imwrite(
        folder / f"{name}_masks.tif", labels, photometric="minisblack", compression="zlib"
    )


def _require(member: str, archive: _Members) -> str:
    if member not in archive.names:
        raise BadInput(
            f"{archive.path.name}: {member} is missing, so the publisher may have rearranged the "
            f"set; nothing was kept"
        )
    return member


def _convert_images_and_masks(archives: list[_Members], staged: Path) -> int:
    """``SET/train/images/NAME.tif`` with ``SET/train/masks/NAME.tif``; likewise ``test``."""
    (archive,) = archives
    images = archive.match(
        r"(?P<root>(?:[^/]+/)?)(?P<split>train|test)/images/(?P<name>[^/]+)\.tiff?"
    )
    for member, match in images.items():
        masks = _require(member.replace("/images/", "/masks/"), archive)
        _save_pair(
            staged / match["split"], match["name"], archive.image(member), archive.masks(masks)
        )
    return len(images)


def _convert_bbbc039(archives: list[_Members], staged: Path) -> int:
    """``images/NAME.tif``, ``masks/NAME.png`` and lists of names in ``metadata/``.

    Masks are colour images; an object is a connected region of one value in the first channel
    (https://gist.github.com/jccaicedo/15e811722fca51e3ae90e8b43057f075, where skimage's ``label``
    joins equal values at edges and corners).
    """
    images, masks, metadata = archives
    n_images = 0
    for split, file in {"train": "metadata/training.txt", "test": "metadata/test.txt"}.items():
        for line in metadata.text(_require(file, metadata)).split():
            name = PurePosixPath(line).stem
            image = images.image(_require(f"images/{name}.tif", images))
            colours = masks.image(_require(f"masks/{name}.png", masks))
            first = colours if colours.ndim == 2 else colours[..., 0]
            _save_pair(staged / split, name, image, label_by_value(first))
            n_images += 1
    return n_images


def _convert_one_mask_per_object(archives: list[_Members], staged: Path) -> int:
    """``ID/images/ID.png`` with one black and white ``ID/masks/OBJECT.png`` for every object.

    Objects are numbered in the order of their file names; a pixel claimed twice stays with the
    first. A grey image stored as three equal channels becomes one.
    """
    (archive,) = archives
    images = archive.match(r"(?P<root>(?:[^/]+/)?)(?P<id>[^/]+)/images/(?P=id)\.png")
    objects: dict[str, list[str]] = {}
    for member in archive.match(r"(?:[^/]+/)?[^/]+/masks/[^/]+\.png"):
        objects.setdefault(member.rsplit("/masks/", 1)[0], []).append(member)
    for member, match in images.items():
        image = archive.image(member)
        if image.ndim == 3 and (image == image[..., :1]).all():
            image = image[..., 0]
        masks = np.zeros(image.shape[:2], np.int32)
        for number, file in enumerate(objects.get(f"{match['root']}{match['id']}", []), start=1):
            covered = archive.image(file)
            covered = covered if covered.ndim == 2 else covered[..., 0]
            if covered.shape != masks.shape:
                raise BadInput(
                    f"{archive.path.name}:{file}: (Y, X) = {covered.shape}, expected {masks.shape} "
                    f"as in {member}; nothing was kept, use another mirror (--mirror URL)"
                )
            masks[(covered > 0) & (masks == 0)] = number
        _save_pair(staged / "train", match["id"], image, masks)
    return len(images)


_LAYOUTS: dict[str, Callable[[list[_Members], Path], int]] = {
    "images-and-masks": _convert_images_and_masks,
    "bbbc039": _convert_bbbc039,
    "one-mask-per-object": _convert_one_mask_per_object,
}


def label_by_value(values: np.ndarray) -> np.ndarray:
    """Number the connected regions of equal value.

    Parameters
    ----------
    values : ndarray of int, shape (Y, X)
        0 is background.

    Returns
    -------
    ndarray of int32, shape (Y, X)
        0 is background; regions touching at an edge or corner (8-connectivity) share a label
        where their values are equal.

    Examples
    --------
    >>> label_by_value(np.array([[3, 3, 7], [0, 0, 7], [3, 0, 0]]))
    array([[1, 1, 3],
           [0, 0, 3],
           [2, 0, 0]], dtype=int32)
    """
    labels = np.zeros(values.shape, np.int32)
    n_labels = 0
    for value in np.unique(values[values != 0]):
        regions, n_regions = ndimage.label(values == value, structure=np.ones((3, 3), dtype=bool))
        labels[regions > 0] = regions[regions > 0] + n_labels
        n_labels += n_regions
    return labels
