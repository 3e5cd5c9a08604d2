"""Every parser of what comes from outside, each as a function of some bytes.

`make fuzz` gives them bytes that it makes up (scripts/fuzz.py); plain pytest those of the corpus
(test_corpus.py). A target may end well, or refuse with a message. Anything else is a fault.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import shlex
import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

from cellrepro.errors import CellreproError

Target = Callable[[bytes, Path], None]

CORPUS = Path(__file__).with_name("corpus")
"""A folder for each target, with the inputs that reach most of it."""

MOST_BYTES: Mapping[str, int] = {"exported_zip": 2**15, "contents": 2**14, "tiff": 2**14}
"""Of an input that is made up; of the other targets `USUAL_MOST_BYTES`."""
USUAL_MOST_BYTES = 2**12


def look(name: str, data: bytes, folder: Path) -> str | None:
    """Give a target some bytes.

    Parameters
    ----------
    name : str
        Of `TARGETS`.
    data : bytes
    folder : Path
        Where files may be written; they are written over.

    Returns
    -------
    str or None
        The message with which it refuses; None where it takes them.

    Raises
    ------
    Exception
        Of any kind but a refusal: a fault.
    """
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        logging.disable()
        try:
            TARGETS[name](data, folder)
        except CellreproError as refusal:
            return str(refusal)
        finally:
            logging.disable(logging.NOTSET)
    return None


def _written(data: bytes, folder: Path, name: str) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


# -- JSON ------------------------------------------------------------------------------------------


def _strict_json(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.strict_json import read_json

    document = read_json(data, where="input")
    json.dumps(document, allow_nan=False).encode()


def _manifest(data: bytes, folder: Path) -> None:
    from cellrepro.store.manifest import Manifest
    from cellrepro.store.stored_run import read_record

    manifest = read_record(_written(data, folder, "manifest.json"), Manifest.model_validate_json)
    assert manifest.machine.name
    assert manifest.masks_digest


def _spec(data: bytes, folder: Path) -> None:
    from cellrepro.store.stored_run import read_record, read_spec

    spec = read_record(_written(data, folder, "spec.json"), read_spec)
    assert spec.key


def _bundle(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.bundle import bundle_text, read_bundle
    from cellrepro.exchange.signed.signature_check import check_signature

    bundle = read_bundle(_written(data, folder, "x.intoto.jsonl"))
    for attestation in bundle.attestations:
        check_signature(attestation, ())
    bundle_text(bundle.attestations)
    for passport in bundle.passports:
        bundle.receipts_of(passport)
    assert str(bundle)


def _settings_file(data: bytes, folder: Path) -> None:
    from cellrepro.explanation.mask_file_record import sidecar_record

    _written(data, folder, "a_masks.json")
    sidecar_record(folder / "a_masks.tif")


def _failure(data: bytes, folder: Path) -> None:
    from cellrepro.store.unfinished import read_failures

    place = folder / "failed" / "0123456789abcdef" / "machine" / "0"
    place.mkdir(parents=True, exist_ok=True)
    _written(data, place, "failure.json")
    read_failures(folder)


# -- keys ------------------------------------------------------------------------------------------


def _allowed_signers(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.signed.allowed_signers import read_allowed_signers

    read_allowed_signers(_written(data, folder, "allowed_signers"))


def _public_key(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.signed.keys import read_public_key

    key = read_public_key(_written(data, folder, "key.pub"))
    key.verifies(b"", b"")
    assert key.line
    assert key.fingerprint


def _private_key(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.signed.signer import find_signer

    (folder / "key.pub").unlink(missing_ok=True)
    path = _written(data, folder, "key")
    path.chmod(0o600)
    find_signer(path).sign(b"message")


# -- archives --------------------------------------------------------------------------------------


def _exported_zip(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.archive.contents import read_contents
    from cellrepro.exchange.archive.reading import opened_export

    with opened_export(_written(data, folder, "x.cellrepro.zip")) as archive:
        read_contents(archive)


def _contents(data: bytes, folder: Path) -> None:
    """A whole export with right digests, in which one file is replaced: what lies behind them."""
    from cellrepro.exchange.archive.writing import Outgoing, write_archive
    from cellrepro.exchange.importing import import_runs

    files = dict(_small_export())
    name = sorted(files)[data[0] % len(files)] if data else "passports.intoto.jsonl"
    files[name] = data[1:]
    for sums in sorted((each for each in files if each.endswith("/SHA256SUMS")), reverse=True):
        beside = sums.removesuffix("SHA256SUMS")
        if name.startswith(beside) and name != sums:
            old = hashlib.sha256(_small_export()[name]).hexdigest()
            new = hashlib.sha256(data[1:]).hexdigest()
            files[sums] = files[sums].replace(old.encode(), new.encode())
    path = folder / "x.cellrepro.zip"
    outgoing = [Outgoing.of_bytes(each, content) for each, content in files.items()]
    write_archive(path, outgoing, quiet=True)
    with tempfile.TemporaryDirectory(dir=folder) as store:
        import_runs(path, store=store, quiet=True)


@cache
def _small_export() -> Mapping[str, bytes]:
    """The files of an exported run that nobody trained, but for the sums over all."""
    import zipfile

    from cellrepro.exchange.export import export_runs
    from cellrepro.store.store import Store
    from stores import add_run, squares

    with tempfile.TemporaryDirectory() as scratch:
        store = Store(Path(scratch) / "outputs")
        run = add_run(store, [(1.0, {"img_a": squares()})])
        path = Path(scratch) / "x.cellrepro.zip"
        export_runs(run.key, path, weights=True, store=store.root, quiet=True)
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist() if "/" in name} | {
                name: archive.read(name) for name in archive.namelist() if name != "SHA256SUMS"
            }


# -- tensors and arrays ----------------------------------------------------------------------------


def _weights(data: bytes, folder: Path) -> None:
    from cellrepro.explanation.describe import describe

    assert str(describe(_written(data, folder, "model.pth")))


def _compared_weights(data: bytes, folder: Path) -> None:
    """One input as both sides: every number is read."""
    from cellrepro.comparison.weight_comparison import compare_weights

    path = _written(data, folder, "model.pth")
    compare_weights(path, path)


def _network_file(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.archive.file_checks import check_network

    check_network(_written(data, folder, "weights.safetensors"))


def _seg_file(data: bytes, folder: Path) -> None:
    from cellrepro.images.seg_file import read_seg

    assert str(read_seg(_written(data, folder, "a_seg.npy")))


def _outlines(data: bytes, folder: Path, *, name: str) -> None:
    from cellrepro.explanation.describe import describe
    from cellrepro.images.outline_files import read_outlines

    path = _written(data, folder, name)
    outlines = read_outlines(path)
    assert outlines.drawn((64, 64)).labels.shape == (64, 64)
    assert str(describe(str(path)))


def _array_archive(data: bytes, folder: Path) -> None:
    from cellrepro.images.image_file import read_labels

    read_labels(_written(data, folder, "a_masks.npz"))


def _labels(data: bytes, folder: Path, *, ending: str) -> None:
    from cellrepro.images.image_file import check_masks

    check_masks(folder / f"a_masks{ending}", data)


def _tiff(data: bytes, folder: Path) -> None:
    from cellrepro.explanation.mask_file_record import tiff_record
    from cellrepro.images.pixel_size import pixel_size_in

    _labels(data, folder, ending=".tif")
    file = _written(data, folder, "a_masks.tif")
    pixel_size_in(file)
    tiff_record(file)


def _ledger(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.archive.file_checks import check_ledger

    check_ledger(_written(data, folder, "ledger.parquet"))


def _notebook(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.archive.file_checks import check_notebook

    check_notebook(_written(data, folder, "notebook.ipynb"))


# -- texts -----------------------------------------------------------------------------------------


def _baseline(data: bytes, folder: Path) -> None:
    from cellrepro.store.baseline_file import read

    baseline = read(_written(data, folder, "a.baseline"))
    for image in baseline.record["images"]:
        baseline.masks(image)


def _run_log(data: bytes, folder: Path) -> None:
    from cellrepro.explanation.run_log import log_record

    log_record(_written(data, folder, "run.log"))


def _grid(data: bytes, folder: Path) -> None:
    from cellrepro.grid.grid_file import read_file

    read_file(_written(data, folder, "grid.yaml"))


def _profile(data: bytes, folder: Path) -> None:
    from cellrepro.profiles.profiles import load

    load(_written(data, folder, "mine.yaml"))


def _groups(data: bytes, folder: Path) -> None:
    from cellrepro.conclusions.groups import read_groups

    read_groups(_written(data, folder, "groups.csv"), ["well_1", "well_2", "1"])


def _archive_name(data: bytes, folder: Path) -> None:
    from cellrepro.exchange.archive.entry_names import EntryName

    EntryName.parse(data.decode("utf-8", errors="surrogateescape"))


TARGETS: Mapping[str, Target] = {
    "strict_json": _strict_json,
    "bundle": _bundle,
    "allowed_signers": _allowed_signers,
    "public_key": _public_key,
    "private_key": _private_key,
    "exported_zip": _exported_zip,
    "contents": _contents,
    "archive_name": _archive_name,
    "manifest": _manifest,
    "spec": _spec,
    "weights": _weights,
    "compared_weights": _compared_weights,
    "network_file": _network_file,
    "seg_file": _seg_file,
    "rois": lambda data, folder: _outlines(data, folder, name="a_rois.zip"),
    "roi": lambda data, folder: _outlines(data, folder, name="a.roi"),
    "outline_text": lambda data, folder: _outlines(data, folder, name="a_cp_outlines.txt"),
    "geojson": lambda data, folder: _outlines(data, folder, name="a.geojson"),
    "npz": _array_archive,
    "tiff": _tiff,
    "png": lambda data, folder: _labels(data, folder, ending=".png"),
    "npy": lambda data, folder: _labels(data, folder, ending=".npy"),
    "ledger": _ledger,
    "notebook": _notebook,
    "baseline": _baseline,
    "run_log": _run_log,
    "grid": _grid,
    "groups": _groups,
    "profile": _profile,
    "settings_file": _settings_file,
    "failure": _failure,
}
"""By the name of their folder in the corpus."""


def main(arguments: list[str]) -> None:
    """Fuzz one target in this process: ``fuzz_targets.py TARGET [options of libFuzzer]``."""
    import atheris

    name, *options = arguments
    with atheris.instrument_imports(include=["cellrepro"]):
        folder = Path(tempfile.mkdtemp())  # whoever started this removes it: Atheris ends hard
        look(name, b"", folder)  # imports what it needs, so that it is instrumented

        def one(data: bytes) -> None:
            look(name, data, folder)

        again = shlex.join([sys.executable, __file__, name])  # libFuzzer's merge starts itself
        atheris.Setup([again, *options], one)
        atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1:])
