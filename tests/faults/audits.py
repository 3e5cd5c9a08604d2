"""Faults of the audits and of doctor."""

from faults.by_name import breaks


@breaks(
    "cellrepro.audits.double_run:DoubleRun.findings",
    "`doctor` says that all is well only if two processes ended in the same weights.",
    tests=["tests/audits/test_doctor.py::test_what_the_double_run_saw"],
)
def any_double_run_is_trusted(findings):
    return lambda double_run: iter(())


@breaks(
    "cellrepro.audits.training:training_loop",
    "The steps that an audit repeats train something.",
    tests=["tests/audits/test_audit_training.py::test_fast_names_the_gather_of_the_position_table"],
)
def audited_steps_train_nothing(training_loop):
    def begun(*arguments, **options):
        loop = training_loop(*arguments, **options)
        loop._rates[:] = 0
        return loop

    return begun


@breaks(
    "cellrepro.audits.effect:_different_weights",
    "An operation whose repeats end in other weights has an effect.",
    tests=[
        "tests/audits/test_audit_training.py::test_an_effect_is_counted_over_the_different_ones"
    ],
)
def only_the_first_repeat_is_counted(different_weights):
    return lambda repeats: different_weights(list(repeats)[:1])


@breaks(
    "cellrepro.audits.experiment_of_hidden_state:_shared_defaults_kept",
    "An experiment leaves Cellpose's defaults as they were.",
    tests=["tests/audits/test_outside_the_step.py::test_what_an_earlier_call_left_is_told"],
)
def defaults_of_eval_are_not_restored(shared_defaults_kept):
    from contextlib import contextmanager

    @contextmanager
    def kept():
        from cellrepro.model.evaluator import shared_defaults

        yield shared_defaults()

    return kept


@breaks(
    "cellrepro.audits.gpu_findings:TorchBuild.has_kernels_for",
    "`doctor` says of a GPU that PyTorch has no kernels for it.",
    tests=["tests/audits/test_doctor.py::test_every_gpu_is_said_to_be_used_or_why_not"],
)
def every_build_has_kernels_for_every_gpu(has_kernels_for):
    return lambda build, capability: True


@breaks(
    "cellrepro.audits.torch_warning:device_of",
    "`doctor --warning` answers for the device that the warning is about.",
    tests=[
        "tests/audits/test_doctor.py::test_a_warning_of_the_gpu_is_not_answered_for_the_processor"
    ],
)
def a_warning_of_the_gpu_is_answered_for_the_processor(device_of):
    return lambda text, entry: "cpu"


@breaks(
    "cellrepro.audits.network_findings:_judged",
    "`doctor` warns of a file under the name of Cellpose's network that is another one.",
    tests=["tests/audits/test_doctor.py::test_the_network_of_cellpose_itself_is_looked_at"],
)
def any_file_is_the_network_of_cellpose(judged):
    from dataclasses import replace

    return lambda network, name, *, what: replace(judged(network, name, what=what), level="info")


@breaks(
    "cellrepro.audits.portable_witness:StageDigest.is_as_expected",
    "`doctor --portable` says that a computer has the reference bits only if every stage has.",
    tests=["tests/audits/test_portable_witness.py::test_the_first_stage_that_differs_is_named"],
)
def every_stage_is_as_expected(is_as_expected):
    return property(lambda stage: True)
