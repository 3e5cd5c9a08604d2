"""Who drew how many numbers from which generator at which line; one draw more is named."""

import json
import random
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cellrepro.determinism.seeding import generators_kept, seeded
from cellrepro.errors import BadInput
from cellrepro.trace import random_draws as module_under_test
from cellrepro.trace.flips import Auditor
from cellrepro.trace.random_draws import (
    Draw,
    DrawDifference,
    DrawLog,
    first_extra_draw,
    from_rows,
    n_drawn,
    to_rows,
)

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

kept_rand = np.random.rand  # a copy by name, made before any log

READ = {
    "python": random.getstate,
    "numpy": lambda: np.random.get_state(legacy=False),
    "torch": torch.get_rng_state,
}


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return a == b if isinstance(a, tuple) else bool(np.array_equal(np.asarray(a), np.asarray(b)))


def count(generator, draw):
    before = READ[generator]()
    draw()
    return n_drawn(before, READ[generator]())


def after_words(state, n):
    """NumPy's own engine, ``n`` numbers after a state of NumPy's; the count's yardstick."""
    engine = np.random.MT19937(0)
    engine.state = {key: state[key] for key in ("bit_generator", "state")}
    engine.random_raw(n, output=False)
    return engine.state["state"]


# -- counting ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("generator", "draw", "expected"),
    [
        ("python", lambda: random.random(), 2),
        ("python", lambda: random.getrandbits(32), 1),
        ("python", lambda: random.getrandbits(33), 2),
        ("python", lambda: random.randbytes(10), 3),
        ("python", lambda: random.uniform(1, 2), 2),
        ("numpy", lambda: np.random.rand(5), 10),
        ("numpy", lambda: np.random.rand(0), 0),
        ("numpy", lambda: np.random.bytes(9), 3),
        ("numpy", lambda: np.random.randint(0, 2**32, 3, dtype=np.uint32), 3),
        ("numpy", lambda: np.random.rand(1000, 1000), 2_000_000),
        ("torch", lambda: torch.rand(7), 7),
        ("torch", lambda: torch.rand(7, dtype=torch.float64), 14),
        ("torch", lambda: torch.randn(16), 16),
        ("torch", lambda: torch.randn(17), 33),  # the last 16 are made again
        ("torch", lambda: torch.randperm(5), 4),
        ("torch", lambda: torch.rand(624), 624),
        ("torch", lambda: torch.rand(625), 625),
        ("torch", lambda: torch.rand(1_000_000), 1_000_000),
    ],
    ids=[
        *("random", "32 bits", "33 bits", "10 bytes", "uniform"),
        *("5 doubles", "none", "9 bytes", "3 words", "2 million"),
        *("floats", "doubles", "normals", "17 normals", "permutation"),
        *("a block", "a block and one", "1 million"),
    ],
)
@pytest.mark.parametrize("used", [0, 1, 623, 624], ids=lambda used: f"after {used}")
def test_known_counts(generator, draw, expected, used):
    """Numbers of 32 bits, from a generator just seeded and from around the end of a block."""
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    for _ in range(used):
        random.getrandbits(32), np.random.bytes(4)
    torch.rand(used)
    assert count(generator, draw) == expected


DRAWS = {
    "python": [
        lambda: random.random(),
        lambda: random.gauss(0, 1),
        lambda: random.shuffle(list(range(9))),
        lambda: random.randbytes(2000),
    ],
    "numpy": [
        lambda: np.random.rand(3),
        lambda: np.random.randn(1),
        lambda: np.random.permutation(9),
        lambda: np.random.bytes(5000),
    ],
    "torch": [
        lambda: torch.rand(3),
        lambda: torch.randn(1),
        lambda: torch.randn(1, dtype=torch.float64),
        lambda: torch.randperm(9),
        lambda: torch.rand(2000),
    ],
}


