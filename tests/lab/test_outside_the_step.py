"""Sources of difference outside the step: true on real images, found when planted, not invented."""

import itertools
import os
import re
import shutil
from contextlib import contextmanager

import numpy as np
import pytest

from cellrepro.determinism.modes import switches
from cellrepro.determinism.seeding import capture
from cellrepro.errors import BadInput
from cellrepro.images.folder import read_folder
from cellrepro.images.synthetic import write_folder
from cellrepro.lab import outside_the_step, process_state
from cellrepro.model import cellpose_itself
from cellrepro.model.network import import_cellpose

NAMES = [
    "file-order",
    "two-readings",
    "augmentation",
    "loader",
    "import-order",
    "initial-weights",
    "hidden-state",
]
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


def train_on(folder, *names, like=None):
    """A folder whose training images have these names, copies of one where that is named."""
    write_folder(folder / "made", n_train=len(names), n_test=0, shape=(160, 160))
    (folder / "train").mkdir(parents=True)
    for index, name in enumerate(names):
        stem, _, ending = name.partition(".")
        source = folder / "made" / "train" / f"synth_{like if like is not None else index:03}"
        shutil.copy(f"{source}.tif", folder / "train" / f"{stem}.{ending or 'tif'}")
        shutil.copy(f"{source}_masks.tif", folder / "train" / f"{stem}_masks.tif")
    shutil.rmtree(folder / "made")
    return folder


@pytest.fixture(scope="module")
def nuclei(tmp_path_factory):
    """Four training images, named as people name them."""
    return train_on(tmp_path_factory.mktemp("sources"), "img1", "img2", "img10", "img11")


@pytest.fixture(scope="module")
def folder(nuclei):
    return read_folder(nuclei)


@pytest.fixture(scope="module")
def defaults():
    import_cellpose()
    return cellpose_itself.shared_defaults()


@pytest.fixture(scope="module")
def found(nuclei, defaults):
    """Every probe once, two fresh processes included; and nothing is left behind."""

    def state():
        return capture(), switches(), dict(defaults), dict(os.environ), sorted(nuclei.rglob("*"))

    before = state()
    looked = outside_the_step.look(nuclei, quiet=True)
    assert state() == before
    return {source.name: source for source in looked}


# -- what is true of Cellpose 4.2.1.1 ------------------------------------------------------


def test_all_of_them_in_order_and_in_words(found):
    assert list(found) == NAMES
    assert {name for name in NAMES if not found[name].moves} == {"two-readings"}
    for source in found.values():
        answer = "Yes" if source.moves else "No"
        over = f"over {source.n_compared} comparisons"
        sentence = source.sentence()
        assert sentence.startswith(f"{source.question} {answer}, {over}: {source.evidence[0]}")
        assert (source.remedy in sentence) is source.moves
        assert source.n_compared > 0


def test_the_alphabets_order_is_other(found):
    """img10 comes before img2, and Cellpose draws indices."""
    evidence = found["file-order"].evidence
    assert "sorted()" in evidence[0]
    assert "cellrepro's reader: img1.tif, img2.tif, img10.tif, …" in evidence
    assert "Cellpose's io.get_image_files: the same order" in evidence
    assert (
        "sorted(): img1.tif, img10.tif, img11.tif, …; 3 of 4 places hold another image, and "
        "3 of 4 batches drawn with the same numbers are others"
    ) in evidence


def test_two_readings_agree(found):
    """Files, and for each image the pixels, masks, normalised pixels and flows."""
    assert [fact.partition(" digests")[0] for fact in found["two-readings"].evidence] == [
        f"read again here: 0 of {1 + 4 * N}",
        f"read in a fresh process: 0 of {1 + 4 * N}",
    ]


def test_augmentation_follows_numpy_and_no_seed_of_the_user(found):
    evidence = found["augmentation"].evidence
    assert evidence[1:] == (
        "drawn from: NumPy",
        f"one epoch with data_seed='cellpose' after your own seeds 1 and 2: 0 of {N} batches "
        "differ",
        f"with data_seed=1: {N} of {N} differ",
    )
    once, again, after = digests_in(evidence[0])
    assert once == again != after


def test_a_plain_loader_changes_and_a_pinned_one_does_not(found):
    assert found["loader"].evidence[0] == (
        "distinct orders 2 plain, 1 with loader_arguments; distinct crops 4 plain, "
        "3 with loader_arguments, 1 with item_generator"
    )


def test_importing_cellpose_undoes_a_switch_and_changes_no_generator(found):
    evidence = found["import-order"].evidence
    assert evidence[0] == (
        "allow_tf32 set to False: True after the imports, False when set after them; "
        "moved by cellpose.models"
    )
    assert all("generators moved: none" in fact for fact in evidence[1:-1])
    assert "cuda_matmul_allow_tf32 False to True" in evidence[3]
    before, after = digests_in(evidence[-1])
    assert before == after


