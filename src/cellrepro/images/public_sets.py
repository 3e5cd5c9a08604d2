"""Image sets by name: the synthetic one, which is made, and public ones, which are fetched.

A public set is downloaded once and turned into Cellpose's convention. The publishers give no
digests. Those in ``datasets.json`` are what independent projects recorded of the same addresses:
dsb2018 constantinpape/torch-em and two others; BBBC039 OpenHCS and four others, in 2026. Where
there is none, the first download is trusted: SHA-256 of every archive and of every converted file
are recorded in ``DATA/NAME.download.json`` and checked at every later use, without network. A set
is there whole or not at all.
"""

import contextlib
import errno
import hashlib
import json
import os
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import tifffile
from scipy import ndimage

from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.images import synthetic
from cellrepro.images.folder import folder_digest
from cellrepro.images.reading import read_image, read_masks

SYNTHETIC = "synthetic"

_TIMEOUT = (10.0, 60.0)  # seconds to connect and between two pieces of data
# Bytes once unpacked; the largest image of the known sets takes 5 MB, the largest set 1 GB
LARGEST_MEMBER = 2**28
LARGEST_ARCHIVE = 2**33

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


def provide(
    name: str,
    *,
    data_dir: str | os.PathLike[str] = "data",
    mirror: str | None = None,
    progress: bool = True,
) -> Path:
    """Make or fetch an image set under ``data_dir``, or check the one that is there.

    Parameters
    ----------
    name : str
        One of `describe_all`.
    data_dir : path-like
        Where sets are kept, made if need be; the folder is ``data_dir/name``.
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
    data = Path(data_dir)
    target, record_path = data / name, data / f"{name}.download.json"
    if name == SYNTHETIC:
        if mirror is not None:
            raise BadInput(
                f"--mirror is {mirror!r}, but {SYNTHETIC} images are made here; leave it out"
            )
        synthetic.write_folder(target)
        return target
    if name not in registry():
        raise BadInput(
            f"no image set is called {name!r}; known are {', '.join(describe_all())}. "
            f"For images of your own give the path of their folder"
        )
    if data.exists() and not data.is_dir():
        raise BadInput(f"{data}: a file, but a data folder was expected; give another one")
    record = _read_record(record_path)
    if target.exists():
        _verify(target, record, record_path)
        return target
    with (
        _made_if_needed(data),
        tempfile.TemporaryDirectory(dir=data, prefix=f".{name}-") as scratch,
    ):
        staged = Path(scratch, name)
        archives = _download(name, Path(scratch), mirror, progress, record, record_path)
        _convert(name, Path(scratch), staged)
        # The record first: a crash in between leaves a record that the next download is held to,
        # never a folder that nothing vouches for
        about = {key: registry()[name][key] for key in ("source", "licence", "cite")}
        found = {"name": name, **about, "archives": archives, "files": folder_digest(staged).files}
        written = Path(scratch, "record.json")
        written.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        written.replace(record_path)
        try:
            staged.rename(target)  # same file system, so whole or absent
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
            # another process was faster
            _verify(target, _read_record(record_path), record_path)
    return target


@contextlib.contextmanager
def _made_if_needed(folder: Path) -> Iterator[None]:
    """Make a folder for one block; say what the disk refused, and leave no empty folder behind."""
    existed = folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as error:
        if isinstance(error, FileExistsError | NotADirectoryError | PermissionError):
            raise BadInput(
                f"{folder}: cannot be written to ({error.strerror}); give another data folder"
            ) from error
        raise NotPossibleHere(
            f"{folder}: the disk refuses ({error.strerror or error}); free some space or give "
            "another data folder"
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
        if not all(isinstance(record[key], dict) for key in ("archives", "files")):
            raise ValueError("expected 'archives' and 'files'")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise BadInput(
            f"{path}: the record of the first download cannot be read ({error}); restore it, or "
            f"delete it together with {path.name.removesuffix('.download.json')}/ to download again"
        ) from error
    return record


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


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- downloading ----------------------------------------------------------------------------------


def _download(
    name: str,
    folder: Path,
    mirror: str | None,
    progress: bool,
    record: Mapping[str, Any] | None,
    record_path: Path,
) -> dict[str, dict[str, Any]]:
    """Download and unpack the archives of a set; return url, size (bytes), digest, time of each."""
    import pooch

    downloader = pooch.HTTPDownloader(timeout=_TIMEOUT, progressbar=progress)
    recorded = {} if record is None else record["archives"]
    archives = {}
    for archive in registry()[name]["archives"]:
        file = archive["file"]
        url = archive["url"] if mirror is None else f"{mirror.rstrip('/')}/{file}"
        known = archive["sha256"] or recorded.get(file, {}).get("sha256")
        with _explained(name, url, record_path):
            pooch.retrieve(
                url,
                known_hash=known,
                fname=file,
                path=folder,
                downloader=downloader,
                processor=_unpack,
            )
        archives[file] = {
            "url": url,
            "size": (folder / file).stat().st_size,
            "sha256": _sha256(folder / file),
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        if known is None and progress:
            print(
                f"note: nobody has published a digest of {file}, so this first download is "
                f"trusted; its SHA-256 is kept in {record_path}, and every later download and use "
                "is held to it",
                file=sys.stderr,
            )
    return archives


def _unpack(file: str, action: str, fetcher: Any) -> Any:
    """Unpack an archive that stays within bounds: a small one may declare terabytes.

    What unpacks to more than it declares is cut there by `zipfile`, and fails its checksum.
    """
    import pooch

    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
    sizes = [info.file_size for info in infos]
    if max(sizes, default=0) > LARGEST_MEMBER or sum(sizes) > LARGEST_ARCHIVE:
        raise BadInput(
            f"{Path(file).name}: unpacks to {sum(sizes)} bytes, the largest file to "
            f"{max(sizes)}, expected at most {LARGEST_ARCHIVE} and {LARGEST_MEMBER}; {_OTHER}"
        )
    for info in infos:
        # Python unpacks a whole piece of bzip2 or LZMA at once, however large that becomes.
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise NotImplementedError(f"compression method {info.compress_type}")
        parts = info.filename.replace("\\", "/").split("/")
        if parts[0] == "" or ".." in parts or ":" in parts[0]:
            raise BadInput(
                f"{Path(file).name}: holds {info.filename!r}, which leads out of the archive, so "
                f"it is not what the publisher would give; {_OTHER}"
            )
    return pooch.Unzip()(file, action, fetcher)


@contextlib.contextmanager
def _explained(name: str, url: str, record_path: Path) -> Iterator[None]:
    """Turn what pooch, requests (whose errors are OSErrors without a number) and zipfile raise
    into an answer for the user.
    """
    source = registry()[name]["source"]
    by_hand = (
        f"or download it where there is a network from {source}, turn it into train/ and "
        f"test/ with NAME.tif and NAME_masks.tif, and give that folder"
    )
    try:
        yield
    except (BadInput, NotPossibleHere):
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise BadInput(
            f"{url}: the archive is damaged or is no zip file ({error}); {_OTHER}"
        ) from error
    except RuntimeError as error:
        raise BadInput(
            f"{url}: the archive is encrypted or packed in an unknown way ({error}); {_OTHER}"
        ) from error
    except OSError as error:
        if error.errno is not None:
            raise  # the disk's
        if isinstance(error, ValueError):
            raise BadInput(
                f"{url}: not an address; --mirror URL starts with http:// or https://"
            ) from error
        answer = getattr(error, "response", None)
        if answer is None:
            raise NotPossibleHere(
                f"{url}: cannot be reached, or the download broke off ({type(error).__name__}); "
                f"check the network and the proxy settings, try again later, {by_hand}"
            ) from error
        answer.close()  # pooch 1.9.0 leaves the connection open
        raise NotPossibleHere(
            f"{url}: the server answers {answer.status_code} {answer.reason}; look at {source} "
            f"for the new address and name the folder that holds the file with --mirror URL, "
            f"{by_hand}"
        ) from error
    except ValueError as error:
        raise BadInput(
            f"{url}: not the file that the registry or the first download recorded ({error}); try "
            "again, or another mirror (--mirror URL); if the publisher really changed the set, "
            f"delete {record_path} to accept the new one"
        ) from error


# --- converting -----------------------------------------------------------------------------------


def _convert(name: str, folder: Path, staged: Path) -> None:
    """Turn the unpacked archives of a set into ``staged``, a folder in Cellpose's convention."""
    entry = registry()[name]
    unpacked = [folder / f"{archive['file']}.unzip" for archive in entry["archives"]]
    staged.mkdir()
    n_images = 0
    try:
        for split, stem, image, masks in _LAYOUTS[entry["layout"]](*unpacked):
            if image.shape[:2] != masks.shape:
                raise BadInput(
                    f"{stem}: the image has (Y, X) = {image.shape[:2]}, its mask {masks.shape}, so "
                    f"the archives do not belong together; {_OTHER}"
                )
            _save_pair(staged / split, stem, image, masks)
            n_images += 1
    except BadInput as error:
        raise BadInput(str(error).replace(f"{folder}{os.sep}", "").replace(".unzip", "")) from error
    if not n_images:
        raise BadInput(
            f"{name}: the archives hold no images where they were expected (layout "
            f"{entry['layout']!r}), so the publisher may have rearranged them; see "
            f"{entry['source']}"
        )


