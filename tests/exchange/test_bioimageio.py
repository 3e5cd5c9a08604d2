"""Packages of bioimage.io: accepted by the specification and by bioimageio.core's own test."""

import json
import os
import subprocess
import sys
import warnings
import zipfile
from importlib import util
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from made_up_records import made_up_machine, made_up_manifest, mask_record
from safetensors.numpy import save_file
from safetensors.torch import load_file

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.bioimageio.credits import Author, Citation, Credits
from cellrepro.exchange.bioimageio.measured_tolerance import MeasuredTolerance, Place
from cellrepro.exchange.bioimageio.measuring import (
    MeasuredOutput,
    PackagedTest,
    measure,
    usual_profiles,
)
from cellrepro.exchange.bioimageio.package import BioimageioPackage, export_bioimageio
from cellrepro.exchange.bioimageio.packaged_run import (
    InputTile,
    PackagedRun,
    PackagedWeights,
    Scaling,
    choose_tile,
    packaged_weights,
)
from cellrepro.exchange.bioimageio.readme import readme_text
from cellrepro.exchange.bioimageio.resource_description import (
    COVER,
    DESCRIPTION,
    ENVIRONMENT,
    NETWORK,
    README,
    TEST_INPUT,
    TEST_OUTPUT,
    WEIGHTS,
    describe_package,
    refuse_invalid,
    write_description,
)
from cellrepro.exchange.bioimageio.tolerance import HiddenObjects, Tolerance
from cellrepro.exchange.cellpose_check import write_torch_file
from cellrepro.model.network import parameter_shapes, seeded_network
from cellrepro.model.weights_file import save_weights
from cellrepro.spec.segmentation_settings import Normalize
from cellrepro.store.store import Store
from cellrepro.store.training_record import WeightsRecord
from samebits.digests import file_digest
from samebits.errors import BadInput, NotPossibleHere
from samebits.generator_states import generators_kept
from stores import some_spec

CORE = "bioimageio.core==0.11.0"
CREDITS = {"authors": ["Ada Lovelace"], "license": "CC-BY-4.0"}
SIZE = (300, 280)


def cells():
    """Nine disks in the lower right, one far from them, and an image in which they are bright."""
    y, x = np.ogrid[: SIZE[0], : SIZE[1]]
    labels = np.zeros(SIZE, np.uint16)
    centres = [(110 + 70 * i, 75 + 70 * j) for i in range(3) for j in range(3)]
    for label, (centre_y, centre_x) in enumerate([*centres, (16, 16)], 1):
        labels[(y - centre_y) ** 2 + (x - centre_x) ** 2 < 15**2] = label
    noise = np.random.default_rng(0).integers(0, 60, SIZE)
    return labels, ((labels > 0) * 900 + noise + 100).astype(np.uint16)


def add_network(store, *, seed=0, settings=None, image=None, masks=None, **fields):
    """Store a repeat whose network is a real `tiny` from a seed; its masks are drawn."""
    import tifffile

    labels, pixels = cells()
    labels = labels if masks is None else masks
    spec = some_spec(seed=seed, settings=settings or {}, **fields)
    with store.staging() as area:
        folder = area / "repeat"
        (folder / "masks").mkdir(parents=True)
        (folder / "data").mkdir()
        tifffile.imwrite(folder / "masks" / "cells.tif", labels, photometric="minisblack")
        tifffile.imwrite(
            folder / "data" / "cells.tif",
            pixels if image is None else image,
            photometric="minisblack",
        )
        digest = save_weights(
            seeded_network("tiny", seed=seed), folder / "weights.safetensors", architecture="tiny"
        )
        manifest = made_up_manifest(
            spec,
            {"cells": mask_record("cells", labels)},
            weights=WeightsRecord(digest=digest, n_changed=7),
        )
        (folder / "manifest.json").write_text(manifest.model_dump_json())
        return store.commit(folder, spec)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


# -- the test input ------------------------------------------------------------------------