def test_pytorchs_weights_follow_every_draw_and_seeded_ones_do_not(found):
    plain, ours = found["initial-weights"].evidence
    assert plain.startswith("PyTorch's own initialisation: seed 0 ")
    assert ours.startswith("cellrepro's seeded_network: seed 0 ")
    for fact in (plain, ours):
        first, again, other, after = digests_in(fact)
        assert first == again != other
        assert (first == after) is ("(0 of " in fact) is (fact == ours)


def test_eval_writes_into_shared_defaults(found):
    evidence = found["hidden-state"].evidence
    assert "2 of 2 images came out otherwise" in evidence[0]
    assert evidence[2] == (
        "eval(normalize=False) wrote into models.normalize_default: normalize True to False"
    )
    plain, plain_after = digests_in(evidence[3])
    assert plain == plain_after


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
        (("img_01", "img_02", "img_10"), False, "every listing agrees"),
        (("img_01", "img_02"), True, "other than the reader's: the directory (os.scandir"),
        # Cellpose hands natsort a set, so such names follow the hash seed of the process.
        (("img01", "img1", "img2"), False, "natsorted() of a listing backwards"),
        (("img1", "img2.Tif", "img3"), False, "Cellpose's io.get_image_files"),
    ],
    ids=["sorted", "backwards", "equal for natsort", "an ending unknown to Cellpose"],
)
def test_listings(tmp_path, listed, names, backwards, expected):
    """Also in a folder with brackets in its name, which Cellpose takes for a pattern."""
    listed(backwards=backwards)
    source = outside_the_step.file_order(train_on(tmp_path / "well [A1]", *names))
    assert source.moves is (expected != "every listing agrees")
    assert expected in source.evidence[0]
    if "Tif" in names[1]:
        assert "Cellpose's io.get_image_files: lists 2 of 3, not img2.Tif" in source.evidence


def test_orders_that_change_nothing(tmp_path, listed):
    """Equal images in another order train alike; one image has one order only."""
    listed(backwards=False)
    names = [f"img{number}" for number in range(1, 13)]
    source = outside_the_step.file_order(train_on(tmp_path / "a", *names, like=0))
    assert not source.moves
    assert source.n_compared == 12
    # Six at most are augmented, of those that change places.
    assert any("places hold another image, and 0 of 6" in fact for fact in source.evidence)
    source = outside_the_step.file_order(train_on(tmp_path / "b", "img1"))
    assert (source.moves, source.n_compared, source.vacuous) == (False, 0, True)
    assert source.sentence().endswith("Not tried: 1 image to train on has one order only")


def test_readings_that_change_here_or_in_another_process(nuclei, monkeypatch):
    real, n_read = outside_the_step.read_folder, itertools.count(1)

    def flaky(path, **options):
        folder = real(path, **options)
        if next(n_read) == 2:
            folder.train[1].image[3, 4] ^= 1
        return folder

    def elsewhere(work, setup, *, data, **options):
        return {**outside_the_step.readings(None, data=data), "flows train/img10": "f" * 64}

    monkeypatch.setattr(outside_the_step, "read_folder", flaky)
    monkeypatch.setattr(outside_the_step, "call", elsewhere)
    source = outside_the_step.two_readings(nuclei)
    assert source.moves
    again, image, normalised, fresh, flows = source.evidence
    assert again.startswith(f"read again here: 2 of {1 + 4 * N} digests changed")
    assert "image train/img2" in image
    assert "normalised train/img2" in normalised
    assert fresh.startswith("read in a fresh process: 1 of")
    assert flows.startswith("read in a fresh process: flows train/img10 ")
    assert flows.endswith("then ffffffffffff")


@pytest.mark.parametrize(
    ("draw", "still", "moves", "drawn_from"),
    [
        (lambda: __import__("torch").rand(1).item(), False, True, "NumPy, PyTorch"),
        (lambda: np.random.default_rng().random(), False, True, "Python, NumPy, PyTorch"),
        (lambda: 0.0, True, False, "no global generator"),
    ],
    ids=["PyTorch", "no seed reaches", "nothing"],
)
def test_what_augmentation_draws_from(
    folder, monkeypatch, defaults, draw, still, moves, drawn_from
):
    """Planted into Cellpose's own augmentation."""
    from cellpose import transforms

    real = transforms.random_rotate_and_resize

    def augment(images, **options):
        state = np.random.get_state()
        if still:
            np.random.seed(0)
        shown, *rest = real(images, **options)
        if still:
            np.random.set_state(state)
        return (shown + draw(), *rest)

    monkeypatch.setattr(transforms, "random_rotate_and_resize", augment)
    source = outside_the_step.augmentation(folder)
    assert source.moves is moves
    assert f"drawn from: {drawn_from}" in source.evidence
    n_other = N if moves else 0
    assert f"your own seeds 1 and 2: {n_other} of {N} batches differ" in source.evidence[2]
    assert ("no seed reaches" in source.remedy) is ("Python" in drawn_from)


