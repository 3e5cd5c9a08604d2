"""Cells in a window are those of the whole image, with the tiles alone that touch the window."""

import numpy as np
import pytest
import torch

from cellrepro.images.image_file import read_image
from cellrepro.model.evaluator import evaluator
from cellrepro.model.network import build
from cellrepro.model.weight_sources import find_model
from cellrepro.model.window import Window
from cellrepro.store.store import Store
from samebits.modes import mode_in_force

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")

WINDOW = Window(rows=(10, 130), columns=(300, 420))


def test_cells_that_reach_the_border_are_left_out():
    masks = np.zeros((8, 8), np.int64)
    masks[2:4, 2:4], masks[3:7, 6] = 1, 2
    inside = Window(rows=(1, 6), columns=(1, 8)).cells_of(masks)
    assert inside.shape == (5, 7)
    assert np.unique(inside).tolist() == [0, 1]


@pytest.mark.parametrize(
    "settings",
    [{}, pytest.param({"diameter": 20.0, "augment": True}, marks=pytest.mark.slow)],
    ids=["usual", "scaled and augmented"],
)
def test_a_window_has_the_cells_of_the_whole_image(small_store, tmp_path, settings):
    """Every pixel of them, although most of the tiles are never computed."""
    (file,) = (f for f in (small_store.data / "test").iterdir() if "_masks" not in f.name)
    image = np.tile(read_image(file), (2, 2))
    source = find_model(str(small_store.weights), Store(tmp_path))
    network = build(source, seed=0, device=torch.device("cpu"), dtype="float32")
    n_tiles = []
    network.register_forward_pre_hook(lambda _, inputs: n_tiles.append(len(inputs[0])))
    with mode_in_force("strict", device="cpu"):
        whole = WINDOW.cells_of(evaluator(network)(image, **settings).masks)
        n_of_whole = sum(n_tiles)
        windowed = WINDOW.cells_of(evaluator(network, window=WINDOW)(image, **settings).masks)
    assert len(np.unique(whole)) > 2
    assert np.array_equal(whole > 0, windowed > 0)
    assert len(np.unique(whole)) == len(np.unique(windowed))
    assert sum(n_tiles) - n_of_whole < n_of_whole / 2
