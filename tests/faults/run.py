"""Faults of one run: its key names what was computed, and its records are of what came of it."""

from faults.by_name import breaks


@breaks(
    "cellrepro.run.inputs:read_images",
    "A run whose images change while it starts is refused, since its key names other images.",
    tests=["tests/run/test_run.py::test_what_changed_since_the_plan_is_refused"],
)
def changed_images_are_trained_on(read_images):
    def fault(request):
        from cellrepro.images.folder import read_folder
        from cellrepro.run.inputs import axes_of

        spec = request.spec
        axes = axes_of(spec.task, spec.settings.not_default())
        return read_folder(request.data, to_train=spec.task == "train", axes=axes)

    return fault


@breaks(
    "cellrepro.run.repeat_work:RepeatWork._reasons_of_vacuity",
    "Equal repeats that found nothing are no proof, and are said to be vacuous.",
    tests=["tests/run/test_run.py::test_a_training_that_diverges_is_stored_as_such"],
)
def equality_of_nothing_is_a_proof(reasons_of_vacuity):
    return lambda self: []


@breaks(
    "cellrepro.run.worker_scoring:give_weights_of",
    "The score after an epoch is that of the checkpoint's weights, not of those at the end.",
    tests=[
        "tests/divergence/test_divergence.py"
        "::test_scores_by_epoch_are_those_of_masks_made_of_the_checkpoints"
    ],
)
def every_epoch_has_the_score_of_the_end(give_weights_of):
    return lambda checkpoint, network, dtype: None


@breaks(
    "cellrepro.run.rank_exchange:RankTeam._average_gradients",
    "Gradients of several ranks are weighted by their images.",
    tests=["tests/run/test_data_parallel.py::test_gradients_of_all_ranks_in_their_order"],
)
def ranks_count_alike(average_gradients):
    def fault(self, parameters, weights):
        average_gradients(self, parameters, [1 / len(weights)] * len(weights))

    return fault


@breaks(
    "cellrepro.run.rank_exchange:tensors_digest",
    "A rank whose weights differ from the first one's ends the training.",
    tests=["tests/run/test_data_parallel.py::test_gradients_of_all_ranks_in_their_order"],
)
def a_rank_with_other_weights_goes_on(tensors_digest):
    return lambda tensors: "the same"


@breaks(
    "cellrepro.run.until_found:Seeker._look",
    "A first network is trained until cells are found on test images, too.",
    tests=["tests/run/test_until_found.py::test_ends_when_both_find_cells"],
)
def test_images_are_not_waited_for(look):
    def fault(self, n_epochs):
        self._test_images = ()
        return look(self, n_epochs)

    return fault


@breaks(
    "cellrepro.run.repeats:_carried_out",
    "A training that ends once it finds cells is stored as the run of as many epochs.",
    tests=["tests/run/test_until_found.py::test_time_is_over"],
)
def a_shorter_training_is_stored_as_planned(carried_out):
    return lambda plan, folder: plan.spec


@breaks(
    "cellrepro.grid.task_options:refuse_unknown",
    "A misspelt option is refused, and not ignored.",
    tests=["tests/run/test_options.py::test_an_unknown_name_is_refused_with_the_near_one"],
)
def a_misspelt_option_is_ignored(refuse_unknown):
    return lambda function, names, known: None


@breaks(
    "cellrepro.run.planning:plan_segmentation",
    "Without --model the network that Cellpose itself takes segments.",
    tests=["tests/run/test_run.py::test_without_a_model_cellpose_segments_with_its_own"],
)
def an_untrained_network_segments(plan_segmentation):
    def fault(options, *, inputs=None):
        model = options.model or "tiny"
        return plan_segmentation(options.model_copy(update={"model": model}), inputs=inputs)

    return fault


@breaks(
    "cellrepro.run.segmenter:_checked",
    "A picture that a wrapped program writes is refused, and its values are not counted as cells.",
    tests=["tests/run/test_wrap.py::test_what_is_no_label_image_is_refused"],
)
def a_picture_is_a_label_image(checked):
    return lambda masks, image, segmenter: masks


@breaks(
    "cellrepro.run.imported_files:ScriptContent.as_json",
    "Another content of a script that a wrapped command names is another run.",
    tests=["tests/run/test_wrap.py::test_words_and_the_files_they_name_are_the_key"],
)
def a_changed_script_is_the_same_run(as_json):
    return lambda self: "content"


@breaks(
    "cellrepro.run.imported_files:imported_beside",
    "Another content of a module that a wrapped function imports from beside it is another run.",
    tests=[
        "tests/run/test_wrap.py"
        "::test_what_a_function_or_script_imports_from_beside_it_is_in_the_key"
    ],
)
def a_changed_helper_is_the_same_run(imported_beside):
    return lambda file: {}
