"""What PyTorch warns of, and the operation, module, line and phase it was about."""

import warnings

import pytest
import torch
from torch import nn

from cellrepro.determinism.modes import mode_in_force, switches
from cellrepro.store.manifest import Place, WarningRecord
from cellrepro.trace.torch_warnings import WarningLog, about_determinism, determinism_warnings

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

PUT = "put_ does not have a deterministic implementation, but you set 'torch.use_..."


class Putting(torch.autograd.Function):
    """Warns in the forward pass, in the backward pass, or in both: ``put_`` does on any device."""

    @staticmethod
    def forward(ctx, x, phases):
        ctx.phases = phases
        return put(x) if "forward" in phases else x * 1

    @staticmethod
    def backward(ctx, gradient):
        return (put(gradient) if "backward" in ctx.phases else gradient), None


def put(x):
    return x.clone().put_(torch.tensor([0, 0]), torch.ones(2))


class Put(nn.Module):
    def __init__(self, *phases):
        super().__init__()
        self.phases = phases

    def forward(self, x):
        return Putting.apply(x, self.phases)


def stepper(*phases):
    net = nn.Sequential(nn.Linear(3, 3), nn.Sequential(Put(*phases)))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)

    def step():
        optimizer.zero_grad()
        net(torch.ones(2, 3)).sum().backward()
        optimizer.step()

    return step, net


def line_of(function, text):
    """``FILE:LINE in FUNCTION`` of a line of a function of this file."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    (offset,) = [index for index, line in enumerate(lines) if text in line]
    return f"test_torch_warnings.py:{first + offset} in {function.__name__}"


@pytest.mark.parametrize("phases", [("forward",), ("forward", "backward"), ()], ids="+".join)
def test_each_warning_has_operation_module_line_and_phase(phases):
    step, _ = stepper(*phases)
    for _ in range(2):  # the second time as the first: nothing is remembered as shown
        found = determinism_warnings(step)
    assert [warning.phase for warning in found] == list(phases)
    for warning in found:
        assert (warning.alert, warning.op, warning.calls) == ("put_", "aten.put_.default", 1)
        assert warning.module == "1.0"
        assert warning.source == line_of(put, "put_(")
        assert warning.substitute is None
        assert warning.reason
        assert warning.remedy


def test_a_backward_without_python_has_the_line_of_its_forward():
    """The gradient of ``put`` puts zeros, in C++; PyTorch has no other that warns on a CPU."""

    class Replaced(nn.Module):
        def forward(self, x):
            return x.put(torch.tensor([0, 0]), torch.ones(2))

    net = nn.Sequential(nn.Linear(3, 3), Replaced())
    found = determinism_warnings(lambda: net(torch.ones(2, 3)).sum().backward())
    assert [(w.alert, w.op, w.phase) for w in found] == [
        ("put_", "aten.put.default", "forward"),
        ("put_", "aten.put.default", "backward"),
    ]
    for warning in found:
        assert warning.module == "1"
        assert warning.source == line_of(Replaced.forward, "put(")


def test_nothing_stays_when_the_step_raises():
    before, filters, show = switches(), list(warnings.filters), warnings.showwarning

    def step():
        put(torch.ones(3))
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        determinism_warnings(step)
    assert (switches(), warnings.filters, warnings.showwarning) == (before, filters, show)


def test_other_warnings_are_not_about_determinism():
    def step():
        warnings.warn("is deterministic enough", stacklevel=1)
        put(torch.ones(3))

    assert [warning.alert for warning in determinism_warnings(step)] == ["put_"]


# -- the log -------------------------------------------------------------------------------


def test_the_log_counts_by_message_place_and_phase():
    log = WarningLog()
    with log.listening():
        for phase in ("train", "train", "segment"):
            log.phase = phase
            warnings.warn("one", UserWarning, stacklevel=1)
        warnings.warn("two", DeprecationWarning, stacklevel=1)
    rows = [(r.message, r.category, r.phase, r.count, r.place) for r in log.records()]
    assert rows == [
        ("one", "UserWarning", "train", 2, None),
        ("one", "UserWarning", "segment", 1, None),
        ("two", "DeprecationWarning", "segment", 1, None),
    ]
    assert all(record.file.endswith("test_torch_warnings.py") for record in log.records())


def test_places_only_while_observing():
    log = WarningLog()
    with mode_in_force("warn"), log.listening():
        put(torch.ones(3))
        with log.observing():
            put(torch.ones(3))
            warnings.warn("between operations", stacklevel=1)
        put(torch.ones(3))
    assert [(r.place and r.place.op, r.count) for r in log.records()] == [
        (None, 2),
        ("aten.put_.default", 1),
        (None, 1),
    ]


def record(message, **place):
    return WarningRecord(
        message=message,
        category="UserWarning",
        file="x.py",
        line=3,
        phase="train",
        count=2,
        place=Place(**place) if place else None,
    )


@pytest.mark.parametrize(
    ("message", "alert"),
    [
        (PUT, "put_"),
        ("foo_bar_cuda does not have a deterministic implementation, but", "foo_bar_cuda"),
        (
            "Memory Efficient attention defaults to a non-deterministic algorithm. To",
            "Memory Efficient attention",
        ),
        ("Using a target size that is different", None),
    ],
)
def test_alerts_of_every_wording(message, alert):
    found = about_determinism([record(message)])
    assert [warning.alert for warning in found] == ([] if alert is None else [alert])
    if found:
        assert (found[0].op, found[0].phase, found[0].calls) == (alert, None, 2)


def test_an_unknown_alert_has_no_reason_and_a_known_place_its_substitute():
    rel_pos = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
    unknown, known = about_determinism(
        [
            record("new_op_cuda does not have a deterministic implementation, but"),
            record(
                "upsample_linear1d_backward_out_cuda does not have a deterministic implementation",
                op="aten.upsample_linear1d_backward.default",
                module="encoder.blocks.3.attn",
                source=rel_pos,
                phase="backward",
            ),
        ]
    )
    assert (unknown.reason, unknown.remedy, unknown.substitute) == ("", "", None)
    assert known.substitute == "rel-pos-interpolation"
    assert (known.module, known.source, known.phase) == (
        "encoder.blocks.3.attn",
        rel_pos,
        "backward",
    )
    assert "interpolation matrix" in known.remedy