def test_the_tile_is_where_most_was_found(store):
    tile = choose_tile(add_network(store), store)
    _, pixels = cells()
    assert (tile.image, tile.y, tile.x) == ("cells", 9, 0)
    expected = pixels[None, None, 9 : 9 + 256, :256].astype(np.float32)
    np.testing.assert_array_equal(tile.pixels, expected)


def test_small_images_are_mirrored_and_further_channels_left_out(store):
    image = np.arange(100 * 90 * 4, dtype=np.uint16).reshape(100, 90, 4)
    tile = choose_tile(add_network(store, image=image, masks=np.ones((100, 90), np.uint16)), store)
    assert tile.pixels.shape == (1, 3, 256, 256)
    np.testing.assert_array_equal(tile.pixels[0, 2, :100, :90], image[..., 2])
    np.testing.assert_array_equal(tile.pixels[0, :, 100], tile.pixels[0, :, 99])


def test_of_a_stack_the_plane_with_most_is_taken(store):
    labels, pixels = cells()
    masks = np.stack([np.zeros_like(labels), labels, labels * (labels < 3)])
    image = np.stack([pixels, pixels + 1, pixels + 2])
    tile = choose_tile(add_network(store, image=image, masks=masks), store)
    assert tile.pixels[0, 0, 0, 0] == pixels[tile.y, tile.x] + 1


def test_an_image_that_is_not_there_is_refused(store):
    repeat = add_network(store)
    with pytest.raises(BadInput, match="no image 'other'; expected one of cells"):
        choose_tile(repeat, store, image="other")
    for path in (store.root / "data").rglob("*"):
        if path.is_file():
            path.unlink()
    with pytest.raises(BadInput, match=r"has not kept the image cells.*--images"):
        choose_tile(repeat, store)


@pytest.mark.parametrize(
    ("normalize", "percentiles"),
    [({}, (1, 99)), ({"percentile": (2, 98)}, (2, 98)), ({"normalize": False}, None)],
    ids=["usual", "other percentiles", "off"],
)
def test_the_scaling_of_a_run(normalize, percentiles):
    assert Scaling.of(Normalize(**normalize)).percentiles == percentiles


@pytest.mark.parametrize("name", ["sharpen", "smooth_radius", "tile_norm_blocksize", "invert"])
def test_what_a_package_cannot_scale_is_refused(name):
    value = True if name == "invert" else 5
    with pytest.raises(BadInput, match=f"normalize.{name}, which a package .* no operation for"):
        Scaling.of(Normalize(**{name: value}))


# -- the network ---------------------------------------------------------------------------


