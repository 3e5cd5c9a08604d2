"""The word over planted experiments, its rule at the edges, and every figure beside a reference."""

import math

import numpy as np
import pytest
from experiments import KINDS, planted
from scipy import ndimage, stats
from scipy.spatial.distance import cdist

import cellrepro
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.conclusions.conclusion import decide
from cellrepro.conclusions.effects import GroupEffect, effect_along_doses, effect_of_groups
from cellrepro.conclusions.measuring import measured_masks
from cellrepro.conclusions.readouts import chosen_readouts
from samebits.errors import BadInput


def test_the_right_word_in_planted_experiments():
    """A true effect, none, one that the segmentation makes, one that a lost subgroup hides."""
    wrong = []
    for kind in KINDS:
        for seed in range(5):
            experiment = planted(kind, seed)
            answer = cellrepro.conclusion(
                experiment.a, experiment.b, groups=experiment.groups, readouts="count"
            )
            (conclusion,) = answer.conclusions
            if conclusion.word != experiment.word:
                wrong.append((kind, seed, conclusion.sentence()))
    assert len(wrong) <= 1, wrong


def some_effect(low, high):
    half = (high - low) / 2
    return GroupEffect(low + half, low, high, 10, 10 + low + half, 1, low + half, half / 1.96)


@pytest.mark.parametrize(
    ("a", "b", "difference", "word"),
    [
        ((1, 5), (1.2, 5.2), (-0.5, 0.9), "stands"),
        ((-2, 2), (-1, 2), (-0.5, 0.9), "stands"),
        ((1, 5), (-5, -1), (-9, 1), "changes"),
        ((1, 5), (-1, 4), (-1.9, -0.1), "changes"),
        ((1, 5), (3, 8), (1.1, 3), "changes"),
        ((0.2, 5), (-0.2, 4), (-0.9, 0.3), "undecidable"),
        ((1, 5), (2, 6), (-0.5, 2), "undecidable"),
        ((1, 5), (1, 5), (0, 0), "stands"),
    ],
    ids=[
        "alike",
        "none on both sides",
        "opposite",
        "hidden",
        "larger by more than the margin",
        "one interval just holds zero, which may be chance",
        "the difference may be larger than the margin",
        "equal masks",
    ],
)
def test_the_word(a, b, difference, word):
    decision = decide(some_effect(*a), some_effect(*b), some_effect(*difference), margin=1)
    assert decision.word == word
    assert (decision.times is None) == (word != "undecidable")


def test_the_images_needed_decide():
    """With as many images as are asked for, most new experiments of the same kind are decided."""
    generator = np.random.default_rng(3)

    def words(n):
        for _ in range(40):
            control, treated = generator.normal(20, 3, n), generator.normal(26, 3, n)
            shift = generator.normal(0.5, 3, n)
            of_a = effect_of_groups(control, treated)
            of_b = effect_of_groups(control, treated + shift)
            difference = effect_of_groups(np.zeros(n), shift)
            yield decide(of_a, of_b, difference, margin=2)

    few = [each for each in words(6) if each.word == "undecidable"]
    assert len(few) > 10
    needed = math.ceil(6 * float(np.median([each.times for each in few])))
    undecided = sum(each.word == "undecidable" for each in words(needed))
    assert undecided < 0.4 * 40, (needed, undecided)


# -- figures beside references ---------------------------------------------------------------


def test_an_effect_is_that_of_scipy():
    generator = np.random.default_rng(1)
    control, treated = generator.normal(10, 2, 60), generator.normal(13, 3, 50)
    effect = effect_of_groups(control, treated)
    assert effect.effect == pytest.approx(treated.mean() - control.mean())
    assert effect.ratio == pytest.approx(treated.mean() / control.mean())
    assert effect.hodges_lehmann == np.median([t - c for t in treated for c in control])
    welch = stats.ttest_ind(treated, control, equal_var=False)
    assert effect.standard_error == pytest.approx(
        effect.effect / welch.statistic
    )  # its standard error
    interval = welch.confidence_interval(0.95)
    width = interval.high - interval.low
    assert (effect.low, effect.high) == pytest.approx(tuple(interval)[:2], abs=0.03 * width)
    drawn = stats.bootstrap(
        (treated, control),
        lambda t, c, axis: t.mean(axis=axis) - c.mean(axis=axis),
        method="percentile",
        random_state=0,
    ).confidence_interval
    assert (effect.low, effect.high) == pytest.approx(tuple(drawn), abs=0.04 * width)


