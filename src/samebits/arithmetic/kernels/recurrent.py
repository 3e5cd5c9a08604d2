"""Recurrent layers (LSTM, GRU, RNN), each direction of a layer as one operation with a gradient.

PyTorch makes them of some 20 operations for each step in time, on GPUs of other ones than on
processors. Here the products of all inputs are one product, those of the hidden state one for each
step, and the gradients of the weights again one over all steps, on every device. The numbers of
the forward pass are those that PyTorch's own operations have on a processor, in portable form.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn import functional

from samebits.arithmetic.kernels.elementary import FORMS as FUNCTIONS
from samebits.arithmetic.kernels.products import multiplied, multiplier
from samebits.arithmetic.kernels.sums import pairwise_sum
from samebits.replaced_functions import Replacement
from samebits.torch_internals import modes_suspended

_Layer = Callable[..., tuple[torch.Tensor, ...]]
_TYPES = (torch.float32, torch.float64)
_NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Functions of ``torch._VF`` that the modules of ``torch.nn`` call (torch 2.6 to 2.15)."""


class Step(NamedTuple):
    """One step in time: the rows of the sequences that are at work, the longest first."""

    begin: int
    """Its first row among those of all steps."""
    n_rows: int

    @property
    def rows(self) -> slice:
        """Its rows among those of all steps."""
        return slice(self.begin, self.begin + self.n_rows)


class Weights(NamedTuple):
    """Of one direction of a layer; the biases may be missing."""

    of_input: torch.Tensor
    of_hidden: torch.Tensor
    input_bias: torch.Tensor | None = None
    hidden_bias: torch.Tensor | None = None


# -- cells -------------------------------------------------------------------------------------


class _Kept(NamedTuple):
    """What the gradients need of all steps, shape (rows of all steps, gates, hidden) or without
    gates: how fast the sums of the gates, and the state before, move what comes out."""

    of_input: torch.Tensor
    of_hidden: torch.Tensor
    of_state: torch.Tensor | None
    of_cell: torch.Tensor | None = None
    """Of LSTM, how fast the cell moves what comes out; `of_input` is that of the cell then, but for
    the last gate, and `of_state` is that of the cell before."""


def _sigmoid(numbers: torch.Tensor) -> torch.Tensor:
    return FUNCTIONS["sigmoid"](numbers)


def _tanh(numbers: torch.Tensor) -> torch.Tensor:
    return FUNCTIONS["tanh"](numbers)


def _slope_of_sigmoid(value: torch.Tensor) -> torch.Tensor:
    return (1.0 - value) * value


def _slope_of_tanh(value: torch.Tensor) -> torch.Tensor:
    return 1.0 - value * value