def test_the_packaged_class_computes_what_cellpose_does(tmp_path):
    """With weights loaded strictly, each bit of the flows; switches of PyTorch are given back."""
    from cellrepro.model.packaged_network import packaged_network

    network = seeded_network("tiny", seed=3).eval()
    save_weights(network, tmp_path / "w.safetensors", architecture="tiny")
    weights = PackagedWeights(tmp_path / "w.safetensors", "tiny", 0)
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    with generators_kept():
        packaged = packaged_network(patch=weights.sizes.patch, encoder=weights.sizes.encoder)
    packaged.eval()
    packaged.load_state_dict(load_file(weights.file), strict=True)
    tile = torch.rand((2, 1, 256, 256), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        output = packaged(tile)
        expected = network(tile)[0]
    assert output.shape == (2, 3, 256, 256)
    assert torch.equal(output, expected)
    assert before == (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32)


@pytest.mark.parametrize("architecture", ["cellpose", "vit-l", "vit-b", "tiny-4"])
def test_the_packaged_class_has_the_parameters_of_each_network(architecture):
    """Cellpose's own is SAM's ViT-L, which needs no sizes; nothing is computed."""
    from cellrepro.model.packaged_network import packaged_network

    sizes = PackagedWeights(Path("w"), architecture, 0).sizes
    with generators_kept(), torch.device("meta"):
        packaged = packaged_network(**sizes.arguments()).state_dict()
    expected = parameter_shapes("vit-l" if architecture == "cellpose" else architecture)
    assert {name: tuple(tensor.shape) for name, tensor in packaged.items()} == expected
    assert ("encoder" in sizes.arguments()) is (architecture != "cellpose")


def test_weights_are_the_same_bytes_twice(tmp_path):
    save_weights(seeded_network("tiny", seed=3), tmp_path / "w.safetensors", architecture="tiny")
    weights = PackagedWeights(tmp_path / "w.safetensors", "tiny", 0)
    for name in ("a.pt", "another_name.pt"):
        write_torch_file(weights.file, tmp_path / name)
    assert file_digest(tmp_path / "a.pt") == file_digest(tmp_path / "another_name.pt")
    loaded = torch.load(tmp_path / "a.pt", weights_only=True)
    assert all(torch.equal(loaded[name], value) for name, value in load_file(weights.file).items())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["W2", "encoder.cls_token"], "a CPDINO network"),
        (["downsample.down.0.weight"], "no Cellpose-SAM network"),
    ],
    ids=["dino", "cellpose 3"],
)
def test_networks_of_other_kinds_are_refused(store, names, message):
    repeat = add_network(store)
    path = repeat.folder / "weights.safetensors"
    path.chmod(0o644)
    path.unlink()
    metadata = {"cellrepro": json.dumps({"architecture": "cellpose"})}
    save_file({name: np.zeros(3, np.float32) for name in names}, path, metadata=metadata)
    manifest = json.loads((repeat.folder / "manifest.json").read_bytes())
    manifest["files"]["weights.safetensors"] = file_digest(path)
    (repeat.folder / "manifest.json").chmod(0o644)
    (repeat.folder / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(BadInput, match=message):
        packaged_weights(store.find(repeat.spec.key), store, Path())


# -- what is given -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Ada Lovelace", Author("Ada Lovelace")),
        (" Élodie  (elodie-1) ", Author("Élodie", "elodie-1")),
    ],
)
def test_authors(text, expected):
    assert Author.parse(text) == expected


@pytest.mark.parametrize("text", ["", "a/b", "Ada (not a user)", "(ada)", "Ada (a) (b)"])
def test_no_author(text):
    with pytest.raises(BadInput, match="is no name; expected NAME"):
        Author.parse(text)


def test_citations():
    assert Citation.parse("10.1234/x") == Citation("10.1234/x", doi="10.1234/x")
    assert Citation.parse("Us, 2026: https://lab.example/p").url == "https://lab.example/p"
    for text in ("", "Smith 2026", "javascript:alert(1)", "10.12/x"):
        with pytest.raises(BadInput, match="ends with no DOI and no address"):
            Citation.parse(text)


@pytest.mark.parametrize(
    ("options", "name", "message"),
    [
        ({"license": "MY-OWN"}, "a.bioimageio.zip", "--license 'MY-OWN' is none .* as CC-BY-4.0"),
        ({"license": "CC-BY"}, "a.bioimageio.zip", "do you mean CC-BY-"),
        ({}, "a.txt", "expected a name that ends with .zip"),
        ({}, ".zip", "expected a name that ends with .zip"),
        ({}, "there.bioimageio.zip", "exists, and nothing is overwritten"),
        ({}, "nowhere/a.bioimageio.zip", "is no folder; expected one that is there"),
        ({"name": "Zellen für"}, "a.bioimageio.zip", "--name 'Zellen für' is no name"),
        ({"image": "other"}, "a.bioimageio.zip", "no image 'other'"),
        ({"profiles": ["cpu-bfloat16"]}, "a.bioimageio.zip", "computes in bfloat16"),
        ({"profiles": ["nothing"]}, "a.bioimageio.zip", "unknown profile 'nothing'"),
        ({"repeats": 0}, "a.bioimageio.zip", "repeats must be a whole number of at least 1"),
    ],
)
def test_wrong_input_is_refused_before_anything_is_measured(
    store, tmp_path, options, name, message
):
    repeat = add_network(store)
    (tmp_path / "there.bioimageio.zip").write_text("")
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(BadInput, match=message):
        export_bioimageio(
            repeat.spec.key, tmp_path / name, **{**CREDITS, "store": store.root, **options}
        )
    assert {path.name for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["a", "x.intoto.jsonl", "--author", "Ada"], "--author would do nothing but for NAME"),
        (["a", "x.bioimageio.zip", "--weights"], "--weights would do nothing in a package"),
        (["a", "b", "x.bioimageio.zip"], "holds the network of one run, and 2 were named"),
        (["a", "x.tar", "--bioimageio", "--author", "Ada"], "is to hold a package"),
    ],
)
def test_wrong_words_of_the_command_line(words, message, tmp_path, monkeypatch, invoke):
    monkeypatch.chdir(tmp_path)
    done = invoke("export", *words)
    assert done.code == 2
    assert message in " ".join(done.err.split())
    assert not [*tmp_path.iterdir()]