def test_an_effect_of_doses_is_that_of_scipy():
    generator = np.random.default_rng(2)
    doses = np.repeat([0.0, 1, 3, 10], 15)
    values = 5 + 0.7 * doses + generator.normal(0, 1, len(doses))
    effect = effect_along_doses(doses, values)
    line = stats.linregress(doses, values)
    assert effect.effect == pytest.approx(10 * line.slope)
    assert (effect.control, effect.treated) == pytest.approx(
        (line.intercept, line.intercept + 10 * line.slope)
    )
    assert effect.hodges_lehmann == pytest.approx(10 * stats.theilslopes(values, doses).slope)
    furthest = stats.t.ppf(0.975, len(doses) - 2) * 10 * line.stderr
    assert effect.effect - effect.low == pytest.approx(furthest, rel=0.2)
    assert effect.high - effect.effect == pytest.approx(furthest, rel=0.2)


def test_intervals_of_few_images_hold_the_truth():
    """In about 95 % of experiments; plain percentiles of three images do so in 80 %."""
    generator = np.random.default_rng(3)
    held = 0
    for _ in range(300):
        effect = effect_of_groups(generator.normal(5, 1, 3), generator.normal(7, 1, 3))
        held += effect.low <= 2 <= effect.high
    assert held / 300 > 0.91


@pytest.mark.parametrize("n", [3, 4, 5, 8])
def test_an_interval_holds_the_effect_where_one_group_does_not_vary(n):
    """As of B minus A, where B changes nothing in the control: one group has all resamples."""
    generator = np.random.default_rng(n)
    held = 0
    for _ in range(300):
        effect = effect_of_groups(np.zeros(n), generator.normal(2, 1, n))
        held += effect.low <= 2 <= effect.high
    assert held / 300 > 0.91


def test_an_interval_holds_the_effect_where_the_small_group_varies_most():
    """Its few resamples decide, however many the other group has."""
    generator = np.random.default_rng([3, 20])
    held = 0
    for _ in range(800):
        effect = effect_of_groups(generator.normal(5, 3, 3), generator.normal(7, 1, 20))
        held += effect.low <= 2 <= effect.high
    assert held / 800 > 0.905


def test_readouts_are_those_of_others():
    """Beside SciPy's sums over labels, and distances of all centres."""
    generator = np.random.default_rng(0)
    labels = np.zeros((40, 50), np.uint16)
    for number, (y, x, size) in {7: (2, 3, 4), 3: (20, 10, 6), 900: (30, 40, 5)}.items():
        labels[y : y + size, x : x + size + 1] = number
    image = generator.integers(0, 200, (40, 50, 2)).astype(float)
    names = (
        "count,area,equivalent_diameter,area_fraction,nearest_neighbour,mean_intensity,"
        "mean_intensity:1,total_intensity,maximum_intensity:1"
    )
    found = measured_masks(labels, image, chosen_readouts(names))
    numbers = [7, 3, 900]
    areas = np.array([np.count_nonzero(labels == number) for number in numbers])
    centres = np.array(ndimage.center_of_mass(labels > 0, labels, numbers))
    apart = cdist(centres, centres)
    np.fill_diagonal(apart, np.inf)
    first, second = image[..., 0], image[..., 1]
    assert found == pytest.approx(
        {
            "count": 3,
            "area": areas.mean(),
            "equivalent_diameter": np.sqrt(4 * areas / np.pi).mean(),
            "area_fraction": areas.sum() / labels.size,
            "nearest_neighbour": apart.min(axis=0).mean(),
            "mean_intensity": np.mean(ndimage.mean(first, labels, numbers)),
            "mean_intensity:1": np.mean(ndimage.mean(second, labels, numbers)),
            "total_intensity": np.mean(ndimage.sum(first, labels, numbers)),
            "maximum_intensity:1": np.mean(ndimage.maximum(second, labels, numbers)),
        }
    )


def test_numbers_of_cells_and_planes_do_not_matter():
    """Renumbered masks measure the same, and a stack numbered anew in each plane all its cells."""
    plane = np.zeros((30, 30), int)
    plane[2:8, 2:8], plane[12:20, 12:20], plane[22:28, 3:9] = 1, 2, 3
    renumbered = np.array([0, 9, 4, 70])[plane]
    chosen = chosen_readouts("count,area")
    assert measured_masks(plane, None, chosen) == measured_masks(renumbered, None, chosen)
    fewer = np.where(plane == 3, 0, plane)[::-1]
    stack = np.stack([plane, fewer, plane])
    assert measured_masks(stack, None, chosen)["count"] == 8


def test_cells_are_counted_as_a_comparison_of_the_masks_counts_them():
    """Also in a black-and-white mask, and in planes whose numbers begin anew on one side."""
    a = np.zeros((12, 60), int)
    for number, x in enumerate((2, 8, 20, 32, 44), start=1):  # the first two touch
        a[2:8, x : x + 6] = number
    stack = np.stack([a, np.where(a == 1, 0, a), a])
    anew = np.stack([a, np.where(a > 1, a - 1, 0), a])
    for first, second in ((a, (a > 0).astype(int)), (stack, anew)):
        names = [f"{group}_{i}" for group in "xy" for i in range(3)]
        answer = cellrepro.conclusion(
            dict.fromkeys(names, first),
            dict.fromkeys(names, second),
            groups={name: name[0] for name in names},
            readouts="count",
        )
        counted = compare_masks(first, second)
        for image in answer.images:
            assert image.a["count"] == counted.n_objects_a
            assert image.b["count"] == counted.n_objects_b > 1


