"""Export of a run's network as a file that Cellpose loads, with its passport beside it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path

from cellrepro.comparison.weight_reading import open_weights
from cellrepro.exchange.bundle import BUNDLE_ENDING, bundle_text
from cellrepro.exchange.cellpose_check import STEPS, CellposeCheck, written_and_checked
from cellrepro.exchange.kept_passports import passports_of
from cellrepro.exchange.model_statement import (
    TENSORS_DIGEST,
    model_statement,
    tensors_digest,
)
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.provenance import Builder, package_url
from cellrepro.exchange.signed.signer import Signer, find_signer, fingerprint_of
from cellrepro.exchange.statement import Attestation, ResourceDescriptor, Statement
from cellrepro.extras import needs
from cellrepro.images.folder import LabelledImage
from cellrepro.images.synthetic_sets import labelled_nuclei
from cellrepro.model.cellpose_generation import generation_of, installed_version, known_version
from cellrepro.model.known_weights import AS_IT_IS, recognise
from cellrepro.model.weight_sources import ModelSource, find_model
from cellrepro.process.calling import in_child
from cellrepro.process.setup import Setup
from cellrepro.profiles.profiles import load
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from cellrepro.spec.spec import Spec
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.store.whole_files import new_file, whole_file, write_whole
from cellrepro.version import __version__
from cellrepro.words import short_digest
from samebits.digests import file_digest
from samebits.errors import BadInput, NotPossibleHere
from samebits.libraries import has_library
from samebits.results import Result, Row
from samebits.words import amount, grouped

CELLPOSE_ENDING = ".pth"
"""Ending of the file; Cellpose loads any, but users know this one."""
_CHECK_SIZE = 224  # pixels along an edge of the compared image, which fit into a tile of Cellpose


@dataclass(frozen=True, repr=False)
class ExportedModel(Result):
    """A network in a new file that Cellpose loads."""

    file: Path
    """The new file."""
    digest: str
    """SHA-256 of the file."""
    runs: tuple[str, ...]
    """The run whose network it holds."""
    passport: Path
    """The file of its passport."""
    tensors: str
    """Digest over the tensors, the same for the run's own weights."""
    check: CellposeCheck
    """Outcome of loading the file back through Cellpose: ``n_tensors`` and ``n_parameters`` that
    are equal in every bit, the ``image`` that both networks segmented, the digest of the
    ``masks``, ``n_cells`` in them, the ``dtype`` of the computation, ``peak_memory`` in bytes."""
    signed_by: str | None
    """Fingerprint of the key that signed; null where none was given."""

    def sentence(self) -> str:
        """Say what it holds and what was compared."""
        (run,) = self.runs
        check = self.check
        cells = amount(check.n_cells, "cell") if check.n_cells else "no cell, which proves little"
        return (
            f"{self.file} holds the network of {run} as Cellpose loads it: "
            f"{amount(check.n_tensors, 'tensor')} with {grouped(check.n_parameters)} numbers equal "
            f"in every bit once loaded back, and so are the masks of {check.image} ({cells}, "
            f"{check.dtype})"
        )

    def rows(self) -> list[Row]:
        """Give the files with their digests."""
        return [
            {"file": str(self.file), "SHA-256": self.digest},
            {"file": str(self.passport), "SHA-256": file_digest(self.passport)},
        ]

    def lines(self) -> list[str]:
        """Give what was compared, both files, and how Cellpose loads the network."""
        precision = ", use_bfloat16=False" if self.check.dtype == "float32" else ""
        return [
            self.sentence(),
            f"  SHA-256 {short_digest(self.digest)}, passport {self.passport}",
            f"  in Cellpose: CellposeModel(pretrained_model={str(self.file)!r}{precision})",
        ]


def export_cellpose_file(
    run: str,
    file: str | Path,
    *,
    sign: str | Path | None = None,
    store: str | Path = defaults.STORE,
    quiet: bool = False,
) -> ExportedModel:
    """Write the trained network of a run as a file that Cellpose loads, and its passport beside it.

    The file is for ``CellposeModel(pretrained_model=…)``, Cellpose's ``--pretrained_model`` and
    ``--add_model``, and its GUI. It is loaded back through Cellpose in a process of its own: every
    tensor and the masks of one image must be those of the run's network, or no file is left.

    Parameters
    ----------
    run : str
        ``KEY``, ``KEY/REPEAT`` or ``KEY/MACHINE/REPEAT``.
    file : str or Path
        ``NAME.pth``; neither it nor ``NAME.intoto.jsonl`` may be there.
    sign : str or Path, optional
        ``KEY.pub`` of OpenSSH, with which the passport is signed.
    store : str or Path
        Folder of finished runs.
    quiet : bool
        Show no progress.

    Returns
    -------
    ExportedModel
        Its ``str`` says what was compared. The same run gives the same bytes of the network.

    Raises
    ------
    BadInput
        If there is no such run, it only segmented, or its network is none that Cellpose can build.
    Damaged
        If the weights are no longer what was stored, or Cellpose makes something else of the file.
    NotPossibleHere
        If Cellpose 4 is not installed, or the disk is short.
    """
    path, beside = _new_files(file)
    opened_store = Store(store)
    repeat = opened_store.find(run)
    weights = repeat.weights
    if weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no network of its own")
    source = find_model(repeat.name, opened_store)
    _refuse_without_cellpose()
    _refuse_unbuildable(repeat, source)
    _refuse_short_disk(path, needed=weights.stat().st_size)
    signer = find_signer(sign)
    with whole_file(path) as scratch:
        check = in_child(
            partial(
                written_and_checked,
                source=source,
                weights=weights,
                file=scratch,
                image=_image_to_compare(repeat, opened_store),
            ),
            _setup(repeat.spec),
            label=f"{path.name} through Cellpose",
            steps=len(STEPS),
            quiet=quiet,
        )
        exported = ExportedModel(
            file=path,
            digest=file_digest(scratch),
            runs=(repeat.name,),
            passport=beside,
            tensors=tensors_digest(open_weights(scratch)),
            check=check,
            signed_by=fingerprint_of(signer),
        )
        write_whole(beside, _bundle(exported, repeat, opened_store, signer))
    return exported


