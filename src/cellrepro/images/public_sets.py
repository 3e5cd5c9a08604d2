"""Image sets by name: the synthetic one, which is made, and public ones, which are fetched.

The publishers give no digests. Those in ``datasets.json`` are what independent projects recorded of
the same addresses: dsb2018 constantinpape/torch-em and two others; BBBC039 OpenHCS and four others,
in 2026. The digest of every converted file is kept in ``DATA/NAME.download.json``, to which every
later use is held.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

from cellrepro.digests.digests import file_digest
from cellrepro.errors import BadInput, NotPossibleHere, whole
from cellrepro.images import synthetic_sets
from cellrepro.images.folder_files import is_litter
from cellrepro.images.set_layouts import LAYOUTS, convert
from cellrepro.results import Result
from cellrepro.store.removal import remove_empty
from cellrepro.store.whole_files import write_whole
from cellrepro.terminal import FileName
from cellrepro.words import some
from cellrepro.wrong_fields import wrong_fields

SYNTHETIC = "synthetic"

_TIMEOUT = (10.0, 60.0)  # seconds to connect and between two pieces of data


class Archive(BaseModel):
    """A zip file of a public set."""

    file: str
    url: str
    sha256: str | None


class PublicSet(BaseModel):
    """A public set: its description, its licence and its archives."""

    description: str
    source: str  # address of the page that describes it
    licence: str
    cite: str
    archives: list[Archive]


class _Record(BaseModel):
    """The entry of ``NAME.download.json`` that `_verify` reads; the others are for people."""

    files: dict[str, str]  # SHA-256 by path


@dataclass(frozen=True, repr=False)
class ProvidedData(Result):
    """An image set that is there."""

    folder: Path
    """Its folder."""

    def sentence(self) -> str:
        """Give the folder."""
        return str(self.folder)


@dataclass(frozen=True, repr=False)
class KnownData(Result):
    """The image sets that have a name."""

    sets: dict[str, str]
    """A line about each set, by its name."""

    def sentence(self) -> str:
        """Give a line for each set."""
        return "\n".join(f"{name}: {text}" for name, text in self.sets.items())


@cache
def registry() -> dict[str, PublicSet]:
    """The public sets by name."""
    sets = json.loads(Path(__file__).with_name("datasets.json").read_text(encoding="utf-8"))
    return {name: PublicSet.model_validate(entry) for name, entry in sets.items()}


def describe_all() -> dict[str, str]:
    """Each name, with a line about the set."""
    made = {SYNTHETIC: "synthetic nuclei with exact masks, the same bytes on every machine"}
    return made | {name: entry.description for name, entry in sorted(registry().items())}


def data(
    name: str = "",
    /,
    *,
    into: FileName = "data",
    mirror: str | None = None,
    images: int | None = None,
    size: int | None = None,
    cells: int | None = None,
) -> ProvidedData | KnownData:
    """Make the synthetic images, or fetch a named public set, under data/.

    Parameters
    ----------
    name : str
        ``synthetic``, or a public set; without a name the sets are listed.
    into : str or Path
        Folder where data sets are kept.
    mirror : str, optional
        Address of a folder with a public set's archives under their own names.
    images : int, optional
        Of synthetic images: how many, for a benchmark.
    size : int, optional
        Of synthetic images: pixels along an edge.
    cells : int, optional
        Of synthetic images: how many cells in each.

    Returns
    -------
    ProvidedData or KnownData
        The folder of the set; without a name what there is.

    Raises
    ------
    BadInput
        If no set has that name, a number is asked for of a set that is not made here, the mirror is
        no address, a download is not what was published, or the set that is there has changed.
    NotPossibleHere
        If it cannot be fetched.

    Examples
    --------
    Make the small synthetic images in data/synthetic

    ``cellrepro data synthetic``

    Which image sets are there?

    ``cellrepro data``
    """
    if (images, size, cells) != (None, None, None):
        if name != SYNTHETIC or mirror is not None:
            asked_for = f"the set {name}" if name else "no set"
            raise BadInput(
                f"--images, --size and --cells are of synthetic images, and {asked_for} is named: "
                "expected `cellrepro data synthetic`, without --mirror"
            )
        return ProvidedData(write_benchmark(Path(into), images=images, size=size, cells=cells))
    if not name:
        return KnownData(describe_all())
    return ProvidedData(provide_data(name, data_dir=into, mirror=mirror))


def provide_data(
    name: str, *, data_dir: str | os.PathLike[str] = "data", mirror: str | None = None
) -> Path:
    """Make or fetch an image set, or check the one that is there; as ``cellrepro data NAME``.

    Parameters
    ----------
    name : str
        ``synthetic``, which is made here, or a public set; `describe_all` has all of them.
    data_dir : str or os.PathLike
        Folder of data sets. The set appears in it whole, as ``data_dir/name``, or not at all.
    mirror : str or None
        Address of a folder with a public set's archives under their own names. Digests hold for
        every mirror.

    Returns
    -------
    Path
        Folder of the set, ``data_dir/name``.

    Raises
    ------
    BadInput
        If no set has that name, the mirror is no address, a download is not what was published, or
        the set that is there has changed.
    NotPossibleHere
        If it cannot be fetched.
    """
    data = Path(data_dir)
    target = data / name
    record = data / f"{name}.download.json"
    if name not in describe_all():
        raise BadInput(
            f"no image set is called {name!r}; known are {', '.join(describe_all())}. "
            f"For images of your own give the path of their folder"
        )
    if mirror is not None and (name == SYNTHETIC or not mirror.startswith("http")):
        raise BadInput(
            f"--mirror is {mirror!r}; expected an address that starts with http:// or https://, "
            f"for a set other than {SYNTHETIC}, which is made here"
        )
    if name == SYNTHETIC:
        synthetic_sets.write_folder(target)
        return target
    if target.exists():
        _verify(target, record)
        return target
    data.mkdir(parents=True, exist_ok=True)
    try:
        _fetch(name, target, record, mirror)
    finally:
        remove_empty(data)
    return target


def write_benchmark(
    data: Path, *, images: int | None = None, size: int | None = None, cells: int | None = None
) -> Path:
    """Write square synthetic images, all in ``train/``, from where both tasks read."""
    n_images = whole("images", 11 if images is None else images, 1)
    edge = whole("size", 256 if size is None else size, 16)
    name = "" if cells is None else f"-{whole('cells', cells, 1)}-cells"
    folder = Path(data) / f"synthetic-{n_images}-images-{edge}-pixels{name}"
    synthetic_sets.write_folder(
        folder, n_train=n_images, n_test=0, shape=(edge, edge), n_cells=cells
    )
    return folder


def _fetch(name: str, target: Path, record: Path, mirror: str | None) -> None:
    """Download and convert a set, and write a record of its files."""
    public_set = registry()[name]
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{name}-") as scratch:
        unpacked = _download(public_set, Path(scratch), mirror)
        files = convert(Path(scratch, name), LAYOUTS[name](unpacked))
        # The record first, so that a crash leaves no folder without one.
        known = {"name": name, **public_set.model_dump(), "files": files}
        write_whole(record, json.dumps(known, indent=2), replace=_is_record(record))
        Path(scratch, name).rename(target)  # same file system, so whole or absent


def _is_record(path: Path) -> bool:
    """Whether a file is the record of a set, which a new one may replace."""
    try:
        _Record.model_validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return False
    return True


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


def _download(public_set: PublicSet, scratch: Path, mirror: str | None) -> list[Path]:
    """Download the archives of a set, checked by their digests, and unpack them into folders."""
    import pooch

    unpacked = []
    for archive in public_set.archives:
        file = archive.file
        url = archive.url if mirror is None else f"{mirror.rstrip('/')}/{file}"
        downloader = pooch.HTTPDownloader(timeout=_TIMEOUT, progressbar=sys.stderr.isatty())
        try:
            pooch.retrieve(
                url,
                archive.sha256,
                file,
                scratch,
                downloader=downloader,
                processor=pooch.Unzip(),
            )
        except OSError as error:
            if error.errno is not None:
                raise  # the disk's; those of requests have no number
            answer = getattr(error, "response", None)
            if answer is not None:
                answer.close()  # pooch 1.9.0 leaves the connection open
            raise NotPossibleHere(
                f"{url}: cannot be fetched, or the download broke off ({error}); check network and "
                "proxy, try again, give another folder that holds the file with --mirror URL, or "
                f"download it from {public_set.source} and make train/ and test/ of it"
            ) from error
        except ValueError as error:
            raise BadInput(
                f"{url}: not the file that was published ({error}); try again, or a different "
                "mirror (--mirror URL)"
            ) from error
        unpacked.append(scratch / f"{file}.unzip")
    return unpacked
