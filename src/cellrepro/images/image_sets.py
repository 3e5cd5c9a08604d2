"""Image sets by name: the synthetic one, which is made here, and public ones, which are fetched."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from cellrepro.images import public_sets, synthetic_sets
from cellrepro.spec.lab_command import lab_command
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName
from samebits.errors import BadInput, whole
from samebits.results import Result

SYNTHETIC = "synthetic"


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


def describe_all() -> dict[str, str]:
    """Each name, with a line about the set."""
    made = {SYNTHETIC: "synthetic nuclei with exact masks, the same bytes on every machine"}
    return made | {
        name: entry.description for name, entry in sorted(public_sets.registry().items())
    }


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
        if mirror is not None:
            fetching = lab_command("data", "NAME", "--mirror", mirror, store=None)
            raise BadInput(
                f"--mirror is {mirror!r}, and no set is named that could be fetched from there: "
                f"expected `{fetching}`; without --mirror the sets are "
                "listed"
            )
        making = lab_command("data", SYNTHETIC, "--into", into, store=None)
        refuse_idle(
            ("into",),
            "without the name of a set",
            instead=f"`{making}` makes one there; without --into the sets are listed",
        )
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
    if name not in describe_all():
        raise BadInput(
            f"no image set is called {name!r}; known are {', '.join(describe_all())}. "
            f"For images of your own give the path of their folder"
        )
    if mirror is not None and (name == SYNTHETIC or not mirror.startswith(("http://", "https://"))):
        raise BadInput(
            f"--mirror is {mirror!r}; expected an address that starts with http:// or https://, "
            f"for a set other than {SYNTHETIC}, which is made here"
        )
    if name == SYNTHETIC:
        synthetic_sets.write_folder(target)
        return target
    public_sets.provide(name, target, mirror=mirror)
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
