"""Cells that depend on where tiles lie, and straight cuts: planted ones are found, others not."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tifffile
from scipy import ndimage

from cellrepro.comparison.straight_borders import (
    StraightBorder,
    block_grid,
    least_found,
    seam,
    straight_borders,
)
from cellrepro.explanation.straight_cuts import CutImage, Cuts, cut_text
from cellrepro.explanation.tile_lines import TileLine, tile_lines
from cellrepro.explanation.tiled_cells import follow
from cellrepro.explanation.tiles import TileDependence
from cellrepro.images.image_file import read_masks
from cellrepro.images.nuclei_drawing import nuclei
from cellrepro.model.evaluator import evaluator
from cellrepro.spec.segmentation_settings import Settings
from conftest import options
from small_training import tiny

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"


@pytest.fixture(scope="module")
def pictured():
    """An image of many nuclei, and their masks."""
    made = nuclei(0, shape=(400, 400))
    return made.image, made.masks


def cut(masks, at, axis=0):
    """Every cell across a row in two."""
    turned = np.moveaxis(masks.astype(np.int64), axis, 0).copy()
    turned[at:] += np.where(turned[at:] > 0, 10_000, 0)
    return np.moveaxis(turned, 0, axis)


@pytest.mark.parametrize(("axis", "at"), [("y", 150), ("x", 233)])
def test_a_planted_cut_is_found_where_it_is_and_no_other(pictured, axis, at):
    _, masks = pictured
    assert straight_borders(masks) == ()
    planted = cut(masks, at, "yx".index(axis))
    (found,) = straight_borders(planted)
    assert (found.axis, found.at) == (axis, at)
    assert found.n_objects > 2
    along = planted[at - 1 : at + 1] if axis == "y" else planted[:, at - 1 : at + 1]
    assert set(found.labels) <= set(np.unique(along))
    assert seam(planted, [(axis, at)]).stands_out
    assert not seam(planted, [(axis, at - 30), (axis, at + 30)]).stands_out
    assert not seam(masks, [(axis, at)]).stands_out
    stack = np.stack([0 * planted, planted])
    assert [(one.axis, one.at) for one in straight_borders(stack)] == [(axis, at)]


def balls(generator, shape=(16, 90, 90), n=40):
    """Round cells of a stack, the later ones over the earlier."""
    stack = np.zeros(shape, np.int64)
    axes = np.indices(shape)
    for number in range(1, n + 1):
        centre = generator.uniform(0, shape)
        stack[sum((a - c) ** 2 for a, c in zip(axes, centre, strict=True)) < 30] = number
    return stack


def test_a_stack_that_was_cut_between_planes():
    stack = balls(np.random.default_rng(0))
    assert straight_borders(stack) == ()
    planted = stack.copy()
    planted[7:] += 100 * (planted[7:] > 0)
    (found,) = straight_borders(planted)
    assert (found.axis, found.at, found.n_objects > 5) == ("z", 7, True)
    (_, line) = Cuts((CutImage("a.tif", (found,)),), vacuous=False, is_stack=True).lines()
    assert "straight cut between planes z 6 and z 7" in line


def touching_pair(masks, y, x):
    """Two half discs that share one straight border, where there was background or other cells."""
    rows, columns = np.indices(masks.shape)
    distance = np.hypot(rows - y, columns - x + 0.5)
    masks[distance < 20] = 0
    left, right = masks.max() + 1, masks.max() + 2
    masks[distance < 14] = np.where(columns < x, left, right)[distance < 14]


def test_two_cells_that_touch_along_a_line_are_one_observation(pictured):
    masks = pictured[1].astype(np.int64)
    touching_pair(masks, 100, 229)
    assert straight_borders(masks) == ()
    assert seam(masks, [("x", 229)]).n_at == 1
    touching_pair(masks, 200, 229)
    touching_pair(masks, 300, 229)
    (found,) = straight_borders(masks)
    assert (found.axis, found.at, found.n_before, found.n_behind) == ("x", 229, 3, 3)
    assert found.n_borders == 3
    both = (masks[:, 228] > 0) & (masks[:, 229] > 0)
    assert found.length == np.count_nonzero(both & np.isin(masks[:, 228], found.labels))
    assert "3 cells on each side" in cut_text(found)
    assert seam(masks, [("x", 229)]).n_at == 3


def straight_cell(masks, y, x):
    """A half disc that ends straight before column x, as a network's patch leaves one."""
    rows, columns = np.indices(masks.shape)
    distance = np.hypot(rows - y, columns - x + 0.5)
    masks[distance < 20] = 0
    masks[(distance < 14) & (columns < x)] = masks.max() + 1


