"""The ``export`` and ``import`` commands: one each for all kinds of files, told by their endings.

In Python each kind has a function of its own, which these call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter

from cellrepro.exchange.archive.entry_names import EXPORT_ENDING
from cellrepro.exchange.bioimageio.measuring import USUAL_REPEATS
from cellrepro.exchange.bioimageio.package import PACKAGE_ENDING, export_bioimageio
from cellrepro.exchange.bioimageio.tolerance import USUAL_FACTOR
from cellrepro.exchange.bundle import BUNDLE_ENDING
from cellrepro.exchange.cellpose_file import CELLPOSE_ENDING, export_cellpose_file
from cellrepro.exchange.export import export_runs
from cellrepro.exchange.importing import Imported, import_runs
from cellrepro.exchange.passport_files import ImportedPassports, export_passports, import_passports
from cellrepro.spec import defaults
from cellrepro.stated import refuse_idle
from cellrepro.terminal import FileName, Quiet
from cellrepro.terminal_values import Conditions
from samebits.errors import BadInput
from samebits.results import Result

_ExportKind = Literal["package", "network", "passports", "runs"]

_OF_PACKAGES = (
    *("author", "license", "cite", "name", "tolerance_factor"),
    *("image", "profile", "repeats"),
)
"""The options that packages of bioimage.io alone have."""


def export(
    *runs_and_file: Annotated[str, Parameter(name="RUNS... FILE")],
    where: Conditions | None = None,
    weights: bool = False,
    images: bool = False,
    passport: bool = False,
    sign: FileName | None = None,
    bioimageio: bool = False,
    author: list[str] | None = None,
    license: str | None = None,
    cite: list[str] | None = None,
    name: str | None = None,
    image: str | None = None,
    profile: list[str] | None = None,
    repeats: int = USUAL_REPEATS,
    tolerance_factor: float = USUAL_FACTOR,
    store: FileName = defaults.STORE,
    quiet: Quiet = False,
) -> Result:
    """Put runs into one file for someone else, who needs nothing of yours to check it.

    Parameters
    ----------
    runs_and_file : str
        Runs, each ``KEY``, ``KEY/MACHINE``, ``KEY/REPEAT``, ``KEY/MACHINE/REPEAT`` or a grid file;
        and last the new file: ``NAME.cellrepro.zip`` holds runs, ``NAME.intoto.jsonl`` passports,
        ``NAME.pth`` the network of a run as Cellpose loads it, ``NAME.bioimageio.zip`` a package of
        it.
    where : mapping, optional
        ``NAME=VALUE``: only runs that have it; without a run that is named, all of them.
    weights : bool
        With the trained networks, and those that trainings started from.
    images : bool
        With the images.
    passport : bool
        Only what lets others check and replay a run.
    sign : str or Path, optional
        ``KEY.pub``, an Ed25519 key of OpenSSH: signed by ssh-agent, else with the key file beside
        it.
    bioimageio : bool
        A package of bioimage.io with a measured tolerance, also in a file of the name ``NAME.zip``.
    author : list of str, optional
        Of a package: ``NAME`` or ``NAME (GITHUB_USER)``.
    license : str, optional
        Of a package: an identifier of SPDX, as ``CC-BY-4.0``.
    cite : list of str, optional
        In a package, beside the papers of Cellpose: words, then a DOI or an address.
    name : str, optional
        Of a package; by default made from its images.
    image : str, optional
        Name of the image of which a part is the test input of a package; by default the one with
        most objects.
    profile : list of str, optional
        To measure a package under, the one of the test output first; by default all in float32
        that are here.
    repeats : int
        Processes that measure under each profile.
    tolerance_factor : float
        The tolerance of a package, in largest measured differences; at least 1.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    Result
        The new file, and what is in it; of the class that its kind has.

    Raises
    ------
    BadInput
        If there is no such run, the new file is there, or its ending does not say what it is to
        hold.
    Damaged
        If a stored file is no longer what was stored; nothing is written.
    NotPossibleHere
        If this kind of file needs a library that is not installed, or the disk is short.

    Examples
    --------
    One file with a run, its networks and its images, for someone who will check it

    ``cellrepro export 0a1b2c3d runs.cellrepro.zip --weights --images``

    A small file that says what was asked for, what came out and on what, signed by you

    ``cellrepro export 0a1b2c3d run.intoto.jsonl --sign ~/.ssh/id_ed25519.pub``

    The trained network as Cellpose loads it, with its passport beside it

    ``cellrepro export 0a1b2c3d mine.pth``

    The network as a package of bioimage.io, with a tolerance that was measured

    ``cellrepro export 0a1b2c3d my.bioimageio.zip --author "Ada L." --license MIT``
    """
    if not runs_and_file:
        raise BadInput("nothing was named; expected runs, and last the new file")
    *runs, file = runs_and_file
    kind = _kind_of(file, bioimageio=bioimageio, passport=passport)
    if kind != "package":
        refuse_idle(_OF_PACKAGES, f"but for NAME{PACKAGE_ENDING}")
    match kind:
        case "package":
            others = ("where", "weights", "images", "passport", "sign")
            refuse_idle(others, "in a package of bioimage.io")
            return export_bioimageio(
                _only_one(runs, file),
                file,
                authors=author or [],
                license=license,
                cite=cite or [],
                name=name,
                image=image,
                profiles=profile,
                repeats=repeats,
                factor=tolerance_factor,
                store=store,
                quiet=quiet,
            )
        case "network":
            refuse_idle(("where", "weights", "images", "passport"), "in a file for Cellpose")
            return export_cellpose_file(
                _only_one(runs, file), file, sign=sign, store=store, quiet=quiet
            )
        case "passports":
            refuse_idle(("weights", "images"), "in a file that holds passports alone")
            return export_passports(runs, file, where=where, sign=sign, store=store)
        case "runs":
            return export_runs(
                runs,
                file,
                where=where,
                weights=weights,
                images=images,
                sign=sign,
                store=store,
                quiet=quiet,
            )


def _kind_of(file: str, *, bioimageio: bool, passport: bool) -> _ExportKind:
    """Tell by its ending what a new file is to hold, unless an option says it."""
    if bioimageio or file.endswith(PACKAGE_ENDING):
        return "package"
    if file.endswith(CELLPOSE_ENDING):
        return "network"
    if passport or file.endswith(BUNDLE_ENDING):
        return "passports"
    if file.endswith(EXPORT_ENDING):
        return "runs"
    raise BadInput(
        f"{file} has no ending that says what it is to hold; the new file comes last, after the "
        f"runs: NAME.cellrepro{EXPORT_ENDING} for runs, NAME{BUNDLE_ENDING} for passports, "
        f"NAME{CELLPOSE_ENDING} for a network as Cellpose loads it, NAME{PACKAGE_ENDING} for a "
        "package of bioimage.io"
    )


def import_file(
    file: FileName, /, *, store: FileName = defaults.STORE, quiet: Quiet = False
) -> Imported | ImportedPassports:
    """Check a file that was exported, and merge it into a store; nothing is overwritten.

    Parameters
    ----------
    file : str or Path
        ``NAME.cellrepro.zip``, or ``NAME.intoto.jsonl`` with passports and receipts.
    store : str or Path
        Folder of finished runs, made if it is not there.
    quiet : bool
        Show no progress.

    Returns
    -------
    Imported or ImportedPassports
        What is new in the store, and what was there.

    Raises
    ------
    BadInput
        If the file is not as it was exported, or the store holds another run of the same name;
        nothing is written then.
    NotPossibleHere
        If an image does not fit into memory, or the disk is full.

    Examples
    --------
    Merge the runs of a file that was sent to you into your store

    ``cellrepro import runs.cellrepro.zip``

    Or into a store of their own

    ``cellrepro import runs.cellrepro.zip --store from_basel``
    """
    if str(file).endswith(BUNDLE_ENDING):
        return import_passports(file, store=store)
    return import_runs(file, store=store, quiet=quiet)


def _only_one(runs: Sequence[str], file: str) -> str:
    if len(runs) != 1:
        raise BadInput(
            f"{file} holds the network of one run, and {len(runs)} were named; expected one "
            "KEY, KEY/REPEAT or KEY/MACHINE/REPEAT"
        )
    return runs[0]