def test_a_run_of_another_program_is_refused(store, tmp_path):
    repeat = add_network(store, task="wrap", program=("segment",), model="program")
    with pytest.raises(BadInput, match="a run of another program, of whose network nothing"):
        export_bioimageio(repeat.spec.key, tmp_path / "a.bioimageio.zip", store=store.root)


def test_packages_are_measured_in_float32_and_the_reference_comes_first():
    names = usual_profiles()
    assert names[0] == "cpu"
    assert {"cpu-1thread", "cpu-portable", "cuda"} <= {*names}
    assert not {"cpu-bfloat16", "cellpose-default"} & {*names}


def test_a_machine_that_has_none_of_the_profiles(tmp_path):
    if torch.cuda.is_available():
        pytest.skip("this machine has the device")
    test = PackagedTest(tmp_path, None, np.zeros((1, 1, 256, 256), np.float32))
    with pytest.raises(NotPossibleHere, match="needs the device 'cuda'"):
        measure(test, ["cuda"], repeats=1, quiet=True)


# -- what the specification says -----------------------------------------------------------


def content(**changes):
    usual = {
        "name": "Cellpose cells",
        "summary": "A network.",
        "credits": Credits(
            (Author("Ada", "ada-l"),), "CC-BY-4.0", (Citation("x", url="https://lab.invalid/p"),)
        ),
        "timestamp": "2026-11-01T12:00:00+00:00",
        "tile": InputTile("cells", 0, 0, np.ones((1, 2, 256, 256), np.float32)),
        "scaling": Scaling(),
        "architecture": {"patch": 8},
        "n_parameters": 7,
        "pytorch": "2.15.0",
        "tolerance": Tolerance(1e-5, 1e-4, 0),
        "ours": {"key": "0a", "measured": [{"profile": "cpu", "cuda": None}]},
    }
    return {**usual, **changes}


@pytest.fixture
def files(tmp_path):
    """A folder with every file that a description names."""
    folder = tmp_path / "package"
    folder.mkdir()
    np.save(folder / TEST_INPUT, np.ones((1, 2, 256, 256), np.float32))
    np.save(folder / TEST_OUTPUT, np.ones((1, 3, 256, 256), np.float32))
    for name in (
        README,
        NETWORK,
        WEIGHTS,
    ):
        (folder / name).write_text("# Validation\n")
    environment = {"dependencies": ["python", "pip", {"pip": ["torch==2.15.0"]}]}
    (folder / ENVIRONMENT).write_text(yaml.safe_dump(environment))
    from PIL import Image

    Image.new("RGB", (512, 256)).save(folder / COVER)
    return folder


