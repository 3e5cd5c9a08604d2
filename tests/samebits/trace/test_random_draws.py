"""Who drew from which generator at which line; the first draw that differs is named."""

import random
from contextlib import suppress
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from samebits.errors import BadInput
from samebits.generator_states import generators_kept
from samebits.trace.draw_difference import DrawDifference, first_draw_difference
from samebits.trace.random_draws import Draw, DrawLog

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

kept_rand = np.random.rand  # a copy by name, made before any log


def logged(text, seed=0, **names):
    """The draws of some lines, run as if they were the file ``train.py``."""
    space = {"np": np, "random": random, "torch": torch, "nn": nn, "kept_rand": kept_rand, **names}
    with generators_kept():
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        with DrawLog() as log:
            exec(compile(text, "/nowhere/known/train.py", "exec"), space)
    return log.draws


def brief(draws):
    return [(draw.generator, draw.n, draw.what, draw.source) for draw in draws]


# -- what is written down ------------------------------------------------------------------


def test_every_draw_has_generator_amount_call_and_line():
    text = "\n".join(
        [
            "def step():",
            "    np.random.rand(5)",
            "    random.random()",
            "    torch.rand(7)",
            "    np.random.seed(3); random.seed(3)",
            "    np.random.ranf(), np.random.sample()",
            "    np.random.rand(0), torch.rand(0), torch.ones(3) + 1",
            "    np.random.set_state(np.random.get_state())",
            "    torch.rand(3, generator=torch.Generator().manual_seed(1))",
            "    np.random.RandomState(1).rand(), random.Random(1).random()",
            "    np.random.bytes(4 * 630)",
            "    np.random.seed(1); np.random.randn(); np.random.randn()",  # one is kept
            "step()",
        ]
    )
    found = logged(text)
    assert brief(found) == [
        ("numpy", 10, "np.random.rand", "train.py:2 in step"),
        ("python", 2, "random.random", "train.py:3 in step"),
        ("torch", 7, "aten.rand.default", "train.py:4 in step"),
        ("numpy", None, "np.random.seed", "train.py:5 in step"),
        ("python", None, "random.seed", "train.py:5 in step"),
        ("numpy", 2, "np.random.ranf", "train.py:6 in step"),
        ("numpy", 2, "np.random.sample", "train.py:6 in step"),
        ("numpy", None, "np.random.set_state", "train.py:8 in step"),
        ("numpy", 630 - 624, "np.random.bytes", "train.py:11 in step"),
        ("numpy", None, "np.random.seed", "train.py:12 in step"),
        ("numpy", 4, "np.random.randn", "train.py:12 in step"),
        ("numpy", 0, "np.random.randn", "train.py:12 in step"),
    ]
    assert [draw.index for draw in found] == list(range(12))
    assert {(draw.step, draw.module, draw.phase) for draw in found} == {(0, None, "forward")}


@pytest.mark.parametrize(
    ("line", "generator", "n"),
    [("kept_rand(3)", "numpy", 6), ("torch.manual_seed(9)", "torch", None)],
    ids=["imported by name", "a seed of PyTorch"],
)
def test_what_was_not_seen_is_found_by_the_next_look(line, generator, n):
    found = logged(f"random.random()\n\n{line}\n\nnp.random.rand()\n")
    between = "between train.py:1 in <module> and train.py:5 in <module>"
    assert brief(found)[1] == (generator, n, "unseen", between)
    assert (found[1].module, found[1].phase, len(found)) == (None, None, 3)
    assert logged(line)[0].source.endswith(" in logged and the end of the block")


class Noisy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * random.random()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * np.random.rand()


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x):
        return Noisy.apply(self.drop(self.lin(x)))


def test_draws_have_module_and_phase():
    net = nn.Sequential(Part(), Part())
    with DrawLog(net, step=7) as log:
        net(torch.ones(2, 4)).sum().backward()
    assert [(draw.what, draw.module, draw.phase) for draw in log.draws] == [
        ("aten.bernoulli_.float", "0.drop", "forward"),
        ("random.random", "0", "forward"),
        ("aten.bernoulli_.float", "1.drop", "forward"),
        ("random.random", "1", "forward"),
        ("np.random.rand", "1", "backward"),
        ("np.random.rand", "0", "backward"),
    ]
    assert {draw.step for draw in log.draws} == {7}


