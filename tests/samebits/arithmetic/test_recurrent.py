"""Recurrent layers: near PyTorch's own in float64, in every form, equal on any threads."""

import pytest
import torch
from torch import nn

import samebits
from samebits.arithmetic.kernels import recurrent
from samebits.arithmetic.portable_mode import PortableArithmetic

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

LAYERS = {
    "lstm": (nn.LSTM, {}),
    "gru": (nn.GRU, {}),
    "rnn": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "deep lstm": (nn.LSTM, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "deep gru": (nn.GRU, {"num_layers": 2, "bidirectional": True, "batch_first": True}),
    "deep rnn": (nn.RNN, {"num_layers": 2, "bidirectional": True}),
    "without biases": (nn.GRU, {"bias": False, "num_layers": 2}),
}
LENGTHS = torch.tensor([7, 5, 5, 2])


def given(layer):
    """Sequences of 5 numbers, the states before them, and weights for the loss."""
    generator = torch.Generator().manual_seed(0)
    first = (4, 7) if layer.batch_first else (7, 4)
    n_states = layer.num_layers * (2 if layer.bidirectional else 1)
    shapes = [(*first, 5), (n_states, 4, 8), (n_states, 4, 8)]
    return [torch.randn(shape, generator=generator) for shape in shapes]


def computed(layer, form, numbers):
    """Outputs, last states, and the gradients of everything."""
    layer.zero_grad()
    dtype = layer.weight_ih_l0.dtype
    x, *states = (each.clone().to(dtype).requires_grad_() for each in numbers)
    states = states if isinstance(layer, nn.LSTM) else states[:1]
    state = tuple(states) if len(states) > 1 else states[0]
    if form == "unbatched":
        output, last = layer(x[0] if layer.batch_first else x[:, 0])
    elif form == "packed":
        packed = nn.utils.rnn.pack_padded_sequence(x, LENGTHS, batch_first=layer.batch_first)
        result, last = layer(packed, state)
        output, _ = nn.utils.rnn.pad_packed_sequence(result)
    else:
        output, last = layer(x, state)
    last = last if isinstance(last, tuple) else (last,)
    loss = output.square().sum()
    for each in last:
        loss = loss + each.sum()
    loss.backward()
    gradients = [x.grad, *(weight.grad.clone() for weight in layer.parameters())]
    if form != "unbatched":
        gradients += [each.grad for each in states]
    return [output.detach(), *(each.detach() for each in last), *gradients]


@pytest.mark.parametrize("form", ["sequences", "packed", "unbatched"])
@pytest.mark.parametrize("name", LAYERS)
def test_outputs_and_gradients_are_near_those_in_float64(name, form):
    kind, settings = LAYERS[name]
    torch.manual_seed(0)
    layer = kind(5, 8, **settings)
    numbers = given(layer)
    with PortableArithmetic():
        actual = computed(layer, form, numbers)
    expected = computed(layer.double(), form, numbers)
    for portable, exact in zip(actual, expected, strict=True):
        assert portable.shape == exact.shape
        assert portable.dtype == torch.float32
        assert (portable - exact).abs().max() <= 4e-6 * exact.abs().max()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_numbers_are_those_of_pytorchs_operations(monkeypatch, kind):
    """Of which the layer is made where it is no single operation."""
    torch.manual_seed(0)
    layer = kind(5, 8, num_layers=2, bidirectional=True)
    numbers = given(layer)
    with PortableArithmetic():
        (actual, *_) = computed(layer, "packed", numbers)
    monkeypatch.setattr(recurrent, "_is_usual", lambda tensors, states: False)
    with PortableArithmetic():
        (expected, *_) = computed(layer, "packed", numbers)
    assert torch.equal(actual, expected)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_layer_gives_equal_bits_on_two_threads_and_draws_dropout_portably(kind):
    torch.manual_seed(0)
    layer = kind(5, 8, num_layers=3, dropout=0.5)
    numbers = given(layer)

    def bits():
        torch.manual_seed(1)
        with PortableArithmetic():
            return computed(layer, "sequences", numbers)

    expected = bits()
    torch.set_num_threads(2)
    assert all(torch.equal(a, b) for a, b in zip(bits(), expected, strict=True))
    torch.set_num_threads(1)
    layer.eval()
    assert not torch.equal(bits()[0], expected[0])


def test_a_layer_with_projections_is_made_of_operations():
    torch.manual_seed(0)
    layer = nn.LSTM(5, 8, proj_size=3)
    x = torch.ones(2, 4, 5)
    with PortableArithmetic():
        actual, _ = layer(x)
    expected, _ = layer.double()(x.double())
    assert torch.allclose(actual, expected.float(), atol=1e-6)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_layer_is_differentiated_twice_and_for_each_sample(kind):
    """A penalty of gradients; and ``vmap``, where oneDNN's layer is switched off."""
    torch.manual_seed(0)
    layer = kind(3, 4, num_layers=2)
    x = torch.randn(5, 2, 3, dtype=torch.float64, requires_grad=True)

    def penalty():
        weights = {name: weight.to(x.dtype) for name, weight in layer.named_parameters()}
        output, _ = torch.func.functional_call(layer, weights, (x,))
        (slope,) = torch.autograd.grad(output.square().sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), [*layer.parameters()])

    def of_each_sample():
        weights = {name: weight.detach() for name, weight in layer.named_parameters()}

        def loss(weights, sample):
            return torch.func.functional_call(layer, weights, (sample,))[0].square().sum()

        return torch.func.vmap(torch.func.grad(loss), (None, 1))(weights, x.detach().float())

    expected = penalty()
    with PortableArithmetic():
        actual = penalty()
        gradients = of_each_sample()
        layer(x.detach().float()[:, 1])[0].square().sum().backward()
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-6)
    for name, weight in layer.named_parameters():
        torch.testing.assert_close(gradients[name][1], weight.grad, rtol=1e-5, atol=1e-6)


def test_choices_of_libraries_are_given_back(monkeypatch):
    """Also where opt_einsum is installed, which would change the order of products."""

    class Reversing:
        @staticmethod
        def contract_path(equation, *operands, optimize):
            return ([(1, 2), (0, 1)], "")

    backend = torch.backends.opt_einsum
    monkeypatch.setattr(backend, "enabled", True)
    monkeypatch.setattr(backend, "is_available", lambda: True, raising=False)
    monkeypatch.setattr(backend, "get_opt_einsum", lambda: Reversing, raising=False)
    before = torch._VF.lstm, torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()
    a, b, c = torch.randn(3, 30, 30, generator=torch.Generator().manual_seed(0))
    with samebits.portable():
        in_order = (a @ b) @ c
        other_order = a @ (b @ c)
        product = torch.einsum("ij,jk,kl->il", a, b, c)
    assert torch.equal(product, in_order)
    assert not torch.equal(product, other_order)
    assert backend.enabled
    assert (torch._VF.lstm, torch._C._get_mkldnn_enabled(), torch._C._get_cudnn_enabled()) == before
