"""Sources of difference outside the step: true on real images, found when planted, not invented."""

import os
import re
import shutil
from contextlib import contextmanager

import pytest

from cellrepro.audits import experiments_of_reading, outside_the_step
from cellrepro.images.folder import read_folder
from cellrepro.images.synthetic_sets import write_folder
from cellrepro.model.evaluator import shared_defaults
from cellrepro.model.network import import_cellpose
from samebits.generator_states import capture
from samebits.modes import switches

NAMES = "file-order two-readings augmentation loader import-order initial-weights hidden-state"
N = 4  # training images


def digests_in(fact):
    return re.findall(r"\b[0-9a-f]{12}\b", fact)


@pytest.fixture(scope="module", autouse=True)
def alone():
    """One thread here and in children: no waiting for a busy neighbour's core."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield
    torch.set_num_threads(before)


def train_on(folder, *names):
    """A folder whose training images have these names."""
    write_folder(folder / "made", n_train=len(names), n_test=0, shape=(160, 160))
    (folder / "train").mkdir(parents=True)
    for index, name in enumerate(names):
        stem, _, ending = name.partition(".")
        source = folder / "made" / "train" / f"synth_{index:03}"
        shutil.copy(f"{source}.tif", folder / "train" / f"{stem}.{ending or 'tif'}")
        shutil.copy(f"{source}_masks.tif", folder / "train" / f"{stem}_masks.tif")
    shutil.rmtree(folder / "made")
    return read_folder(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four training images, named as people name them."""
    return train_on(tmp_path_factory.mktemp("sources"), "img1", "img2", "img10", "img11")


@pytest.fixture(scope="module")
def defaults():
    import_cellpose()
    return shared_defaults()


@pytest.fixture(scope="module")
def found(folder, defaults):
    """Every probe once, two fresh processes included; and nothing is left behind."""

    def state():
        files = sorted(folder.path.rglob("*"))
        return capture(), switches(), dict(defaults), dict(os.environ), files

    before = state()
    sources = outside_the_step.sources_of_difference(folder.path, quiet=True)
    assert state() == before
    return {source.name: source for source in sources}


# -- what is true of Cellpose 4.2.1.1 ------------------------------------------------------


@pytest.mark.slow
def test_all_of_them_in_order_and_in_words(found):
    assert " ".join(found) == NAMES
    assert {name for name in found if not found[name].moves} == {"two-readings"}
    for source in found.values():
        assert source.n_compared > 0
        assert (source.remedy in source.sentence()) is source.moves


def test_files(found):
    """img10 comes before img2 in the alphabet, and Cellpose draws indices."""
    evidence = found["file-order"].evidence
    assert "sorted()" in evidence[0]
    assert (
        "sorted(): img1.tif, img10.tif, img11.tif, img2.tif; 3 of 4 places hold another"
        in evidence[3]
    )
    assert "0 of 4 places" in next(fact for fact in evidence if "io.get_image_files" in fact)
    (fact,) = found["two-readings"].evidence  # files; of each image pixels, masks, both prepared
    assert f" 0 of {1 + 4 * N} digests changed" in fact


def test_draws(found):
    evidence = found["augmentation"].evidence
    assert evidence[1] == "drawn from: NumPy"
    assert f"your own seeds 1 and 2: 0 of {N} batches differ" in evidence[2]
    assert evidence[3] == f"with data_seed=1: {N} of {N} differ"
    once, again, after = digests_in(evidence[0])
    assert once == again != after
    assert found["loader"].evidence == (
        "distinct orders 2 plain, 1 with loader_arguments; distinct crops 4 plain, "
        "3 with loader_arguments, 1 with item_generator",
    )


