"""Public image sets: fetched, converted to Cellpose's convention, and checked at every later use.

The publishers give no digests. Those in ``datasets.json`` are what independent projects recorded of
the same addresses: dsb2018 constantinpape/torch-em and two others; BBBC039 OpenHCS and four others,
in 2026. The digest of every converted file is kept in ``DATA/NAME.download.json``, to which every
later use is held.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import cache
from pathlib import Path

from pydantic import BaseModel, ValidationError

from cellrepro.images.folder_files import is_litter
from cellrepro.images.set_layouts import LAYOUTS, convert
from cellrepro.store.removal import remove_empty
from cellrepro.store.whole_files import write_whole
from cellrepro.wrong_fields import wrong_fields
from samebits.digests import file_digest
from samebits.errors import BadInput, NotPossibleHere
from samebits.words import some

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


@cache
def registry() -> dict[str, PublicSet]:
    """The public sets by name."""
    sets = json.loads(Path(__file__).with_name("datasets.json").read_text(encoding="utf-8"))
    return {name: PublicSet.model_validate(entry) for name, entry in sets.items()}


def provide(name: str, target: Path, *, mirror: str | None) -> None:
    """Fetch a public set into a folder, which appears whole or not at all; or check it there."""
    record = target.with_name(f"{name}.download.json")
    if target.exists():
        _verify(target, record)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        _fetch(name, target, record, mirror)
    finally:
        remove_empty(target.parent)


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
