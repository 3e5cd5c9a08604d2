"""The price of determinism: time and memory of a step in each mode, beside plain Cellpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from cellrepro.median_range import MedianRange
from cellrepro.model.step_timing import CUDA_ONLY, VARIANTS, check_variants
from cellrepro.process.calling import in_child
from cellrepro.process.child import Child
from cellrepro.process.setup import Setup
from cellrepro.profiles import profiles
from cellrepro.spec import defaults
from samebits.errors import BadInput, whole
from samebits.mode_names import MODES
from samebits.results import Result, Row
from samebits.words import amount

if TYPE_CHECKING:
    from cellrepro.images.folder import LabelledImage

FEWEST_ROUNDS = 5
"""From which on the lowest and the highest round enclose the true median with 94 % confidence or
more: each round is as likely below it as above, so n lie on one side with 2 / 2**n."""
_MOST_IMAGES = 4
"""Flows take longer than the steps that are timed."""


@dataclass(frozen=True)
class Ratio(MedianRange):
    """How many times as long one thing took as another, over several measurements."""

    def __str__(self) -> str:
        """The median, with the range where the measurements differ."""
        return self.text("{:.2f}".format)

    def slower_in(self, unit: str) -> str:
        """In which measurements the one took longer."""
        if self.lowest > 1:
            return f"slower in every {unit}"
        if self.highest <= 1:
            return f"slower in no {unit}"
        return f"slower in some {unit}s, not in others"

    def price(self, n: int, unit: str, *, took: str, than: str) -> str:
        """Say in short whether the one costs time; of too few measurements that it is open."""
        if n < FEWEST_ROUNDS:
            return f"not measured ({amount(n, unit)}, at least {FEWEST_ROUNDS} are needed)"
        ratio = f"{took} {self.median:.2f} times as long as {than}"
        reach = f"{self.lowest:.2f} to {self.highest:.2f} in {amount(n, unit)}"
        if self.lowest > 1 or self.highest <= 1:
            return f"{ratio} ({reach})"
        return f"nothing that could be measured ({ratio}, {reach})"


@dataclass(frozen=True)
class CostRow:
    """The cost of one way of training, beside ``plain`` Cellpose.

    Both ways run in turns and are divided round by round, so that a load on the machine slows
    both, and one slow round does not move the median. Kalibera and Jones (ISMM 2013) compare
    systems by a ratio over repeated runs, too, but of means.
    """

    name: str
    """A key of `cellrepro.model.step_timing.VARIANTS`."""
    what: str
    """The same in words."""
    seconds: float
    """Duration of one step, median over the steps of all rounds."""
    ratio: float
    """How many times as long as ``plain`` a step takes. Each round gives one ratio, of the median
    seconds of its steps; this is the median of the rounds."""
    lowest: float
    """The smallest ratio of a round."""
    highest: float
    """The largest ratio of a round."""
    peak_memory: float = 0
    """The most bytes held at a time, median over all rounds; 0 where unknown."""

    @property
    def label(self) -> str:
        """What a sentence calls it: a mode by its name, any other way by what it is, too."""
        return f"mode {self.name}" if self.name in MODES else f'"{self.name}" ({self.what})'

    @property
    def over_rounds(self) -> Ratio:
        """The ratio, with its range over the rounds."""
        return Ratio(self.ratio, self.lowest, self.highest)


@dataclass(frozen=True, repr=False)
class Cost(Result):
    """The cost of determinism on this machine."""

    encoder: str
    """The size of the network."""
    device: str
    """The device on which it was trained."""
    threads: int
    """Threads of PyTorch on the CPU."""
    steps: int
    """Timed steps of a round."""
    rounds: int
    """How often every way of training was run."""
    table: tuple[CostRow, ...]
    """A row for each way of training, ``plain`` first."""

    def sentence(self) -> str:
        """Say how long a step takes in each way, beside Cellpose as it is."""
        plain, *other_rows = self.table
        ratios = [
            f"; {row.label} takes {row.over_rounds} times as long, "
            f"{row.over_rounds.slower_in('round')}"
            for row in other_rows
        ]
        return (
            f"a training step of {self.encoder} on {self.device} takes {plain.seconds:.2g} s in "
            f"plain Cellpose{''.join(ratios)}; {self.how_measured}"
        )

    def price_of(self, name: str) -> str:
        """Say in short whether a way of training costs time; of too few rounds that it is open."""
        row = next(row for row in self.table if row.name == name)
        return row.over_rounds.price(
            self.rounds, "round", took="a step takes", than="in plain Cellpose"
        )

    @property
    def n_timed(self) -> str:
        """How many steps were timed, in words."""
        return f"{amount(self.rounds, 'round')} of {amount(self.steps, 'step')}"

    @property
    def how_measured(self) -> str:
        """On how much the ratios rest, and whether that is enough to tell a small price."""
        measured = (
            f"medians over {self.n_timed} at {amount(self.threads, 'thread')}, in brackets the "
            "lowest and the highest round"
        )
        if self.rounds < FEWEST_ROUNDS:
            measured += (
                f"; with fewer than {FEWEST_ROUNDS} rounds a small price cannot be told from noise"
            )
        return measured

    def rows(self) -> Sequence[Row]:
        """Give one row for each way of training."""
        return [
            {
                "way": row.name,
                "what it is": row.what,
                "seconds a step": f"{row.seconds:.2g}",
                "beside plain, round by round": str(row.over_rounds),
                "MiB held": f"{row.peak_memory / 2**20:.0f}" if row.peak_memory else "unknown",
            }
            for row in self.table
        ]


def summarise(
    rounds: Sequence[Mapping[str, Sequence[float]]], peaks: Mapping[str, Sequence[int]]
) -> tuple[CostRow, ...]:
    """Summarise the seconds of the same steps in each way of training, ``plain`` first."""
    other_names = [name for name in rounds[0] if name != "plain"]
    return tuple(_cost_row(name, rounds, peaks[name]) for name in ("plain", *other_names))


def _cost_row(
    name: str, rounds: Sequence[Mapping[str, Sequence[float]]], peaks: Sequence[int]
) -> CostRow:
    ratio = Ratio.over([median(seconds[name]) / median(seconds["plain"]) for seconds in rounds])
    return CostRow(
        name=name,
        what=VARIANTS[name].in_words,
        seconds=median(step for seconds in rounds for step in seconds[name]),
        ratio=ratio.median,
        lowest=ratio.lowest,
        highest=ratio.highest,
        peak_memory=median(peaks),
    )


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
        ``tiny``, ``vit-b`` or ``vit-l``, see `cellrepro.model.encoders.ENCODERS`.
    profile : str or Path
        The numeric environment: a name, or a ``.yaml`` file. TF32 stays as Cellpose leaves it.
    steps : int
        Timed steps of each run.
    rounds : int
        How often every variant is run.
    variants : sequence of str, optional
        Names in `cellrepro.model.step_timing.VARIANTS`, ``plain`` among them; by default all, but
        ``cudnn`` and ``strict-float32`` on CUDA only.
    quiet : bool
        Show no progress.

    Returns
    -------
    Cost
        Its ``str`` says the ratios; in a notebook it shows a table of the ways of training.

    Raises
    ------
    BadInput
        If the encoder or a variant is unknown, ``plain`` is missing, a number is below 1, or the
        folder cannot be trained on.
    NotPossibleHere
        If this machine lacks what the profile asks for.
    RunError
        If the process ends without finishing.
    """
    from cellrepro.model.encoders import ENCODERS

    settings = profiles.load(profile)
    if encoder not in ENCODERS:
        raise BadInput(f"encoder is {encoder!r}; expected one of {', '.join(ENCODERS)}")
    task = partial(
        time_steps,
        data=None if data is None else Path(data).resolve(),
        encoder=encoder,
        steps=whole("steps", steps, least=1),
        rounds=whole("rounds", rounds, least=1),
        variants=_chosen(variants, device=settings.device),
    )
    return in_child(
        task, Setup(settings, "strict"), label=f"cost, {encoder}", steps=rounds, quiet=quiet
    )