def test_the_specification_accepts_a_description_without_the_network(files, monkeypatch):
    """Users of GitHub and addresses are not looked up; what is read back is what was meant."""
    import httpx
    from bioimageio.spec import ValidationContext, load_model_description

    def no_network(*args, **kwargs):
        raise AssertionError("nothing may be fetched")

    for name in ("get", "request", "stream"):
        monkeypatch.setattr(httpx, name, no_network)
    values = describe_package(files, **content())
    refuse_invalid(values, files)
    write_description(values, files / DESCRIPTION)
    with warnings.catch_warnings(), ValidationContext(perform_io_checks=False, log_warnings=False):
        warnings.simplefilter("ignore")
        model = load_model_description(files / DESCRIPTION)
    (tolerance,) = model.config.bioimageio.reproducibility_tolerance
    assert (tolerance.relative_tolerance, tolerance.absolute_tolerance) == (1e-5, 1e-4)
    assert tolerance.mismatched_elements_per_million == 0
    assert model.config.cellrepro["measured"] == [{"profile": "cpu", "cuda": None}]
    assert [str(entry.doi) for entry in model.cite[1:]] == [
        "10.1038/s41592-020-01018-x",
        "10.1101/2025.04.28.651001",
    ]


def test_a_package_for_oneself_names_nobody(files):
    """The specification accepts that; what the collection asks for beyond it is said."""
    credits = Credits.parse([], None)
    refuse_invalid(describe_package(files, **content(credits=credits)), files)
    no_author, no_licence = credits.missing
    assert "--author" in no_author
    assert "--license" in no_licence
    assert Credits.parse(["Ada"], "CC-BY-4.0").missing == ()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"credits": Credits((Author("Ada"),), "MY-OWN")}, "license"),
        ({"tolerance": Tolerance(0.02, 1e-4)}, "relative_tolerance"),
        ({"tolerance": Tolerance(1e-3, 0.02)}, "1% of the maximum value of the test tensor"),
        ({"tolerance": Tolerance(1e-3, 1e-3, 30_001)}, "mismatched_elements_per_million"),
        ({"tile": InputTile("c", 0, 0, np.ones((1, 1, 256, 256), np.float32))}, "test_tensor"),
    ],
    ids=["licence", "relative", "absolute", "share", "channels"],
)
def test_what_the_specification_refuses_is_refused(files, changes, message):
    with pytest.raises(BadInput, match=f"(?s)does not accept the package: .*{message}"):
        refuse_invalid(describe_package(files, **content(**changes)), files)


# -- what is said of a package -------------------------------------------------------------

SHAPE = (1, 3, 4, 4)


def measured(value=1.0, *, profile="cuda", **machine):
    output = np.full(SHAPE, value, np.float32)
    return MeasuredOutput(made_up_machine(**machine), profile, threads=2, output=output)


def judged_tolerance(outputs, far):
    masks = np.zeros((4, 4), np.uint32)
    masks[1:3, 1:3] = 1
    return MeasuredTolerance(
        tolerance=Tolerance(0.002, 0.003, 0),
        factor=10.0,
        difference=2e-4,
        factor_needed=None,
        expected=outputs[0].output,
        masks=masks,
        places=(
            Place(0.0, Verdict.IDENTICAL, outputs),
            Place(2e-4, Verdict.IDENTICAL, (far,)),
        ),
        hidden=HiddenObjects(0, 3, 0, smallest_object=12),
        default_holds=False,
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "Cellpose itself takes the percentiles of the whole image.\n\nMasks of one tile"),
        ({"normalize": {"normalize": False}}, "Intensities are taken as they are.\n\nMasks of"),
        ({"flow_threshold": 0.5}, "resize_and_compute_masks(flows, logit, flow_threshold=0.5)\n"),
        ({"diameter": 60.0}, "whole images through Cellpose with `diameter=60.0`.\n\nThe file"),
    ],
    ids=["usual", "not scaled", "after the network", "before it"],
)
def test_the_documentation_says_how_the_run_was_made(store, settings, expected):
    """Names of machines are texts in it, not Markdown or HTML."""
    repeat = add_network(store, settings=settings)
    subject = PackagedRun(
        repeat=repeat,
        weights=PackagedWeights(repeat.weights, "tiny", 84),
        tile=choose_tile(repeat, store),
        scaling=Scaling.of(repeat.spec.settings.normalize),
    )
    outputs = (measured(profile="cpu", label="<kyoto>|x"),)
    text = readme_text(
        subject,
        judged_tolerance(outputs, measured(1.5, cuda="13.0")),
        name="Cells",
        verdict="a *verdict*",
        not_possible={"mps": "no such device"},
        passport="e" * 64,
    )
    assert expected in text
    assert "<kyoto>" not in text
    assert "&lt;kyoto&gt;\\|x" in text
    assert "a \\*verdict\\*" in text
    assert text.endswith("Not to be had where the package was made: mps.\n")
    assert "\n\n\n" not in text


