"""Which cells other computers give otherwise: sensitive ones are foretold, others are not."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

import cellrepro
import samebits
from cellrepro.comparison.changed_cells import listed_changes
from cellrepro.explanation.forecast import Band, Forecast, ForecastCell, followed
from conftest import options

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "nuclei"
DRAWS = 6


def cells(*, seed=None):
    """Two cells: a bright one, and one whose bridge is as bright as the threshold."""
    image = torch.zeros(40, 40)
    image[5:15, 5:15] = 2
    image[20:30, 5:15] = 2
    image[20:30, 17:27] = 2
    image[24, 15:17] = 1
    threshold = torch.tensor(1.0).exp()
    if seed is None:
        return ndimage.label(image.exp() >= threshold)[0]
    with samebits.perturbed(seed):
        return ndimage.label(image.exp() >= threshold)[0]


def test_what_hangs_on_the_last_place_is_foretold_and_nothing_else():
    usual = cells()
    foreseen = followed("toy", usual, [cells(seed=seed) for seed in range(DRAWS)])
    assert (foreseen.n_cells, foreseen.changed.low, foreseen.changed.high) == (2, 0, 1)
    (cell,) = foreseen.cells
    assert (cell.label, cell.kinds) == (usual[22, 7], ("split",))
    assert cell.n_draws == sum(foreseen.cells_by_draw) < DRAWS
    found = Forecast(DRAWS, (foreseen,))
    assert "changed 0 to 1 of your 2 cells in 1 image" in found.sentence()
    assert [row["cell"] for row in found.rows()] == [cell.label]


def squares(*corners, side=6):
    masks = np.zeros((40, 40), np.int32)
    for number, (y, x) in enumerate(corners, 1):
        masks[y : y + side, x : x + side] = number
    return masks


def test_each_cell_is_named_once_however_its_number_changes():
    usual = squares((1, 1), (1, 20), (20, 1))
    without_second = squares((1, 1), (20, 1))
    with_another = squares((30, 30), (1, 1), (1, 20), (20, 1))
    without_and_with = squares((30, 31), (1, 1), (20, 1))
    drawn = [usual, without_second, with_another, without_and_with, with_another]
    image = followed("a", usual, drawn)
    assert image.cells == (
        ForecastCell(None, image.cells[0].position, ("gained",), 3),
        ForecastCell(2, (3.5, 22.5), ("lost",), 2),
    )
    assert (image.cells_by_draw, image.pixels_by_draw) == ((0, 1, 1, 2, 1), (0, 36, 36, 72, 36))
    both = Forecast(5, (image, followed("b", usual, [usual] * 5)))
    assert (both.changed, both.pixels, both.n_cells) == (Band(0, 2), Band(0, 72), 6)
    assert (both.exit_code, both.vacuous) == (0, False)


def test_where_nothing_was_found_nothing_is_foretold():
    nothing = Forecast(2, (followed("dark", squares(), [squares(), squares()]),))
    assert (nothing.vacuous, "vacuous: no cell was found" in nothing.as_text()) == (True, True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"draws": 0}, "draws is 0; expected a whole number from 1"),
        ({"draws": 10**9}, "draws is 1000000000"),
        ({"mode": "portable"}, "every computer gives the same bits"),
        ({"html": "page.txt"}, "expected the name of a file that ends in .html"),
    ],
    ids=str,
)
def test_what_cannot_be_forecast_is_refused(small_store, invoke, no_child, wrong, said):
    answer = invoke("forecast", small_store.data, *options(model=small_store.weights, **wrong))
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err


def test_through_the_command_line(small_store, invoke, tmp_path):
    given = options(model=small_store.weights, draws=2, html=tmp_path / "page.html")
    answer = invoke("forecast", small_store.data, *given, "--json")
    assert answer.code == 0, answer.err
    found = answer.json
    assert (found["draws"], found["vacuous"]) == (2, False)
    assert sum(image["n_cells"] for image in found["images"]) == found["n_cells"] > 0
    for image in found["images"]:
        assert image["changed"]["high"] == len(image["cells"])
        assert max(image["cells_by_draw"]) <= len(image["cells"])
    assert found["html"] == str(tmp_path / "page.html")
    assert "of your" in (tmp_path / "page.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("folder", ["synthetic", "nuclei"])
def test_other_threads_and_instruction_sets_lie_in_the_band(small_store, tmp_path, folder):
    """What was foretold, beside what other threads and instruction sets of this computer give."""
    data = small_store.data if folder == "synthetic" else SHARED
    if not data.is_dir():
        pytest.skip("the shared images are not there")
    given = {"model": str(small_store.weights), "store": tmp_path / "outputs", "quiet": True}
    found = cellrepro.forecast(data, **given)
    usual, *others = (
        cellrepro.segment(data, repeats=1, profile=profile, **given).repeats[0]
        for profile in ("cpu", "cpu-1thread", "cpu-avx2", "cpu-baseline")
    )
    foretold = {(image.name, cell.label) for image in found.images for cell in image.cells}
    for other in others:
        pairs = {
            image.name: cellrepro.compare_masks(usual.masks(image.name), other.masks(image.name))
            for image in found.images
        }
        changed = {
            (name, label)
            for name, pair in pairs.items()
            for change in listed_changes(pair)
            for label in change.labels_a
        }
        assert changed <= foretold
        assert sum(pair.n_differing for pair in pairs.values()) <= 2 * found.pixels.high