@pytest.mark.parametrize("generator", DRAWS)
@given(st.data())
@settings(max_examples=40, deadline=None)
def test_counts_add_up(generator, data):
    """Whatever is drawn, the whole is the sum, and kept normals are never lost in it."""
    with generators_kept():
        seed = data.draw(st.integers(0, 2**32 - 1))
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        calls = data.draw(st.lists(st.sampled_from(DRAWS[generator]), max_size=12))
        start = READ[generator]()
        single = [count(generator, call) for call in calls]
        end = READ[generator]()
        assert n_drawn(start, end) == sum(single)
        if sum(single):
            assert n_drawn(end, start, most=50_000) is None
            assert n_drawn(start, end, most=sum(single)) == sum(single)
            assert n_drawn(start, end, most=sum(single) - 1) is None
        if generator == "numpy":
            expected = after_words(start, sum(single))
            assert end["state"]["pos"] == expected["pos"]
            np.testing.assert_array_equal(end["state"]["key"], expected["key"])


@pytest.mark.parametrize(
    ("generator", "normal"),
    [
        ("python", lambda: random.gauss(0, 1)),
        ("numpy", lambda: np.random.randn()),
        ("torch", lambda: torch.randn(1, dtype=torch.float64)),
    ],
    ids=["python", "numpy", "torch"],
)
def test_a_kept_normal_costs_no_number(generator, normal):
    """The second of a pair counts 0; back in its place, it was put there."""
    first = count(generator, normal)
    held = READ[generator]()
    assert first >= 4
    assert count(generator, normal) == 0
    taken = READ[generator]()
    assert not same(held, taken)
    assert n_drawn(held, taken) == 0
    assert n_drawn(taken, held) is None


@pytest.mark.parametrize(
    ("generator", "reseed"),
    [
        ("python", lambda: random.seed(5)),
        ("numpy", lambda: np.random.seed(5)),
        ("torch", lambda: torch.manual_seed(5)),
    ],
    ids=["python", "numpy", "torch"],
)
def test_a_reseed_is_not_counted(generator, reseed):
    random.seed(4), np.random.seed(4), torch.manual_seed(4)
    assert count(generator, reseed) is None
    assert count(generator, reseed) == 0  # where it was
    DRAWS[generator][0]()
    assert count(generator, reseed) is None


@pytest.mark.parametrize(("used", "drawn"), [(1, 4), (620, 8), (0, 1300)])
def test_no_farther_than_asked(used, drawn):
    """Within a block, across its end, and over several."""
    np.random.seed(2)
    np.random.bytes(4 * used)
    before = READ["numpy"]()
    np.random.bytes(4 * drawn)
    after = READ["numpy"]()
    assert n_drawn(before, after, most=drawn) == drawn
    assert n_drawn(before, after, most=drawn - 1) is None


def test_torch_remembers_its_seed():
    """A generator that says it was seeded otherwise was put there."""
    state = torch.get_rng_state()
    other = state.clone()
    other[0] ^= 1
    assert n_drawn(state, other) is None


def philox(seed, offset):
    raw = np.array([seed, offset], dtype="<u8").tobytes()
    return torch.frombuffer(bytearray(raw), dtype=torch.uint8)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (philox(3, 0), philox(3, 0), 0),
        (philox(3, 8), philox(3, 12), 4),
        (philox(3, 8), philox(3, 4), None),
        (philox(3, 8), philox(4, 12), None),
        (philox(3, 0), philox(3, 60_000_000), None),
        (philox(2**63 + 1, 4), philox(2**63 + 1, 2**33), None),
    ],
    ids=["equal", "on", "back", "another seed", "too far", "large numbers"],
)
def test_philox(before, after, expected):
    """CUDA's generator, by the offset in its 16 bytes."""
    assert n_drawn(before, after) == expected


def test_philox_far_if_asked():
    assert n_drawn(philox(2**63 + 1, 4), philox(2**63 + 1, 2**33), most=2**40) == 2**33 - 4


