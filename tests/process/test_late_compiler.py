"""Children start without PyTorch's compiler and pyplot, and have all of it where they use it."""

from cellrepro.process.calling import in_child
from cellrepro.process.setup import Setup
from cellrepro.profiles.profiles import load

TASK = """
import sys


def step_and_compile(child):
    with child.prepared():
        import torch

        from cellrepro.model.network import seeded_network

        network = seeded_network("tiny", seed=0)
        optimizer = torch.optim.AdamW(network.parameters())
        network(torch.zeros(1, 3, 256, 256))[0].sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        early = [
            name
            for name in ("torch._dynamo.eval_frame", "matplotlib.figure")
            if name in sys.modules
        ]
        import torch._dynamo.testing

        settings = torch._inductor.config
        deterministic = getattr(settings, "deterministic", None)  # compiling sets it, too
        doubled = torch.compile(lambda x: 2 * x, backend="eager")(torch.ones(2)).tolist()
        import cellpose.io
        import matplotlib.pyplot
        from matplotlib import pyplot

        pyplot.pause = len  # as scripts do that draw without a screen
        import matplotlib.pyplot as plt

        return {
            "pyplot": [one.pause([0]) for one in (plt, cellpose.io.plt, matplotlib.pyplot)],
            "figure": type(plt.figure()).__name__,
            "early": early,
            "late": "torch._dynamo.eval_frame" in sys.modules,
            "doubled": doubled,
            "deterministic": deterministic,
            "submodule": torch._dynamo.testing.__name__,
            "kept out": hasattr(type(optimizer).zero_grad.__wrapped__, "__dynamo_disable"),
        }
"""


def test_a_step_imports_neither_and_using_them_does(tmp_path, monkeypatch):
    (tmp_path / "stepping.py").write_text(TASK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    import stepping

    setup = Setup(load("cpu"), mode="strict")
    found = in_child(stepping.step_and_compile, setup, label="a step", quiet=True)
    assert found.pop("deterministic") in (True, None)
    assert found == {
        "pyplot": [1, 1, 1],
        "figure": "Figure",
        "early": [],
        "late": True,
        "doubled": [2.0, 2.0],
        "submodule": "torch._dynamo.testing",
        "kept out": True,
    }