# -- what a user gives -----------------------------------------------------------------------


def row_of(n_cells):
    labels = np.zeros((12, 200), int)
    for number in range(n_cells):
        labels[2:6, 8 * number : 8 * number + 5] = number + 1
    return labels


MASKS = {f"{group}_{i}": row_of(n + i) for group, n in (("x", 5), ("y", 9)) for i in range(4)}
GROUPS = {name: name[0] for name in MASKS}


def concluded(**changes):
    masks = changes.pop("b", MASKS)
    return cellrepro.conclusion(MASKS, masks, **{"groups": GROUPS, "readouts": "count", **changes})


def test_equal_masks_stand_whatever_the_margin():
    (conclusion,) = concluded(margin=0).conclusions
    assert conclusion.word == "stands"
    assert (conclusion.difference.low, conclusion.difference.high) == (0, 0)


def test_too_few_images_are_undecidable():
    some = {name: group for name, group in GROUPS.items() if name[-1] in "01"}
    (conclusion,) = concluded(groups=some).conclusions
    assert conclusion.word == "undecidable"
    assert "2 images of x and 2 of y; at least 3 of each" in conclusion.sentence()
    assert '"low": null' in conclusion.as_json()


def test_doses_and_several_groups():
    doses = {name: 10.0 * i**2 for i, name in enumerate(MASKS)}
    (conclusion,) = concluded(groups=doses).conclusions
    assert (conclusion.control, conclusion.treated, conclusion.is_dose) == ("0", "490", True)
    assert "dose 490" in conclusion.sentence()
    # That of the images, as of two groups: the line begins elsewhere.
    at_lowest = MASKS["x_0"].max()
    assert conclusion.margin == pytest.approx(0.1 * at_lowest)
    assert conclusion.a.control != pytest.approx(at_lowest)
    three = {**GROUPS, "x_0": "z", "x_1": "z", "y_0": "z"}
    found = concluded(groups=three, control="y").conclusions
    assert [(each.treated, each.control) for each in found] == [("z", "y"), ("x", "y")]


def test_a_function_of_ones_own_measures():
    def largest(masks, image):
        return np.bincount(masks.ravel())[1:].astype(float)

    (conclusion,) = concluded(readouts=largest).conclusions
    assert (conclusion.readout, conclusion.a.control) == ("largest", 20)
    with pytest.raises(BadInput, match="array of shape"):
        concluded(readouts=lambda masks, image: masks)


def test_an_image_without_cells_is_left_out_of_areas_and_counts_zero():
    b = {**MASKS, "y_3": row_of(0)}
    found = concluded(b=b, readouts="count,area")
    counts, areas = found.conclusions
    assert (counts.n_treated, areas.n_treated) == (4, 3)
    assert "y_3" in found.notes[-1]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"readouts": "volume"}, "'volume'; expected one of count, area"),
        ({"readouts": "count:1"}, "channels are numbers from 0"),
        ({"readouts": "mean_intensity:-1"}, "channels are numbers from 0"),
        ({"readouts": "count,count"}, "each once"),
        ({"readouts": ""}, "expected one of count"),
        ({"readouts": [3]}, "of the type int"),
        ({"readouts": "mean_intensity"}, "cannot be measured without the images"),
        ({"groups": dict.fromkeys(GROUPS, "x")}, "expected images of two groups"),
        ({"groups": {"other": "x"}}, "no row is of an image with masks: it names other"),
        ({"groups": {**GROUPS, "x_0.tif": "y"}}, "x_0 stands in it twice"),
        ({"control": "nobody"}, "expected one of x, y"),
        ({"margin": -0.1}, "share of the control's mean"),
        ({"margin": math.nan}, "share of the control's mean"),
        ({"images": {"x_0": np.ones((3, 3))}, "readouts": "mean_intensity"}, "shape"),
        (
            {"images": {n: np.ones((12, 200)) for n in MASKS}, "readouts": "mean_intensity:1"},
            "1 channel, numbered from 0",
        ),
    ],
)
def test_wrong_input_is_refused(changes, said):
    with pytest.raises(BadInput, match=said):
        concluded(**changes)


def test_without_scikit_image_cells_are_counted(monkeypatch):
    """Only what is measured of single cells needs it."""
    monkeypatch.setattr("cellrepro.conclusions.readouts.absent", lambda modules: [*modules])
    assert concluded().conclusions[0].word == "stands"
    with pytest.raises(cellrepro.NotPossibleHere, match=r"cellrepro\[measure\]"):
        concluded(readouts="area")
