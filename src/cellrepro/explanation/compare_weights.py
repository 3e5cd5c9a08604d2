"""Two files of tensors compared: their networks, and what else two checkpoints hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.comparison.state_comparison import StateComparison, compare_states
from cellrepro.comparison.verdicts import Verdict, combine
from cellrepro.comparison.weight_comparison import WeightsComparison, compare_networks
from cellrepro.comparison.weight_files import compare_files
from cellrepro.comparison.weight_reading import open_file
from cellrepro.explanation.two_results import Comparison, Differs
from samebits.errors import BadInput
from samebits.words import amount, grouped, joined, verb_of

if TYPE_CHECKING:
    from cellrepro.comparison.file_content import FileContent


def compare_weights_files(a: Path, b: Path) -> Comparison:
    """Compare two files of tensors: their networks, and what else two checkpoints hold."""
    content_a = open_file(a)
    content_b = open_file(b)
    with_networks = bool(content_a.network) and bool(content_b.network)
    state = None
    if content_a.has_more and content_b.has_more:
        state = compare_states(content_a, content_b)
    elif not with_networks:
        why = content_a.why_no_network or content_b.why_no_network
        raise BadInput(f"{a} and {b} hold nothing that both have: {why or 'no tensor'}")
    weights = compare_networks(content_a.network, content_b.network) if with_networks else None
    files = compare_files(
        a,
        b,
        same_parameters=weights is None or weights.equal,
        are_checkpoints=content_a.has_more or content_b.has_more,
    )
    return Comparison(
        verdict=_verdict_on_files(weights, state),
        differs=tuple(_differing_parts(content_a, content_b, weights, state)),
        weights=None if weights is None else replace(weights, files=files),
        files=files,
        state=state,
        notes=(*not_finite_notes(weights), *_checkpoint_notes(content_a, content_b)),
    )


def _verdict_on_files(weights: WeightsComparison | None, state: StateComparison | None) -> Verdict:
    """The verdict over the networks, and over what checkpoints hold beside them."""
    if state is not None and state.differing:
        return Verdict.DIFFERENT
    if weights is not None:
        return weights.verdict
    tensors = () if state is None else state.tensors.values()
    return combine(each.verdict for each in tensors)


def _differing_parts(
    a: FileContent,
    b: FileContent,
    weights: WeightsComparison | None,
    state: StateComparison | None,
) -> Iterator[Differs]:
    """The parts in which two files differ, in the order of a training step."""
    one_has_a_network = bool(a.network) != bool(b.network)
    if one_has_a_network or (weights is not None and not weights.equal):
        yield "weights"
    if state is not None:
        yield from state.differing


def not_finite_notes(weights: WeightsComparison | None) -> Iterator[str]:
    """Say how many weights are NaN or infinite, as after a training that has diverged."""
    if weights is None or not weights.n_not_finite:
        return
    vacuous = "vacuous: " if weights.verdict == Verdict.VACUOUS else ""
    are = verb_of(weights.n_not_finite, "is", "are")
    yield (
        f"{vacuous}{grouped(weights.n_not_finite)} of "
        f"{amount(weights.n_parameters, 'parameter')} {are} NaN or infinite in A or B, and what "
        "is computed with them is no result; train with a lower learning rate"
    )


def _checkpoint_notes(a: FileContent, b: FileContent) -> Iterator[str]:
    """Say where networks were found, and what of a checkpoint had nothing to be compared with."""
    if a.under and a.under == b.under:
        yield f"A and B are checkpoints; their networks were found under {a.under!r}"
        return
    for side, content, other in (("A", a, b), ("B", b, a)):
        if content.why_no_network:
            yield f"{side} has no network: {content.why_no_network}"
        if not content.under:
            continue
        note = f"{side} is a checkpoint; its network was found under {content.under!r}"
        if not other.has_more and content.parts:
            note += f"; the other file is a network alone, and {joined(content.parts)} of this one "
            note += "had nothing to be compared with"
        yield note
