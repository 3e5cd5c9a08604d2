"""Faults of the comparison of two results."""

from faults.by_name import breaks


@breaks(
    "cellrepro.comparison.object_matching:matches",
    "Two objects with an IoU of exactly one half are each other's match at IoU 0.5.",
    tests=["tests/comparison/test_scores.py::test_an_iou_at_its_threshold"],
)
def one_half_is_no_match(matches):
    return lambda table, threshold: matches(table, threshold + 1e-9)


@breaks(
    "cellrepro.comparison.object_matching:overlap",
    "What is lost is what the first result alone has, and what is gained the second.",
    tests=["tests/comparison/test_object_changes.py::test_one_image_with_every_kind"],
)
def sides_are_exchanged(overlap):
    return lambda a, b: overlap(b, a)


@breaks(
    "cellrepro.images.label_image:label_images",
    "Label images of different shapes are refused, also where they hold as many pixels.",
    tests=["tests/comparison/test_mask_comparison.py::test_what_cannot_be_compared"],
)
def label_images_of_equal_size_are_compared(label_images):
    import numpy as np

    def of_equal_size(first, second):
        a, b = np.asarray(first[1]), np.asarray(second[1])
        return label_images(first, (second[0], b.reshape(a.shape) if a.size == b.size else b))

    return of_equal_size


@breaks(
    "cellrepro.comparison.label_pair:numbering",
    "A stack whose numbers begin anew in each plane is compared plane by plane.",
    tests=[
        "tests/comparison/test_label_pair.py"
        "::test_planes_are_compared_one_by_one_where_numbers_begin_anew_in_each"
    ],
)
def planes_numbered_anew_are_read_as_one_stack(numbering):
    return lambda image: "through" if numbering(image) == "anew" else numbering(image)


@breaks(
    "cellrepro.comparison.shared_numbers:pieces_that_touch",
    "Cells that have one number and do not touch are no merge.",
    tests=[
        "tests/comparison/test_label_pair.py"
        "::test_damaged_numbers_are_named_and_cells_that_do_not_touch_are_no_merge"
    ],
)
def a_shared_number_is_one_cell(_pieces_that_touch):
    import numpy as np

    return lambda image: np.unique(image, return_inverse=True)[1].reshape(image.shape)


@breaks(
    "cellrepro.comparison.verdicts:_STRONGEST_FIRST",
    "Untrained weights and equal masks do not add up to identical: the verdict is vacuous.",
    tests=["tests/comparison/test_verdicts.py::test_combine"],
)
def what_proves_nothing_counts_as_equal(strongest_first):
    from cellrepro.comparison.verdicts import Verdict

    others = [verdict for verdict in strongest_first if verdict != Verdict.VACUOUS]
    return (*others, Verdict.VACUOUS)


@breaks(
    "cellrepro.comparison.within_spread:_jackknife",
    "Where something does what seeds do, within-spread is claimed in one case of twenty at most.",
    tests=["tests/comparison/test_within_spread.py"],
)
def seeds_are_taken_for_all_there_are(jackknife):
    return lambda values, units: (0.0, jackknife(values, units)[1])


@breaks(
    "cellrepro.comparison.weight_distance:_sums_of_piece",
    "Networks are equal by the bits of every parameter: signed zeros count.",
    tests=["tests/comparison/test_weight_comparison.py::test_every_bit_counts"],
)
def weights_are_equal_by_value(sums_of_piece):
    import numpy as np

    from cellrepro.comparison.weight_tensors import values

    def by_value(name, bits_a, bits_b, dtypes):
        if dtypes[0] == dtypes[1]:
            is_equal = values(bits_a, dtypes[0]) == values(bits_b, dtypes[1])
            bits_b = np.where(is_equal, bits_a, bits_b)
        return sums_of_piece(name, bits_a, bits_b, dtypes)

    return by_value


@breaks(
    "cellrepro.pickles:PickleReader.find_class",
    "A pickle from outside runs no code: of a file of weights, and of a _seg.npy.",
    tests=[
        "tests/comparison/test_torch_archives.py::test_code_is_refused_and_not_executed",
        "tests/images/test_seg_file.py::"
        "test_a_hostile_pickle_is_refused_by_name_and_leaves_no_trace",
    ],
)
def code_in_a_pickle_is_run(find_class):
    import importlib

    from cellrepro.pickles import UnknownName

    def found(reader, module, name):
        try:
            return find_class(reader, module, name)
        except UnknownName:
            return getattr(importlib.import_module(module.replace("__builtin__", "builtins")), name)

    return found


@breaks(
    "cellrepro.comparison.stored_tensors:View.reaches_beyond",
    "A tensor of a file from outside shows no bytes but those of its own numbers.",
    tests=["tests/comparison/test_torch_archives.py::test_hostile_pickles"],
)
def a_tensor_reaches_beyond_its_numbers(reaches_beyond):
    return property(lambda view: False)


@breaks(
    "cellrepro.comparison.generator_pairs:compare_generators",
    "Two checkpoints whose generators stand at different places are not identical.",
    tests=["tests/comparison/test_state_comparison.py::test_each_part_is_named"],
)
def generators_of_checkpoints_are_not_compared(compare_generators):
    from dataclasses import replace

    return lambda name, a, b: replace(compare_generators(name, a, b), equal=True)


@breaks(
    "cellrepro.comparison.operation_diff:_inputs_agreement",
    "The operation that is named is the first whose inputs agree and whose outputs differ.",
    tests=["tests/comparison/test_operation_diff.py::test_the_cause_comes_before_what_inherits"],
)
def an_operation_that_inherits_is_named(_inputs_agreement):
    return lambda _a, _b: "agree"
