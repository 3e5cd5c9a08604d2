"""Faults of what is said of two results: their comparison, their records, their causes."""

from faults.by_name import breaks


@breaks(
    "cellrepro.explanation.compare_files:_compare_mask_files",
    "Two folders of masks of which one lacks a file are different, however equal the others are.",
    tests=["tests/explanation/test_compare_results.py::test_folders_of_masks"],
)
def a_missing_mask_is_no_difference(compare_mask_files):
    def of_images_in_both(a, b, *, who):
        in_both = a.keys() & b.keys()
        return compare_mask_files(
            {name: read for name, read in a.items() if name in in_both},
            {name: read for name, read in b.items() if name in in_both},
            who=who,
        )

    return of_images_in_both


@breaks(
    "cellrepro.explanation.two_results:Comparison.exit_code",
    "`compare` exits with 1 where masks are identical and spec, environment or data differ.",
    tests=["tests/test_cli.py::test_compare_and_list_runs"],
)
def equal_masks_excuse_another_spec(exit_code):
    return property(lambda comparison: int(str(comparison.verdict) != "identical"))


@breaks(
    "cellrepro.explanation.mask_files:_only_one",
    "Two label images of one image in a folder are refused; none of them is taken by chance.",
    tests=["tests/explanation/test_compare_results.py::test_refusals"],
)
def the_first_of_two_masks_is_taken(only_one):
    return lambda name, paths: paths[0]


@breaks(
    "cellrepro.explanation.mask_file_record:_record_of_seg_beside",
    "A _seg.npy beside masks tells how they were made only if it holds the same labels.",
    tests=[
        "tests/explanation/test_recorded_settings.py"
        "::test_masks_take_the_record_of_a_seg_file_only_if_it_holds_the_same"
    ],
)
def the_record_of_other_masks_is_taken(record_of_seg_beside):
    from cellrepro.images.decoding import SEG_ENDING
    from cellrepro.images.seg_file import read_seg

    def whatever_it_holds(path, masks):
        beside = path.with_name(f"{path.stem.removesuffix('_masks')}{SEG_ENDING}")
        return record_of_seg_beside(path, read_seg(beside).masks if beside.is_file() else masks)

    return whatever_it_holds


@breaks(
    "cellrepro.explanation.script_record:_masks_digest_in",
    "Masks without a record of their name take only one that tells of exactly their labels.",
    tests=[
        "tests/explanation/test_script_record.py"
        "::test_masks_that_were_renamed_find_their_record_and_edited_ones_are_told"
    ],
)
def any_record_of_the_folder_is_taken(masks_digest_in):
    return lambda record: _equal_to_all()


@breaks(
    "cellrepro.explanation.image_readings:array_digest",
    "An image whose pixels eval did not receive is told from the one that it did.",
    tests=[
        "tests/explanation/test_script_record.py"
        "::test_an_image_is_known_by_the_pixels_that_eval_received"
    ],
)
def any_image_is_the_one_of_a_script(array_digest):
    return lambda array: _equal_to_all()


@breaks(
    "cellrepro.explanation.recorded_network:MODEL_DIGEST",
    "A file of weights that changed since a script recorded it is not taken for the network.",
    tests=[
        "tests/explanation/test_recorded_network.py"
        "::test_a_file_that_moved_is_found_and_one_that_changed_is_not_taken"
    ],
)
def a_network_that_was_replaced_is_taken(name_of_the_digest):
    return "a name that no record has"


@breaks(
    "cellrepro.explanation.run_log:_are_equal",
    "Of a log with two diameters none is taken, as nothing says which one the masks had.",
    tests=["tests/explanation/test_run_log.py::test_a_gpu_that_was_used_and_two_diameters"],
)
def one_of_two_diameters_is_taken(are_equal):
    return lambda values: True


@breaks(
    "cellrepro.explanation.hand_edits:_removed",
    "Cells that one side lacks because they were removed by hand are named.",
    tests=[
        "tests/explanation/test_hand_edits.py"
        "::test_what_only_one_side_has_by_hand_is_named_with_its_place"
    ],
)
def cells_removed_by_hand_are_not_named(removed):
    return lambda seg: iter(())


@breaks(
    "cellrepro.explanation.baseline_check:_judged",
    "A baseline is broken by masks that lack one of its images.",
    tests=["tests/explanation/test_baseline.py::test_an_image_that_is_missing_breaks_it"],
)
def a_missing_image_passes(judged):
    def of_the_others(comparison, not_compared, limits):
        others = [sentence for sentence in not_compared if not sentence.startswith("no masks of")]
        return judged(comparison, others, limits)

    return of_the_others


@breaks(
    "cellrepro.explanation.baseline_comparison:_passes_without",
    "A check of a baseline names every cell that could vanish within its limits.",
    tests=["tests/explanation/test_baseline.py::test_what_the_limits_could_hide_by_trying"],
)
def a_cell_that_could_vanish_is_not_named(passes_without):
    def of_one_side(cell, n_pixels, n_cells, limits):
        return passes_without(cell, n_pixels, (n_cells + 1) / 2, limits)

    return of_one_side


@breaks(
    "cellrepro.explanation.fit:Fit.came_to_something",
    "A search that did not make a result again names no cause and prints no command.",
    tests=["tests/explanation/test_explain.py::test_what_is_not_found_has_no_cause_and_no_command"],
)
def what_was_not_found_is_a_cause(came_to_something):
    return property(lambda fit: True)


def _equal_to_all():
    class EqualToAll(str):
        __hash__ = str.__hash__

        def __eq__(self, other):
            return True

    return EqualToAll()


@breaks(
    "cellrepro.explanation.settings_of_both:is_usual_value",
    "What one side alone records is a likely cause only if it is not Cellpose's usual value.",
    tests=["tests/explanation/test_why.py::test_usual_values_of_one_side_are_no_cause"],
)
def a_usual_value_is_a_cause(is_usual_value):
    return lambda name, value, generation=None: False


@breaks(
    "cellrepro.explanation.recorded_cause:_has_effect",
    "Two ways to write Cellpose's usual value are no cause.",
    tests=["tests/explanation/test_why.py::test_what_changes_no_cell_is_no_cause"],
)
def another_spelling_is_a_cause(_has_effect):
    return lambda setting, evidence: True
