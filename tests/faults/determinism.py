"""Faults of what is held fixed."""

from faults.by_name import breaks


@breaks(
    "samebits.generator_states:GeneratorStates.write",
    "Evaluation, saving and plotting inside a training leave NumPy's generator where it was.",
    tests=["tests/samebits/determinism/test_seeds.py::test_the_block_leaves_no_trace"],
)
def numpy_is_not_put_back(write):
    import numpy as np

    def without_numpy(self):
        moved = np.random.get_state()
        write(self)
        np.random.set_state(moved)

    return without_numpy


@breaks(
    "samebits.checkpoint_seeds:other_seeds",
    "A checkpoint of another seed is refused, not gone on from.",
    tests=[
        "tests/samebits/determinism/test_seeds.py"
        "::test_a_training_goes_on_from_its_own_file_and_from_no_other_seeds"
    ],
)
def any_checkpoint_is_gone_on_from(other_seeds):
    return lambda state, seed: []


@breaks(
    "samebits.seeds:rank_seed",
    "Trainings of several ranks whose seeds are neighbours share no seed of any rank.",
    tests=["tests/samebits/determinism/test_seeds.py::test_ranks_draw_differently"],
)
def ranks_draw_what_other_seeds_do(rank_seed):
    return lambda base, rank, n_ranks: rank_seed(base, 0, n_ranks) + rank


@breaks(
    "samebits.data_order:seed_worker",
    "Workers of several processes that train together draw different augmentations.",
    tests=[
        "tests/samebits/determinism/test_seeds.py"
        "::test_workers_differ_between_seeds_and_ranks_and_images_do_not"
    ],
)
def ranks_augment_alike(seed_worker):
    return lambda worker_id, *, rank=0: seed_worker(worker_id)


@breaks(
    "samebits.modes:_of_mode",
    "Mode strict keeps cuDNN from choosing its algorithms by their time.",
    tests=["tests/samebits/determinism/test_modes.py::test_what_is_in_force_whatever_was_before"],
)
def benchmark_stays_on(of_mode):
    return lambda mode: {**of_mode(mode), "cudnn_benchmark": mode == "strict"}


@breaks(
    "cellrepro.profiles.numeric_variables:NUMERIC_VARIABLES",
    "What the user's shell sets, such as OMP_DYNAMIC, changes no number of a run.",
    tests=[
        "tests/profiles/test_profiles.py::test_a_child_gets_the_profile_and_not_the_callers_numbers"
    ],
)
def the_shell_reaches_the_training(numeric_variables):
    return tuple(name for name in numeric_variables if name != "OMP_DYNAMIC")


@breaks(
    "cellrepro.profiles.process_start:variables_at_start",
    "A variable that is set after the process has started is refused, not believed.",
    tests=["tests/profiles/test_profiles.py::test_refuses_what_was_set_too_late_or_changed_since"],
)
def what_is_set_too_late_counts(variables_at_start):
    import os

    return lambda *kept: dict(os.environ)


@breaks(
    "samebits.substitutes:_original",
    "A substitute takes the place only of the very code that it was tested against.",
    tests=[
        "tests/samebits/determinism/test_substitutes.py::test_refused_where_the_code_is_another"
    ],
)
def any_code_is_replaced(original):
    import importlib

    return lambda item: getattr(importlib.import_module(item.module), item.attribute)


@breaks(
    "samebits.loose_operation:base_name",
    "With one operation left loose all others stay deterministic.",
    tests=[
        "tests/samebits/determinism/test_modes.py::test_only_the_calls_of_the_operation_are_loose"
    ],
)
def every_operation_is_loose(base_name):
    return lambda op: "any"


@breaks(
    "cellrepro.profiles.automatic_profile:UsableDevices.profile",
    "Profile `auto` takes the device that Cellpose would take.",
    tests=["tests/profiles/test_profiles.py::test_auto_is_what_cellpose_would_take"],
)
def apples_gpu_is_passed_over(profile):
    from dataclasses import replace

    return property(lambda self: profile.fget(replace(self, mps=False)))
