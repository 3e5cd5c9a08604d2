"""The price of determinism: what a training step takes in each mode, beside plain Cellpose."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cellrepro.determinism import profiles
from cellrepro.determinism.seeding import check_seed
from cellrepro.errors import BadInput, whole
from cellrepro.lab.process import Child, Setup, call
from cellrepro.model.step_timing import VARIANTS, check_variants
from cellrepro.progress import progress

_MOST_IMAGES = 4  # flows take longer than the steps that are timed


@dataclass(frozen=True)
class CostRow:
    """One way of training.

    Attributes
    ----------
    name, what : str
        As in `cellrepro.model.step_timing.VARIANTS`, and that in words.
    seconds : float
        Of one step, median over all rounds.
    ratio : float
        To ``plain``, median of the rounds; each round compares medians of the same steps.
    lowest, highest : float
        Of the rounds' ratios.
    """

    name: str
    what: str
    seconds: float
    ratio: float
    lowest: float
    highest: float


@dataclass(frozen=True)
class Cost:
    """What determinism costs here.

    Attributes
    ----------
    encoder : str
    n_parameters : int
    device : str
    threads : int
        CPU threads of PyTorch.
    batch_size, steps, rounds : int
        Images a step, timed steps a round, rounds.
    rows : tuple of CostRow
        ``plain`` first.
    notes : tuple of str
        What a reader has to know besides.
    """

    encoder: str
    n_parameters: int
    device: str
    threads: int
    batch_size: int
    steps: int
    rounds: int
    rows: tuple[CostRow, ...]
    notes: tuple[str, ...] = ()

    def row(self, name: str) -> CostRow:
        """The row of one variant."""
        measured = {row.name: row for row in self.rows}
        if name not in measured:
            raise BadInput(f"{name!r} was not measured; measured were {', '.join(measured)}")
        return measured[name]

    def sentence(self) -> str:
        """The answer, with its spread and over how much."""
        rest = [row for row in self.rows if row.name != "plain"]
        ratios = ", ".join(
            f"{row.name} {row.ratio:.2f} times ({row.lowest:.2f} to {row.highest:.2f})"
            for row in sorted(rest, key=lambda row: row.name != "strict")
        )
        return (
            f"a step of plain cellpose.train.train_seg takes {self.row('plain').seconds:.3g} s"
            f"{f'; beside it {ratios}' if ratios else ''}: {self.rounds} rounds of {self.steps} "
            f"steps, {self.encoder} on {self.device}, {self.threads} CPU threads"
        )


def summarise(rounds: Sequence[Mapping[str, Sequence[float]]]) -> tuple[CostRow, ...]:
    """Rows of a table, from the seconds of every step.

    Parameters
    ----------
    rounds : sequence of mapping of str to sequence of float
        Seconds of the same steps by variant, ``plain`` among them.

    Examples
    --------
    >>> plain, strict = summarise([{"plain": [1, 2, 9], "strict": [1, 3, 4]}])
    >>> plain.ratio, strict.ratio, strict.seconds
    (1.0, 1.5, 3)
    """
    rows = []
    for name in sorted(rounds[0], key=lambda name: name != "plain"):
        ratios = [
            statistics.median(seconds[name]) / statistics.median(seconds["plain"])
            for seconds in rounds
        ]
        rows.append(
            CostRow(
                name=name,
                what=VARIANTS[name],
                seconds=statistics.median(s for seconds in rounds for s in seconds[name]),
                ratio=statistics.median(ratios),
                lowest=min(ratios),
                highest=max(ratios),
            )
        )
    return tuple(rows)


def default_variants(device: str) -> tuple[str, ...]:
    """The variants that are measured on a kind of device, if nobody says otherwise."""
    return tuple(name for name in VARIANTS if device == "cuda" or name != "strict-float32")


def measure_cost(
    data: str | Path | None = None,
    *,
    encoder: str = "tiny",
    profile: str | Path = "cpu",
    steps: int = 8,
    rounds: int = 5,
    variants: Sequence[str] | None = None,
    batch_size: int = 1,
    seed: int = 0,
    quiet: bool = False,
) -> Cost:
    """Time the same training steps in every mode and in plain Cellpose, in turns.

    Every run starts from the same weights and draws the same batches; of each run the first step
    is not timed, and neither are images, flows and saving.

    Parameters
    ----------
    data : str or Path, optional
        Folder of images with masks, of which the first four that Cellpose trains on are used;
        by default synthetic ones of 256 by 256 pixels.
    encoder : str
        ``tiny``, ``vit-b`` or ``vit-l``, see `cellrepro.model.network.ENCODERS`.
    profile : str or Path
        Its device, threads and variables. TF32 stays as Cellpose leaves it.
    steps, rounds : int
        Timed steps of each run, and how often every variant is run.
    variants : sequence of str, optional
        Names in `cellrepro.model.step_timing.VARIANTS`, ``plain`` among them.
    batch_size, seed : int
        The seed is that of weights, order, augmentation and layer drop.
    quiet : bool
        Show no progress.
    """
    from cellrepro.model.network import ENCODERS

    check_seed(seed)
    for name, number in (("steps", steps), ("rounds", rounds), ("batch_size", batch_size)):
        whole(name, number, 1)
    if encoder not in ENCODERS:
        raise BadInput(f"encoder is {encoder!r}; expected one of {', '.join(ENCODERS)}")
    settings = profiles.load(profile)
    chosen = default_variants(settings.device) if variants is None else variants
    check_variants(chosen)
    if data is not None and not Path(data).is_dir():
        raise BadInput(f"{data} is not a folder; expected images with masks")
    with progress(rounds + 2, f"cost, {encoder}", quiet=quiet) as bar:
        return call(
            "cellrepro.lab.cost_of_determinism:timed",
            Setup(settings, "strict", seed),
            label="cost",
            on_event=lambda event: bar.advance(event["name"]),
            data=None if data is None else Path(data).resolve(),
            encoder=encoder,
            steps=steps,
            rounds=rounds,
            variants=list(chosen),
            batch_size=batch_size,
        )


# -- inside the child ----------------------------------------------------------------------


def timed(child: Child, *, data: Path | None, encoder: str, rounds: int, **options: Any) -> Cost:
    """Build the network and time every round."""
    child.phase("import")
    import torch

    from cellrepro.model.network import seeded_network
    from cellrepro.model.step_timing import SideBySide

    device, seed = child.setup.enter(), child.setup.seed
    child.phase("network, images and flows")
    network = seeded_network(encoder, seed=seed, device=device)
    bench = SideBySide(network, _images(data), seed=seed, **options)
    times = []
    for index in range(rounds):
        times.append(bench.round())
        child.phase(f"round {index + 1} of {rounds}")
    return Cost(
        encoder=encoder,
        n_parameters=sum(parameter.numel() for parameter in network.parameters()),
        device=str(device),
        threads=torch.get_num_threads(),
        batch_size=options["batch_size"],
        steps=options["steps"],
        rounds=rounds,
        rows=summarise(times),
        notes=tuple(bench.notes),
    )


def _images(data: Path | None) -> Sequence[Any]:
    """A few images to train on."""
    import numpy as np

    from cellrepro.images.folder import LabelledImage, read_folder
    from cellrepro.images.synthetic import nuclei
    from cellrepro.model.training import trainable

    if data is not None:
        return [image for image in read_folder(data).train if trainable(image)][:_MOST_IMAGES]
    drawn = [nuclei(seed) for seed in range(_MOST_IMAGES)]
    return [
        LabelledImage(f"synth_{seed}", made.image, made.masks.astype(np.int32), Path(), None)
        for seed, made in enumerate(drawn)
    ]
