"""What PyTorch warns of, and the operation, module, line and phase it was about."""

import inspect
import warnings

import pytest
import torch
from torch import nn

from samebits.call_site import Site
from samebits.heard_warning import HeardWarning
from samebits.modes import mode_in_force
from samebits.trace.torch_warnings import WarningLog, about_determinism, determinism_warnings

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


class Putting(torch.autograd.Function):
    """Warns in the forward pass and in the backward pass: ``put_`` does on any device."""

    @staticmethod
    def forward(ctx, x):
        return put(x)

    @staticmethod
    def backward(ctx, gradient):
        return put(gradient)


def put(x):
    return x.clone().put_(torch.tensor([0, 0]), torch.ones(2))


class Put(nn.Module):
    def forward(self, x):
        return Putting.apply(x)


class Replaced(nn.Module):
    """Its gradient puts zeros, in C++; PyTorch has no other that warns on a CPU."""

    def forward(self, x):
        return x.put(torch.tensor([0, 0]), torch.ones(2))


def line_of(function, text):
    """``FILE:LINE in FUNCTION`` of a line of a function of this file."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [index for index, line in enumerate(lines) if text in line]
    return f"test_torch_warnings.py:{first + offset} in {function.__name__}"


@pytest.mark.parametrize(
    ("module", "op", "source"),
    [
        (Put, "aten.put_.default", line_of(put, "put_(")),
        (Replaced, "aten.put.default", line_of(Replaced.forward, "put(")),
    ],
    ids=["with Python in the backward", "without"],
)
def test_each_warning_has_operation_module_line_and_phase(module, op, source):
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(module()))

    def step():
        warnings.warn("is deterministic enough", stacklevel=1)  # of something else
        net(torch.ones(2, 3)).sum().backward()

    for _ in range(2):  # the second time as the first: nothing is remembered as shown
        found = determinism_warnings(step)
        assert [warning.phase for warning in found] == ["forward", "backward"]
        for warning in found:
            assert (warning.alert, warning.op, warning.calls) == ("put_", op, 1)
            assert (warning.module, warning.source) == ("1.0", source)
            assert warning.substitute is None
            assert warning.reason
            assert warning.remedy


def test_the_log_counts_by_message_place_and_phase():
    log = WarningLog()
    with mode_in_force("warn"), log.listening():
        for phase in ("train", "train", "segment"):
            log.phase = phase
            warnings.warn("one", UserWarning, stacklevel=1)
        put(torch.ones(3))
        with log.observing():
            put(torch.ones(3))
            warnings.warn("between operations", DeprecationWarning, stacklevel=1)
        put(torch.ones(3))
    rows = [
        (r.message[:4], r.category, r.phase, r.count, r.place and r.place.op) for r in log.records()
    ]
    assert rows == [
        ("one", "UserWarning", "train", 2, None),
        ("one", "UserWarning", "segment", 1, None),
        ("put_", "UserWarning", "segment", 2, None),
        ("put_", "UserWarning", "segment", 1, "aten.put_.default"),
        ("betw", "DeprecationWarning", "segment", 1, None),
    ]
    assert log.records()[0].file == "test_torch_warnings.py"  # not the folder it lies in


def test_alerts_known_and_unknown():
    where = {"category": "UserWarning", "file": "x.py", "line": 3, "phase": "train", "count": 2}
    rel_pos = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
    place = Site("aten.upsample_linear1d_backward.default", "attn", rel_pos, "backward")
    without = " does not have a deterministic implementation, but you set"
    unknown, known = about_determinism(
        [
            HeardWarning(message=f"new_op_cuda{without}", place=None, **where),
            HeardWarning(message="Using a target size that is different", place=None, **where),
            HeardWarning(
                message=f"upsample_linear1d_backward_out_cuda{without}", place=place, **where
            ),
        ]
    )
    assert (unknown.alert, unknown.op, unknown.calls) == ("new_op_cuda", "new_op_cuda", 2)
    assert (unknown.phase, unknown.reason, unknown.remedy) == (None, "", "")
    assert known.substitute == "rel-pos-interpolation"
    assert Site(known.op, known.module, known.source, known.phase) == place


@pytest.mark.parametrize("wanted", ["ignore", "error", "record"])
def test_a_step_that_deals_with_warnings_itself_hides_none(wanted):
    def step():
        with warnings.catch_warnings(record=wanted == "record"):
            warnings.simplefilter("always" if wanted == "record" else wanted)
            put(torch.zeros(3))

    assert [found.alert for found in determinism_warnings(step)] == ["put_"]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (None, "put_: PyTorch warned of it in 3 calls"),
        (
            Site("aten.put_.default", "net", "mine.py:3 in f", "forward"),
            "aten.put_.default, forward of net (mine.py:3 in f): PyTorch warned of it in 3 calls",
        ),
    ],
    ids=["operation not observed", "operation observed"],
)
def test_a_warning_says_nothing_of_replays_that_nobody_made(place, expected):
    record = HeardWarning(
        message="put_ does not have a deterministic implementation, but you set "
        "'torch.use_deterministic_algorithms(True, warn_only=True)'",
        category="UserWarning",
        file="mine.py",
        line=3,
        phase="forward",
        count=3,
        place=place,
    )
    (warning,) = about_determinism([record])
    assert warning.sentence().startswith(expected)
