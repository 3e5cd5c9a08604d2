"""Faults of what is observed inside a training step."""

from faults.by_name import breaks


@breaks(
    "samebits.trace.operation_audit:same_bits",
    "The audit names an operation whose replays give different bits.",
    tests=["tests/samebits/trace/test_operation_audit.py::test_a_planted_culprit_is_found"],
)
def replays_are_believed(same_bits):
    return lambda a, b: True


@breaks(
    "samebits.trace.kept_inputs:Before.finish",
    "A training goes on with the random numbers that it would have drawn without the audit.",
    tests=[
        "tests/samebits/trace/test_operation_audit.py"
        "::test_generators_are_put_back_also_when_a_replay_raises"
    ],
)
def replays_move_the_generators(finish):
    return lambda self: None


@breaks(
    "samebits.trace.unwritten_memory:_fill",
    "A result that is computed from memory which nobody has written is found.",
    tests=["tests/samebits/trace/test_unwritten_memory.py::test_every_way_to_read_it_is_found"],
)
def unwritten_memory_keeps_its_content(fill):
    return lambda values, number: None


@breaks(
    "samebits.trace.observer:Observer._made_at",
    "An operation of the backward pass has the module and line of its forward operation.",
    tests=["tests/samebits/trace/test_observer.py::test_every_phase_has_module_and_line"],
)
def the_backward_belongs_to_the_first_operation(made_at):
    return lambda self, node: next(
        (nodes[min(nodes)] for nodes in self._nodes.values() if nodes), (None, None)
    )


@breaks(
    "samebits.trace.operation_digests:memory_digest",
    "A batch that NumPy refills in place is another input, and no operation is accused for it.",
    tests=[
        "tests/samebits/trace/test_operation_ledger.py"
        "::test_a_batch_that_is_refilled_past_pytorch_is_another_input"
    ],
)
def a_digest_is_remembered_by_its_address(memory_digest):
    from functools import cache

    return cache(memory_digest)


@breaks(
    "samebits.trace.draw_difference:first_draw_difference",
    "A draw that only one of two runs made is said of the run that made it.",
    tests=["tests/samebits/trace/test_random_draws.py::test_a_planted_draw_is_named_by_its_line"],
)
def the_other_run_drew(first_draw_difference):
    return lambda a, b: first_draw_difference(b, a)


@breaks(
    "samebits.trace.float64_reference:_error",
    "An operation that computes something else than it should is further off than its limit.",
    tests=[
        "tests/samebits/trace/test_float64_reference.py::test_another_computation_is_found_and_only_it"
    ],
)
def errors_are_thousandths(error):
    return lambda actual, exact, scale: min(error(actual, exact, scale), 1e30) / 1000


@breaks(
    "samebits.trace.step_state:restore",
    "check_repeatable runs a step every time from one state, generators included.",
    tests=["tests/samebits/trace/test_check_repeatable.py::test_identical_and_everything_put_back"],
)
def generators_go_on_between_runs(restore):
    return lambda checkpoint: None


@breaks(
    "samebits.trace.step_state:StepState.has_changed",
    "A step that changes nothing is called vacuous, not identical.",
    tests=[
        "tests/samebits/trace/test_check_repeatable.py::test_a_step_that_changes_nothing_is_vacuous"
    ],
)
def nothing_counts_as_a_step(has_changed):
    return lambda self: True


@breaks(
    "samebits.trace.check_dataset:_through_workers",
    "check_dataset finds items that depend on the worker that reads them.",
    tests=[
        "tests/samebits/trace/test_check_dataset.py::test_what_is_wrong_is_named_and_nothing_else"
    ],
)
def workers_are_not_compared(through_workers):
    return lambda items, n_workers: through_workers(items, 0)


@breaks(
    "samebits.trace.batch_invariance:same_bits",
    "An operation that gives a tile different bits in a batch than alone is named.",
    tests=["tests/samebits/trace/test_batch_invariance.py"],
)
def a_batch_is_compared_with_itself(same_bits):
    return lambda part, alone: True


@breaks(
    "cellrepro.model.watches:StepWatch.updated",
    "A changed setting of the optimizer, such as weight decay, is the first difference.",
    tests=["tests/model/test_watches.py::test_what_changes_is_the_first_difference"],
)
def settings_of_the_optimizer_are_forgotten(updated):
    from types import SimpleNamespace

    def without_settings(self, network, optimizer):
        groups = [
            {"params": group["params"], "lr": group["lr"]} for group in optimizer.param_groups
        ]
        updated(self, network, SimpleNamespace(state=optimizer.state, param_groups=groups))

    return without_settings
