"""The price of determinism: what a training step takes in each mode, beside plain Cellpose.

Answers the second half of the fifth question: how do I pin it, and what does that cost.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput
from cellrepro.lab.process import Child, Setup, call

_MOST_IMAGES = 4  # flows take longer than the steps that are timed


@dataclass(frozen=True)
class CostRow:
    """One way of training.

    Attributes
    ----------
    name : str
        As in `cellrepro.model.step_timing.VARIANTS`.
    what : str
        In words.
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
        """The row of one variant.

        Raises
        ------
        BadInput
            If it was not measured.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise BadInput(
            f"{name!r} was not measured; measured were {', '.join(row.name for row in self.rows)}"
        )

    def sentence(self) -> str:
        """The answer, with its spread and over how much."""
        rest = [row for row in self.rows if row.name != "plain"]
        plain = self.row("plain").seconds
        told = ", ".join(
            f"{row.name} {row.ratio:.2f} times ({row.lowest:.2f} to {row.highest:.2f})"
            for row in sorted(rest, key=lambda row: row.name != "strict")
        )
        beside = f"; beside it {told}" if told else ""
        return (
            f"a step of plain cellpose.train.train_seg takes {plain:.3g} s{beside}: {self.rounds} "
            f"rounds of {self.steps} steps, {self.encoder} on {self.device}, "
            f"{self.threads} CPU threads"
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
    from cellrepro.model.step_timing import VARIANTS

    rows = []
    for name in rounds[0]:
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
    return tuple(sorted(rows, key=lambda row: row.name != "plain"))


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

    Runs in a process of its own with the profile's variables. Every run starts from the same
    weights and draws the same batches; of each run the first step is not timed, and neither are
    images, flows and saving.

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
        Names in `cellrepro.model.step_timing.VARIANTS`, ``plain`` among them; by default the first
        five, and the sixth on CUDA.
    batch_size : int
    seed : int
        Of weights, order, augmentation and layer drop.
    quiet : bool
        Show no progress.

    Returns
    -------
    Cost

    Raises
    ------
    BadInput
        If anything given cannot be used.
    NotPossibleHere
        If this machine lacks the device or the memory.
    """
    from cellrepro.determinism import profiles
    from cellrepro.determinism.seeding import check_seed
    from cellrepro.model.network import ENCODERS
    from cellrepro.model.step_timing import check_variants
    from cellrepro.progress import progress

    check_seed(seed)
    for name, number in (("steps", steps), ("rounds", rounds), ("batch_size", batch_size)):
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise BadInput(f"{name} is {number!r}; expected a whole number, 1 or more")
    if encoder not in ENCODERS:
        raise BadInput(f"encoder is {encoder!r}; expected one of {', '.join(ENCODERS)}")
    settings = profiles.load(profile)
    chosen = default_variants(settings.device) if variants is None else variants
    check_variants(chosen)
    if data is not None and not Path(data).is_dir():
        raise BadInput(f"{data} is not a folder; expected images with masks")
    request = {
        "data": None if data is None else str(Path(data).resolve()),
        "encoder": encoder,
        "steps": steps,
        "rounds": rounds,
        "variants": list(chosen),
        "batch_size": batch_size,
        "seed": seed,
    }
    with progress(rounds + 2, f"cost, {encoder}", quiet=quiet) as bar:
        answer = call(
            "cellrepro.lab.cost_of_determinism:timed",
            Setup(settings, "strict", seed),
            label="cost",
            on_event=lambda event: bar.advance(event["name"]),
            request=request,
        )
    rows = tuple(CostRow(**row) for row in answer.pop("rows"))
    return Cost(**{**answer, "rows": rows, "notes": tuple(answer["notes"])})


def default_variants(device: str) -> tuple[str, ...]:
    """The variants that are measured on a kind of device, if nobody says otherwise.

    Examples
    --------
    >>> default_variants("cpu")
    ('plain', 'fast', 'warn', 'strict', 'others')
    """
    from cellrepro.model.step_timing import VARIANTS

    return tuple(name for name in VARIANTS if device == "cuda" or name != "strict-float32")


# -- inside the child ----------------------------------------------------------------------


def timed(child: Child, *, request: dict[str, Any]) -> dict[str, Any]:
    """Build the network and time every round."""
    child.phase("import")
    import torch

    from cellrepro.model.network import seeded_network
    from cellrepro.model.step_timing import SideBySide

    device = child.setup.enter()
    child.phase("network, images and flows")
    network = seeded_network(request["encoder"], seed=request["seed"], device=device)
    bench = SideBySide(
        network,
        _images(request["data"]),
        steps=request["steps"],
        variants=request["variants"],
        seed=request["seed"],
        batch_size=request["batch_size"],
    )
    rounds = []
    for index in range(request["rounds"]):
        rounds.append(bench.round())
        child.phase(f"round {index + 1} of {request['rounds']}")
    return {
        "encoder": request["encoder"],
        "n_parameters": sum(parameter.numel() for parameter in network.parameters()),
        "device": str(device),
        "threads": torch.get_num_threads(),
        "batch_size": request["batch_size"],
        "steps": request["steps"],
        "rounds": request["rounds"],
        "rows": [asdict(row) for row in summarise(rounds)],
        "notes": bench.notes,
    }


def _images(data: str | None) -> Sequence[Any]:
    """A few images to train on."""
    import numpy as np

    from cellrepro.images.folder import LabelledImage, read_folder
    from cellrepro.images.synthetic import nuclei
    from cellrepro.model.training import trainable

    if data is not None:
        return [image for image in read_folder(Path(data)).train if trainable(image)][:_MOST_IMAGES]
    drawn = [nuclei(seed) for seed in range(_MOST_IMAGES)]
    return [
        LabelledImage(f"synth_{seed}", made.image, made.masks.astype(np.int32), Path(), None)
        for seed, made in enumerate(drawn)
    ]
