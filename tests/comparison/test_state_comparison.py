"""Two checkpoints: each part that differs is named, and nothing else."""

import argparse
import random
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import cellrepro
from cellrepro.comparison.file_content import content_beside
from cellrepro.comparison.state_comparison import StateComparison, ValuePair, shown
from cellrepro.comparison.weight_reading import open_file
from cellrepro.explanation.compare_files import compare
from cellrepro.explanation.describe import describe
from cellrepro.pickles import Refused
from samebits.errors import BadInput
from small_training import Small

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def checkpoint():
    """What a training of one's own saves."""
    cellrepro.seed_everything(3)
    network = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 9])
    for _ in range(3):
        optimizer.zero_grad()
        network(torch.ones(1, 3)).square().sum().backward()
        optimizer.step()
        scheduler.step()
    return {
        "model_state_dict": network.state_dict(),
        "optimizer_state_dict": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "epoch": 3,
        "seed": 3,
        "ema": [torch.ones(3), torch.zeros(2)],
        "losses": [0.5, float("nan"), -0.0, *np.linspace(0, 1, 20).tolist()],
        "args": argparse.Namespace(folder="data", flip=True),
        "rng": {
            "torch": torch.get_rng_state(),
            "cuda": [torch.tensor([3, *[0] * 7, 8, *[0] * 7], dtype=torch.uint8)],
            "python": random.getstate(),
            "numpy": np.random.get_state(),
            "generator": np.random.default_rng(1).bit_generator.state,
        },
    }


@pytest.fixture
def files(tmp_path):
    """Saves a checkpoint after a change, and compares it with the unchanged one."""
    torch.save(checkpoint(), tmp_path / "a.pt")

    def compared(change):
        held = checkpoint()
        change(held)
        torch.save(held, tmp_path / "b.pt")
        return compare(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), store=tmp_path)

    return compared


def test_equal_checkpoints_are_identical(files):
    found = files(lambda held: None)
    assert (found.verdict, found.differs) == ("identical", ())
    assert [pair.kind for pair in found.state.generators] == [
        *("PyTorch", "CUDA", "Python", "NumPy", "NumPy")
    ]
    assert found.state.n_values > 20
    assert found.state.tensors["optimizer"].n_parameters == 2 * 26 + 4  # moments, and steps
    assert "their networks were found under 'model_state_dict'" in found.notes[0]


def one_bit(tensor):
    tensor.view(torch.int32)[..., 0] ^= 1


def draw_python(held):
    random.seed(3)
    before = random.getstate()
    random.random()
    held["rng"]["python"] = random.getstate()
    assert held["rng"]["python"] != before


def cuda(seed, offset):
    return [torch.tensor([seed, *[0] * 7, offset, *[0] * 7], dtype=torch.uint8)]


