"""Stacks whose numbers begin anew in each plane, and numbers that were damaged when saved."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import ndimage

from cellrepro.comparison.category_map import categories
from cellrepro.comparison.consensus import agree
from cellrepro.comparison.label_numbers import canonical, numbering
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.number_remarks import number_remarks
from cellrepro.explanation.label_notes import label_notes


def plane_of_cells(generator, n_rows=5, n_columns=6, least=1):
    """Cells on a loose grid, of which some are missing, numbered at random from 1."""
    plane = np.zeros((12 * n_rows, 12 * n_columns), np.int64)
    cells = [
        (12 * row + generator.integers(1, 4), 12 * column + generator.integers(1, 4))
        for row in range(n_rows)
        for column in range(n_columns)
        if generator.random() < 0.9
    ]
    for number, (y, x) in zip(1 + generator.permutation(len(cells)), cells, strict=True):
        plane[y : y + generator.integers(5, 9), x : x + generator.integers(5, 9)] = number
    return plane


def renumbered(plane, generator):
    numbers = np.unique(plane[plane > 0])
    new = np.zeros(plane.max() + 1, np.int64)
    new[numbers] = generator.permutation(numbers)
    return new[plane]


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 5))
def test_planes_are_compared_one_by_one_where_numbers_begin_anew_in_each(seed, n_planes):
    """Renumbered in each plane they are the same objects, and what is then lost is lost there."""
    generator = np.random.default_rng(seed)
    a = np.stack([plane_of_cells(generator) for _ in range(n_planes)])
    b = np.stack([renumbered(plane, generator) for plane in a])
    n_cells = sum(len(np.unique(plane)) - 1 for plane in a)
    found = compare_masks(a, b)
    assert (found.verdict, found.by_plane) == ("same-objects", True)
    assert (found.n_objects_a, found.n_objects_b, found.kinds["kept"]) == (n_cells,) * 3
    np.testing.assert_array_equal(canonical(a), canonical(b))
    assert agree([a, b]).n_distinct == 1
    assert set(np.unique(categories(a, b))) <= {0, 1}

    z = int(generator.integers(n_planes))
    number = int(generator.choice(np.unique(b[z][b[z] > 0])))
    gone = b[z] == number
    b[z][gone] = 0
    found = compare_masks(a, b)
    assert found.kinds == {"kept": n_cells - 1, "lost": 1}
    (lost,) = (change for change in found.objects if change.kind == "lost")
    assert lost.position == pytest.approx((z, *np.argwhere(gone).mean(0)))
    assert lost.labels_a == (a[z][gone][0],)
    notes = " ".join(label_notes(a, b, found).sentences)
    assert f"{n_cells} and {n_cells - 1} cells in {n_planes} planes" in notes


def in_depth(generator):
    """Cells through two to four of eight planes, one number each."""
    stack = np.zeros((8, 60, 72), np.int64)
    for number, (y, x) in enumerate(np.ndindex(5, 6), 1):
        first = generator.integers(0, 5)
        stack[
            first : first + generator.integers(2, 5), 12 * y + 2 : 12 * y + 9, 12 * x : 12 * x + 8
        ] = number
    return stack


def test_objects_of_a_stack_are_left_alone_and_one_stitched_side_is_named():
    stack = in_depth(np.random.default_rng(0))
    other_numbers = np.where(stack > 0, 31 - stack, 0)
    found = compare_masks(stack, other_numbers)
    assert (found.verdict, found.by_plane, found.n_objects_a) == ("same-objects", False, 30)
    assert not label_notes(stack, other_numbers, found).sentences
    anew = np.zeros_like(stack)
    for plane, numbered in zip(stack, anew, strict=True):
        numbered[:] = canonical(plane)
    assert (numbering(stack), numbering(anew), numbering(stack[0])) == ("through", "anew", "apart")
    found = compare_masks(stack, anew)
    assert (found.verdict, found.by_plane, found.n_differing) == ("different", True, 0)
    assert "In A cells keep their numbers through planes" in " ".join(
        label_notes(stack, anew, found).sentences
    )


# -- numbers that were damaged -------------------------------------------------------------------


def many_cells():
    """420 cells that do not touch, numbered at random."""
    image = np.zeros((200, 210), np.uint16)
    numbers = 1 + np.random.default_rng(1).permutation(420)
    for number, (row, column) in zip(numbers, np.ndindex(20, 21), strict=True):
        image[10 * row + 1 : 10 * row + 8, 10 * column + 1 : 10 * column + 7 + number % 2] = number
    return image


CELLS = many_cells()
DAMAGES = {
    "modulo 256": (lambda cells: cells % 256, np.uint8, "B = A modulo 256", 1),
    "clipped": (lambda cells: np.minimum(cells, 255), np.uint8, "numbers of B stop at 255", 0),
    "cut off": (
        lambda cells: np.where(cells > 255, 0, cells),
        np.uint8,
        "no number above 255",
        165,
    ),
    "scaled": (lambda cells: np.rint(cells * 0.607), np.uint8, "B = A times 0.607", 0),
    "halved": (lambda cells: cells // 2, np.uint8, "B = A times 0.", 1),
    "modulo 65536": (lambda cells: cells % 65536, np.uint16, "B = A modulo 65536", 6),
    "32768 added": (lambda cells: cells + 32768, np.uint16, "B = A + 32768", 0),
    "inverted": (lambda cells: 65535 - cells, np.uint16, "B = 65535 - A", 0),
    "foreground": (lambda cells: cells > 0, np.uint8, "if it is a foreground map", 0),
    "inverted foreground": (
        lambda cells: 255 * (cells == 0),
        np.uint8,
        "B is 255 where A has",
        420,
    ),
}


@pytest.mark.parametrize("n_gone", [0, 2], ids=["alone", "with two cells lost"])
@pytest.mark.parametrize(("damage", "dtype", "note", "n_lost"), DAMAGES.values(), ids=DAMAGES)
def test_damaged_numbers_are_named_and_cells_that_do_not_touch_are_no_merge(
    damage, dtype, note, n_lost, n_gone
):
    factor = 1024 if "65536" in note else 1
    cells = CELLS.astype(np.int64)
    a = factor * cells
    b = damage(np.where(np.isin(cells, (17, 101)), 0, a) if n_gone else a).astype(dtype)
    found = compare_masks(a, b)
    assert found.kinds["merged"] == found.kinds["split"] == 0
    assert found.kinds["lost"] == min(420, n_lost + n_gone)
    assert found.verdict == "different"
    assert note in " ".join(label_notes(a, b, found).sentences)
    back = compare_masks(b, a)
    assert back.kinds["gained"] == found.kinds["lost"]
    assert back.kinds["merged"] == back.kinds["split"] == 0
    if note.startswith("B ="):
        expected = note.replace("B", "x").replace("A", "B").replace("x", "A")
        assert expected in " ".join(label_notes(b, a, back).sentences)


def test_inverted_numbers_of_which_the_largest_is_the_same():
    """Whether numbers follow a rule is not asked where the largest one and the background stay."""
    a = np.where(CELLS <= 255, CELLS, 0).astype(np.uint8)
    b = 255 - a
    assert a.max() == b.max()
    assert "B = 255 - A" in " ".join(label_notes(a, b, compare_masks(a, b)).sentences)


@pytest.mark.parametrize(
    "change",
    [
        lambda cells: np.where(cells > 0, 421 - cells, 0),
        lambda cells: np.where(np.isin(cells, (256, 400)), 0, cells),
        lambda cells: canonical(np.where(cells % 9 == 0, 0, cells)),
        lambda cells: np.where(cells > 0, cells + 1000, 0),
    ],
    ids=["renumbered", "two lost", "numbered anew", "other numbers"],
)
def test_of_sound_numbers_nothing_is_said(change):
    b = change(CELLS)
    found = compare_masks(CELLS, b)
    notes = [note for note in label_notes(CELLS, b, found).sentences if "several cells" not in note]
    assert not notes
    assert not [*number_remarks(CELLS)]


def test_cells_that_touch_and_have_one_number_are_merged():
    a = np.zeros((20, 40), np.int64)
    a[4:16, 4:12], a[4:16, 12:20], a[4:16, 24:36] = 1, 2, 3
    b = np.where(a == 2, 1, a)
    found = compare_masks(a, b)
    assert (found.kinds, found.n_shared_b) == ({"merged": 1, "kept": 1}, 0)


# -- black-and-white masks ------------------------------------------------------------------------


def rows_of_cells(*rows):
    """Cells of 6 by 6 pixels, each row of cells that touch; rows do not."""
    image = np.zeros((8 * len(rows), 6 * max(rows) + 2), np.int64)
    number = 0
    for y, n_cells in enumerate(rows):
        for x in range(n_cells):
            number += 1
            image[8 * y + 1 : 8 * y + 7, 6 * x + 1 : 6 * x + 7] = number
    return image


def small_beside_a_clump():
    """Cells far smaller than others that touch: no mere fragments of these."""
    image = np.zeros((40, 70), np.int64)
    for number in range(1, 6):
        image[2:14, 12 * number - 10 : 12 * number + 2] = number
    image[20:23, 10:13], image[20:23, 13:16], image[20:23, 16:19] = 6, 7, 8
    image[30:38, 30:36] = 9
    return image


CELLS_OF_A = {
    "none touch": rows_of_cells(1, 1, 1, 1),
    "all touch": rows_of_cells(3, 2, 4, 2, 2),
    "some touch": rows_of_cells(1, 2, 1, 1, 4, 1),
    "two touch": rows_of_cells(1, 1, 2, 1),
    "one clump": rows_of_cells(5, 1, 1),
    "sizes differ": small_beside_a_clump(),
}


@pytest.mark.parametrize("white", [1, 255])
@pytest.mark.parametrize("change", ["the same cells", "one lost", "one gained"])
@pytest.mark.parametrize("cells", CELLS_OF_A.values(), ids=CELLS_OF_A)
def test_one_number_for_all_is_counted_as_its_pieces_are(cells, change, white):
    """Cells that touch are one in a black-and-white mask, as where its pieces are numbered."""
    last = cells.max()
    a = np.where((cells == last) & (change == "one gained"), 0, cells)
    full = np.where((cells == last) & (change == "one lost"), 0, cells)
    numbered, n_pieces = ndimage.label(full)
    b = (white * (full > 0)).astype(np.uint8)
    for expected, found, side in (
        (compare_masks(a, numbered), compare_masks(a, b), "B"),
        (compare_masks(numbered, a), compare_masks(b, a), "A"),
    ):
        assert (found.n_objects_a, found.n_objects_b) == (
            expected.n_objects_a,
            expected.n_objects_b,
        )
        assert n_pieces == (found.n_objects_b if side == "B" else found.n_objects_a)
        assert found.kinds == expected.kinds
        assert (found.n_differing, found.ap50) == (expected.n_differing, expected.ap50)
        assert found.verdict == "different"
        pair = (a, b) if side == "B" else (b, a)
        notes = " ".join(label_notes(*pair, found).sentences)
        assert f"1 number stands in {side}" in notes
        assert "every number counts as one object" not in notes
        touches = n_pieces < len(np.unique(full)) - 1
        if change != "one gained":
            assert (f"take {'A' if side == 'B' else 'B'}" in notes) == touches
            assert ("but for 1 cell that it lacks" in notes) == (touches and change == "one lost")


def test_a_black_and_white_mask_may_be_smaller_than_the_cells():
    """Of a cell that touches another one, a piece of both shows too little to be it."""
    a = rows_of_cells(2, 2, 2)
    b = (a > 0) & (a == np.roll(a, 2, axis=0))  # four of the six rows of each cell
    found = compare_masks(a, b.astype(np.uint8))
    assert (found.n_objects_b, found.kinds) == (3, {"merged": 3})


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (CELLS % 256, "of its 255 numbers are in several pieces"),
        (np.minimum(CELLS, 255), "its numbers stop at 255, the largest of 8 bit"),
        (np.minimum(CELLS, 127), "its numbers stop at 127, the largest of signed 8 bit"),
        (CELLS.astype(np.int64) + 32768, "no pixel is 0, so none is background; number 32768"),
        (65535 - CELLS.astype(np.int64), "it is probably inverted"),
        (255 * (CELLS == 0), "probably the background of an inverted image"),
    ],
    ids=["wrapped", "clipped", "clipped with a sign", "added", "inverted", "inverted foreground"],
)
def test_a_label_image_by_itself_shows_it(image, expected):
    assert expected in " ".join(number_remarks(image))


def test_a_tissue_that_fills_both_images_needs_no_note():
    tissue = np.kron(np.arange(1, 65).reshape(8, 8), np.ones((6, 6), np.int64))
    renumbered = 65 - tissue
    assert not label_notes(tissue, renumbered, compare_masks(tissue, renumbered)).sentences
    gap = np.where(tissue == 9, 0, tissue)
    (note,) = label_notes(tissue, gap, compare_masks(tissue, gap)).sentences
    assert note == "A: no pixel is 0, so none is background"


def test_a_cell_that_is_lost_is_no_number_that_wrapped():
    """256 modulo 256 is 0, but 16 bits hold 256: the cell was perhaps not found."""
    labels = np.kron(np.arange(1, 257).reshape(16, 16), np.ones((4, 4), int)).astype(np.uint16)
    without = np.where(labels == 256, 0, labels).astype(np.uint16)
    result = compare_masks(labels, without)
    assert not [note for note in label_notes(labels, without, result).sentences if "modulo" in note]
    assert result.kinds["lost"] == 1