# -- refusals --------------------------------------------------------------------------------


def _new_files(file: str | Path) -> tuple[Path, Path]:
    """The new file and the one of its passport, neither of which may exist."""
    path = new_file(file, ending=CELLPOSE_ENDING, holds="a network for Cellpose")
    beside = path.with_name(f"{path.stem}{BUNDLE_ENDING}")
    return path, new_file(beside, ending=BUNDLE_ENDING, holds="its passport")


def _refuse_without_cellpose() -> None:
    missing = [name for name in ("torch", "cellpose") if not has_library(name)]
    if missing:
        raise needs(missing, what="a file for Cellpose, which is loaded back through Cellpose,")
    if not generation_of().builds_own_networks:
        raise NotPossibleHere(
            f"Cellpose {installed_version()} is installed, and the runs of this lab are networks "
            "of Cellpose 4; export where Cellpose 4 is installed, or `cellrepro setup FOLDER` "
            "makes a lab with it beside this one"
        )


def _refuse_unbuildable(repeat: Repeat, source: ModelSource) -> None:
    """Refuse a network that Cellpose would not build from its file."""
    assert source.path is not None
    shapes = {name: tensor.shape for name, tensor in open_weights(source.path).items()}
    recognised = recognise(shapes, saved_by_torch=True)
    if recognised.loads_as == AS_IT_IS:
        return
    architecture = repeat.manifest.model.architecture
    why = recognised.note or f"Cellpose would load {recognised.loads_as} of it"
    options = ("--model", repeat.spec.key)
    here = lab_command("segment", "FOLDER", *options, store=repeat.store_folder)
    raise BadInput(
        f"the network of {repeat.name} is {architecture!r}, which Cellpose cannot build ({why}); "
        "expected a run that was trained from cpsam_v2, cpsam, a file of these, or vit-l. "
        f"`{here}` segments with it here"
    )


def _refuse_short_disk(path: Path, *, needed: int) -> None:
    free = shutil.disk_usage(path.parent).free
    if free < needed + 2**20:
        raise NotPossibleHere(
            f"{path.parent} has {free / 1e9:.1f} GB left, and the file takes {needed / 1e9:.1f}; "
            "make room, or give a different folder"
        )


# -- the comparison --------------------------------------------------------------------------


def _setup(spec: Spec) -> Setup:
    """Compute on the CPU in the precision of the run."""
    precision = spec.precision
    profile = "cpu-bfloat16" if precision == "bfloat16" else "cpu"
    return Setup(profile=load(profile), mode="fast", seed=0)


def _image_to_compare(repeat: Repeat, store: Store) -> LabelledImage:
    """An image of the run, cut to a tile of Cellpose; a synthetic one if the store keeps none."""
    for name in repeat.manifest.masks:
        pixels = store.image(repeat.spec.images_digest, name)
        is_flat = pixels is not None and (pixels.ndim == 2 or pixels.shape[-1] in (2, 3))
        if pixels is None or not is_flat or pixels.ndim > 3:
            continue
        cut = pixels[:_CHECK_SIZE, :_CHECK_SIZE]
        size = f"{cut.shape[0]} x {cut.shape[1]} pixels of {name}"
        return LabelledImage(name if cut.shape == pixels.shape else size, cut, None, Path())
    (made_up,) = labelled_nuclei(1, shape=(_CHECK_SIZE, _CHECK_SIZE))
    return LabelledImage("a made-up image of nuclei", made_up.image, None, Path())


# -- the statement ---------------------------------------------------------------------------


def _bundle(exported: ExportedModel, repeat: Repeat, store: Store, signer: Signer | None) -> str:
    """The passport of the run, its receipts, and the statement about the file."""
    passports = passports_of([repeat], store=store, signer=signer)
    statement = _statement(exported, passports.passports[0])
    about_file = Attestation.of(statement, signer=signer)
    return bundle_text([*passports.attestations, about_file])


def _statement(exported: ExportedModel, passport: Passport) -> Statement:
    check = exported.check
    libraries = {"cellpose": known_version(), "torch": metadata.version("torch")}
    return model_statement(
        ResourceDescriptor(
            name=exported.file.name,
            digest={"sha256": exported.digest, TENSORS_DIGEST: exported.tensors},
        ),
        parameters={"run": passport.name, "format": "torch.save"},
        dependencies=(
            ResourceDescriptor(
                name="passport",
                digest={"sha256": passport.digest},
                annotations={"run": passport.name},
            ),
            ResourceDescriptor(
                name="weights.safetensors",
                digest={"sha256": passport.weights or "", TENSORS_DIGEST: exported.tensors},
            ),
            *(
                ResourceDescriptor(name=name, uri=package_url(name, version))
                for name, version in libraries.items()
            ),
        ),
        builder=Builder(id="urn:cellrepro:export", version={"cellrepro": __version__}),
        byproducts=(
            ResourceDescriptor(
                name="loaded-back",
                annotations={
                    "n_tensors": check.n_tensors,
                    "n_parameters": check.n_parameters,
                    "equal": True,
                    "image": check.image,
                    "masks": check.masks,
                    "n_cells": check.n_cells,
                    "dtype": check.dtype,
                },
            ),
        ),
    )