FAULTS = {
    "a weight": (lambda held: one_bit(held["model_state_dict"]["1.bias"]), ("weights",), ""),
    "a moment": (
        lambda held: one_bit(held["optimizer_state_dict"]["state"][3]["exp_avg"]),
        ("optimizer",),
        r"optimizer: 1 of 56 parameters differs by",
    ),
    "a setting": (
        lambda held: held["optimizer_state_dict"]["param_groups"][0].update(lr=0.02),
        ("optimizer",),
        r"param_groups\.0\.lr: .* and 0\.02",
    ),
    "a moment missing": (
        lambda held: held["optimizer_state_dict"]["state"][3].pop("exp_avg"),
        ("optimizer",),
        r"optimizer, only in A: state\.3\.exp_avg",
    ),
    "scheduler": (
        lambda held: held["scheduler"].update(milestones={2: 1, 8: 1}),
        ("scheduler",),
        r"milestones\.9: 1 and absent, milestones\.8: absent and 1",
    ),
    "step": (lambda held: held.update(epoch=4), ("step",), "epoch: 3 and 4"),
    "seed": (lambda held: held.update(seed=4), ("seed",), "seed: 3 and 4"),
    "tensor": (lambda held: one_bit(held["ema"][1]), ("tensors",), "1 of 5 parameters differs by"),
    "type of a value": (lambda held: held.update(epoch=3.0), ("step",), "3 and 3.0"),
    "truth": (lambda held: held.update(epoch=True), ("step",), "3 and True"),
    "sign of zero": (
        lambda held: held["losses"].__setitem__(2, 0.0),
        ("values",),
        r"losses\[2\]: -0\.0 and 0\.0",
    ),
    "argument": (lambda held: setattr(held["args"], "flip", 1), ("values",), "flip: True and 1"),
    "python": (draw_python, ("generators",), "Python: "),
    "numpy": (
        lambda held: held["rng"].update(
            numpy=(*held["rng"]["numpy"][:2], held["rng"]["numpy"][2] - 9, 0, 0.0)
        ),
        ("generators",),
        "NumPy: 9 numbers of 32 bits apart in one stream",
    ),
    "cuda": (
        lambda held: held["rng"].update(cuda=cuda(3, 12)),
        ("generators",),
        "CUDA: 4 steps apart in one stream, both of seed 3",
    ),
    "seed of cuda": (
        lambda held: held["rng"].update(cuda=cuda(4, 8)),
        ("seed", "generators"),
        "CUDA: seeds 3 and 4",
    ),
    "torch": (
        lambda held: held["rng"].update(torch=torch.manual_seed(9).get_state()),
        ("seed", "generators"),
        "PyTorch: seeds 3 and 9",
    ),
    "no generator": (
        lambda held: held["rng"].pop("torch"),
        ("generators",),
        r"only in A: rng\.torch",
    ),
}


@pytest.mark.parametrize(("change", "differs", "sentence"), FAULTS.values(), ids=FAULTS)
def test_each_part_is_named(files, change, differs, sentence):
    found = files(change)
    assert (found.verdict, found.differs) == ("different", differs)
    assert re.search(sentence, found.sentence())


def test_names_of_the_parts_do_not_matter(files):
    """Two programs, of which each has its own names for network and optimizer."""

    def renamed(held):
        held["model"] = held.pop("model_state_dict")
        held["adam"] = held.pop("optimizer_state_dict")

    found = files(renamed)
    assert (found.verdict, found.weights.under) == ("identical", ("model_state_dict", "model"))


def test_two_optimizers_are_not_mixed(files):
    """As two networks that train against each other have them."""

    def one_of_two(held):
        held["other"] = checkpoint()["optimizer_state_dict"]

    found = files(one_of_two)
    assert found.differs == ("optimizer",)
    names = found.state.tensors["optimizer"].only_b
    assert {name.partition(".")[0] for name in names} == {"optimizer other", "optimizer_state_dict"}


def test_a_checkpoint_and_a_network(tmp_path, invoke):
    held = checkpoint()
    torch.save(held, tmp_path / "a.pt")
    save_file(held["model_state_dict"], tmp_path / "b.safetensors")
    answer = invoke("compare", tmp_path / "a.pt", tmp_path / "b.safetensors")
    assert (answer.code, answer.out.splitlines()[0]) == (0, "identical")
    assert (
        "optimizer, scheduler, step, seed, tensors, values and generators of this one" in answer.out
    )
    torch.save(held["optimizer_state_dict"], tmp_path / "optimizer.pt")
    with pytest.raises(
        BadInput, match="hold nothing that both have: it holds the state of an optimizer alone"
    ):
        compare(str(tmp_path / "optimizer.pt"), str(tmp_path / "b.safetensors"))