def test_what_the_process_did_before(found):
    head, *others, cellpose = found["import-order"].evidence
    assert head == "allow_tf32 set to False: True after the imports; changed by cellpose.models"
    assert all(fact.endswith("changed: nothing") for fact in others)
    assert cellpose.startswith("import cellpose.models changed: cuda_matmul_allow_tf32")
    plain, ours = found["initial-weights"].evidence
    for fact in (plain, ours):
        first, again, after = digests_in(fact)
        assert first == again
        assert (first == after) is ("(0 of " in fact) is (fact == ours)
    evidence = found["hidden-state"].evidence
    assert "2 of 2 images came out otherwise" in evidence[0]
    by_flag, by_stack = evidence[1].split("; ")
    assert by_flag.endswith("models.normalize_default: normalize True to False")
    assert by_stack == "eval of a plain stack wrote norm3D True to False"


# -- what is planted is found --------------------------------------------------------------


@pytest.fixture
def listed(monkeypatch):
    """Let the file system list every folder in an order of ours."""
    real = os.scandir

    def as_told(*, backwards):
        @contextmanager
        def scandir(path="."):
            with real(path) as scan:
                yield iter(sorted(scan, key=lambda entry: entry.name, reverse=backwards))

        monkeypatch.setattr(os, "scandir", scandir)

    return as_told


@pytest.mark.parametrize(
    ("names", "backwards", "expected"),
    [
        (("img_01", "img_02"), False, "every listing agrees"),
        (("img_01", "img_02"), True, "other than the reader's: the directory (os.scandir"),
        (("img1", "img2.Tif", "img3"), False, "Cellpose's io.get_image_files"),
    ],
    ids=["sorted", "backwards", "an ending unknown to Cellpose"],
)
def test_listings(tmp_path, listed, names, backwards, expected):
    """Also in a folder with brackets in its name, which Cellpose takes for a pattern."""
    images = train_on(tmp_path / "well [A1]", *names)
    listed(backwards=backwards)
    source = outside_the_step.file_order(images)
    assert source.moves is (expected != "every listing agrees")
    assert expected in source.evidence[0]


def test_readings_that_change_in_another_process(folder, monkeypatch):
    other = {"image train/img2": "e" * 64, "img10 flows": "f" * 64}
    monkeypatch.setattr(
        experiments_of_reading,
        "in_child",
        lambda task, *_, **__: task(None) | other,
    )
    source = outside_the_step.two_readings(folder)
    assert source.moves
    (fact,) = source.evidence
    assert fact.startswith(f"read in a fresh process: 2 of {1 + 4 * N} digests changed")
    assert fact.endswith("; image train/img2; img10 flows")


def test_what_augmentation_draws_from(folder, monkeypatch, defaults):
    """Planted into Cellpose's own augmentation."""
    import torch
    from cellpose import transforms

    real = transforms.random_rotate_and_resize

    def augment(images, **options):
        shown, *rest = real(images, **options)
        return (shown + torch.rand(1), *rest)

    monkeypatch.setattr(transforms, "random_rotate_and_resize", augment)
    source = outside_the_step.augmentation(folder)
    assert source.moves
    assert "drawn from: NumPy, PyTorch" in source.evidence
    assert f"{N} of {N} batches differ" in source.evidence[2]


def test_an_import_that_draws_or_switches(tmp_path, monkeypatch):
    modules = {
        "lab_reseeds": "import random, torch; random.seed(1); torch.manual_seed(1)",
        "lab_clean": "import json",
        "lab_switches": "import torch; torch.backends.cudnn.benchmark = True",
    }
    for name, code in modules.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    source = outside_the_step.import_order(list(modules))
    assert source.moves
    assert source.evidence[0].endswith("changed by lab_reseeds, lab_switches")
    assert source.evidence[1:] == (
        "import lab_reseeds changed: generator python, generator torch",
        "import lab_clean changed: nothing",
        "import lab_switches changed: cudnn_benchmark",
    )


def test_what_an_earlier_call_left_is_told(folder, defaults, monkeypatch):
    monkeypatch.setitem(defaults, "normalize", False)  # as an earlier call left them
    source = outside_the_step.hidden_state(folder)
    assert source.moves
    assert source.evidence[-1] == "normalize_default['normalize'] is False in this process now"
