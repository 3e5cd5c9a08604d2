"""Numbers about the weights of one network: how many, their mean, standard deviation and norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from cellrepro.comparison.weight_reading import open_weights
from cellrepro.comparison.weight_tensors import (
    Tensor,
    layer_of,
    layers_of,
    values,
)
from cellrepro.words import name_of_all
from samebits.results import Result
from samebits.words import amount


@dataclass(frozen=True, repr=False)
class WeightStatistics(Result):
    """Numbers about some parameters."""

    parameters: int
    """How many there are."""
    mean: float
    """Mean of their values."""
    std: float
    """Standard deviation of exactly these parameters: divided by their number."""
    l1: float
    """Sum of their magnitudes."""
    l2: float
    """Length of them as one vector."""
    largest: float
    """Largest magnitude."""

    def sentence(self) -> str:
        """Say how many there are, and how large."""
        return (
            f"{amount(self.parameters, 'parameter')}, mean {self.mean:.3g}, standard deviation "
            f"{self.std:.3g}, largest magnitude {self.largest:.3g}"
        )


def weight_statistics(path: str | Path) -> dict[str, WeightStatistics]:
    """Get how many parameters a network has, their mean, standard deviation and norms.

    Parameters
    ----------
    path : str or Path
        A file as `compare_weights` takes it, of which one tensor is read at a time.

    Returns
    -------
    dict of str to WeightStatistics
        Of ``all`` together but what is one number, as Cellpose's diameters; then of each layer. It
        is ``(all)`` where a layer is called ``all``.

    Raises
    ------
    BadInput
        If it is no weights file that can be read.
    """
    file = open_weights(path)
    with np.errstate(over="ignore", invalid="ignore"):  # infinities and NaNs travel on
        moments = {name: _moments(tensor) for name, tensor in file.items()}
        all_but_numbers = [name for name, tensor in file.items() if tensor.n != 1]
        layers = layers_of(file)
        statistics = {name_of_all(layers): _statistics([moments[name] for name in all_but_numbers])}
        for layer in layers:
            members = [moments[name] for name in file if layer_of(name) == layer]
            statistics[layer] = _statistics(members)
    return statistics


class _Moments(NamedTuple):
    """The sums of one tensor, of which the statistics of several are made."""

    n: float
    """Number of values."""
    mean: float
    squared_distances: float
    """Sum of the squared distances from the mean."""
    l1: float
    """Sum of magnitudes."""
    l2: float
    """Length."""
    largest: float
    """Largest magnitude."""


def _moments(tensor: Tensor) -> _Moments:
    x = values(tensor.read(0, tensor.n), tensor.dtype)
    mean = x.sum() / max(1, len(x))
    sizes = np.abs(x)
    return _Moments(
        n=len(x),
        mean=mean,
        squared_distances=((x - mean) ** 2).sum(),
        l1=sizes.sum(),
        l2=float(np.linalg.norm(x)),
        largest=sizes.max(initial=0),
    )


def _statistics(moments: Sequence[_Moments]) -> WeightStatistics:
    """The statistics of several tensors together."""
    columns = np.array(moments, np.float64).reshape(-1, len(_Moments._fields)).T
    n, means, squared_distances, l1, l2, largest = columns
    total = max(1, n.sum())
    mean = (n * means).sum() / total
    variance = (squared_distances + n * (means - mean) ** 2).sum() / total
    return WeightStatistics(
        parameters=int(n.sum()),
        mean=float(mean),
        std=float(np.sqrt(variance)),
        l1=float(l1.sum()),
        l2=float(np.linalg.norm(l2)),
        largest=float(largest.max(initial=0)),
    )