def test_a_package_says_its_tolerance_and_on_what_it_rests():
    outputs = (measured(profile="cpu"), measured(profile="cpu"))
    judged = judged_tolerance(outputs, measured(1.5, label="kyoto", cuda="13.0"))
    package = BioimageioPackage(
        file=Path("a.bioimageio.zip"),
        digest="d" * 64,
        runs=("k/m/0",),
        not_possible={"mps": "no such device"},
        missing=("no licence was given",),
        _judged=judged,
    )
    document = json.loads(package.as_json())
    assert document.keys() == {
        *("file", "digest", "runs", "not_possible", "missing", "tolerance", "factor"),
        *("factor_needed", "default_holds", "measured", "hidden"),
    }
    assert document["tolerance"] == {
        "relative_tolerance": 0.002,
        "absolute_tolerance": 0.003,
        "mismatched_elements_per_million": 0,
    }
    first, second = document["measured"]
    assert (first["profile"], first["processes"], first["distinct_outputs"]) == ("cpu", 2, 1)
    assert (second["masks"], second["largest_difference"]) == ("identical", 2e-4)
    assert document["hidden"] == {
        "n_pixels": 0,
        "n_uncertain_pixels": 3,
        "n_uncertain_objects": 0,
        "smallest_object": 12,
        "diameter": 0.0,
    }
    text = package.as_text()
    assert text.startswith("a.bioimageio.zip: network of k/m/0\ntolerance: relative 0.002,")
    assert ": largest difference 2.0e-04, masks identical\n" in text
    assert "Cellpose makes the same 1 object, in every pixel and number\n" in text
    assert "\nNot to be had where the package was made: mps.\n" in text
    assert text.endswith("\nno licence was given\n")


# -- the whole -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Two exports of one run."""
    folder = tmp_path_factory.mktemp("exported")
    store = Store(folder / "store")
    key = add_network(store).spec.key
    options = {**CREDITS, "store": store.root, "repeats": 1, "quiet": True}
    profiles = ["cpu", "cpu-1thread"]
    packages = [
        export_bioimageio(key, folder / f"{name}.bioimageio.zip", profiles=profiles, **options)
        for name in ("first", "second")
    ]
    return packages


@pytest.mark.slow
def test_equal_runs_give_equal_packages(exported):
    first, second = exported
    assert first.digest == second.digest == file_digest(first.file)
    with zipfile.ZipFile(first.file) as package:
        assert package.namelist() == sorted(package.namelist())
        assert package.testzip() is None
        passport = json.loads(package.read("passport.intoto.jsonl"))
        described = yaml.safe_load(package.read("bioimageio.yaml"))
    assert passport["predicateType"] == "https://slsa.dev/provenance/v1"
    assert described["timestamp"] == "2026-11-01T12:00:00+00:00"
    assert "measured" in described["config"]["cellrepro"]["tolerance"]
    assert "2 measurements, each in a process of its own, on one machine" in str(first)


IN_CORE = """
import json, sys
from pathlib import Path
import numpy as np
from bioimageio.core import test_model
from bioimageio.core._resource_tests import evaluate_mismatched_elements
from bioimageio.core.tensor import Tensor

def of(array):
    return Tensor.from_numpy(array, dims=("batch", "channel", "y", "x"))

tolerances = json.loads(sys.argv[1])
cases = np.load(sys.argv[2])
ppm = [
    evaluate_mismatched_elements(of(cases["actual"]), of(cases["expected"]), r, a, "flows")[0]
    for r, a in tolerances
]
packages = {}
for path in sys.argv[3:]:
    summary = test_model(Path(path))
    packages[path] = summary.status, [e.msg for d in summary.details for e in d.errors]
print(json.dumps({"ppm": ppm, "packages": packages}))
"""


