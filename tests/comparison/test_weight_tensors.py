"""Networks that wrappers and shorter numbers make look different: the same apart from that."""

import itertools

import pytest
import torch

from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.explanation.compare_files import compare


def network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = torch.nn.Conv2d(1, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.Conv2d(8, 3, 1)
    return torch.nn.Sequential(*layers).state_dict()


@pytest.fixture
def saved(tmp_path):
    def save(name, content):
        torch.save(content, tmp_path / name)
        return str(tmp_path / name)

    return save


WRAPPERS = ("model.", "module.", "_orig_mod.")
NESTED = [
    "".join(order) for n in (1, 2, 3) for order in itertools.permutations(WRAPPERS, n)
]  # in any order


@pytest.mark.parametrize("prefix", [*NESTED, "net.unet."])
def test_what_a_wrapper_put_before_all_names_is_left_out(saved, prefix):
    plain = network()
    wrapped = {f"{prefix}{name}": tensor for name, tensor in plain.items()}
    for a, b in ((plain, wrapped), (wrapped, plain)):
        found = compare_weights(saved("a.pt", a), saved("b.pt", b))
        assert (found.equal, found.n_parameters) == (True, 140)
    checkpoint = {"state_dict": wrapped | {"loss.weight": torch.ones(2)}, "epoch": 3}
    beside = compare_weights(saved("a.pt", plain), saved("b.pt", checkpoint))
    assert (beside.n_differing, beside.only_b) == (2, ("loss.weight",))


def test_the_prefix_is_said_and_a_difference_is_not_hidden(saved):
    plain = network()
    wrapped = {f"model.{name}": tensor.clone() for name, tensor in plain.items()}
    wrapped["model.2.bias"][1] += 1
    found = compare_weights(saved("a.pt", plain), saved("b.pt", wrapped))
    assert (found.n_differing, found.prefixes) == (1, ("", "model."))
    assert "the names of B are taken without 'model.'" in found.sentence()


def test_networks_of_other_names_keep_them(saved):
    plain = network()
    other = {f"head.{number}": tensor for number, tensor in enumerate(plain.values())}
    found = compare_weights(saved("a.pt", plain), saved("b.pt", other))
    assert (found.prefixes, len(found.only_a), len(found.only_b)) == (("", ""), 9, 9)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_copy_in_shorter_numbers_is_named(saved, dtype):
    plain = network()
    half = {n: t.to(dtype) if t.is_floating_point() else t for n, t in plain.items()}
    a, b = saved("a.pt", plain), saved("b.pt", half)
    name = str(dtype).removeprefix("torch.")
    assert compare_weights(a, b).copy == "B is A rounded"
    assert compare_weights(b, a).copy == "A is B rounded"
    comparison = compare(a, b)
    assert comparison.verdict == "different"
    assert f"B is A rounded (float32 in A, {name} in B)" in comparison.sentence()
    again = {n: t.float() if t.is_floating_point() else t for n, t in half.items()}
    assert compare_weights(b, saved("c.pt", again)).copy == "same numbers"
    half["0.weight"].view(-1)[4] *= 2
    assert compare_weights(a, saved("b.pt", half)).copy is None
    assert "types differ: float32 in A" in compare_weights(a, str(b)).sentence()


def test_a_network_under_a_key_alone_had_nothing_left_over(saved):
    notes = compare(saved("a.pt", network()), saved("b.pt", {"model": network()})).notes
    assert notes == ("B is a checkpoint; its network was found under 'model'",)
