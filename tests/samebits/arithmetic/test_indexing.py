"""Sums at places that repeat: exact in any order, and PyTorch's within roundings."""

from fractions import Fraction

import pytest
import torch

from samebits.arithmetic.kernels.indexing import added_at
from samebits.arithmetic.portable_mode import PortableArithmetic


def drawn(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2.0 - 0.9


def test_order_does_not_matter_and_every_place_keeps_its_precision():
    """One place has numbers of 1e20, another of 1e-20: both are right to the last bit but one."""
    values = drawn(3000)
    places = torch.arange(3000) % 3
    values = values * torch.tensor([1.0, 1e20, 1e-20])[places]
    target = torch.zeros(3)
    shuffled = torch.randperm(3000, generator=torch.Generator().manual_seed(1))

    sums = added_at(target, places, values)

    assert sums.equal(added_at(target, places[shuffled], values[shuffled]))
    for place in range(3):
        own = values[places == place].tolist()
        exact = sum(map(Fraction, own))
        assert abs(Fraction(sums[place].item()) - exact) <= abs(exact) * Fraction(2) ** -24


def test_infinities_and_nan_stay_where_they_belong():
    """Also where they meet; a place without them is not touched."""
    inf = float("inf")
    values = torch.tensor([inf, 1.0, inf, -inf, float("nan"), 2.0])
    sums = added_at(torch.zeros(4), torch.tensor([0, 0, 1, 1, 2, 3]), values)
    assert sums[0] == inf
    assert sums[1].isnan()
    assert sums[2].isnan()
    assert sums[3] == 2.0


_ROWS = torch.tensor([[2, 0, 2], [1, 2, 2]])


def _masked(a):
    index = torch.tensor([True, False, True, True])
    return a.index_put((index,), drawn(5), accumulate=True)


_CALLS = {
    "index_put": lambda a: a.index_put((_ROWS,), drawn(2, 3, 5), accumulate=True),
    "index_put of columns": lambda a: torch.ops.aten.index_put(
        a, [None, _ROWS], drawn(4, 2, 3), True
    ),
    "index_put by a mask": _masked,
    "index_add": lambda a: a.index_add(1, torch.tensor([3, 3, 0]), drawn(4, 3), alpha=0.5),
    "scatter_add": lambda a: a.scatter_add(0, _ROWS, drawn(3, 5)),
    "scatter_add of more than there is": lambda a: a.scatter_add(
        -2, torch.arange(30).view(6, 5) % 4, drawn(6, 5)
    ),
    "scatter_add of columns": lambda a: a.scatter_add(1, _ROWS, drawn(3, 5)),
}


@pytest.mark.parametrize("name", list(_CALLS))
def test_operations_are_pytorchs_within_roundings(name):
    """Forward."""
    a = drawn(4, 5, seed=2)
    expected = _CALLS[name](a)
    with PortableArithmetic():
        actual = _CALLS[name](a)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


def test_an_index_beyond_the_axis_is_pytorchs_error():
    """Counted through the whole tensor, it is a place of another row."""
    with PortableArithmetic(), pytest.raises(RuntimeError, match="index 3 is out of bounds"):
        torch.zeros(3, 2).scatter_add(1, torch.tensor([[3], [0], [0]]), torch.ones(3, 1))


@pytest.mark.parametrize(
    "of_table",
    [
        lambda table: torch.nn.functional.embedding(_ROWS, table, padding_idx=1),
        lambda table: table[_ROWS],
        lambda table: table.gather(0, _ROWS),
        lambda table: table.index_select(0, _ROWS[0]),
    ],
    ids=["embedding", "index", "gather", "index_select"],
)
def test_gradients_of_chosen_rows_are_pytorchs_within_roundings(of_table):
    """Backward."""
    gradients = []
    for is_portable in (False, True):
        table = drawn(4, 5).requires_grad_()
        if is_portable:
            with PortableArithmetic():
                (of_table(table) * drawn(*of_table(table).shape)).sum().backward()
        else:
            (of_table(table) * drawn(*of_table(table).shape)).sum().backward()
        gradients.append(table.grad)
    torch.testing.assert_close(*gradients, rtol=1e-6, atol=1e-6)