@pytest.fixture(scope="module")
def core_python(tmp_path_factory):
    """An environment of its own with bioimageio.core, and with the libraries of this one."""
    if util.find_spec("uv") is None:
        pytest.skip("needs uv")
    folder = tmp_path_factory.mktemp("core") / "environment"
    uv = (sys.executable, "-m", "uv")
    subprocess.run(
        [*uv, "venv", "--python", sys.executable, folder], check=True, capture_output=True
    )
    python = folder / "bin" / "python"
    # Its own requirements name an older specification, which fails under a new pydantic.
    wanted = ("--no-deps", CORE, "xarray")
    done = subprocess.run(
        [*uv, "pip", "install", "--python", python, *wanted], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"no package registry answers: {done.stderr[-200:]}")
    (site_packages,) = folder.glob("lib/python*/site-packages")
    (site_packages / "of_the_lab.pth").write_text(str(Path(torch.__file__).parents[1]))
    return python


def with_weights(package, path, change):
    """A copy of a package whose weights were changed, with digests that are right."""
    import hashlib
    import io

    with zipfile.ZipFile(package) as original, zipfile.ZipFile(path, "w") as copy:
        weights = torch.load(io.BytesIO(original.read("weights.pt")), weights_only=True)
        change(weights)
        stream = io.BytesIO()
        torch.save(weights, stream)
        described = yaml.safe_load(original.read("bioimageio.yaml"))
        digest = hashlib.sha256(stream.getvalue()).hexdigest()
        described["weights"]["pytorch_state_dict"]["sha256"] = digest
        contents = {name: original.read(name) for name in original.namelist()}
        contents["weights.pt"] = stream.getvalue()
        contents["bioimageio.yaml"] = yaml.safe_dump(described).encode()
        for name, content in contents.items():
            copy.writestr(name, content)
    return path


def expected_of(package):
    with (
        zipfile.ZipFile(package.file) as files,
        files.open(TEST_OUTPUT) as stream,
    ):
        return np.load(stream)


def scaled_by(factor):
    def change(weights):
        weights["out.weight"] *= factor

    return change


@pytest.mark.slow
def test_bioimageio_core_accepts_the_package_and_notices_a_changed_weight(
    exported, core_python, tmp_path
):
    """Its own test with the package's own tolerance, and its count of elements beside ours."""
    first = exported[0]
    expected = expected_of(first)
    relative = first.tolerance.relative_tolerance
    absolute = first.tolerance.absolute_tolerance
    generator = np.random.default_rng(0)
    noise = generator.normal(0, absolute, expected.shape).astype(np.float32)
    np.savez(tmp_path / "cases.npz", actual=expected + noise, expected=expected)
    tolerances = [(relative * scale, absolute * scale) for scale in (0.1, 0.5, 1, 2)]
    less = with_weights(first.file, tmp_path / "less.zip", scaled_by(1 + relative / 2))
    more = with_weights(first.file, tmp_path / "more.zip", scaled_by(1 + 4 * relative))
    paths = [str(first.file), str(less), str(more)]
    command = [core_python, "-c", IN_CORE, json.dumps(tolerances), tmp_path / "cases.npz", *paths]
    variables = {name: v for name, v in os.environ.items() if name != "PYTHONPATH"}
    scratch = {"BIOIMAGEIO_CACHE_PATH": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**variables, **scratch}
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    ours = [
        Tolerance(r, a).n_mismatched(expected + noise, expected) / expected.size * 1e6
        for r, a in tolerances
    ]
    assert said["ppm"] == pytest.approx(ours, abs=1e-9)
    assert said["ppm"][0] > 0
    statuses = {Path(path).name: status for path, (status, _) in said["packages"].items()}
    assert statuses == {
        "first.bioimageio.zip": "passed",
        "less.zip": "passed",
        "more.zip": "valid-format",  # of a whole form, but its test has failed
    }
    (message,) = said["packages"][str(more)][1]
    assert "elements disagree with expected values" in message