def _chosen(variants: Sequence[str] | None, *, device: str) -> list[str]:
    """The names of the variants that are timed."""
    if variants is None:
        return [name for name in VARIANTS if device == "cuda" or name not in CUDA_ONLY]
    check_variants(variants)
    return list(variants)


def time_steps(
    child: Child,
    *,
    data: Path | None,
    encoder: str,
    steps: int,
    rounds: int,
    variants: Sequence[str],
) -> Cost:
    """Build the network in the child, and time every round."""
    import torch

    from cellrepro.model.network import seeded_network
    from cellrepro.model.step_timing import SideBySide

    device = child.enter()
    child.phase("network, images and flows")
    network = seeded_network(encoder, seed=child.setup.seed, device=device)
    bench = SideBySide(network, _images(data), steps=steps, variants=variants)
    seconds_of_rounds = []
    for index in range(rounds):
        seconds_of_rounds.append(bench.round())
        child.tell("done", f"round {index + 1} of {rounds}")
    return Cost(
        encoder=encoder,
        device=str(device),
        threads=torch.get_num_threads(),
        steps=steps,
        rounds=rounds,
        table=summarise(seconds_of_rounds, bench.peaks),
    )


def _images(data: Path | None) -> list[LabelledImage]:
    """The first few images that can be trained on."""
    from cellrepro.images.folder import read_folder
    from cellrepro.images.synthetic_sets import labelled_nuclei
    from cellrepro.model.prepared_images import trainable

    images = labelled_nuclei(_MOST_IMAGES) if data is None else read_folder(data).train
    return [image for image in images if trainable(image)][:_MOST_IMAGES]