def _save_pair(folder: Path, name: str, image: np.ndarray, masks: np.ndarray) -> None:
    """Write one image and its labels, losslessly."""
    folder.mkdir(exist_ok=True)
    labels = masks.astype(np.uint16 if masks.max() < 2**16 else np.int32)
    photometric = "rgb" if image.ndim == 3 else "minisblack"
    tifffile.imwrite(folder / f"{name}.tif", image, photometric=photometric, compression="zlib")
    tifffile.imwrite(
        folder / f"{name}_masks.tif", labels, photometric="minisblack", compression="zlib"
    )


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
        try:
            names = (metadata / file).read_text(encoding="utf-8").split()
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"{metadata / file}: cannot be read ({error}); {_OTHER}") from error
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
                raise BadInput(
                    f"{part}: (Y, X) = {covered.shape}, expected {masks.shape} as in {file}; "
                    f"{_OTHER}"
                )
            masks[(covered > 0) & (masks == 0)] = number
        yield "train", file.stem, image, masks


_LAYOUTS: dict[str, Any] = {
    "images-and-masks": _images_and_masks,
    "bbbc039": _bbbc039,
    "one-mask-per-object": _one_mask_per_object,
}


def label_by_value(values: np.ndarray) -> np.ndarray:
    """Number the connected regions of equal value, 0 being background.

    Regions of one value that touch at an edge or corner share a label.

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
