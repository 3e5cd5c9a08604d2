"""One change of all cells is found and said as one, and changes of some cells are left alone."""

import numpy as np
import pytest
from scipy import ndimage
from skimage.segmentation import expand_labels

from cellrepro import compare_masks
from cellrepro.comparison.systematic_change import systematic_change
from cellrepro.explanation.compare_files import compare
from cellrepro.images.nuclei_drawing import nuclei

CELLS = np.asarray(nuclei(3, shape=(300, 340), n_nuclei=60).masks)


def found(a, b):
    change = systematic_change(a, b, compare_masks(a, b))
    return "" if change is None else change.text("A", "B")


def eroded(masks, n=1, around=True, labels=None):
    """The masks without so many pixels of each cell, by SciPy."""
    result = masks.copy()
    structure = ndimage.generate_binary_structure(2, 2 if around else 1)
    for label in labels if labels is not None else np.unique(masks)[1:]:
        cell = masks == label
        inside = ndimage.binary_erosion(cell, structure, iterations=n, border_value=1)
        result[cell & ~inside] = 0
    return result


def touching():
    """Cells of which most touch others."""
    centres = np.random.default_rng(2).integers(0, 200, (50, 2))
    squared = ((np.indices((200, 200)).T[:, :, None, ::-1] - centres) ** 2).sum(-1)
    labels = np.where(squared.min(-1) < 300, squared.argmin(-1) + 1, 0).T
    return np.ascontiguousarray(labels.astype(np.uint16))


@pytest.mark.parametrize("masks", [CELLS, touching()], ids=["nuclei", "touching"])
@pytest.mark.parametrize(("n", "around"), [(1, True), (1, False), (2, True), (3, False)])
def test_all_cells_are_smaller(masks, n, around):
    text = found(masks, eroded(masks, n, around))
    pixels = "1 pixel" if n == 1 else f"{n} pixels"
    assert text.startswith(f"all of B's cells are {pixels} smaller all around than A's: ")


@pytest.mark.parametrize("n", [1, 2, 3])
def test_exchanged_the_other_side_is_said_to_be_smaller(n):
    """What cells were before they lost pixels cannot be computed from them."""
    text = found(eroded(touching(), n), touching())
    assert text.startswith("all of A's cells are ")
    assert f" {n} pixel" in text
    assert " smaller all around than B's: " in text


def test_cells_are_smaller_where_they_end_at_the_background():
    masks = touching()
    inside = ndimage.binary_erosion(masks > 0, np.ones((3, 3)), border_value=1)
    assert "1 pixel smaller all around" in found(masks, np.where(inside, masks, 0))


@pytest.mark.parametrize("masks", [CELLS, touching()], ids=["nuclei", "touching"])
@pytest.mark.parametrize("n", [1, 2])
def test_all_cells_are_larger(masks, n):
    assert f"B's cells are {n} pixel" in found(masks, expand_labels(masks, n))


def test_outlines_of_cellpose_filled_as_imagej_does_lack_a_row_and_a_column():
    from cellpose import utils

    from cellrepro.images.outlines import Outline, Outlines

    outlines = utils.outlines_list(CELLS)
    cells = tuple(Outline((points.astype(float),)) for points in outlines)
    drawn = Outlines("x", cells, along_pixels=False).drawn(CELLS.shape).labels
    assert found(CELLS, drawn).startswith("B's cells lack the last row and column of A's: ")


def of_one_form():
    """Discs of equal size, in places of no pattern."""
    discs = np.zeros((300, 300), np.uint16)
    for number, corner in enumerate(np.random.default_rng(0).permutation(400)[:90], 1):
        y, x = np.array(divmod(int(corner), 20)) * 15
        disc = ((np.indices((11, 11)) - 5) ** 2).sum(0) <= 20
        discs[y : y + 11, x : x + 11][disc] = number
    return discs


@pytest.mark.parametrize("masks", [CELLS, of_one_form()], ids=["nuclei", "of one form"])
@pytest.mark.parametrize("shift", [(1, 0), (0, -2), (30, 17)])
def test_a_shifted_image(masks, shift):
    padded = np.pad(masks, 40)
    text = found(padded, np.roll(padded, shift, axis=(0, 1)))
    assert text.startswith("B is A shifted by (y, x) = ({:+d}, {:+d}) pixels: ".format(*shift))


@pytest.mark.parametrize(
    ("turned", "words"),
    [
        (CELLS[:, ::-1], "mirrored left to right"),
        (CELLS[::-1], "upside down"),
        (CELLS[::-1, ::-1], "turned by 180°"),
    ],
)
def test_a_turned_image(turned, words):
    assert found(CELLS, turned).startswith(f"B is A {words}: ")
    square = CELLS[:300, :300]
    assert found(square, square.T).startswith("B is A transposed")
    assert found(square, np.rot90(square)).startswith("B is A turned by 90° to the left")


def test_changes_of_some_cells_are_none():
    labels = np.unique(CELLS)[1:]
    half = eroded(CELLS, labels=labels[::2])
    assert found(CELLS, half) == ""
    assert found(CELLS, np.where(np.isin(CELLS, labels[::2]), 0, CELLS)) == ""
    noise = np.random.default_rng(0).random(CELLS.shape) < 0.002
    assert found(CELLS, np.where(noise, 0, CELLS)) == ""
    assert found(CELLS, CELLS) == ""
    other = np.asarray(nuclei(4, shape=(300, 340), n_nuclei=60).masks)
    assert found(CELLS, other) == ""


def test_planes_whose_numbers_begin_anew():
    stack = np.stack([CELLS, CELLS[::-1]])
    smaller = np.stack([eroded(plane) for plane in stack])
    assert "1 pixel smaller all around" in found(stack, smaller)


def test_compare_says_one_sentence(tmp_path):
    np.save(tmp_path / "a_masks.npy", CELLS)
    np.save(tmp_path / "b_masks.npy", eroded(CELLS))
    comparison = compare(tmp_path / "a_masks.npy", tmp_path / "b_masks.npy")
    (change,) = comparison.systematic.values()
    sentence = change.text("A", "B")
    assert str(comparison).count(sentence) == 1
    assert "IoU" not in str(comparison)  # no table of single cells
    assert any(sentence in note for note in comparison.notes)


def test_the_page_says_it_first(tmp_path, invoke):
    np.save(tmp_path / "a_masks.npy", CELLS)
    np.save(tmp_path / "b_masks.npy", eroded(CELLS))
    page = tmp_path / "page.html"
    answer = invoke("compare", tmp_path / "a_masks.npy", tmp_path / "b_masks.npy", "--html", page)
    assert answer.code == 1
    text = page.read_text(encoding="utf-8")
    sentence = text.index("All of B&#39;s cells are 1 pixel smaller all around than A&#39;s: ")
    assert sentence < text.index("<h2")


def test_small_cells_that_are_not_there_are_no_proof_of_smaller_ones():
    a = np.zeros((120, 120), np.uint16)
    b = np.zeros_like(a)
    for number, y in enumerate(range(10, 110, 10), start=1):
        a[y : y + 5, 60:65] = number
    for number, y in enumerate((2, 42, 82), start=11):  # larger ones at the edge, of another form
        a[y : y + 30, :30] = number
        b[y + 9 : y + 20, 9:20] = number
    assert found(a, b) == ""
