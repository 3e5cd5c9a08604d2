"""Faults of grids: which points they have, what fails, what another one's command ends."""

from faults.by_name import breaks


@breaks(
    "cellrepro.grid.points:_has_all",
    "An entry of `exclude` leaves out the points that have all its values, not one of them.",
    tests=[
        "tests/grid/test_grid.py::test_every_combination_is_a_spec_and_the_notebooks_defaults_count"
    ],
)
def exclude_matches_any_value(has_all):
    return lambda varied, entry: any(varied[name] == value for name, value in entry.items())


@breaks(
    "cellrepro.grid.arrival:wait_for_workers",
    "A grid on Slurm waits for its workers as long as their jobs are queued.",
    tests=["tests/grid/test_arrival.py::test_what_is_queued_is_waited_for"],
)
def what_is_queued_is_given_up(wait_for_workers):
    def fault(n_workers, *, n_expected, queue):
        from types import SimpleNamespace

        empty = SimpleNamespace(hours=queue.hours, n_queued=lambda: 0, advice=queue.advice)
        wait_for_workers(n_workers, n_expected=n_expected, queue=empty)

    return fault


@breaks(
    "cellrepro.grid.local_pool:Devices.begin",
    "Each point that runs has a GPU of its own.",
    tests=["tests/grid/test_pool.py::test_a_job_has_its_gpus_or_its_share_of_cores"],
)
def two_points_share_a_gpu(begin):
    def fault(self):
        for number, taken in begin(self):
            yield number, self._shares[number].devices[: len(taken)]

    return fault


@breaks(
    "cellrepro.grid.dask_worker:WorkerRecord.__init__",
    "A worker that does not see the store is refused before anything is computed.",
    tests=["tests/grid/test_cluster.py::test_a_worker_without_the_store_is_refused"],
)
def a_worker_without_the_store_is_taken(init):
    return lambda self, **fields: init(self, **{**fields, "not_seen": ()})


@breaks(
    "cellrepro.grid.repeat_by_notebook:_with_failure_kept",
    "Why a repeat failed is kept, whatever the error, with its notebook.",
    tests=["tests/grid/test_pool.py::test_an_error_that_nobody_foresaw_ends_its_point_alone"],
)
def a_failure_is_not_kept(with_failure_kept):
    def fault(error, repeat, folder):
        from cellrepro.process.process_ends import as_refusal

        return as_refusal(error, repeat.label)

    return fault


@breaks(
    "cellrepro.grid.grid_runs:GridRun.has_failed",
    "A grid in which a repeat failed does not end as if all were well.",
    tests=["tests/grid/test_grid.py::test_a_failing_notebook_is_kept_and_does_not_stop_the_others"],
)
def a_failed_grid_ends_well(has_failed):
    return property(lambda self: False)


@breaks(
    "cellrepro.grid.dask_worker:_children_of",
    "A grid on a cluster that is stopped ends its own repeats, and none of another grid.",
    tests=["tests/grid/test_cluster.py::test_a_grid_that_is_stopped_ends_its_own_repeats_alone"],
)
def a_stopped_grid_ends_the_repeats_of_another(children_of):
    return lambda topic: children_of("")


@breaks(
    "cellrepro.grid.status:standing_by_file",
    "A grid at work is not called killed to those who may only read its store.",
    tests=["tests/show/test_watched_grids.py::test_a_store_that_one_may_only_read_can_be_watched"],
)
def a_grid_at_work_is_called_killed(standing_by_file):
    def fault(store):
        statuses = standing_by_file(store)
        for status in statuses.values():
            status.lost = not status.ended
        return statuses

    return fault


@breaks(
    "cellrepro.grid.status:JobRow.n_made",
    "The time that is left of a grid follows from what was made since its start.",
    tests=[
        "tests/show/test_watched_grids.py"
        "::test_the_time_that_is_left_follows_from_what_was_made_since_the_start"
    ],
)
def what_was_stored_before_counts_as_made(n_made):
    return property(lambda self: n_made.fget(self) + self.n_found)