def test_another_bit_generator():
    """Known to have moved, not how far."""
    pcg = np.random.RandomState(np.random.PCG64(3))
    before = pcg.get_state(legacy=False)
    assert n_drawn(before, pcg.get_state(legacy=False)) == 0
    pcg.rand()
    assert n_drawn(before, pcg.get_state(legacy=False)) is None


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (READ["python"](), READ["torch"](), "before is a state of Python and after of PyTorch"),
        (READ["numpy"](), READ["python"](), "of NumPy and after of Python; expected one kind"),
        (torch.zeros(9, dtype=torch.uint8), READ["torch"](), "before has 9 bytes; expected 5056"),
        (READ["torch"](), torch.zeros(5056, dtype=torch.uint8), "after is tensor"),
        (3, READ["python"](), "before is 3; expected what random.getstate"),
        ((2, (1, 2), None), READ["python"](), "before is .2, .1, 2., None.; expected"),
        ((3, (1, 2), None), READ["python"](), "before is .3, .1, 2., None.; expected"),
        (READ["numpy"](), {"bit_generator": "MT19937"}, "after is {'bit_generator'"),
    ],
    ids=[
        *("two kinds", "two others", "short", "no state", "a number"),
        *("old version", "few words", "no words"),
    ],
)
def test_no_states(before, after, message):
    with pytest.raises(BadInput, match=message):
        n_drawn(before, after)


@pytest.mark.parametrize("most", [-1, 2.5, True, "all"])
def test_no_limit(most):
    state = random.getstate()
    with pytest.raises(BadInput, match=r"most is .*; expected a whole number from 0"):
        n_drawn(state, state, most=most)


# -- watching ------------------------------------------------------------------------------


def run_source(text, **names):
    """Run lines as if they were the file ``train.py``, in a function if they define ``step``."""
    space = {"np": np, "random": random, "torch": torch, "nn": nn, "kept_rand": kept_rand, **names}
    exec(compile(text, "/nowhere/known/train.py", "exec"), space)
    return space


def logged(text, seed=0, **names):
    with generators_kept():
        random.seed(seed), np.random.seed(seed), torch.manual_seed(seed)
        with DrawLog() as log:
            run_source(text, **names)
    return log.draws


def brief(draws):
    return [(draw.generator, draw.n, draw.what, draw.source) for draw in draws]


