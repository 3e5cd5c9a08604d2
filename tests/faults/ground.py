"""Faults of the recorder for users' scripts, and of what all rooms share."""

from faults.by_name import breaks


@breaks(
    "cellrepro.record:_CallOfEval.image",
    "A record has the digest of the pixels that eval received, though eval may change them.",
    tests=["tests/test_record.py::test_a_list_of_images_gives_a_record_of_each"],
)
def a_record_is_of_what_eval_left(image):
    from cellrepro.record import _array, _as_array

    return lambda call, i: {**image(call, i), **_array(_as_array(call.images[i]))}


@breaks(
    "cellrepro.record:_may_replace",
    "A record of different pixels is kept, and the new one gets a name of its own.",
    tests=["tests/test_record.py::test_a_record_of_different_pixels_is_never_replaced"],
)
def a_record_of_another_image_is_replaced(may_replace):
    return lambda path, record: True


@breaks(
    "cellrepro.record:_KnownNetwork.is_still",
    "Weights that changed between two calls of eval have another digest in the second record.",
    tests=["tests/test_record.py::test_weights_are_digested_again_once_they_changed"],
)
def trained_weights_keep_their_digest(is_still):
    return lambda known, tensors, state: is_still(known, tensors, known.state)


@breaks(
    "cellrepro.record:_Recorder.described_call",
    "A script that records draws the random numbers that it would draw without.",
    tests=["tests/test_record.py::test_recording_changes_no_bit"],
)
def recording_seeds_the_generator(described_call):
    import numpy as np

    def seeded(recorder, *arguments):
        np.random.seed(0)
        return described_call(recorder, *arguments)

    return seeded


@breaks(
    "cellrepro.yaml_values:read_yaml",
    "In every option and file 1e-3 is a number, and off is a word.",
    tests=["tests/test_yaml_values.py"],
)
def numbers_are_words(read_yaml):
    import yaml

    return yaml.safe_load


@breaks(
    "cellrepro.stated:refuse_idle",
    "An option that would do nothing is refused, and not silently ignored.",
    tests=["tests/test_cli.py::test_options_that_would_do_nothing_are_refused"],
)
def idle_options_are_ignored(refuse_idle):
    return lambda names, why, *, instead="": None
