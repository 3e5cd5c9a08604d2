"""Synthetic nuclei: the same bytes everywhere, true masks, and files that are never overwritten."""

import hashlib
import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from cellrepro.images.nuclei_drawing import nuclei
from cellrepro.images.nuclei_look import NucleiLook
from cellrepro.images.synthetic_sets import DIGESTS_FILE, write_folder
from samebits.errors import BadInput

# Of the file SHA256SUMS of write_folder(folder), which lists the digests of all 22 image files.
DEFAULT_SET = "9aa2ee2795237d0f06105665b4b32fd399359ab6f6e1e0ccbe156b84a6e384ef"

PRINT_DIGEST = """
import pathlib, sys
import numpy as np
from cellrepro.images.synthetic_sets import write_folder
from numpy._core._multiarray_umath import __cpu_features__ as features
folder = pathlib.Path(sys.argv[1])
print(write_folder(folder, n_train=2, n_test=0)["train/synth_001.tif"])
print(*[name for name in sys.argv[2:] if features[name]])
"""


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(scope="module")
def default_set(tmp_path_factory):
    """The default set's folder and its digests."""
    folder = tmp_path_factory.mktemp("synthetic") / "set"
    return folder, write_folder(folder)


def test_the_default_set_is_pinned(default_set):
    """Whoever changes a byte of the set changes this line too, and says so in the changelog."""
    folder, _ = default_set
    assert sha256((folder / DIGESTS_FILE).read_bytes()) == DEFAULT_SET


def test_same_bytes_without_vector_features(default_set, tmp_path):
    """NumPy's vector kernels have no say in the bytes."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    names = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    if not names:
        pytest.skip("this machine has no vector features that NumPy could switch off")
    finished = subprocess.run(
        [sys.executable, "-c", PRINT_DIGEST, str(tmp_path / "set"), *names],
        env=os.environ | {"NPY_DISABLE_CPU_FEATURES": " ".join(names)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    digest, still_on = finished.stdout.splitlines()
    assert still_on == ""
    assert digest == default_set[1]["train/synth_001.tif"]


@settings(max_examples=25, deadline=None, derandomize=True)
@given(data=st.data(), seed=st.integers(0, 2**64), diameter=st.integers(8, 30))
def test_labels_are_true_for_any_seed_and_shape(data, seed, diameter):
    """Any seed, shape and number that leaves room gives N whole labels and camera counts."""
    shape = data.draw(st.tuples(st.integers(16, 120), st.integers(16, 120)), label="shape")
    room = shape[0] * shape[1] // (6 * diameter**2)
    n_nuclei = data.draw(st.none() | st.integers(0, max(1, room)), label="n_nuclei")
    touching = data.draw(st.sampled_from([0, 0.5, 1]), label="touching")
    look = NucleiLook(diameter=diameter, touching=touching)
    made = nuclei(seed, shape=shape, n_nuclei=n_nuclei, look=look)
    assert made.image.shape == made.masks.shape == shape
    assert made.image.dtype == made.masks.dtype == np.uint16
    assert made.image.max() <= 4095
    assert n_nuclei is None or made.masks.max() == n_nuclei
    labels = np.unique(made.masks[made.masks > 0])
    assert labels.tolist() == list(range(1, len(labels) + 1))
    assert all(ndimage.label(made.masks == label)[1] == 1 for label in labels)


def test_layout_is_cellposes(default_set, tmp_path):
    """Each image with its masks, digests as sha256sum's; an image depends on its number alone."""
    folder, digests = default_set
    numbers = [("train", n) for n in range(8)] + [("test", n) for n in range(8, 11)]
    expected = {f"{part}/synth_{n:03d}{end}.tif" for part, n in numbers for end in ("", "_masks")}
    on_disk = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    assert (set(digests), on_disk) == (expected, expected | {DIGESTS_FILE})
    subprocess.run(["sha256sum", "-c", "--quiet", DIGESTS_FILE], cwd=folder, check=True)
    few = write_folder(tmp_path / "few", n_train=1, n_test=1)
    assert few["train/synth_000.tif"] == digests["train/synth_000.tif"]
    assert few["test/synth_001_masks.tif"] == digests["train/synth_001_masks.tif"]


def test_writing_twice_touches_nothing(tmp_path):
    """Right files are left alone, missing ones filled in, what desktops leave does not matter."""
    folder = tmp_path / "deep" / "set"
    first = write_folder(folder, n_train=1, n_test=1, shape=(64, 64))
    kept, lost = folder / "train/synth_000.tif", folder / "test/synth_001.tif"
    inode = kept.stat().st_ino
    lost.unlink()
    (folder / "train" / ".ipynb_checkpoints").mkdir()
    for name in (".DS_Store", "train/Thumbs.db", "train/.ipynb_checkpoints/note.txt"):
        (folder / name).write_text("left by a desktop")
    assert write_folder(folder, n_train=1, n_test=1, shape=(64, 64)) == first
    assert kept.stat().st_ino == inode
    assert sha256(lost.read_bytes()) == first["test/synth_001.tif"]


def test_nothing_is_written_beside_other_files(tmp_path):
    write_folder(tmp_path, n_train=1, n_test=0, shape=(64, 64))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.*")}
    with pytest.raises(
        BadInput, match=r"is no file of this synthetic set, .*choose an empty folder"
    ):
        write_folder(tmp_path, n_train=1, n_test=0, shape=(64, 64), seed=1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.*")} == before


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"shape": (64, 15)}, "shape must be .* from 16 to 4096 pixels, got .64, 15"),
        ({"shape": (64.0, 64)}, "shape must be .* two whole numbers .*, got .64.0, 64"),
        ({"shape": (64, 64, 3)}, "shape must be .* two whole numbers .*, got .64, 64, 3"),
        ({"look": {"diameter": 0}}, "diameter of nuclei is 0; expected a number from 1 to 512"),
        ({"look": {"diameter": float("nan")}}, "diameter of nuclei is nan; expected a number"),
        ({"look": {"diameter": -3}}, "diameter of nuclei is -3; expected a number"),
        ({"look": {"blur": "much"}}, "blur of nuclei is 'much'; expected a number from 0 to 50"),
        ({"shape": (48, 48), "n_nuclei": 200}, r"only \d+ of n_nuclei=200 nuclei found a place"),
    ],
)
def test_what_cannot_be_drawn_is_refused(given, message):
    with pytest.raises(BadInput, match=message):
        nuclei(**{"seed": 0} | given | {"look": NucleiLook(**given.get("look", {}))})