def test_what_is_written_down():
    text = "\n".join(
        [
            "def step():",
            "    np.random.rand(5)",
            "    random.random()",
            "    torch.rand(7)",
            "    np.random.seed(3); random.seed(3)",
            "    np.random.ranf(), np.random.sample()",
            "    np.random.rand(0), torch.rand(0), torch.ones(3) + 1",
            "    random.setstate(random.getstate())",
            "    np.random.set_state(np.random.get_state())",
            "    torch.rand(3, generator=torch.Generator().manual_seed(1))",
            "    np.random.RandomState(1).rand(), random.Random(1).random()",
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
        ("python", None, "random.setstate", "train.py:8 in step"),
        ("numpy", None, "np.random.set_state", "train.py:9 in step"),
    ]
    assert [draw.index for draw in found] == list(range(9))
    assert {(draw.module, draw.phase) for draw in found} == {(None, "forward")}


def test_a_kept_normal_is_a_draw():
    """It costs no number and yet moves what comes after."""
    found = logged("np.random.randn()\nnp.random.randn()\nrandom.gauss(0, 1)\nrandom.gauss(0, 1)")
    assert [draw.n == 0 for draw in found] == [False, True, False, True]


UNSEEN = [
    ("kept_rand(3)", "numpy", 6),
    ("np.random.mtrand._rand.rand(2)", "numpy", 4),
    ("random._inst.random()", "python", 2),
    ("torch.manual_seed(9)", "torch", None),
    ("torch.set_rng_state(torch.Generator().manual_seed(8).get_state())", "torch", None),
]
UNSEEN_IDS = ["imported by name", "NumPy's own", "Python's own", "seed", "state"]


@pytest.mark.parametrize(("line", "generator", "n"), UNSEEN, ids=UNSEEN_IDS)
def test_unseen_moves(line, generator, n):
    """Found by the next that is seen, and by the end of the block."""
    found = logged(f"random.random()\n\n{line}\n\nnp.random.rand()\n")
    assert brief(found)[1] == (
        generator,
        n,
        "unseen",
        "between train.py:1 in <module> and train.py:5 in <module>",
    )
    assert (found[1].module, found[1].phase, len(found)) == (None, None, 3)
    (draw,) = logged(line)
    assert (draw.generator, draw.n, draw.what) == (generator, n, "unseen")
    assert draw.source.startswith("between test_random_draws.py:")
    assert draw.source.endswith(" in logged and the end of the block")


def test_unseen_before_an_operation_of_pytorch():
    found = logged("torch.manual_seed(4)\ntorch.rand(2)")
    assert [(draw.n, draw.what) for draw in found] == [(None, "unseen"), (2, "aten.rand.default")]
    assert found[0].source.endswith("and train.py:2 in <module>")


def test_seeding_of_this_package_is_its_callers():
    found = logged("with seeded(3):\n    np.random.default_rng()", seeded=seeded)
    sources = [draw.source for draw in found if draw.what != "unseen"]
    assert set(sources) == {"train.py:1 in <module>", "train.py:2 in <module>"}
    assert [draw.what for draw in found if draw.source.startswith("train.py:2")] == [
        "np.random.randint"
    ]


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
        self.lin = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return Noisy.apply(self.drop(self.lin(x)))


def train(net, n_steps=2):
    """A step with NumPy's augmentation, dropout, and draws in a backward pass."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    losses = []
    for _ in range(n_steps):
        images = np.random.rand(2, 4).astype(np.float32)
        if random.random() < 0.5:
            images = images[:, np.random.permutation(4)]
        loss = net(torch.from_numpy(images)).square().sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def network():
    return nn.Sequential(Part(), Part())


def test_module_and_phase():
    net = network()
    with DrawLog(model=net) as log:
        train(net, 1)
    seen = [
        (draw.what, draw.module, draw.phase, draw.source.split(" in ")[1]) for draw in log.draws
    ]
    dropping = next(what for what, *_ in seen if what.startswith("aten."))
    expected = [
        (dropping, "0.drop", "forward", "forward"),
        ("random.random", "0", "forward", "forward"),
        (dropping, "1.drop", "forward", "forward"),
        ("random.random", "1", "forward", "forward"),
        ("np.random.rand", "1", "backward", "backward"),
        ("np.random.rand", "0", "backward", "backward"),
    ]
    assert [row for row in seen if row[1]] == expected
    assert log.draws[0].n == 16


def test_phase_of_an_optimizer():
    class Shaken(torch.optim.SGD):
        @torch.no_grad()
        def step(self, closure=None):
            for group in self.param_groups:
                group["params"][0].add_(np.random.rand())

    net = nn.Linear(2, 2)
    optimizer = Shaken(net.parameters(), lr=0.1)
    with DrawLog() as log:
        optimizer.step()
    assert [(draw.what, draw.phase) for draw in log.draws] == [("np.random.rand", "update")]


def test_watching_changes_nothing():
    """Equal bits in weights and losses, and every generator at the same place."""

    def outcome(watched):
        with seeded(5):
            net = network()
            if watched:
                with DrawLog(model=net) as log:
                    losses = train(net, 4)
                assert len(log.draws) > 20
            else:
                losses = train(net, 4)
            weights = torch.cat([p.detach().flatten() for p in net.parameters()]).numpy()
            return weights.tobytes(), losses, [read() for read in READ.values()]

    plain, watched = outcome(False), outcome(True)
    assert plain[:2] == watched[:2]
    assert all(map(same, plain[2], watched[2]))


def test_all_that_moved_is_written_down():
    """What the draws add up to is what the generators moved in the block."""
    with seeded(6):
        before = {name: read() for name, read in READ.items()}
        net = network()
        built = {name: read() for name, read in READ.items()}
        with DrawLog() as log:
            train(net, 3)
        for name, read in READ.items():
            total = sum(draw.n for draw in log.draws if draw.generator == name)
            assert total == n_drawn(built[name], read())
            assert total > 0
        assert n_drawn(before["torch"], built["torch"]) == 40


def namespaces():
    return {
        (m.__name__, name): value for m in (np.random, random) for name, value in vars(m).items()
    }


def test_everything_is_put_back():
    before = namespaces()
    with DrawLog():
        inside = namespaces()
    assert namespaces() == before
    changed = {name for (_, name), value in inside.items() if value is not before[_, name]}
    assert {"rand", "seed", "ranf", "sample", "set_state", "shuffle", "random"} <= changed
    assert {"getstate", "setstate", "gauss", "randint"} - changed == {"getstate"}
    assert {"Generator", "RandomState", "default_rng", "get_state", "Random"}.isdisjoint(changed)


def test_put_back_when_it_raises():
    before = namespaces()
    log = DrawLog()
    with pytest.raises(ZeroDivisionError), log:
        np.random.rand(int(np.random.rand()) // 0)
    assert namespaces() == before
    assert [draw.what for draw in log.draws] == ["np.random.rand"]
    with log:
        random.random()
    assert [draw.what for draw in log.draws] == ["random.random"]


def test_an_audit_around_it():
    """What an audit asks again is not written down."""

    def draw():
        with DrawLog() as log:
            torch.rand(3)
            nn.functional.dropout(torch.ones(4))
        return [d.n for d in log.draws]

    alone = draw()  # a dropout's number differs between versions of PyTorch
    with Auditor(replays=2):
        assert draw() == alone
    assert alone[0] == 3


def test_not_nested():
    before = namespaces()
    with DrawLog() as log:
        with pytest.raises(BadInput, match="a DrawLog is open already"), DrawLog():
            pass
        with pytest.raises(BadInput, match="a DrawLog is open already"), log:
            pass
        np.random.rand()
    assert namespaces() == before
    assert len(log.draws) == 1


def test_no_model():
    with pytest.raises(BadInput, match=r"expected a torch.nn.Module"):
        DrawLog(model="net")


def test_what_somebody_else_replaced_stays(monkeypatch):
    before = random.random
    with DrawLog() as log:
        monkeypatch.setattr(random, "random", lambda: 0.5)
        kept = np.random.rand
    assert random.random() == 0.5
    n = len(log.draws)
    kept()  # a kept copy goes on working, and is written down no more
    assert len(log.draws) == n
    monkeypatch.undo()  # brings back the closed log's function
    with DrawLog() as log:
        random.random()
    assert [(d.n, d.what) for d in log.draws] == [(2, "random.random")]
    assert random.random is before


def test_a_refused_seed_is_no_draw():
    with DrawLog() as log, pytest.raises(ValueError, match="Seed must be between"):
        np.random.seed(-1)
    assert log.draws == []


def test_a_call_that_raises_after_drawing():
    def fail(x):
        raise KeyError(x)

    with DrawLog() as log, pytest.raises(KeyError):
        np.random.rand(fail(np.random.rand()))
    assert len(log.draws) == 1
    with DrawLog() as log, pytest.raises((ValueError, TypeError)):
        random.sample(range(3), 9)
    assert log.draws == []


def test_a_draw_within_a_draw():
    """Each its own, and what moved in between is the outer call's."""

    class Items(list):
        def __getitem__(self, index):
            np.random.rand()
            return super().__getitem__(index)

    found = logged("random.choice(items)", items=Items([1, 2, 3]))
    assert [(d.generator, d.what) for d in found] == [
        ("python", "random.choice"),
        ("numpy", "np.random.rand"),
    ]


def test_another_thread():
    def work():
        np.random.rand()
        torch.rand(3)

    with DrawLog() as log:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert [(d.generator, d.n, d.what) for d in log.draws] == [
        ("numpy", 2, "np.random.rand"),
        ("torch", 3, "unseen"),
    ]
    assert log.draws[0].source.endswith("in work")


def test_another_bit_generator_in_its_place():
    before = np.random.get_bit_generator()
    with DrawLog() as log:
        np.random.set_bit_generator(np.random.PCG64(3))
        np.random.rand()
        np.random.set_bit_generator(before)
    whats = ["set_bit_generator", "rand", "set_bit_generator"]
    assert [(d.n, d.what) for d in log.draws] == [(None, f"np.random.{name}") for name in whats]


def test_a_gpu_that_starts_within(monkeypatch):
    """Its generator starts at offset 0, so the first draw counts too."""
    states = {"now": {}}
    monkeypatch.setattr(module_under_test, "_cuda_states", lambda: states["now"])
    with DrawLog() as log:
        torch.rand(1)
        states["now"] = {"cuda:0": philox(3, 0), "cuda:1": philox(3, 8)}
        torch.rand(1)
        states["now"] = {"cuda:0": philox(3, 4), "cuda:1": philox(4, 0)}
    assert [(d.generator, d.n, d.what) for d in log.draws] == [
        ("torch", 1, "aten.rand.default"),
        ("cuda:1", 8, "unseen"),
        ("torch", 1, "aten.rand.default"),
        ("cuda:0", 4, "unseen"),
        ("cuda:1", None, "unseen"),
    ]


# -- comparing -----------------------------------------------------------------------------

LINES = {
    "numpy": ["np.random.rand(3)", "np.random.randint(0, 6, 4)", "np.random.permutation(7)"],
    "python": ["random.random()", "random.shuffle([1, 2, 3, 4])", "random.uniform(0, 9)"],
    "torch": ["torch.rand(5)", "torch.randperm(6)", "nn.functional.dropout(torch.ones(3))"],
}
EVERY = [line for lines in LINES.values() for line in lines]


def program(slots):
    body = "\n".join(f"    {slot}" for slot in slots)
    return f"def step():\n{body}\nfor _ in range(3):\n    step()\n"


def some_program(seed):
    """Draws at half of the lines, the rest empty."""
    choose = random.Random(seed)
    return choose, [choose.choice(EVERY) if choose.random() < 0.5 else "pass" for _ in range(14)]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("generator", LINES)
def test_a_planted_draw_is_named(generator, seed):
    """At its line, though every value after it is another and some draws have other counts."""
    choose, slots = some_program(f"{generator} {seed}")
    place = choose.choice([index for index, slot in enumerate(slots) if slot == "pass"])
    extra = choose.choice(LINES[generator])
    planted = [*slots[:place], extra, *slots[place + 1 :]]
    a, b = logged(program(slots)), logged(program(planted))
    for one, two, side in ((a, b, "b"), (b, a, "a")):
        found = first_extra_draw(one, two)
        assert (found.side, found.other) == (side, None)
        assert found.draw.source == f"train.py:{place + 2} in step"
        assert found.draw.generator == generator
    assert first_extra_draw(a, logged(program(slots))) is None


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("generator", LINES)
def test_a_planted_draw_is_named_in_an_edited_file(generator, seed):
    """The inserted line shifts all after it; of equal calls in a row any may be named."""
    choose, slots = some_program(f"edited {generator} {seed}")
    place, extra = choose.randrange(len(slots)), choose.choice(LINES[generator])
    planted = [*slots[:place], extra, *slots[place:]]
    found = first_extra_draw(logged(program(slots)), logged(program(planted)))
    calls = [index for index, slot in enumerate(planted) if slot != "pass"]
    at = calls.index(place)
    first = last = at
    while first and planted[calls[first - 1]] == extra:
        first -= 1
    while last + 1 < len(calls) and planted[calls[last + 1]] == extra:
        last += 1
    assert (found.side, found.other) == ("b", None)
    allowed = {f"train.py:{index + 2} in step" for index in calls[first : last + 1]}
    assert found.draw.source in allowed


@pytest.mark.parametrize("seed", range(4))
def test_equal_draws_in_an_edited_file(seed):
    """Empty lines anywhere are no difference."""
    choose, slots = some_program(seed)
    edited = list(slots)
    for _ in range(5):
        edited.insert(choose.randrange(len(edited) + 1), "pass")
    assert first_extra_draw(logged(program(slots)), logged(program(edited))) is None


@pytest.mark.parametrize("when", [0, 7, 299], ids=["first", "early", "last"])
def test_one_pass_draws_once_more(when):
    """A line that runs in both, once more in one pass of many."""
    text = (
        "for i in range(300):\n    random.random()\n"
        "    for _ in range(1 + (i == when)):\n        np.random.rand()\n    torch.rand(2)\n"
    )
    a, b = logged(text, when=-1), logged(text, when=when)
    found = first_extra_draw(a, b)
    assert (found.side, found.draw.source) == ("b", "train.py:4 in <module>")
    assert found.draw.index == 3 * when + 2


def test_an_unseen_draw_is_named():
    line = "random.random()\n{}\nnp.random.rand()"
    found = first_extra_draw(logged(line.format("")), logged(line.format("kept_rand(2)")))
    assert (found.side, found.draw.what, found.draw.n) == ("b", "unseen", 4)
    assert found.sentence() == (
        "b drew 4 numbers more from numpy's generator: unseen between train.py:1 in <module> "
        "and train.py:3 in <module>"
    )


def test_a_draw_next_to_an_unseen_one():
    """The interval of an unseen draw is another then; it is no difference."""
    line = "random.random()\nkept_rand()\n{}\nnp.random.rand()"
    found = first_extra_draw(logged(line.format("")), logged(line.format("torch.rand(1)")))
    assert found.draw.source == "train.py:3 in <module>"


def draw(line, n=2, what="np.random.rand", generator="numpy", file="train.py", function="step"):
    return Draw(0, generator, n, what, f"{file}:{line} in {function}", None, "forward")


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([], [], None),
        ([draw(1)], [draw(1)], None),
        ([draw(1), draw(2)], [draw(5), draw(9)], None),
        ([draw(1)], [], ("a", draw(1), None)),
        ([], [draw(1)], ("b", draw(1), None)),
        ([draw(1)], [draw(1), draw(1)], ("b", draw(1), None)),
        ([draw(1), draw(3)], [draw(1), draw(2), draw(3)], ("b", draw(2), None)),
        ([draw(1), draw(3)], [draw(3)], ("a", draw(1), None)),
        ([draw(1)], [draw(1, n=4)], ("both", draw(1), draw(1, n=4))),
        ([draw(1)], [draw(2, n=4)], ("both", draw(1), draw(2, n=4))),
        ([draw(1), draw(1, n=6)], [draw(1, n=6)], ("a", draw(1), None)),
        ([draw(1)], [draw(1, file="test.py")], ("both", draw(1), draw(1, file="test.py"))),
        ([draw(1)], [draw(1, function="load")], ("both", draw(1), draw(1, function="load"))),
        ([draw(1)], [draw(1, what="np.random.f")], ("both", draw(1), draw(1, what="np.random.f"))),
        ([draw(1)], [draw(1, generator="torch")], ("both", draw(1), draw(1, generator="torch"))),
        ([draw(1, None)], [draw(1, None)], None),
        ([draw(1, None)], [draw(1)], ("both", draw(1, None), draw(1))),
        # Lines are shifted by one from line 2 on; only the counts tell which is new.
        (
            [draw(1, 10), draw(3, 4)] * 3,
            [draw(1, 10), draw(2, 6), draw(4, 4)] * 3,
            ("b", draw(2, 6), None),
        ),
        # An inserted line takes the place of another; each line's own number tells.
        ([draw(3, 6)] * 3, [draw(3, 10), draw(4, 6)] * 3, ("b", draw(3, 10), None)),
        ([draw(1)] * 600, [draw(1)] * 599, ("a", draw(1), None)),
        ([draw(1)] * 600, [draw(2)] * 600, None),
    ],
    ids=[
        *("none", "equal", "shifted", "only a", "only b", "once more", "a line between"),
        *("the first left out", "other number", "other number, shifted", "smaller first"),
        *("other file", "other function", "other call", "other generator", "seeds"),
        *("a seed for a draw", "counts tell", "numbers tell", "long", "long and shifted"),
    ],
)
def test_aligned(a, b, expected):
    found = first_extra_draw(a, b)
    assert found == (None if expected is None else DrawDifference(*expected))


