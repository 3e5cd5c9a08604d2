"""What many segmentations will take is said before they begin, by a stored one of their kind."""

import re

import numpy as np
import tifffile

from cellrepro.run.options import SegmentationOptions
from cellrepro.run.planning import plan_segmentation
from cellrepro.run.stored_costs import segmenting_announced
from cellrepro.store.store import Store


def seconds_of(plan):
    said = segmenting_announced(plan, plan.store, n_each=10**6, ways="in many ways")
    hours, minutes = re.search(r"about (\d+):(\d\d) h", said).groups()
    return 60 * int(hours) + int(minutes)


def test_a_stored_segmentation_tells_how_long_by_the_pixels(invoke, tmp_path):
    """Twice as high and as wide images take four times as long; without masks nothing is told."""
    store = tmp_path / "store"
    sizes = {"one": 64, "four": 128}
    for name, n in sizes.items():
        (tmp_path / name).mkdir()
        noise = np.random.default_rng(0).integers(0, 999, (n, n))
        tifffile.imwrite(tmp_path / name / "a.tif", noise.astype(np.uint16))

    def plan_of(name):
        options = SegmentationOptions(data=tmp_path / name, model="tiny", store=store)
        return plan_segmentation(options)

    nothing = segmenting_announced(plan_of("one"), Store(store), n_each=2, ways="in two ways")
    assert "2 segmentations, none of them stored: 1 image, each in two ways" in nothing
    assert "the progress says" in nothing
    given = ("--model", "tiny", "--repeats", "1", "--store", store)
    assert invoke("segment", tmp_path / "one", *given).code in (0, 1)
    one, four = (seconds_of(plan_of(name)) for name in sizes)
    assert abs(four - 4 * one) <= 4
    for masks in store.rglob("masks/*.tif"):
        masks.unlink()
    assert "the progress says" in segmenting_announced(
        plan_of("one"), Store(store), n_each=2, ways="in two ways"
    )


def test_where_no_cell_is_found_settings_that_were_changed_are_named_first(invoke, tmp_path):
    noise = np.random.default_rng(0).integers(0, 999, (64, 64))
    tifffile.imwrite(tmp_path / "a.tif", noise.astype(np.uint16))
    given = ("--model", "tiny", "--repeats", 1, "--set", "min_size=4000", "--store", tmp_path / "s")
    said = invoke("segment", tmp_path / "a.tif", *given).out
    assert "First try the usual value of min_size. Train for more" in said
