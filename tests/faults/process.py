"""Faults of child processes: how they end, what they hear, what a stranger's spec may ask."""

from faults.by_name import breaks


@breaks(
    "cellrepro.process.process_ends:ended_with",
    "A process that the system killed is said to have run out of memory, exit code 3.",
    tests=["tests/run/test_run.py::test_how_an_end_is_told"],
)
def a_killed_child_is_a_failure_of_the_lab(ended_with):
    return lambda what, *, label, code=0, log="": ended_with(what, label=label, log=log)


@breaks(
    "cellrepro.process.child:event_in",
    "Half a line that a library prints hides no event of a child, and its end is told.",
    tests=["tests/run/test_run.py::test_whatever_a_child_prints_its_end_is_told"],
)
def what_is_printed_hides_an_event(event_in):
    return lambda line: event_in(line) if line.startswith("\x1e") else None


@breaks(
    "cellrepro.process.calling:_answer_after",
    "A child whose answer does not fit on the disk says so.",
    tests=["tests/run/test_run.py::test_whatever_a_child_prints_its_end_is_told"],
)
def an_answer_is_lost_without_a_word(answer_after):
    def fault(scratch, end):
        from dataclasses import replace

        return answer_after(scratch, replace(end, unanswered=None))

    return fault


@breaks(
    "cellrepro.process.calling:Children.end",
    "What was ended at Ctrl-C is said to be interrupted, not killed for want of memory.",
    tests=[
        "tests/grid/test_pool.py"
        "::test_what_is_ended_here_is_interrupted_and_not_killed_by_the_system"
    ],
)
def our_own_signal_is_the_systems(end):
    def fault(self):
        end(self)
        self.ended = False

    return fault


@breaks(
    "cellrepro.process.process_trees:end_tree",
    "A wrapped program that hangs is ended with all that it started.",
    tests=["tests/run/test_wrap.py::test_a_program_ends_with_all_that_it_started"],
)
def a_program_leaves_its_children(end_tree):
    def fault(pid):
        import contextlib
        import os
        import signal

        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    return fault


@breaks(
    "cellrepro.process.locked_environment:LockedEnvironment._was_begun",
    "`cellrepro setup` removes no environment that it has not begun itself.",
    tests=["tests/process/test_lab.py::test_what_a_lab_is_not_made_in"],
)
def a_lab_takes_the_place_of_an_environment(was_begun):
    return lambda self: (self.folder / "pyvenv.cfg").is_file()


@breaks(
    "cellrepro.process.setup:refuse_strange_variables",
    "A spec from somebody else sets no variable that makes a process run other code.",
    tests=["tests/spec/test_sent_spec.py::test_other_variables_reach_no_process"],
)
def a_spec_brings_any_variable(refuse_strange_variables):
    return lambda spec, *, whose: None
