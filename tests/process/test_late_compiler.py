"""Children start without PyTorch's compiler, and have all of it as soon as they compile."""

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
        early = "torch._dynamo.eval_frame" in sys.modules
        import torch._dynamo.testing

        settings = torch._inductor.config
        deterministic = getattr(settings, "deterministic", None)  # compiling sets it, too
        doubled = torch.compile(lambda x: 2 * x, backend="eager")(torch.ones(2)).tolist()
        return {
            "early": early,
            "late": "torch._dynamo.eval_frame" in sys.modules,
            "doubled": doubled,
            "deterministic": deterministic,
            "submodule": torch._dynamo.testing.__name__,
            "kept out": hasattr(type(optimizer).zero_grad.__wrapped__, "__dynamo_disable"),
        }
"""


def test_a_step_imports_no_compiler_and_compiling_does(tmp_path, monkeypatch):
    (tmp_path / "stepping.py").write_text(TASK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    import stepping

    setup = Setup(load("cpu"), mode="strict")
    found = in_child(stepping.step_and_compile, setup, label="a step", quiet=True)
    assert found.pop("deterministic") in (True, None)
    assert found == {
        "early": False,
        "late": True,
        "doubled": [2.0, 2.0],
        "submodule": "torch._dynamo.testing",
        "kept out": True,
    }