def functions():
    return {(m, name): getattr(m, name) for m in (np.random, random) for name in m.__all__}


def test_a_log_that_cannot_begin_leaves_nothing_on(monkeypatch):
    hooks, rand = len(torch.nn.modules.module._global_forward_hooks), np.random.rand
    with monkeypatch.context() as patch:
        patch.setattr(random, "getstate", random.SystemRandom().getstate)  # which has no state
        with pytest.raises(NotImplementedError), DrawLog():
            pytest.fail("it began")
    assert torch._C._len_torch_dispatch_stack() == 0
    assert len(torch.nn.modules.module._global_forward_hooks) == hooks
    assert np.random.rand is rand
    with DrawLog() as log:
        np.random.rand()
    assert len(log.draws) == 1


def test_functions_are_put_back_also_after_an_error_and_only_one_log_is_open():
    before = functions()
    with suppress(KeyError), DrawLog():
        assert functions() != before
        raise KeyError
    assert functions() == before
    with DrawLog() as log:
        with pytest.raises(BadInput, match="a DrawLog is open already"), DrawLog():
            pass
        np.random.rand()
        kept = np.random.rand
    kept()  # a copy that somebody kept goes on working, and is written down no more
    assert functions() == before
    assert len(log.draws) == 1


def test_gpus_whose_generators_start_within(monkeypatch):
    """They start at offset 0, so their first draw counts too."""

    def gpu(seed, offset):
        raw = np.array([seed, offset], dtype="<u8").tobytes()
        state = torch.frombuffer(bytearray(raw), dtype=torch.uint8)
        return SimpleNamespace(get_state=lambda: state)

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with DrawLog() as log:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "default_generators", (gpu(3, 0), gpu(3, 800)))
        torch.rand(1)
        monkeypatch.setattr(torch.cuda, "default_generators", (gpu(3, 1004), gpu(4, 0)))
    monkeypatch.undo()
    moved = [(d.generator, d.n) for d in log.draws if d.generator != "torch"]
    assert moved == [("cuda:1", 800), ("cuda:0", 1004), ("cuda:1", None)]


# -- comparing -----------------------------------------------------------------------------


def draw(line, n=2, what="np.random.rand", generator="numpy", function="step"):
    return Draw(0, 0, generator, n, what, f"train.py:{line} in {function}", None, "forward")


def test_a_planted_draw_is_named_by_its_line():
    """Though every value after it is another; and an edited file is no difference."""
    body = "for _ in range(3):\n    np.random.rand(3)\n    {}\n    random.shuffle([1, 2, 3])\n"
    plain, planted = logged(body.format("pass")), logged(body.format("np.random.rand(3)"))
    for a, b, side in ((plain, planted, "b"), (planted, plain, "a")):
        found = first_draw_difference(a, b)
        assert (found.side, found.draw.source) == (side, "train.py:3 in <module>")
        assert found.sentence().startswith(f"only {side} drew from numpy's generator, moving it by")
    assert first_draw_difference(plain, logged("pass\n" + body.format("pass"))) is None


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([draw(1), draw(3)], [draw(1), draw(2), draw(3)], ("b", draw(2), None)),
        ([draw(1)], [draw(1, n=4)], ("both", draw(1), draw(1, n=4))),
        ([draw(1, n=2)], [draw(1, n=626)], None),
        ([draw(1, function="f")], [draw(1)], ("both", draw(1, function="f"), draw(1))),
        ([draw(1, None)], [draw(1)], ("both", draw(1, None), draw(1))),
        ([draw(1)] * 600, [draw(1)] * 599, ("a", draw(1), None)),
    ],
)
def test_the_first_difference(a, b, expected):
    found = first_draw_difference(a, b)
    assert found == (None if expected is None else DrawDifference(*expected))
