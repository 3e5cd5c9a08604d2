"""Faults of what is concluded from two sides."""

from faults.by_name import breaks

WORDS = "tests/conclusions/test_conclusion.py"


@breaks(
    "cellrepro.conclusions.conclusion:decide",
    "That one interval holds zero and another does not is no difference by itself.",
    tests=[f"{WORDS}::test_the_word"],
)
def one_interval_that_holds_zero_changes_all(decide):
    from dataclasses import replace

    from cellrepro.conclusions.conclusion import side_of

    def by_sides(a, b, difference, *, margin):
        found = decide(a, b, difference, margin=margin)
        return replace(found, word="changes", times=None) if side_of(a) != side_of(b) else found

    return by_sides


@breaks(
    "cellrepro.conclusions.effects:_deviations",
    "Intervals of few images are as wide as chance makes effects.",
    tests=[f"{WORDS}::test_intervals_of_few_images_hold_the_truth"],
)
def deviations_are_those_of_many_images(deviations):
    return lambda group, stream: deviations(group, stream) * (1 - 1 / len(group))


@breaks(
    "cellrepro.conclusions.measuring:canonical",
    "In a stack whose numbers begin anew, each plane has cells of its own.",
    tests=[f"{WORDS}::test_numbers_of_cells_and_planes_do_not_matter"],
)
def numbers_run_through_planes(canonical):
    from cellrepro.comparison.label_numbers import renumbered

    return lambda masks: renumbered(masks)[0]
