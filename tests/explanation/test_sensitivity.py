"""Each setting varied by itself: the cells it changes, and the passes of the network it takes."""

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from cellrepro.comparison.changed_cells import resized_cells
from cellrepro.comparison.image_differences import difference_of
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.comparison.scores import average_precision
from cellrepro.explanation.sensitivity import VALUES, Sensitivity
from cellrepro.explanation.variations import Variant, Variation, VariedImage, variant_of
from cellrepro.images.folder import read_folder
from cellrepro.model.evaluator import evaluator
from cellrepro.show.figures.sensitivity import setting_bars
from cellrepro.spec.segmentation_settings import Settings
from conftest import options
from small_training import tiny

pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks")


def test_every_variant_is_what_eval_gives(small_store, invoke, tmp_path):
    """The reference: Cellpose's eval once for each, without any sharing."""
    vary = {
        "flow_threshold": [0.4, 0.1, 0.10],
        "cellprob_threshold": [1.0],
        "max_size_fraction": [1.0],
        "niter": [2],
        "diameter": [20, 20.0],
    }
    asked = [item for n, values in vary.items() for item in ("--vary", f"{n}={values}")]
    given = options(model=small_store.weights, figures=tmp_path / "figures")
    answer = invoke("sensitivity", small_store.data, *asked, *given, "--json")
    assert answer.code == 0, answer.err
    found = {(one["name"], one["value"]): one for one in answer.json["settings"]}
    images = read_folder(small_store.data).test
    evaluate = evaluator(tiny(path=small_store.weights))
    assert answer.json["network_passes"] == 2 * len(images)  # the usual one, and of the diameter
    assert found.keys() == {
        ("flow_threshold", 0.1),
        ("cellprob_threshold", 1),
        ("max_size_fraction", 1),
        ("niter", 2),
        ("diameter", 20),
    }
    for (name, value), one in found.items():
        sides = [[evaluate(i.image, **kw).masks for i in images] for kw in ({}, {name: value})]
        pairs = [compare_masks(a, b) for a, b in zip(*sides, strict=True)]
        n_cells = sum(pair.n_objects_a + pair.n_objects_b for pair in pairs)
        assert (one["n_changed"], one["n_cells"]) == (sum(p.n_unmatched for p in pairs), n_cells)
        assert one["changed"] == pytest.approx(one["n_changed"] / n_cells)
        low, high = one["interval"]  # of one image: over cells
        assert (one["interval_over"], low <= one["changed"] <= high) == ("cells", True)
        for kind in ("kept", "moved", "lost", "gained", "split", "merged"):
            assert one[kind] == sum(pair.kinds[kind] for pair in pairs)
        n_resized = sum(
            change.kind == "kept"
            and min(change.area_a, change.area_b) < 0.75 * max(change.area_a, change.area_b)
            for pair in pairs
            for change in pair.objects
        )
        assert one["n_resized"] == n_resized
        scores = [average_precision(i.masks, m)[0] for i, m in zip(images, sides[1], strict=True)]
        assert one["ap50"] == pytest.approx(np.mean(scores))
    ranked = [one["changed"] for one in answer.json["settings"]]
    assert ranked == sorted(ranked, reverse=True)
    idle = found["max_size_fraction", 1]
    assert (idle["changed"], idle["ppm"]) == (0, 0)
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        "flow_threshold.png",
        "cellprob_threshold.png",
        "niter.png",
        "diameter.png",
    }


def test_every_usual_value_is_one_that_differs_from_the_default():
    """One that is refused would be left out without a word."""
    for name, values in VALUES.items():
        for value in values:
            assert name in Settings().replaced(**{name: value}).not_default(), (name, value)


def a_sensitivity(*interval_over, images=1):
    """Of one setting for each interval."""
    variant = Variant(
        name="flow_threshold",
        value=0.1,
        changed=0.25,
        n_changed=1,
        n_cells=4,
        interval=(0.1, 0.5),
        interval_over="cells",
        kinds=Counter(kept=3, lost=1),
        n_resized=0,
        n_objects=3,
        ppm=10.0,
        ap50=None,
        image="a",
    )
    return Sensitivity(
        model="tiny",
        base={},
        settings=tuple(replace(variant, interval_over=over) for over in interval_over),
        images=images,
        objects=4,
        ap50=None,
        network_passes=1,
        examples={},
    )


