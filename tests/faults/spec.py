"""Faults of specs and settings: what has a key of its own, what is refused."""

from faults.by_name import breaks


@breaks(
    "cellrepro.spec.spec:Spec.key",
    "A spec with another data seed has another key, so that it is no repeat of the first.",
    tests=["tests/spec/test_spec.py::test_everything_asked_for_changes_the_key"],
)
def the_key_forgets_the_data_seed(key):
    return property(lambda spec: key.fget(spec.model_copy(update={"data_seed": "cellpose"})))


@breaks(
    "cellrepro.spec.spec:Spec.as_in_first_versions",
    "Runs of the first versions are found, and not made again.",
    tests=["tests/spec/test_spec.py::test_what_the_first_versions_made_is_found"],
)
def runs_of_the_first_versions_are_lost(as_in_first_versions):
    return property(lambda spec: spec)


@breaks(
    "cellrepro.spec.spec:Spec.images_digest",
    "Images that were read by other axes are kept apart, so that no mask lies over a wrong one.",
    tests=["tests/store/test_store.py::test_images_are_kept_as_they_were_read"],
)
def images_forget_their_axes(images_digest):
    return property(lambda spec: spec.data_digest)


@breaks(
    "cellrepro.spec.new_spec:_of_another_task",
    "An option that does nothing in a segmentation is refused, and so makes no other key.",
    tests=[
        "tests/spec/test_spec.py"
        "::test_an_option_of_another_task_is_refused_and_what_was_stored_with_one_is_read"
    ],
)
def an_option_of_another_task_is_taken(of_another_task):
    return lambda spec: []


@breaks(
    "cellrepro.spec.setting_names:spelt_out",
    "A normalisation that is given whole keeps its fields beside one that is given by itself.",
    tests=["tests/spec/test_spec.py::test_normalize_given_whole_and_by_field_loses_nothing"],
)
def normalize_loses_its_fields(spelt_out):
    from cellrepro.spec.segmentation_settings import Normalize

    return lambda value: {} if isinstance(value, Normalize) else spelt_out(value)


@breaks(
    "cellrepro.spec.sent_spec:_not_plausible",
    "A spec that somebody sent sets no variable that makes a process run code or load libraries.",
    tests=["tests/spec/test_sent_spec.py::test_other_variables_reach_no_process"],
)
def a_sent_spec_sets_any_variable(not_plausible):
    return lambda spec: []