def test_a_data_seed(folder):
    source = outside_the_step.augmentation(folder, data_seed=2**32 - 1)
    assert f"data_seed=4294967295 after your own seeds 1 and 2: 0 of {N}" in source.evidence[2]
    assert source.evidence[3] == f"with data_seed=0: {N} of {N} differ"


def test_a_loader_that_is_not_pinned(folder, monkeypatch):
    monkeypatch.setattr(outside_the_step, "loader_arguments", lambda seed: {})
    source = outside_the_step.loader(folder, workers=(0,))
    assert "distinct orders 2 plain, 2 with loader_arguments" in source.evidence[0]
    assert source.n_compared == N * 3 * 2


def test_an_import_that_draws_or_switches(tmp_path, monkeypatch):
    """Each of these is found, and nothing is said of the one that does nothing."""
    modules = {
        "lab_draws": "import numpy; numpy.random.rand()",
        "lab_reseeds": "import random, torch; random.seed(1); torch.manual_seed(1)",
        "lab_clean": "import json",
        "lab_switches": "import os, torch; torch.backends.cudnn.benchmark = True\n"
        "os.environ['LAB'] = '1'",
    }
    for name, code in modules.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    source = process_state.import_order(list(modules))
    assert source.moves
    assert source.evidence[0].endswith("moved by lab_draws, lab_reseeds, lab_switches")
    assert source.evidence[1:-1] == (
        "import lab_draws: generators moved: numpy; switches changed: none",
        "import lab_reseeds: generators moved: python, torch; switches changed: none",
        "import lab_clean: generators moved: none; switches changed: none",
        "import lab_switches: generators moved: none; switches changed: cudnn_benchmark False to "
        "True; variables changed: LAB",
    )


def test_a_network_of_ours_that_draws_from_elsewhere(monkeypatch):
    real = process_state.seeded_network

    def leaky(name, *, seed):
        network = real(name, seed=seed)
        network.out.bias.data += float(np.random.rand())
        return network

    monkeypatch.setattr(process_state, "seeded_network", leaky)
    source = process_state.initial_weights(seed=2**32 - 1)
    assert "(1 of " in source.evidence[1]
    assert "seed 4294967295" in source.evidence[1]
    assert ", seed 0 " in source.evidence[1]


def test_defaults_that_an_earlier_call_has_changed(folder, defaults, monkeypatch):
    monkeypatch.setitem(defaults, "normalize", False)
    source = process_state.hidden_state(folder)
    assert source.moves
    assert "normalize False to True" in source.evidence[2]
    assert source.evidence[-1] == "normalize_default['normalize'] is False in this process now"
    assert defaults["normalize"] is False


def test_the_defaults_come_back_from_a_failure(folder, defaults, monkeypatch):
    before = dict(defaults)

    def evaluator(network):
        def fail(image, normalize):
            defaults["normalize"] = "broken"
            raise ArithmeticError

        return fail

    monkeypatch.setattr(cellpose_itself, "evaluator", evaluator)
    with pytest.raises(ArithmeticError):
        process_state.hidden_state(folder)
    assert defaults == before


# -- what is given -------------------------------------------------------------------------


@pytest.mark.parametrize("probe", ["look", "file_order", "two_readings", "loader"])
def test_no_folder_of_images(tmp_path, probe):
    for name in ("missing cells", "empty cells"):
        path = tmp_path / name
        if name.startswith("empty"):
            path.mkdir()
        with pytest.raises(BadInput, match="cells"):
            getattr(outside_the_step, probe)(path)


def test_images_without_enough_masks(folder, monkeypatch):
    monkeypatch.setattr(outside_the_step, "trainable", lambda image: False)
    with pytest.raises(BadInput, match=f"none of the {N} training images has 5 masks or more"):
        outside_the_step.augmentation(folder)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"workers": ()}, r"workers is \(\); expected numbers of workers"),
        ({"workers": "02"}, "workers is '02'"),
        ({"workers": (0, -1)}, "workers must be a whole number of at least 0, got -1"),
        ({"workers": (2, 2)}, "names one number twice"),
        ({"data_seed": "numpy"}, "data_seed is 'numpy'"),
        ({"seed": 1.5}, "seed is 1.5"),
    ],
    ids=str,
)
def test_refusals_come_first(nuclei, monkeypatch, options, expected):
    monkeypatch.setattr(outside_the_step, "read_folder", None)
    with pytest.raises(BadInput, match=expected):
        outside_the_step.look(nuclei, **options)