@pytest.mark.parametrize(
    ("over", "images", "said"),
    [
        (["cells"], 1, "over cells (binomial, since images are fewer than three)"),
        (["cells"], 5, "over cells (binomial, since few images have cells)"),
        (["images"] * 2, 5, "over 5 images (Student's t: wide from so few)"),
        (["images"] * 2, 6, "over 6 images (bootstrap)"),
        (["images", "cells"], 5, "or over cells where fewer than three images have any"),
    ],
)
def test_it_is_said_what_the_intervals_are_over(over, images, said):
    assert a_sensitivity(*over, images=images).interval_kind.endswith(said)


def test_what_became_of_the_cells_is_counted_twice_alike():
    """Under its own key and among the kinds; asdict of a Counter would count the counts."""
    sensitivity = a_sensitivity("cells")
    (setting,) = json.loads(sensitivity.as_json())["settings"]
    assert setting["kinds"] == {"kept": 3, "lost": 1}
    assert (setting["kept"], setting["lost"]) == (3, 1)
    answer, _, _, line, *_ = sensitivity.lines()
    assert "left out" not in sensitivity.intervals_text
    assert "flow_threshold 0.1 changes most: 25 % of the cells of both results have no" in answer
    assert re.split(r" {2,}", line.strip()) == [
        "flow_threshold 0.1",
        "25 %",
        "10 % to 50 %",
        "3 kept, 1 lost",
    ]


@pytest.mark.parametrize(
    ("vary", "message"),
    [
        ("diametr=[20]", "diametr: no such setting; do you mean diameter?"),
        ("diameter=", "vary.diameter is []; expected a list of values"),
        ("diameter=20,a", "diameter is 'a'; expected a number"),
        ("diameter=[20", "--vary diameter is '[20'; expected values with commas between them"),
        ("flow_threshold=[0.4]", "vary holds flow_threshold=[0.4], which varies no setting"),
        ("augment=[maybe]", "augment is 'maybe'"),
        ("rescale=[2]", "overwrites it by 30 / diameter"),
        (
            "batch_size=1",
            "batch_size changes nothing in mode strict, in which the network sees one",
        ),
    ],
)
def test_what_cannot_be_varied_is_refused(small_store, invoke, no_child, vary, message):
    given = options(model=small_store.weights, vary=vary)
    answer = invoke("sensitivity", small_store.data, *given)
    assert (answer.code, answer.out) == (2, "")
    assert message in answer.err


def test_kept_cells_of_another_size_are_counted():
    """They have a match, and yet whoever measures areas has other cells."""
    usual = np.kron(np.arange(1, 5).reshape(2, 2), np.pad(np.ones((10, 10), int), 3))
    smaller = usual.copy()
    smaller[usual == 1] = 0
    smaller[4:12, 4:12] = 1
    result = compare_masks(usual, smaller)
    varied = VariedImage("a", 4, None, difference_of(result), len(resized_cells(result.objects)))
    variant = variant_of(Variation("min_size", 60), [varied])
    assert (variant.n_changed, variant.kept, variant.n_resized) == (0, 4, 1)
    became = variant.row()["what became of the cells"]
    assert became == "4 kept (1 of another size)"


def test_what_scores_better_than_the_usual_settings_is_said():
    found = a_sensitivity("cells", "cells")
    assert found.better_text == ""
    low, high = (
        replace(variant, value=value, ap50=ap50)
        for variant, value, ap50 in zip(found.settings, (0.1, 0.8), (0.5, 0.9), strict=True)
    )
    found = replace(found, settings=(low, high), ap50=0.6)
    assert found.lines()[2] == (
        "closer to the annotated cells (AP@0.5, usual 0.600): flow_threshold 0.8 (0.900); 1 image "
        "may be too few to rely on it"
    )
    assert replace(found, settings=(low,)).better_text.startswith("no value tried has a better")


def test_an_interval_that_tells_next_to_nothing_is_left_out():
    wide, narrow = a_sensitivity("cells", "cells").settings
    wide = replace(wide, interval=(0.1, 0.7))
    alone = replace(a_sensitivity("cells"), settings=(wide,))
    assert "10 %" not in "\n".join(alone.lines())
    assert "is shown: each would span more than half of 0 to 100 %" in "\n".join(alone.lines())
    both = replace(alone, settings=(wide, narrow))
    assert [row.split()[4:6] for row in both.lines()[3:5]] == [["–", "3"], ["10", "%"]]
    assert "none is shown where it would span more than half" in both.intervals_text
    assert json.loads(both.as_json())["settings"][0]["interval"] == [0.1, 0.7]
    caption = setting_bars(both).caption
    assert "Thin lines: 95 % intervals" in caption
    assert "Thin lines" not in setting_bars(alone).caption
