"""Faults of training, segmenting and loading networks."""

from faults.by_name import breaks


@breaks(
    "cellrepro.model.epoch_schedule:epoch_seed",
    "With Cellpose's own data seed a training has the bits of Cellpose's train_seg.",
    tests=["tests/model/test_training_loop.py::test_every_argument_of_train_seg"],
)
def data_order_starts_one_epoch_late(epoch_seed):
    return lambda data_seed, epoch: epoch_seed(data_seed, epoch + 1)


@breaks(
    "cellrepro.model.prepared_images:training_labels",
    "The masks that are given to a training are the same after it.",
    tests=[
        "tests/model/test_training_loop.py::test_the_images_and_masks_given_are_left_as_they_are"
    ],
)
def true_masks_are_renumbered(training_labels):
    return lambda image: image.flows if hasattr(image, "flows") else image.masks


@breaks(
    "cellrepro.model.cellpose_generation:why_no_training",
    "A Cellpose whose training no test has compared with the lab's does not train.",
    tests=[
        "tests/model/test_cellpose_generation.py::test_a_loop_that_no_test_has_compared_is_refused[4.3.0]"
    ],
)
def any_cellpose_trains(why_no_training):
    return lambda: None


@breaks(
    "cellrepro.model.weights_file:load_weights",
    "Weights that lack a parameter of the network are refused, not completed at random.",
    tests=["tests/model/test_network.py::test_weights_of_another_network_do_not_fit"],
)
def weights_that_do_not_fit_are_loaded(load_weights):
    def load(network, path, *, encoder):
        from safetensors.torch import load_file

        network.load_state_dict(load_file(path), strict=False)

    return load


@breaks(
    "cellrepro.model.pretrained:_refuse_incomplete",
    "A checkpoint of Cellpose that leaves a part of its network at random is refused.",
    tests=["tests/model/test_network.py::test_a_checkpoint_of_something_else[one missing]"],
)
def an_incomplete_checkpoint_is_loaded(refuse_incomplete):
    return lambda *_: None


@breaks(
    "cellrepro.model.known_weights:_RULES",
    "Weights that lack a parameter are not described as a network that Cellpose loads as it is.",
    tests=["tests/explanation/test_describe.py"],
)
def a_missing_parameter_is_not_described(rules):
    return tuple(rule for rule in rules if rule.__name__ != "_incomplete_sam")


@breaks(
    "cellrepro.model.evaluator:_strict_is_in_force",
    "In mode strict masks are the same for every batch size.",
    tests=["tests/model/test_inference.py::test_strict_does_not_depend_on_the_batch"],
)
def mode_strict_depends_on_the_batch(strict_is_in_force):
    return lambda: False


@breaks(
    "cellrepro.model.evaluator:_with_distinct_numbers",
    "Planes that were segmented one by one share no cell.",
    tests=["tests/model/test_inference.py::test_stacks_are_segmented_as_by_eval"],
)
def planes_share_numbers(with_distinct_numbers):
    return lambda masks: masks


@breaks(
    "cellrepro.model.shared_steps:_in_words",
    "A variant of sensitivity has the masks that eval gives with its settings.",
    tests=["tests/explanation/test_sensitivity.py::test_every_variant_is_what_eval_gives"],
)
def settings_share_what_differs(in_words):
    return lambda options: []


@breaks(
    "cellrepro.model.portable_normalisation:exponentials",
    "In mode portable no exponential function of this computer decides a bit.",
    tests=[
        "tests/model/test_portable_functions.py::test_exponentials_are_rounded_correctly",
    ],
)
def exponentials_are_this_computers(exponentials):
    import numpy as np

    return lambda exponents: np.exp(np.array(list(exponents), np.float32)).astype(np.float64)


@breaks(
    "cellrepro.model.followed_paths:_largest_within",
    "A path is followed again where the threshold changes what it goes through.",
    tests=["tests/model/test_live_masks.py::test_paths_are_those_of_cellpose_from_any_threshold"],
)
def no_path_depends_on_the_threshold(largest_within):
    return lambda reach, values: largest_within(reach, values * 0 - float("inf"))


@breaks(
    "cellrepro.model.cell_flow_errors:_spread",
    "The errors of flows have the bits of Cellpose's.",
    tests=[
        "tests/model/test_live_masks.py::test_errors_of_flows_are_those_of_cellpose_bit_for_bit"
    ],
)
def heat_spreads_one_step_less(spread):
    return lambda cells, n_steps, dtype: spread(cells, n_steps - 1, dtype)
