"""The verb that hands runs to someone else: passports, whole runs, networks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

import cellrepro
from cellrepro.asked import defaults
from cellrepro.cli.command import Reply, refuse_idle, verb
from cellrepro.cli.shared_options import StoreOption, pairs_in
from cellrepro.errors import BadInput
from cellrepro.exchange.endings import MEASUREMENTS, PACKAGE, PASSPORTS

_RUNS = ".zip"
_CELLPOSE = ".pth"

_OF_OTHERS = ("where", "weights", "images", "passport", "sign")
_OF_PACKAGES = ("author", "license", "cite", "name", "measured", "tolerance_factor")
_OF_MEASURING = ("image", "profile", "repeats")


@verb()
def export(
    context: typer.Context,
    runs: Annotated[
        list[str] | None,
        Argument(
            help="KEY, KEY/MACHINE, KEY/REPEAT, KEY/MACHINE/REPEAT, a grid file, or a file with a "
            "network from elsewhere"
        ),
    ] = None,
    *,
    file: Annotated[
        str,
        Argument(
            help="a new file: NAME.cellrepro.zip holds runs, NAME.intoto.jsonl passports, NAME.pth "
            "the network of a run as Cellpose loads it, NAME.bioimageio.zip a package of it"
        ),
    ],
    where: Annotated[list[str] | None, Option(help="NAME=VALUE: only runs that have it")] = None,
    weights: Annotated[bool, Option("--weights", help="with the trained networks")] = False,
    images: Annotated[bool, Option("--images", help="with the images")] = False,
    passport: Annotated[
        bool, Option("--passport", help="only what lets others check and replay a run")
    ] = False,
    sign: Annotated[
        str | None, Option(help="KEY.pub of OpenSSH: by ssh-agent, else the key file beside it")
    ] = None,
    bioimageio: Annotated[
        bool, Option("--bioimageio", help="a package of bioimage.io, with a measured tolerance")
    ] = False,
    author: Annotated[
        list[str] | None, Option(help="of a package: NAME or NAME (GITHUB_USER)")
    ] = None,
    license: Annotated[
        str | None, Option(help="of a package: an identifier of SPDX, as CC-BY-4.0")
    ] = None,
    cite: Annotated[
        list[str] | None, Option(help="in a package: words, then a DOI or an address")
    ] = None,
    name: Annotated[str | None, Option(help="of a package")] = None,
    image: Annotated[
        str | None, Option(help="whose part is the test input; default with most objects")
    ] = None,
    profile: Annotated[
        list[str] | None, Option(help="to measure under; default all in float32 that are here")
    ] = None,
    repeats: Annotated[int, Option(help="processes that measure under each profile")] = 2,
    measured: Annotated[
        list[str] | None, Option(help="NAME.measured.safetensors of another machine")
    ] = None,
    tolerance_factor: Annotated[
        float, Option(help="the tolerance, in largest measured differences")
    ] = 10.0,
    store: StoreOption = defaults.STORE,
) -> Reply:
    """Put runs into one file for someone else, who needs nothing of yours to check it."""
    references = runs or []
    if bioimageio or file.endswith((PACKAGE, MEASUREMENTS)):
        refuse_idle(context, _OF_OTHERS, "in a package of bioimage.io")
        run = _only_one(references, file)
        if file.endswith(MEASUREMENTS):
            refuse_idle(context, _OF_PACKAGES, "in a file of measurements for a package")
            return Reply(
                cellrepro.measure_bioimageio(
                    run, file, image=image, profiles=profile, repeats=repeats, store=store
                )
            )
        package = cellrepro.export_bioimageio(
            run,
            file,
            authors=author or [],
            license=license,
            cite=cite or [],
            name=name,
            image=image,
            profiles=profile,
            repeats=repeats,
            measured=measured or [],
            factor=tolerance_factor,
            store=store,
        )
        return Reply(package)
    refuse_idle(context, (*_OF_PACKAGES, *_OF_MEASURING), f"but for NAME{PACKAGE}")
    wanted = pairs_in(where, "--where")
    if file.endswith(_CELLPOSE):
        refuse_idle(context, ("where", "weights", "images", "passport"), "in a file for Cellpose")
        exported_model = cellrepro.export_cellpose_file(
            _only_one(references, file), file, sign=sign, store=store
        )
        return Reply(exported_model)
    if len(references) == 1 and Path(references[0]).is_file() and not _is_grid(references[0]):
        refuse_idle(context, ("where", "weights", "images"), "in a passport of a network's file")
        of_model = cellrepro.export_model_passport(references[0], file, sign=sign)
        return Reply(of_model)
    if passport or file.endswith(PASSPORTS):
        refuse_idle(context, ("weights", "images"), "in a file that holds passports alone")
        passports = cellrepro.export_passports(
            references, file, where=wanted, sign=sign, store=store
        )
        return Reply(passports)
    if file.endswith(_RUNS):
        exported = cellrepro.export_runs(
            references,
            file,
            where=wanted,
            weights=weights,
            images=images,
            sign=sign,
            store=store,
        )
        return Reply(exported)
    raise BadInput(
        f"{file} has no ending that says what it is to hold; the new file comes last, after the "
        f"runs: NAME.cellrepro{_RUNS} for "
        f"runs, NAME{PASSPORTS} for passports, NAME{_CELLPOSE} for a network as Cellpose loads "
        f"it, NAME{PACKAGE} for a package of bioimage.io"
    )


def _only_one(references: Sequence[str], file: str) -> str:
    if len(references) != 1:
        raise BadInput(
            f"{file} holds the network of one run, and {len(references)} were named; expected one "
            "KEY, KEY/REPEAT or KEY/MACHINE/REPEAT"
        )
    return references[0]


def _is_grid(reference: str) -> bool:
    return Path(reference).suffix in (".yaml", ".yml")
