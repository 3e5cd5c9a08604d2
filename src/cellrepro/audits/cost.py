"""The price of determinism: time and memory of a step in each mode, beside plain Cellpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from cellrepro.asked import defaults
from cellrepro.determinism import profiles
from cellrepro.errors import BadInput, whole
from cellrepro.model.step_timing import CUDA_ONLY, VARIANTS, check_variants
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup

_MOST_IMAGES = 4  # flows take longer than the steps that are timed


@dataclass(frozen=True)
class CostRow:
    """One way of training; ratios are to ``plain``, of the medians of each round."""

    name: str
    what: str  # the name in words, as in `cellrepro.model.step_timing.VARIANTS`
    seconds: float  # of one step, median over all rounds
    ratio: float  # median of the rounds
    lowest: float
    highest: float
    peak_memory: float = 0  # bytes held at a time, median over all rounds; 0 where unknown


@dataclass(frozen=True)
class Cost:
    """What determinism costs here."""

    encoder: str
    device: str
    threads: int  # of PyTorch on the CPU
    steps: int  # timed in a round
    rounds: int
    rows: tuple[CostRow, ...]  # ``plain`` first


def summarise(
    rounds: Sequence[Mapping[str, Sequence[float]]], peaks: Mapping[str, Sequence[int]]
) -> tuple[CostRow, ...]:
    """Rows of a table, from the seconds of the same steps by variant, ``plain`` among them."""
    rows = []
    for name in sorted(rounds[0], key="plain".__ne__):
        seconds = median(s for timed in rounds for s in timed[name])
        ratios = [median(timed[name]) / median(timed["plain"]) for timed in rounds]
        found = seconds, median(ratios), min(ratios), max(ratios), median(peaks[name])
        rows.append(CostRow(name, VARIANTS[name].in_words, *found))
    return tuple(rows)


def measure_cost(
    data: str | Path | None = None,
    *,
    encoder: str = "tiny",
    profile: str | Path = defaults.PROFILE,
    steps: int = 8,
    rounds: int = 5,
    variants: Sequence[str] | None = None,
    quiet: bool = False,
) -> Cost:
    """Time the same training steps in every mode and in plain Cellpose, in turns; and their memory.

    Every run starts from the same weights and draws the same batches; of each run the first step
    is not timed, and neither are images, flows and saving.

    Parameters
    ----------
    data : str or Path, optional
        Folder of images with masks, of which the first four are used; by default synthetic ones.
    encoder : str
        ``tiny``, ``vit-b`` or ``vit-l``, see `cellrepro.model.network.ENCODERS`.
    profile, quiet
        As for `cellrepro.train`. TF32 stays as Cellpose leaves it.
    steps, rounds : int
        Timed steps of each run, and how often every variant is run.
    variants : sequence of str, optional
        Names in `cellrepro.model.step_timing.VARIANTS`, ``plain`` among them; by default all, but
        ``cudnn`` and ``strict-float32`` on CUDA only.
    """
    from cellrepro.model.encoders import ENCODERS

    settings = profiles.load(profile)
    if variants is None:
        variants = [n for n in VARIANTS if settings.device == "cuda" or n not in CUDA_ONLY]
    check_variants(variants)
    if encoder not in ENCODERS:
        raise BadInput(f"encoder is {encoder!r}; expected one of {', '.join(ENCODERS)}")
    task = partial(
        timed,
        data=None if data is None else Path(data).resolve(),
        encoder=encoder,
        rounds=whole("rounds", rounds, 1),
        steps=whole("steps", steps, 1),
        variants=list(variants),
    )
    return in_child(
        task, Setup(settings, "strict"), label=f"cost, {encoder}", steps=rounds + 2, quiet=quiet
    )


def timed(child: Child, *, data: Path | None, encoder: str, rounds: int, **options: Any) -> Cost:
    """Inside the child: build the network and time every round."""
    import torch

    from cellrepro.images.folder import read_folder
    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.network import seeded_network
    from cellrepro.model.prepared_images import trainable
    from cellrepro.model.step_timing import SideBySide

    device = child.enter()
    child.phase("network, images and flows")
    network = seeded_network(encoder, seed=child.setup.seed, device=device)
    given = labelled_nuclei(_MOST_IMAGES) if data is None else read_folder(data).train
    bench = SideBySide(network, list(filter(trainable, given))[:_MOST_IMAGES], **options)
    times = []
    for index in range(rounds):
        times.append(bench.round())
        child.phase(f"round {index + 1} of {rounds}")
    threads, steps = torch.get_num_threads(), options["steps"]
    return Cost(encoder, str(device), threads, steps, rounds, summarise(times, bench.peaks))