@dataclass
class _Lstm:
    """Gates: input, forget, cell, output."""

    cell: torch.Tensor

    def __post_init__(self) -> None:
        self._gates: list[torch.Tensor] = []
        self._before: list[torch.Tensor] = []
        self._tanh: list[torch.Tensor] = []

    def step(
        self, from_input: torch.Tensor, from_hidden: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        sums = from_hidden.add_(from_input)
        length = hidden.shape[1]
        gates = _sigmoid(sums)
        gates[:, 2 * length : 3 * length] = _tanh(sums[:, 2 * length : 3 * length].contiguous())
        opened, kept, new, shown = gates.chunk(4, 1)
        before = self.cell[: len(sums)].clone()
        cell = (kept * before).add_(opened * new)
        self.cell[: len(sums)] = cell
        tanh = _tanh(cell)
        self._gates.append(gates)
        self._before.append(before)
        self._tanh.append(tanh)
        return shown * tanh

    def kept(self, order: Callable[[list[torch.Tensor]], torch.Tensor]) -> _Kept:
        gates = order(self._gates)
        tanh = order(self._tanh)
        opened, kept, new, shown = gates.chunk(4, 1)
        factors = (
            new * _slope_of_sigmoid(opened),
            order(self._before) * _slope_of_sigmoid(kept),
            opened * _slope_of_tanh(new),
            tanh * _slope_of_sigmoid(shown),
        )
        of_gates = torch.stack(factors, 1)
        return _Kept(of_gates, of_gates, kept.contiguous(), shown * _slope_of_tanh(tanh))


class _Gru:
    """Gates: reset, update, new."""

    def __init__(self) -> None:
        self._gates: list[torch.Tensor] = []
        self._before: list[torch.Tensor] = []
        self._from_hidden: list[torch.Tensor] = []

    def step(
        self, from_input: torch.Tensor, from_hidden: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        length = hidden.shape[1]
        first = slice(2 * length)
        last = slice(2 * length, None)
        gates = _sigmoid((from_hidden[:, first] + from_input[:, first]).contiguous())
        reset, update = gates.chunk(2, 1)
        new = _tanh((from_hidden[:, last] * reset).add_(from_input[:, last]))
        self._gates.append(torch.cat([gates, new], 1))
        self._before.append(hidden.clone())
        self._from_hidden.append(from_hidden[:, last])
        return (hidden - new).mul_(update).add_(new)

    def kept(self, order: Callable[[list[torch.Tensor]], torch.Tensor]) -> _Kept:
        reset, update, new = order(self._gates).chunk(3, 1)
        of_new = (1.0 - update) * _slope_of_tanh(new)
        of_reset = of_new * order(self._from_hidden) * _slope_of_sigmoid(reset)
        of_update = (order(self._before) - new) * _slope_of_sigmoid(update)
        return _Kept(
            of_input=torch.stack([of_reset, of_update, of_new], 1),
            of_hidden=torch.stack([of_reset, of_update, of_new * reset], 1),
            of_state=update.contiguous(),
        )


@dataclass
class _Rnn:
    """One gate, which is the hidden state."""

    is_relu: bool

    def __post_init__(self) -> None:
        self._hidden: list[torch.Tensor] = []

    def step(
        self, from_input: torch.Tensor, from_hidden: torch.Tensor, hidden: torch.Tensor
    ) -> torch.Tensor:
        del hidden
        sums = from_hidden.add_(from_input)
        new = sums.relu_() if self.is_relu else _tanh(sums)
        self._hidden.append(new)
        return new

    def kept(self, order: Callable[[list[torch.Tensor]], torch.Tensor]) -> _Kept:
        hidden = order(self._hidden)
        slope = (hidden > 0).to(hidden.dtype) if self.is_relu else _slope_of_tanh(hidden)
        of_gates = slope[:, None]
        return _Kept(of_gates, of_gates, None)


# -- one direction of a layer ------------------------------------------------------------------


class _Direction(torch.autograd.Function):
    """What comes out, row by row, and the last states."""

    @staticmethod
    def forward(
        ctx: Any,
        name: str,
        steps: tuple[Step, ...],
        inputs: torch.Tensor,
        hidden: torch.Tensor,
        cell: torch.Tensor | None,
        *weights: torch.Tensor,
    ) -> tuple[torch.Tensor, ...]:
        with modes_suspended():
            of = Weights(*(weight.detach() for weight in weights))
            rows = inputs.detach()
            state = hidden.detach().clone()
            if name == "lstm":
                assert cell is not None
                unit: _Lstm | _Gru | _Rnn = _Lstm(cell.detach().clone())
            else:
                unit = _Gru() if name == "gru" else _Rnn(name == "rnn_relu")
            from_input = multiplied(rows, of.of_input.T, added=of.input_bias)
            by_weights = multiplier(of.of_hidden.T)
            output = rows.new_empty(len(rows), state.shape[1])
            before = torch.empty_like(output)
            for step in steps:
                own = state[: step.n_rows]
                before[step.rows] = own
                from_hidden = by_weights(own, of.hidden_bias)
                new = unit.step(from_input[step.rows], from_hidden, own)
                output[step.rows] = new
                state[: step.n_rows] = new
            in_order = sorted(range(len(steps)), key=lambda index: steps[index].begin)

            def order(parts: list[torch.Tensor]) -> torch.Tensor:
                return torch.cat([parts[index] for index in in_order])

            ctx.kind = name
            ctx.steps = steps
            if any(ctx.needs_input_grad):
                ctx.kept = unit.kept(order)
                ctx.save_for_backward(before, inputs, hidden, cell, *weights)
            if isinstance(unit, _Lstm):
                return output, state, unit.cell
            return output, state

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        before, *inputs = ctx.saved_tensors
        if torch.is_grad_enabled():  # they will be differentiated again
            return None, None, *_gradients_by_operations(ctx.kind, ctx.steps, inputs, gradients)
        with modes_suspended():
            before = before.detach()
            rows = inputs[0].detach()
            weights = [weight.detach() for weight in inputs[3:]]
            of = Weights(*weights)
            kept: _Kept = ctx.kept
            of_output = gradients[0].detach()
            of_state = gradients[1].detach().clone()
            of_cell = gradients[2].detach().clone() if len(gradients) > 2 else None
            by_weights = multiplier(of.of_hidden)
            of_sums = torch.empty_like(kept.of_hidden)  # (rows, gates, hidden)
            of_hidden = torch.empty_like(before)
            for step in reversed(ctx.steps):
                own = slice(step.n_rows)
                change = of_state[own] + of_output[step.rows]
                of_hidden[step.rows] = change
                factors = kept.of_hidden[step.rows]
                sums = change[:, None] * factors
                if of_cell is not None and kept.of_cell is not None and kept.of_state is not None:
                    of_this = of_cell[own] + change * kept.of_cell[step.rows]
                    sums[:, :-1] = of_this[:, None] * factors[:, :-1]
                    of_cell[own] = of_this * kept.of_state[step.rows]
                of_sums[step.rows] = sums
                earlier = by_weights(sums.flatten(1))
                if of_cell is None and kept.of_state is not None:
                    earlier += change * kept.of_state[step.rows]
                of_state[own] = earlier
            of_input_sums = of_sums
            if ctx.kind == "gru":
                of_input_sums = of_hidden[:, None] * kept.of_input
            to_hidden = of_sums.flatten(1)
            to_input = of_input_sums.flatten(1)
            of_weights = [multiplied(to_input.T, rows), multiplied(to_hidden.T, before)]
            if len(weights) > 2:
                of_weights += [pairwise_sum(to_input, [0]), pairwise_sum(to_hidden, [0])]
            of_rows = multiplied(to_input, of.of_input) if ctx.needs_input_grad[2] else None
        return None, None, of_rows, of_state, of_cell, *of_weights


def _by_operations(
    name: str,
    steps: tuple[Step, ...],
    rows: torch.Tensor,
    hidden: torch.Tensor,
    cell: torch.Tensor | None,
    *weights: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """The same by operations of PyTorch, with gradients of any order."""
    of = Weights(*weights)
    from_inputs = functional.linear(rows, of.of_input, of.input_bias)
    outputs: dict[int, torch.Tensor] = {}
    for step in steps:
        own = hidden[: step.n_rows]
        from_input = from_inputs[step.rows]
        from_hidden = functional.linear(own, of.of_hidden, of.hidden_bias)
        if cell is not None:
            opened, kept, new, shown = (from_hidden + from_input).chunk(4, 1)
            state = kept.sigmoid() * cell[: step.n_rows] + opened.sigmoid() * new.tanh()
            cell = torch.cat([state, cell[step.n_rows :]])
            output = shown.sigmoid() * state.tanh()
        elif name == "gru":
            (reset, update, new), others = from_hidden.chunk(3, 1), from_input.chunk(3, 1)
            new = (new * (reset + others[0]).sigmoid() + others[2]).tanh()
            output = (own - new) * (update + others[1]).sigmoid() + new
        else:
            sums = from_hidden + from_input
            output = sums.relu() if name == "rnn_relu" else sums.tanh()
        outputs[step.begin] = output
        hidden = torch.cat([output, hidden[step.n_rows :]])
    in_order = torch.cat([outputs[begin] for begin in sorted(outputs)])
    return (in_order, hidden) if cell is None else (in_order, hidden, cell)


def _gradients_by_operations(
    name: str,
    steps: tuple[Step, ...],
    inputs: Sequence[torch.Tensor | None],
    gradients: Sequence[torch.Tensor],
) -> list[torch.Tensor | None]:
    asked = [each for each in inputs if each is not None and each.requires_grad]
    outputs = _by_operations(name, steps, *inputs)  # type: ignore[arg-type]
    found = iter(
        torch.autograd.grad(outputs, asked, gradients, create_graph=True, allow_unused=True)
    )
    return [next(found) if each is not None and each.requires_grad else None for each in inputs]


# -- layers ------------------------------------------------------------------------------------


def _layers(
    name: str,
    rows: torch.Tensor,
    steps: Sequence[Step],
    states: Sequence[torch.Tensor],
    weights: Sequence[torch.Tensor],
    *,
    with_biases: bool,
    n_layers: int,
    dropout: float,
    is_bidirectional: bool,
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Carry out all layers; states are (layers * directions, B, hidden)."""
    n_weights = 4 if with_biases else 2
    orders = (tuple(steps), tuple(reversed(steps)))[: 2 if is_bidirectional else 1]
    last: list[tuple[torch.Tensor, ...]] = []
    in_transform = torch._C._functorch.peek_interpreter_stack() is not None  # of torch.func
    direction = _by_operations if in_transform else _Direction.apply
    for layer in range(n_layers):
        if layer and dropout:
            rows = functional.dropout(rows, dropout)
        outputs = []
        for order in orders:
            place = len(last)
            own = weights[place * n_weights : (place + 1) * n_weights]
            cell = states[1][place] if len(states) > 1 else None
            output, *after = direction(name, order, rows, states[0][place], cell, *own)
            outputs.append(output)
            last.append(tuple(after))
        rows = torch.cat(outputs, 1) if len(outputs) > 1 else outputs[0]
    return rows, [torch.stack(each) for each in zip(*last, strict=True)]


@functools.cache
def _replacement(name: str, original: _Layer) -> _Layer:
    """A function of ``torch._VF``: its arguments are those of sequences, or of packed ones.

    TorchScript, which knows PyTorch's functions by their address, compiles it as the original.
    """

    @functools.wraps(original)
    def layer(*arguments: Any) -> tuple[torch.Tensor, ...]:
        is_packed = len(arguments) == 9 and isinstance(arguments[3], list | tuple)
        data, *others = arguments
        batch_sizes = others.pop(0) if is_packed else None
        hx, weights, with_biases, n_layers, dropout, is_training, is_bidirectional, *rest = others
        states = list(hx) if isinstance(hx, list | tuple) else [hx]
        if not _is_usual([data, *states, *weights], states) or data.numel() == 0:
            return original(*arguments)
        options = {
            "with_biases": with_biases,
            "n_layers": n_layers,
            "dropout": dropout if is_training else 0.0,
            "is_bidirectional": is_bidirectional,
        }
        if batch_sizes is not None:
            sizes = batch_sizes.tolist()
            begins = [sum(sizes[:place]) for place in range(len(sizes))]
            steps = [Step(begin, size) for begin, size in zip(begins, sizes, strict=True)]
            output, last = _layers(name, data, steps, states, weights, **options)
            return (output, *last)
        by_time = data.transpose(0, 1) if rest[0] else data
        length, n_sequences = by_time.shape[:2]
        steps = [Step(place * n_sequences, n_sequences) for place in range(length)]
        rows, last = _layers(name, by_time.flatten(0, 1), steps, states, weights, **options)
        output = rows.reshape(length, n_sequences, -1)
        return (output.transpose(0, 1) if rest[0] else output, *last)

    torch.jit._builtins._register_builtin(layer, f"aten::{name}")
    return layer


def _is_usual(tensors: Sequence[torch.Tensor], states: Sequence[torch.Tensor]) -> bool:
    """Whether a layer is computed here: in float32 or float64, without projections, and in a thread
    that computes in a mode; what is not is made of PyTorch's operations."""
    is_projected = states[0].shape[-1] != states[-1].shape[-1]
    dtype = tensors[0].dtype
    in_one_type = all(tensor.dtype == dtype for tensor in tensors) and dtype in _TYPES
    in_mode = torch._C._len_torch_dispatch_stack() > 0
    return in_one_type and in_mode and not is_projected


def layers_as_one_operation() -> Iterator[Replacement]:
    """The recurrent layers of ``torch.nn``, which become those of this file."""
    for name in _NAMES:
        yield Replacement(torch._VF, name, functools.partial(_replacement, name))