def test_files_without_a_network_or_with_several(tmp_path):
    """An optimizer alone, a list of tensors, two networks: all that they hold is compared."""
    optimizer = checkpoint()["optimizer_state_dict"]
    network = {"w": torch.ones(3)}
    items = [torch.ones(2), 3]
    of_two = {"teacher": network, "student": {"w": torch.zeros(2)}}
    for held, tensor, part in (
        (optimizer, optimizer["state"][0]["exp_avg"], "optimizer"),
        (items, items[0], "tensors"),
        (of_two, network["w"], "tensors"),
    ):
        torch.save(held, tmp_path / "a")
        torch.save(held, tmp_path / "b")
        assert compare(str(tmp_path / "a"), str(tmp_path / "b")).verdict == "identical"
        assert describe(str(tmp_path / "a")).kind == "tensors"
        one_bit(tensor)
        torch.save(held, tmp_path / "b")
        assert compare(str(tmp_path / "a"), str(tmp_path / "b")).differs == (part,)


def test_checkpoints_of_the_lab(tmp_path, invoke):
    """Folders, compared with each other; the seed and the generators that `add_seed_to` stores."""
    small = Small()
    small.epoch()
    first = small.save(tmp_path / "kept")
    small.epoch()
    second = small.save(tmp_path / "kept")
    answer = invoke("compare", first, second, "--json")
    assert answer.code == 1
    assert {"weights", "optimizer", "step", "generators"} <= {*answer.json["differs"]}
    kinds = {pair["kind"] for pair in answer.json["state"]["generators"]}
    assert {"Python", "NumPy", "PyTorch"} <= kinds
    assert invoke("compare", first, first).code == 0
    found = describe(str(second))
    assert found.details["found_under"] == "network"
    assert "epoch 2" in found.details["step"]
    assert "PyTorch (seed" in found.details["generators"]
    torch.save(cellrepro.add_seed_to({"epoch": 1}), tmp_path / "own.pt")
    assert [*open_file(tmp_path / "own.pt").generators] == [
        *("cellrepro generators.python", "cellrepro generators.numpy", "cellrepro generators.torch")
    ]


def test_what_has_no_end_is_refused(tmp_path):
    doubled = [0.5, {}]
    for _ in range(30):
        doubled = [doubled, doubled, {}]
    within_itself = {"epoch": 3}
    within_itself["again"] = within_itself
    for held in (doubled, within_itself):
        torch.save(held, tmp_path / "endless.pt")
        with pytest.raises(BadInput, match="nested deeper, or more, than those of a training"):
            describe(str(tmp_path / "endless.pt"))


def test_what_a_terminal_would_obey_is_shown_as_text(files):
    found = files(lambda held: held.update({"\x1b[2J": "\x1b[31mred"}))
    assert "\x1b" not in found.sentence()
    assert shown(1 + 2j) == "(1+2j)"


def test_an_optimizer_beside_its_own_name(tmp_path):
    """The state of the optimizer is not lost to the text that stands under ``optimizer``."""
    for name in ("a.pt", "b.pt"):
        held = checkpoint()
        held["optim_state"] = held.pop("optimizer_state_dict")
        held["optimizer"] = "adamw"
        if name == "b.pt":
            one_bit(held["optim_state"]["state"][3]["exp_avg"])
        torch.save(held, tmp_path / name)
    found = compare(str(tmp_path / "a.pt"), str(tmp_path / "b.pt"), store=tmp_path)
    assert (found.verdict, found.differs) == ("different", ("optimizer",))


def test_values_of_one_name_are_all_compared():
    held = content_beside({"values": {"rate": 1}, "rate": 2}, network={}, under="")
    assert held.values == {"values": {"values.rate": 1, "rate": 2}}
    with pytest.raises(Refused, match=r"two of its values lie under 'a\.b'"):
        content_beside({"a.b": 1, "a": {"b": 2}}, network={}, under="")


def test_parts_that_differ_are_named_in_their_order():
    """A seed that only a generator tells, too."""
    found = StateComparison(
        tensors={},
        values=(ValuePair("values", "rate", 1, 2),),
        n_values=1,
        generators=(SimpleNamespace(seeds=(1, 2), equal=False),),
        only_a=(),
        only_b=(),
    )
    assert found.differing == ("seed", "values", "generators")
