"""Faults of where and why two runs diverge."""

from faults.by_name import breaks


@breaks(
    "cellrepro.divergence.run_ledgers:_stage_of_data",
    "`diverge` names the file of a segmented image only where that file differs.",
    tests=["tests/divergence/test_diverge_segmentations.py::test_files_and_pixels"],
)
def true_masks_are_files_of_the_image(stage_of_data):
    def stage(name, images):
        if name.startswith("file "):
            return "file"
        return stage_of_data(name, images)

    return stage


@breaks(
    "cellrepro.divergence.stepper:Stepper.go_back",
    "`diverge` repeats a step from the state before it, so that only a race differs from itself.",
    tests=[
        "tests/divergence/test_divergence.py::test_a_fault_is_called_one_where_no_race_is_possible"
    ],
)
def a_step_is_repeated_from_where_it_ended(go_back):
    return lambda stepper, snapshot: None


@breaks(
    "cellrepro.divergence.growth:_mean_scores",
    "`growth` gives the score of A and of B, not the other way round.",
    tests=["tests/divergence/test_divergence.py::test_how_far_masks_are_apart"],
)
def scores_are_exchanged(mean_scores):
    return lambda truths, a, b: mean_scores(truths, b, a)


@breaks(
    "cellrepro.divergence.diverge:_judged_by_stage",
    "`diverge` says that the environments differ only where nothing but these does.",
    tests=["tests/audits/test_planted_faults.py::test_settings[learning rate]"],
)
def a_difference_of_results_is_an_environment(judged_by_stage):
    return lambda first, ledgers: "environment"
