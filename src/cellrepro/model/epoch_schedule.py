"""Learning rate, seed and test of each epoch, as in ``cellpose.train.train_seg`` (4.2.1.1)."""

from __future__ import annotations

from typing import Literal

import numpy as np

DataSeed = int | Literal["cellpose"]
"""A seed for order and augmentation, or Cellpose's own way: the number of the epoch."""

TEST_SEED = 42
"""Cellpose seeds NumPy with it before it evaluates the test images."""


def learning_rates(n_epochs: int, learning_rate: float) -> np.ndarray:
    """Give the learning rate of every epoch.

    >>> learning_rates(3, 0.9)
    array([0. , 0.1, 0.2])
    """
    rates = np.linspace(0, learning_rate, 10)
    rates = np.append(rates, learning_rate * np.ones(max(0, n_epochs - 10)))
    if n_epochs < 100:
        return rates[:n_epochs]
    stage_length = 10 if n_epochs > 300 else 5
    rates[-10 * stage_length :] /= 2 ** np.repeat(np.arange(1, 11), stage_length)  # exact: integers
    return rates


def trains_nothing(n_epochs: int, learning_rate: float) -> str | None:
    """Say why a training would leave every weight as it is; None if it would change some."""
    if learning_rates(n_epochs, learning_rate).any():
        return None
    if learning_rate == 0:
        return "a learning rate of 0 trains nothing"
    return (
        f"{n_epochs} epoch trains nothing: Cellpose's learning rate rises from 0 at the first "
        "epoch, so the weights stay as they were; ask for 2 epochs or more (10 reach the full rate)"
    )


def looks_at_test_images(epoch: int) -> bool:
    """Whether Cellpose computes a test loss after an epoch, counted from 0.

    >>> [epoch for epoch in range(22) if looks_at_test_images(epoch)]
    [0, 5, 10, 20]
    """
    return epoch == 5 or epoch % 10 == 0


def epoch_seed(data_seed: DataSeed, epoch: int) -> int:
    """Give the seed of NumPy's global generator for one epoch."""
    if data_seed == "cellpose":
        return epoch
    return spread_seed(data_seed, epoch)


def spread_seed(*seeds: int) -> int:
    """Make one seed from several, spread over all seeds that NumPy accepts."""
    return int(np.random.SeedSequence(seeds).generate_state(1)[0])
