"""Speed of the substitutes beside the original: medians, printed as a table for the docs.

Variants alternate within every round, so that a busy machine slows all of them alike.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from segment_anything.modeling import image_encoder

from cellrepro.determinism.substitutes import applied

CALLS = [  # rows stored, positions along an axis, width of a head
    ("CPSAM, 20 of 24 blocks", 27, 32, 64),
    ("CPSAM, 4 of 24 blocks", 127, 32, 64),
    ("`tiny`, first block", 27, 16, 192),
    ("`tiny`, last block", 127, 16, 192),
]
BOTH, GATHER, INTERPOLATION = (), ("upsample_linear1d_backward",), ("index_put",)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or mps")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    print(f"torch {torch.__version__}, {device}, {arguments.threads} threads, medians of", end=" ")
    print(f"{arguments.rounds} rounds, forward and backward, times the original's in brackets\n")
    print("| call | original | gather | interpolation | both |")
    print("|---|---:|---:|---:|---:|")
    for what, n_rows, k, width in CALLS:
        call = rel_pos_call(n_rows, k, width, device)
        medians = compare(call, rounds=arguments.rounds, inner=20, unit=1e3)
        print_row(f"{what}: {n_rows} rows to {2 * k - 1}, {width} wide, ms", medians)
    step = training_step(device)
    medians = compare(step, rounds=max(3, arguments.rounds // 3), inner=1, unit=1)
    print_row("a training step of `tiny`, 2 images of 256², s", medians)


def print_row(what: str, medians: list[float]) -> None:
    first = medians[0]
    cells = [f"{first:.3f}", *(f"{value:.3f} ({value / first:.2f})" for value in medians[1:])]
    print(f"| {what} | {' | '.join(cells)} |", flush=True)


def rel_pos_call(n_rows: int, k: int, width: int, device: torch.device) -> Callable[[], None]:
    generator = torch.Generator().manual_seed(0)
    rel = torch.randn(n_rows, width, generator=generator).to(device).requires_grad_()
    upstream = torch.randn(k, k, width, generator=generator).to(device)

    def call() -> None:
        rel.grad = None
        image_encoder.get_rel_pos(k, k, rel).backward(upstream)

    return call


def training_step(device: torch.device) -> Callable[[], None]:
    from cellrepro.model.network import ModelSource, build

    network = build(ModelSource("tiny", "tiny"), seed=0, device=device, dtype="float32")
    network.train()
    optimiser = torch.optim.AdamW(network.parameters(), lr=1e-4)
    images = torch.randn(2, 3, 256, 256, generator=torch.Generator().manual_seed(0)).to(device)

    def step() -> None:
        optimiser.zero_grad()
        network(images)[0].square().mean().backward()
        optimiser.step()

    return step


def compare(call: Callable[[], None], *, rounds: int, inner: int, unit: float) -> list[float]:
    """Median time of one call: original, gather, interpolation, both."""
    everything = GATHER + INTERPOLATION
    times: list[list[float]] = [[], [], [], []]
    for round_ in range(rounds + 1):
        for kept, without in zip(times, (everything, GATHER, INTERPOLATION, BOTH), strict=True):
            with applied(without=without):
                call()
                synchronise()
                started = time.perf_counter()
                for _ in range(inner):
                    call()
                synchronise()
                if round_:  # the first one warms up
                    kept.append((time.perf_counter() - started) / inner * unit)
    return [statistics.median(kept) for kept in times]


def synchronise() -> None:
    if torch.accelerator.is_available():
        torch.accelerator.synchronize()


if __name__ == "__main__":
    main()