def test_cells_that_end_at_patches_of_the_network_are_not_cut(pictured):
    """Three at one line are a cut, unless many other lines of the same grid have some, too."""
    alone = np.zeros((400, 400), np.int64)
    straight_cell(alone, 100, 200)
    straight_cell(alone, 200, 200)
    assert straight_borders(alone) == ()
    masks = pictured[1].astype(np.int64)
    for y in (100, 200, 300):
        straight_cell(masks, y, 200)
    (found,) = straight_borders(masks)
    assert (found.axis, found.at, found.n_borders) == ("x", 200, 3)
    for number, x in enumerate([32, 64, 96, 128, 264, 296, 328, 360]):
        straight_cell(masks, 60 + 35 * number, x)
    assert straight_borders(masks) == ()
    at_tiles = seam(masks, [("x", 64), ("x", 96), ("x", 360)])
    assert (at_tiles.n_at, at_tiles.stands_out) == (3, False)


@pytest.mark.parametrize(("n", "width"), [(250, 30), (600, 21), (600, 45)])
def test_the_least_cut_that_is_said_to_be_found_is_found(n, width):
    """As many half discs at a line as are said to be enough, and one less."""
    rows, columns = np.indices((n, 2 * width))
    discs = np.zeros((n, n), np.int64)
    for number, y in enumerate(range(width, n - width, 2 * width), 1):
        inside = np.hypot(rows - y, columns - width + 0.5) < width / 2
        discs[:, 100 : 100 + 2 * width][inside] = number
    least = least_found(discs)
    assert least.typical == least.largest
    found = {}
    for n_cut in (least.n_borders - 1, least.n_borders):
        halves = discs[:, 100 + width :]
        whole = np.where((halves > 0) & (halves <= n_cut), halves + 1000, halves)
        planted = np.concatenate([discs[:, : 100 + width], whole], axis=1)
        found[n_cut] = [one.at for one in straight_borders(planted)]
    assert found == {least.n_borders - 1: [], least.n_borders: [100 + width]}


def test_several_cuts_do_not_hide_each_other(pictured):
    masks = pictured[1]
    for at in (120, 200):
        masks = cut(masks, at)
    assert sorted(one.at for one in straight_borders(masks)) == [120, 200]


def test_one_line_tells_of_the_size_of_blocks(pictured):
    """The other borders of blocks have too few cells each to stand out by themselves."""
    blocks = cut(pictured[1], 200)
    assert block_grid(blocks, straight_borders(blocks)) is None
    for place, at in zip(np.indices(blocks.shape), (100, 300), strict=True):
        sides = [np.bincount(blocks[mask].ravel()) for mask in (place < at, place >= at)]
        n = min(map(len, sides))
        smaller_part = np.minimum(sides[0][:n], sides[1][:n])
        for label in np.argsort(smaller_part[1:])[-2:] + 1:  # of those across, two
            blocks[(blocks == label) & (place >= at)] += 50_000 * at
    assert [one.at for one in straight_borders(blocks)] == [200]
    found = block_grid(blocks, straight_borders(blocks))
    assert (found.size, found.lines) == (100, (("x", 300), ("y", 100)))


def test_cuts_name_the_line_at_which_cells_end():
    cut = StraightBorder(
        axis="y",
        at=7,
        length=30,
        n_objects=3,
        n_before=3,
        n_behind=0,
        n_borders=3,
        chance=0.001,
        labels=(2, 5, 9),
    )
    cuts = Cuts((CutImage("masks.tif", (cut,)),), vacuous=False)
    (image,) = json.loads(cuts.as_json())["images"]
    assert (image["name"], image["cuts"][0]["at"]) == ("masks.tif", 7)
    assert "cut at y 7: 3 cells above it (2, 5, 9) end there" in cuts.lines()[1]
    nothing = Cuts((CutImage("masks.tif", ()),), vacuous=True)
    assert (nothing.exit_code, "vacuous" in nothing.sentence()) == (1, True)


def test_cells_that_are_rectangles_are_not_cut_at_every_line():
    wall = np.zeros((200, 200), np.int64)
    for number, (row, column) in enumerate(np.ndindex(10, 8), 1):
        wall[20 * row + 1 : 20 * row + 20, 25 * column + 1 : 25 * column + 25] = number
    assert straight_borders(wall) == ()


def test_masks_drawn_by_people_have_no_cuts():
    files = sorted(SHARED.rglob("*_masks*"))
    if not files:
        pytest.skip("the shared images are not there")
    found = {file.name: straight_borders(read_masks(file)) for file in files}
    assert {name: cuts for name, cuts in found.items() if cuts} == {}


# -- tiles -----------------------------------------------------------------------------------