def test_other_lines_in_a_long_run():
    """Where lines can not all be matched, equal draws are passed over, window after window."""
    lines = [1, 2, 3] * 400
    a = [draw(line) for line in lines]
    b = [draw(line + 10 * (line > 1)) for line in lines]
    assert first_extra_draw(a, [*b, draw(40)]).draw == draw(40)
    b[900] = replace(b[900], n=6)
    assert first_extra_draw(a, b).other == b[900]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 1, 2]), st.booleans()), max_size=30),
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_one_more_anywhere(plain, data):
    """Of any list, and the same with one draw more, that one or its equal neighbour is named."""
    a = [draw(line, n, "np.random.f" if other else "np.random.rand") for line, n, other in plain]
    assert first_extra_draw(a, list(a)) is None
    place = data.draw(st.integers(0, len(a)))
    extra = draw(9, 7, "random.random", "python")
    b = [*a[:place], extra, *a[place:]]
    assert first_extra_draw(a, b) == DrawDifference("b", extra, None)
    assert first_extra_draw(b, a) == DrawDifference("a", extra, None)
    assert first_extra_draw(a, b[:place]) == (
        DrawDifference("a", a[place], None) if place < len(a) else None
    )


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (
            ("b", draw(12, 1), None),
            "b drew 1 number more from numpy's generator: np.random.rand at train.py:12 in step",
        ),
        (
            ("a", draw(12, 10), None),
            "a drew 10 numbers more from numpy's generator: np.random.rand at train.py:12 in step",
        ),
        (
            ("b", draw(12, None, "np.random.seed"), None),
            "b set numpy's generator once more: np.random.seed at train.py:12 in step",
        ),
        (
            ("b", draw(12, 0, "np.random.randn"), None),
            "b took a kept normal more from numpy's generator: np.random.randn at "
            "train.py:12 in step",
        ),
        (
            ("both", draw(12, 10), draw(12, 12)),
            "a drew 10 numbers from numpy's generator and b 12: np.random.rand at "
            "train.py:12 in step",
        ),
        (
            ("both", draw(12, 1), draw(13, 12)),
            "a drew 1 number from numpy's generator and b 12: np.random.rand at "
            "train.py:12 in step (in b at train.py:13 in step)",
        ),
        (
            ("both", draw(12, 1), draw(13, 12, "random.random", "python")),
            "a and b drew otherwise: a drew 1 number from numpy's generator (np.random.rand at "
            "train.py:12 in step); b drew 12 numbers from python's generator (random.random at "
            "train.py:13 in step)",
        ),
        (
            ("both", draw(12, None), draw(12, 2)),
            "a set numpy's generator and b drew 2 numbers from it: np.random.rand at "
            "train.py:12 in step",
        ),
        (
            ("a", replace(draw(1), source=None, module="net.0"), None),
            "a drew 2 numbers more from numpy's generator: np.random.rand in net.0",
        ),
        (
            ("a", replace(draw(1), source=None), None),
            "a drew 2 numbers more from numpy's generator: np.random.rand at no known line",
        ),
    ],
    ids=[
        *("one", "ten", "seed", "kept normal", "other number", "other line", "other call"),
        *("seed or draw", "module only", "nowhere"),
    ],
)
def test_sentences(difference, expected):
    assert DrawDifference(*difference).sentence() == expected


# -- as plain values -----------------------------------------------------------------------


def test_rows_go_through_json():
    draws = logged(program(EVERY) + "\nnp.random.seed(1)\nkept_rand()")
    assert len(draws) > 20
    assert from_rows(json.loads(json.dumps(to_rows(draws)))) == draws
    assert from_rows(to_rows([])) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": "two"}, "row 1 has n 'two'; expected int or NoneType"),
        ({"index": None}, "row 1 has index None; expected int"),
        ({"index": True}, "row 1 has index True; expected int"),
        ({"source": 3}, "row 1 has source 3; expected str"),
        ({"more": 3}, "row 1 has .*'more'.*; expected the fields"),
    ],
    ids=["text", "none", "truth", "number", "a field more"],
)
def test_no_rows(change, message):
    rows = to_rows([draw(1), draw(2)])
    rows[1].update(change)
    with pytest.raises(BadInput, match=message):
        from_rows(rows)


@pytest.mark.parametrize("row", [{}, 3, None, ["index"]], ids=["empty", "number", "none", "list"])
def test_no_row(row):
    with pytest.raises(BadInput, match=r"row 0 has .*; expected the fields"):
        from_rows([row])
