"""One operation left loose: determinism off for its calls, on for all others, put back."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from cellrepro.determinism import substitutes
from cellrepro.determinism.modes import left_loose, mode_in_force, switches
from cellrepro.lab.run import plan_training
from cellrepro.trace.observer import Observer

pytestmark = pytest.mark.usefixtures("one_thread")

ZERO, ONE = torch.tensor([0]), torch.ones(1)


class Switches(TorchDispatchMode):
    """Which switches each operation runs under; entered before, so it comes after."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        deterministic = torch.are_deterministic_algorithms_enabled()
        self.seen.append((str(func), deterministic, torch.backends.cudnn.deterministic))
        return func(*args, **(kwargs or {}))

    def of(self, op):
        return [state for name, *state in self.seen if name.startswith(f"aten.{op}.")]


def step():
    x = torch.ones(3, requires_grad=True)
    x[torch.tensor([0, 0])].cos().sum().backward()  # the backward of the gather is index_put


@pytest.mark.parametrize("mode", ["fast", "warn", "strict"])
def test_only_the_calls_of_the_operation_are_loose(mode):
    with mode_in_force(mode), Switches() as log:
        before = switches()
        with left_loose("index_put") as loose:
            step()
            torch.zeros(2).index_put_((ZERO,), ONE)
        assert switches() == before
    fixed = mode != "fast"
    assert loose.n_calls == 2
    assert log.of("index_put") == [[False, False]]  # in the backward
    assert log.of("index_put_") == [[False, False]]
    assert log.of("cos") == [[fixed, fixed]]
    assert log.of("index") == [[fixed, fixed]]


@pytest.mark.parametrize(
    "name",
    [
        *("index_put", "index_put_", "aten.index_put.default", "aten::_unsafe_index_put"),
        "torch.ops.aten._index_put_impl_",
    ],
)
def test_any_form_of_the_name(name, tmp_path, small_data):
    """Everywhere the same: what is left loose, its substitute, and the key of the run."""
    with left_loose(name) as loose:
        torch.zeros(2).index_put((ZERO,), ONE, accumulate=True)
        torch.ops.aten._unsafe_index_put(torch.zeros(2), [ZERO], ONE)
    assert loose.n_calls == 2
    plan = plan_training(small_data, loose=name, store=tmp_path)
    assert plan.spec.loose == "index_put"
    with substitutes.applied(without={name}) as chosen:
        assert [item.name for item in chosen] == ["rel-pos-interpolation"]


def test_nothing_loose_counts_nothing():
    with mode_in_force("strict"), left_loose("cumsum") as loose, Switches() as log:
        step()
    assert loose.n_calls == 0
    assert all(deterministic for _, deterministic, _ in log.seen)


def test_an_operation_without_deterministic_form_runs_loose_in_strict():
    def put():
        return torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))

    with mode_in_force("strict"):
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
            put()
        with left_loose("put"):
            assert put()[0] == 1
        with pytest.raises(RuntimeError, match="put_ does not have a deterministic"):
            put()


def test_switches_are_put_back_when_the_operation_raises():
    with mode_in_force("strict"):
        before = switches()
        with pytest.raises(RuntimeError, match="must match"), left_loose("add") as loose:
            torch.ones(2) + torch.ones(3)
        assert loose.n_calls == 1
        assert switches() == before
    assert _get_current_dispatch_mode() is None


def test_the_numbers_are_those_without_it():
    expected = torch.ones(3).cumsum(0)
    with left_loose("cumsum") as loose:
        assert torch.equal(torch.ones(3).cumsum(0), expected)
    assert loose.n_calls == 1


def test_it_is_no_line_of_the_training():
    """An observer around it names the training's line, not this mode's."""
    seen = []

    class Log(Observer):
        def observe(self, call):
            seen.append(call.place)
            return call.run()

    with Log(), left_loose("cos"):
        torch.ones(1).cos()
    assert {place.source.split(":")[0] for place in seen} == {"test_loose.py"}
