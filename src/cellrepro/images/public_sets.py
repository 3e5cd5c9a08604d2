"""Image sets by name: the synthetic one, which is made, and public ones, which are fetched.

The publishers give no digests. Those in ``datasets.json`` are what independent projects recorded of
the same addresses: dsb2018 constantinpape/torch-em and two others; BBBC039 OpenHCS and four others,
in 2026. The digest of every converted file is kept in ``DATA/NAME.download.json``, to which every
later use is held.
"""

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import tifffile
from pydantic import BaseModel, ValidationError

from cellrepro.bits.digests import file_digest
from cellrepro.errors import BadInput, NotPossibleHere, whole, wrong_fields
from cellrepro.images import synthetic_sets
from cellrepro.images.decoding import pieces_by_label, read_bytes, read_image, read_masks
from cellrepro.images.folder import is_litter, read_folder
from cellrepro.store.whole_files import remove_empty, write_whole
from cellrepro.words import some

SYNTHETIC = "synthetic"

_TIMEOUT = (10.0, 60.0)  # seconds to connect and between two pieces of data

Pair = tuple[str, str, np.ndarray, np.ndarray]  # split, name, image and masks


def describe_all() -> dict[str, str]:
    """What each name means, in a line."""
    made = {SYNTHETIC: "synthetic nuclei with exact masks, the same bytes on every machine"}
    return made | {name: entry["description"] for name, entry in sorted(registry().items())}


@cache
def registry() -> dict[str, dict[str, Any]]:
    """What is known of each public set: source, licence, how to cite it, archives."""
    return json.loads(Path(__file__).with_name("datasets.json").read_text(encoding="utf-8"))


class _Record(BaseModel):
    """What a set was converted to; beside it the file holds what the registry says of the set."""

    files: dict[str, str]  # SHA-256 by path


def provide(
    name: str, *, data_dir: str | os.PathLike[str] = "data", mirror: str | None = None
) -> Path:
    """Make or fetch an image set under ``data_dir``, or check the one that is there.

    ``name`` is one of `describe_all`, ``mirror`` the address of a folder with the archives under
    their own names; digests hold for every mirror. The set appears whole as ``data_dir/name`` or
    not at all.
    """
    data = Path(data_dir)
    target, record = data / name, data / f"{name}.download.json"
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
        synthetic_sets.write_folder(target)
        return target
    if target.exists():
        _verify(target, record)
        return target
    data.mkdir(parents=True, exist_ok=True)
    try:
        with tempfile.TemporaryDirectory(dir=data, prefix=f".{name}-") as scratch:
            unpacked = _download(name, Path(scratch), mirror)
            files = _convert(Path(scratch, name), _LAYOUTS[name](*unpacked))
            # The record first: a crash in between leaves no folder that nothing vouches for.
            known = {"name": name, **registry()[name], "files": files}
            write_whole(record, json.dumps(known, indent=2))
            Path(scratch, name).rename(target)  # same file system, so whole or absent
    finally:
        remove_empty(data)
    return target


def write_benchmark(
    data: Path, *, images: int | None = None, size: int | None = None, cells: int | None = None
) -> Path:
    """Write square synthetic images (11 of 256 pixels by default) into a folder of ``data`` named
    after what was asked for: ``images`` of them, ``size`` pixels along an edge, with ``cells`` in
    each. All are in ``train/``, where a training and a segmentation both take them."""
    n_images = whole("images", 11 if images is None else images, 1)
    edge, name = whole("size", 256 if size is None else size, 16), ""
    if cells is not None:
        name = f"-{whole('cells', cells, 1)}-cells"
    folder = Path(data) / f"synthetic-{n_images}-images-{edge}-pixels{name}"
    synthetic_sets.write_folder(
        folder, n_train=n_images, n_test=0, shape=(edge, edge), n_cells=cells
    )
    return folder


def _verify(target: Path, record: Path) -> None:
    """Compare a stored set with its record, file by file."""
    try:
        files = _Record.model_validate_json(record.read_bytes()).files
    except (OSError, ValidationError) as error:
        why = wrong_fields(error) if isinstance(error, ValidationError) else error
        raise BadInput(
            f"{target}: exists, but its record {record.name} cannot be read, so nothing says what "
            f"should be in it ({why}); move the folder away to download the set, or give its path "
            "to use it as it is"
        ) from error
    present = {
        file.relative_to(target).as_posix()
        for file in target.rglob("*.tif")
        if not is_litter(file.relative_to(target))
    }
    changed = sorted(present ^ files.keys())
    changed += [
        name
        for name, expected in files.items()
        if name in present and file_digest(target / name) != expected
    ]
    if changed:
        raise BadInput(
            f"{target}: changed, lost or added since the download: {some(changed)}; delete "
            f"{target} to download it again, after moving images of your own elsewhere"
        )


def _download(name: str, scratch: Path, mirror: str | None) -> list[Path]:
    """Download the archives of a set, each held to its digest; the folders they unpack to."""
    import pooch

    unpacked = []
    for archive in registry()[name]["archives"]:
        file = archive["file"]
        url = archive["url"] if mirror is None else f"{mirror.rstrip('/')}/{file}"
        downloader = pooch.HTTPDownloader(timeout=_TIMEOUT, progressbar=sys.stderr.isatty())
        options = {"downloader": downloader, "processor": pooch.Unzip()}
        try:
            pooch.retrieve(url, archive["sha256"], file, scratch, **options)
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
                f"{url}: not the file that was published ({error}); try again, or another mirror "
                "(--mirror URL)"
            ) from error
        unpacked.append(scratch / f"{file}.unzip")
    return unpacked


# --- converting -----------------------------------------------------------------------------------


def _convert(folder: Path, pairs: Iterator[Pair]) -> dict[str, str]:
    """Write a set in Cellpose's convention; its digests."""
    for split, stem, image, masks in pairs:
        (folder / split).mkdir(parents=True, exist_ok=True)
        for ending, pixels in (("", image), ("_masks", masks.astype(np.uint16))):
            path = folder / split / f"{stem}{ending}.tif"
            tifffile.imwrite(path, pixels, photometric="minisblack", compression="zlib")
    return read_folder(folder).files


def _dsb2018(folder: Path) -> Iterator[Pair]:
    """``dsb2018/train/images/NAME.tif`` with ``dsb2018/train/masks/NAME.tif``; likewise ``test``.

    The archive also holds the hidden twins that macOS leaves.
    """
    for split in ("train", "test"):
        for file in sorted((folder / "dsb2018" / split / "images").glob("[!.]*.tif")):
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
            colours = read_image(masks / "masks" / f"{name}.png")
            first = colours if colours.ndim == 2 else colours[..., 0]
            yield split, name, image, _label_by_value(first)


_LAYOUTS: dict[str, Any] = {"dsb2018": _dsb2018, "bbbc039": _bbbc039}


def _label_by_value(values: np.ndarray) -> np.ndarray:
    """Number the connected regions of equal value (8-connectivity), those of small values first."""
    labels = np.zeros(values.shape, np.int32)
    n_labels = 0
    for _, box, regions, n_regions in pieces_by_label(values):
        labels[box][regions > 0] = regions[regions > 0] + n_labels
        n_labels += n_regions
    return labels