def by_threshold(image, *, normalize=None, **_):
    """A segmenter that sees each pixel alone; intensities scaled as it is told, or by the image."""
    low, high = normalize["lowhigh"][0] if normalize else np.percentile(image, (1, 99))
    return ndimage.label((image - low) / (high - low) > 0.5)[0].astype(np.uint32)


def that_finds_nothing(image, **_):
    return np.zeros(image.shape, np.uint32)


def by_tiles(image, **given):
    """The same, with cells cut where the image's tiles end."""
    masks = by_threshold(image, **given)
    return cut(masks, min(210, len(masks) - 10))


def bright_corner(shape):
    image = np.full(shape, 10.0)
    for y, x in np.ndindex(6, 6):
        image[60 * y + 20 : 60 * y + 40, 60 * x + 20 : 60 * x + 40] = 100
    image[:60, :60] = 4000
    return image


def test_what_is_to_blame():
    flat, bright = np.where(bright_corner((400, 400)) > 50, 100.0, 10.0), bright_corner((400, 400))
    clean = follow(by_threshold, "clean", flat, Settings())
    assert (clean.n_cells, clean.n_dependent, clean.n_by_normalisation) == (36, 0, 0)
    tiled = follow(by_tiles, "tiled", flat, Settings())
    assert tiled.n_dependent > 3
    assert tiled.n_by_normalisation == 0
    assert ("y", 210) not in tiled.tile_borders
    tiled = replace(tiled, cuts=straight_borders(cut(nuclei(0, shape=(400, 400)).masks, 210)))
    assert "no tile begins or ends there" in tiled.lines()[-1]
    at_tile = replace(tiled, tile_borders=(TileLine("y", 210),))
    assert at_tile.lines()[-1].endswith("; a tile begins or ends there")
    answers = {
        "no: tiles change none": clean,
        "1 straight cut lies where no tile begins": tiled,
        "they cut cells in 1 image": at_tile,
    }
    for says, image in answers.items():
        assert says in str(TileDependence((image,), ()))
    scaled = follow(by_threshold, "scaled", bright, Settings())
    assert (scaled.n_dependent, scaled.n_gained) == (0, 0)
    assert scaled.n_by_normalisation > 10
    images = [replace(clean, name=f"clean {n}") for n in range(9)]
    answer = TileDependence((*images, scaled), ()).lines()
    assert answer[0].startswith("no: tiles change none of ")
    assert "cells in 10 images" in answer[0]
    (of_image,) = (line for line in answer if line.startswith("scaled:"))
    assert "cropped first (" in of_image
    assert answer[-1].startswith("9 more images")


def shifted_and_grown(image, **options):
    """The same; of a crop, cells of the upper half 2 pixels lower, the others a pixel larger."""
    masks = by_threshold(image, **options)
    if len(masks) == 400:
        return masks
    middle = 200 - (400 - len(masks))
    upper = np.where(np.arange(len(masks))[:, None] < middle, masks, 0)
    lower = np.where(np.arange(len(masks))[:, None] < middle, 0, masks)
    return np.maximum(np.roll(upper, 2, axis=0), ndimage.grey_dilation(lower, size=(3, 3)))


def test_cells_with_a_match_are_no_safe_cells():
    """Cells that move, grow or are too near a cut are not among those that stay the same."""
    flat = np.where(bright_corner((400, 400)) > 50, 100.0, 10.0)
    flat[:60, :60] = 10
    flat[20:40, 20:40] = 100
    image = follow(shifted_and_grown, "moved", flat, Settings(tile_overlap=0.4))
    n_near = image.n_not_followed
    assert n_near > 0
    assert (image.n_dependent, image.n_same_pixels) == (0, 0)
    assert image.n_moved > 3
    assert image.n_other_pixels > 3
    assert image.n_cells == image.n_moved + image.n_other_pixels + n_near
    answer = TileDependence((image,), image.variants)
    assert answer.cause == "tiling"
    counted = answer.lines()[0]
    assert f"tiles change {image.n_moved} of the {36 - n_near} cells" in counted
    assert "none is the same in every pixel" in counted
    assert f"{n_near} more are too near" in counted

    def lower_by_own_scale(image, *, normalize=None, **options):
        return np.roll(by_threshold(image, **options), 0 if normalize else 2, axis=0)

    scaled = TileDependence((follow(lower_by_own_scale, "scaled", flat, Settings()),), ())
    assert scaled.cause == "normalisation"
    assert "shifted or reshaped), since Cellpose scales" in scaled.sentence()
    one_layout = flat[:256, :256]
    calls = []
    follow(lambda i, **g: calls.append(g) or by_threshold(i, **g), "small", one_layout, Settings())
    assert not any("tile_overlap" in given and given["tile_overlap"] == 0.4 for given in calls)


