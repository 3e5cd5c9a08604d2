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
from cellrepro.lab import outside_the_step
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
    (folder / "train").mkdir()
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
    from cellpose import models

    return models.normalize_default


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


def test_all_of_them_in_order(found):
    assert list(found) == NAMES
    assert {name for name in NAMES if not found[name].moves} == {"two-readings"}


@pytest.mark.parametrize("name", NAMES)
def test_in_words(found, name):
    source = found[name]
    assert source.n_compared > 0
    assert not source.vacuous
    assert source.question.endswith("?")
    assert len(source.remedy) > 40
    sentence = source.sentence()
    answer = "Yes" if source.moves else "No"
    assert sentence.startswith(f"{source.question} {answer}, over {source.n_compared} comparisons")
    assert source.evidence[0] in sentence
    assert (source.remedy in sentence) is source.moves
    assert all(isinstance(fact, str) and fact for fact in source.evidence)


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
    assert found["file-order"].n_compared == N


def test_two_readings_agree(found):
    """Files, and for each image the pixels, masks, normalised pixels and flows."""
    source = found["two-readings"]
    assert source.n_compared == 2 * (1 + 4 * N)
    assert [fact.partition(" digests")[0] for fact in source.evidence] == [
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


def test_a_plain_loader_moves_and_a_pinned_one_does_not(found):
    assert found["loader"].evidence[0] == (
        "distinct orders 2 plain, 1 with loader_arguments; distinct crops 4 plain, "
        "3 with loader_arguments, 1 with item_generator"
    )
    assert len(found["loader"].evidence) == 1 + 3 * 2


def test_importing_cellpose_undoes_a_switch_and_moves_no_generator(found):
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
    assert "(0 of " not in plain
    assert "(0 of " in ours
    for fact in (plain, ours):
        first, again, other, after = digests_in(fact)
        assert first == again != other
        assert (first == after) is (fact == ours)


def test_eval_writes_into_shared_defaults(found):
    evidence = found["hidden-state"].evidence
    assert "2 of 2 images came out otherwise" in evidence[0]
    assert evidence[2] == (
        "eval(normalize=False) wrote into models.normalize_default: normalize True to False"
    )
    plain, plain_after = digests_in(evidence[3])
    assert plain == plain_after


# -- file order ----------------------------------------------------------------------------


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


@pytest.mark.parametrize("backwards", [False, True], ids=["sorted", "backwards"])
def test_what_the_directory_says(tmp_path, listed, backwards):
    train_on(tmp_path, "img_01", "img_02", "img_10")
    listed(backwards=backwards)
    source = outside_the_step.file_order(tmp_path)
    assert source.moves is backwards
    assert source.evidence[0] == (
        "other than the reader's: the directory (os.scandir, Path.iterdir)"
        if backwards
        else "every listing agrees"
    )
    assert "Cellpose's io.get_image_files: the same order" in source.evidence


def test_names_that_natsort_takes_for_equal(tmp_path, listed):
    """Cellpose hands natsort a set, so such names follow the hash seed of the process."""
    train_on(tmp_path, "img01", "img1", "img2")
    listed(backwards=False)
    source = outside_the_step.file_order(tmp_path)
    assert source.moves
    assert "natsorted() of a listing backwards" in source.evidence[0]


def test_an_image_that_cellpose_does_not_list(tmp_path, listed):
    train_on(tmp_path, "img1", "img2.Tif", "img3")
    listed(backwards=False)
    source = outside_the_step.file_order(tmp_path)
    assert source.moves
    assert "Cellpose's io.get_image_files: lists 2 of 3, not img2.Tif" in source.evidence


def test_equal_images_in_another_order_train_alike(tmp_path, listed):
    train_on(tmp_path, "img1", "img2", "img10", like=0)
    listed(backwards=False)
    source = outside_the_step.file_order(tmp_path)
    assert not source.moves
    assert any("2 of 3 places hold another image, and 0 of 3" in fact for fact in source.evidence)


def test_brackets_in_a_folders_name(tmp_path, listed):
    """Cellpose takes its argument for a pattern."""
    folder = tmp_path / "well [A1]"
    folder.mkdir()
    train_on(folder, "img_1", "img_2")
    listed(backwards=False)
    assert not outside_the_step.file_order(folder).moves


def test_one_image_has_one_order(tmp_path):
    source = outside_the_step.file_order(train_on(tmp_path, "img1"))
    assert (source.moves, source.n_compared, source.vacuous) == (False, 0, True)
    assert source.sentence().endswith("Not tried: 1 image to train on has one order only")


def test_many_images_are_not_all_augmented(tmp_path, monkeypatch, folder):
    """Six at most, and those among them that change places."""
    shown = []
    real = outside_the_step._batches
    monkeypatch.setattr(
        outside_the_step,
        "_batches",
        lambda images, **o: shown.append(len(images)) or real(images, **o),
    )
    names = [f"img{number}" for number in range(1, 13)]
    source = outside_the_step.file_order(train_on(tmp_path, *names, like=0))
    assert max(shown) <= 6
    assert source.n_compared == 12
    assert not source.moves  # equal images


# -- reading -------------------------------------------------------------------------------


@pytest.fixture
def no_child(monkeypatch, nuclei):
    """Answer for the fresh process at once."""
    real = outside_the_step.read_folder
    answers = {}

    def in_child(probe, options):
        assert probe == "readings"
        return {**outside_the_step._readings(real(options["data"])), **answers}

    monkeypatch.setattr(outside_the_step, "_in_child", in_child)
    return answers


def test_a_pixel_that_changed_at_the_second_reading(nuclei, monkeypatch, no_child):
    n_read = 0

    def flaky(path, **options):
        nonlocal n_read
        n_read += 1
        folder = read_folder(path, **options)
        if n_read == 2:
            folder.train[1].image[3, 4] ^= 1
        return folder

    monkeypatch.setattr(outside_the_step, "read_folder", flaky)
    source = outside_the_step.two_readings(nuclei)
    assert source.moves
    again, *details, fresh = source.evidence
    assert again.startswith(f"read again here: 2 of {1 + 4 * N} digests changed")
    assert [fact.split()[3:5] for fact in details] == [
        ["image", "train/img2"],
        ["normalised", "train/img2"],
    ]
    assert fresh.startswith("read in a fresh process: 0 of")


def test_flows_that_another_process_computes_otherwise(folder, no_child):
    no_child["flows train/img10"] = "f" * 64
    source = outside_the_step.two_readings(folder)
    assert source.moves
    assert source.evidence[0].startswith("read again here: 0 of")
    assert source.evidence[1].startswith("read in a fresh process: 1 of")
    assert source.evidence[2].startswith("read in a fresh process: flows train/img10 ")
    assert source.evidence[2].endswith("then ffffffffffff")


# -- draws ---------------------------------------------------------------------------------


@pytest.fixture
def augmented_by(monkeypatch, defaults):
    """Plant what adds to Cellpose's augmentation; it takes and gives back a number."""
    from cellpose import transforms

    real = transforms.random_rotate_and_resize

    def plant(draw, *, still=False):
        def augment(images, **options):
            state = np.random.get_state()
            if still:
                np.random.seed(0)
            shown, *rest = real(images, **options)
            if still:
                np.random.set_state(state)
            return (shown + draw(), *rest)

        monkeypatch.setattr(transforms, "random_rotate_and_resize", augment)

    return plant


def test_a_draw_from_pytorch(folder, augmented_by):
    import torch

    augmented_by(lambda: torch.rand(1).item())
    source = outside_the_step.augmentation(folder)
    assert source.moves
    assert "drawn from: NumPy, PyTorch" in source.evidence
    assert f"your own seeds 1 and 2: {N} of {N} batches differ" in source.evidence[2]


def test_a_draw_that_no_seed_reaches(folder, augmented_by):
    augmented_by(lambda: np.random.default_rng().random())
    source = outside_the_step.augmentation(folder)
    assert source.moves
    assert "no seed reaches" in source.remedy
    assert f"your own seeds 1 and 2: {N} of {N} batches differ" in source.evidence[2]


def test_augmentation_that_draws_nothing(folder, augmented_by):
    augmented_by(lambda: 0.0, still=True)
    source = outside_the_step.augmentation(folder)
    assert not source.moves
    assert "drawn from: no global generator" in source.evidence


def test_augmentation_that_counts_its_calls(folder, augmented_by):
    """Equal twice in a row, and yet other from the same state."""
    calls = itertools.count()
    augmented_by(lambda: float(next(calls) > 1), still=True)
    assert outside_the_step.augmentation(folder).moves


def test_a_data_seed(folder):
    source = outside_the_step.augmentation(folder, data_seed=2**32 - 1)
    assert f"data_seed=4294967295 after your own seeds 1 and 2: 0 of {N}" in source.evidence[2]
    assert source.evidence[3] == f"with data_seed=0: {N} of {N} differ"


def test_a_loader_that_is_not_pinned(folder, monkeypatch):
    monkeypatch.setattr(outside_the_step, "loader_arguments", lambda seed: {})
    source = outside_the_step.loader(folder, workers=(0,))
    assert "distinct orders 2 plain, 2 with loader_arguments" in source.evidence[0]
    assert source.n_compared == N * 3 * 2


def test_a_loader_with_one_image_and_no_crop(tmp_path, monkeypatch):
    """Then nothing can move."""
    monkeypatch.setattr(
        outside_the_step._Cropped, "__getitem__", lambda self, index: (index, "all of it")
    )
    source = outside_the_step.loader(train_on(tmp_path, "img1"), workers=(0,))
    assert not source.moves
    assert source.evidence[0].startswith("distinct orders 1 plain, 1 with")


# -- imports -------------------------------------------------------------------------------


def test_an_import_that_draws(tmp_path, monkeypatch):
    """Each of these is found, and nothing is said of the one that does nothing."""
    planted = {
        "lab_draws": "import numpy; numpy.random.rand()",
        "lab_reseeds": "import random, torch; random.seed(1); torch.manual_seed(1)",
        "lab_clean": "import json",
        "lab_switches": "import os, torch; torch.backends.cudnn.benchmark = True\n"
        "os.environ['LAB'] = '1'",
    }
    for name, code in planted.items():
        (tmp_path / f"{name}.py").write_text(code, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(outside_the_step, "_IMPORTED", tuple(planted))
    source = outside_the_step.import_order()
    assert source.moves
    assert source.evidence[0].endswith("moved by lab_draws, lab_reseeds, lab_switches")
    assert source.evidence[1:-1] == (
        "import lab_draws: generators moved: numpy; switches changed: none",
        "import lab_reseeds: generators moved: python, torch; switches changed: none",
        "import lab_clean: generators moved: none; switches changed: none",
        "import lab_switches: generators moved: none; switches changed: cudnn_benchmark False to "
        "True; variables changed: LAB",
    )


@pytest.fixture
def imported(monkeypatch):
    """What a fresh process would have answered."""

    def answer(**changes):
        stage = {"module": "clean", "generators": [], "switches": {}, "variables": [], **changes}
        monkeypatch.setattr(
            outside_the_step,
            "_in_child",
            lambda probe, options: {
                "stages": [stage],
                "set_before": False,
                "set_after": False,
                "before": "a" * 64,
                "after": "a" * 64,
                "n_read": 20,
            },
        )

    return answer


@pytest.mark.parametrize(
    ("changes", "moves"),
    [
        ({}, False),
        ({"variables": ["PATH"]}, False),
        ({"generators": ["NumPy"]}, True),
        ({"switches": {"onednn": (True, False)}}, True),
    ],
    ids=["nothing", "a variable", "a generator", "a switch"],
)
def test_which_imports_move(imported, changes, moves):
    imported(**changes)
    source = outside_the_step.import_order()
    assert source.moves is moves
    assert ("moved by clean" in source.evidence[0]) is moves
    assert source.n_compared == 20


# -- weights -------------------------------------------------------------------------------


def test_weights_that_follow_the_seed_alone(monkeypatch):
    monkeypatch.setattr(
        outside_the_step,
        "_as_pytorch",
        lambda *, seed: outside_the_step.seeded_network("tiny", seed=seed),
    )
    source = outside_the_step.initial_weights(seed=2**32 - 1)
    assert not source.moves
    assert "seed 4294967295" in source.evidence[0]
    assert ", seed 0 " in source.evidence[0]


def test_a_network_of_ours_that_draws_from_elsewhere(monkeypatch):
    real = outside_the_step.seeded_network

    def leaky(name, *, seed):
        network = real(name, seed=seed)
        network.out.bias.data += float(np.random.rand())
        return network

    monkeypatch.setattr(outside_the_step, "seeded_network", leaky)
    ours = outside_the_step.initial_weights().evidence[1]
    assert "(1 of " in ours


# -- hidden state --------------------------------------------------------------------------


def test_cellpose_without_the_fault_is_left_alone(folder, defaults, monkeypatch):
    real = outside_the_step._output

    def tidy(*arguments):
        with outside_the_step._put_back(defaults):
            return real(*arguments)

    monkeypatch.setattr(outside_the_step, "_output", tidy)
    source = outside_the_step.hidden_state(folder)
    assert not source.moves
    assert source.evidence[2].endswith("wrote into models.normalize_default: nothing")


def test_defaults_that_an_earlier_call_has_changed(folder, defaults, monkeypatch):
    monkeypatch.setitem(defaults, "normalize", False)
    source = outside_the_step.hidden_state(folder)
    assert source.moves
    assert "normalize False to True" in source.evidence[2]
    assert source.evidence[-1] == "normalize_default['normalize'] is False in this process now"
    assert defaults["normalize"] is False


def test_the_defaults_come_back_from_a_failure(folder, defaults, monkeypatch):
    before = dict(defaults)

    def fail(model, image, normalize):
        defaults["normalize"] = "broken"
        raise ArithmeticError

    monkeypatch.setattr(outside_the_step, "_output", fail)
    with pytest.raises(ArithmeticError):
        outside_the_step.hidden_state(folder)
    assert defaults == before


def test_a_network_that_never_repeats_is_not_blamed_on_the_defaults(folder, monkeypatch):
    """The same call twice in a row is shown beside it."""
    numbers = iter(range(100))
    monkeypatch.setattr(outside_the_step, "_output", lambda *_: str(next(numbers)))
    evidence = outside_the_step.hidden_state(folder).evidence
    first, second = evidence[1].removeprefix("called twice with nothing between: ").split(" and ")
    assert first != second


# -- what is given -------------------------------------------------------------------------

ON_DATA = [
    outside_the_step.look,
    outside_the_step.file_order,
    outside_the_step.two_readings,
    outside_the_step.augmentation,
    outside_the_step.loader,
    outside_the_step.hidden_state,
]


@pytest.mark.parametrize("probe", ON_DATA, ids=lambda probe: probe.__name__)
@pytest.mark.parametrize("given", ["missing", "file", "empty"])
def test_no_folder_of_images(tmp_path, probe, given):
    path = tmp_path / "cells"
    if given == "file":
        path.write_text("no images")
    elif given == "empty":
        path.mkdir()
    with pytest.raises(BadInput, match="cells"):
        probe(path)


def test_images_without_enough_masks(folder, monkeypatch):
    monkeypatch.setattr(outside_the_step, "trainable", lambda image: False)
    with pytest.raises(BadInput, match=f"none of the {N} training images has 5 masks or more"):
        outside_the_step.augmentation(folder)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"workers": ()}, r"workers is \(\); expected numbers of workers"),
        ({"workers": 2}, "workers is 2"),
        ({"workers": "02"}, "workers is '02'"),
        ({"workers": (0, -1)}, r"workers is \(0, -1\)"),
        ({"workers": (True,)}, "workers is"),
        ({"workers": (2, 2)}, "names one number twice"),
        ({"data_seed": -1}, "data_seed is -1"),
        ({"data_seed": "numpy"}, "data_seed is 'numpy'"),
        ({"seed": 1.5}, "seed is 1.5"),
    ],
    ids=str,
)
def test_refusals_come_first(nuclei, monkeypatch, options, expected):
    monkeypatch.setattr(outside_the_step, "read_folder", lambda path: pytest.fail("it was read"))
    with pytest.raises(BadInput, match=expected):
        outside_the_step.look(nuclei, **options)


def test_single_probes_refuse_too(folder):
    with pytest.raises(BadInput, match="workers is"):
        outside_the_step.loader(folder, workers=(0, 0))
    with pytest.raises(BadInput, match="data_seed is"):
        outside_the_step.augmentation(folder, data_seed=-1)
    with pytest.raises(BadInput, match="seed is"):
        outside_the_step.initial_weights(seed=-1)


def test_a_folder_is_read_once_for_all(folder, monkeypatch):
    monkeypatch.setattr(outside_the_step, "read_folder", lambda path: pytest.fail("read again"))
    assert outside_the_step.loader(folder, workers=(0,)).moves


def test_probes_leave_everything_as_it_was(folder, defaults, capfd):
    """The fixtures of every test watch generators, switches, threads and variables."""
    before = dict(defaults)
    outside_the_step.file_order(folder)
    outside_the_step.augmentation(folder)
    outside_the_step.hidden_state(folder)
    assert defaults == before
    assert capfd.readouterr() == ("", "")