def by_tiles_with_one_more(image, *, tile_overlap=0.1, **options):
    """The same, and wherever tiles lie elsewhere one cell more, at one place of the image."""
    masks = by_threshold(image, **options)
    n_rows, n_columns = (400 - n for n in masks.shape)
    if (n_rows, n_columns) != (0, 0) or tile_overlap > 0.1:
        masks[200 - n_rows : 215 - n_rows, 165 - n_columns : 180 - n_columns] = 999
    return masks


def test_a_cell_that_several_variants_gain_counts_once():
    flat = np.where(bright_corner((400, 400)) > 50, 100.0, 10.0)
    flat[190:225, 155:190] = 10
    image = follow(by_tiles_with_one_more, "gained", flat, Settings())
    assert (image.n_dependent, image.n_gained, image.n_by_normalisation) == (0, 1, 0)


def test_a_cell_at_the_edge_of_the_whole_image_counts():
    """Only a crop cuts cells off."""

    def without_the_first(image, *, tile_overlap=0.1, **options):
        masks = by_threshold(image, **options)
        if tile_overlap > 0.1:
            masks[:10, :10] = 0
        return masks

    flat = np.full((400, 400), 10.0)
    flat[:10, :10] = 100
    for y, x in np.ndindex(5, 5):
        flat[60 * y + 100 : 60 * y + 120, 60 * x + 100 : 60 * x + 120] = 100
    image = follow(without_the_first, "edge", flat, Settings())
    assert (image.n_cells, image.n_dependent, image.n_gained) == (26, 1, 0)


def test_without_cells_nothing_is_shown(invoke, tmp_path):
    dark = follow(that_finds_nothing, "dark", np.zeros((400, 400)), Settings())
    found = TileDependence((dark,), ("cropped",))
    assert (found.cause, found.vacuous) == ("none", True)
    assert "vacuous: no cell was found in 1 image" in found.as_text()
    tifffile.imwrite(tmp_path / "none.tif", np.zeros((64, 64), np.uint16))
    answer = invoke("tiles", "--masks", tmp_path / "none.tif")
    assert (answer.code, "vacuous: it holds no cell" in answer.out) == (1, True)


@pytest.mark.parametrize(
    "settings",
    [{}, {"tile_overlap": 0.3}, {"augment": True}, {"diameter": 20.0}, {"diameter": 45.0}],
    ids=str,
)
def test_tiles_lie_where_cellpose_lays_them(small_store, monkeypatch, settings):
    from cellpose import transforms

    seen, make = [], transforms.make_tiles

    def watched(image, **given):
        made = make(image, **given)
        seen.append((made[1], made[2]))
        return made

    monkeypatch.setattr(transforms, "make_tiles", watched)
    asked, image = Settings(**settings), np.random.default_rng(0).random((300, 420))
    evaluator(tiny(path=small_store.weights))(image, **asked.arguments(), compute_masks=False)
    ((rows, columns),) = seen
    scale = 30 / settings.get("diameter", 30)
    expected = set()
    for axis, ranges, n in (("y", rows, 300), ("x", columns, 420)):
        pad = transforms.get_pad_yx(int(300 * scale), int(420 * scale), min_size=(256, 256))
        before = pad[0] if axis == "y" else pad[2]
        places = {round((int(edge) - before) / scale) for pair in ranges for edge in pair}
        expected |= {(axis, place) for place in places if 0 < place < n}
    assert set(tile_lines(image.shape, asked)) == expected


def test_through_the_command_line(small_store, pictured, invoke, tmp_path):
    answer = invoke("tiles", small_store.data, *options(model=small_store.weights), "--json")
    found = answer.json
    assert found["cause"] in ("tiling", "normalisation", "none")
    assert answer.code == int(found["cause"] != "none" or any(i["cuts"] for i in found["images"]))
    n_images = len(found["images"])
    assert f"{n_images}/{n_images} " in answer.err.splitlines()[-1]  # images, not what else is done
    for image in found["images"]:
        assert 0 <= image["n_dependent"] <= image["n_cells"]
        assert len(image["dependent"]) == image["n_dependent"]
    tifffile.imwrite(tmp_path / "cut.tif", cut(pictured[1], 150).astype(np.int32))
    (one,) = invoke("tiles", *options(masks=tmp_path / "cut.tif"), "--json").json["images"]
    assert [(cut_["axis"], cut_["at"]) for cut_ in one["cuts"]] == [("y", 150)]
    for wrong in ((), (small_store.data, *options(masks=tmp_path / "cut.tif"))):
        assert invoke("tiles", *wrong).code == 2
    given = ("--set", "normalize.sharpen=3", *options(model=small_store.weights))
    refused = invoke("tiles", small_store.data, *given)
    assert (refused.code, "varies the normalisation itself" in refused.err) == (2, True)
