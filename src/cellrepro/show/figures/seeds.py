"""Figures of seeds: which changes what the network is shown, and why one epoch is no test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cellrepro.show.figures import style
from cellrepro.show.figures.letters import draw_letters
from cellrepro.show.figures.style import EDGE, SERIES, Picture
from samebits.errors import whole
from samebits.words import amount

if TYPE_CHECKING:
    from cellrepro.audits.seed_effects import SeedProbe

_MOST_STEPS = 8
"""Pictures of a trial, one for each training step."""


def seed_strips(probe: SeedProbe) -> Picture:
    """Draw what the network was shown under each seed, step by step, and where its weights ended.

    Parameters
    ----------
    probe : SeedProbe
        From `cellrepro.which_seed_changes`.

    Returns
    -------
    Picture
    """
    trials = probe.trials
    n_steps = min(_MOST_STEPS, len(trials[0].thumbnails))
    figure = Picture(height=0.85 + 0.76 * len(trials))
    grid = figure.add_gridspec(len(trials), n_steps + 2, width_ratios=[2.3, *[1] * n_steps, 1])
    for y, trial in enumerate(trials):
        name = figure.add_subplot(grid[y, 0])
        name.set_axis_off()
        call = trial.call.replace("; ", "\n")
        name.text(0, 0.5, f"{trial.seed_name}:\n{call}", fontsize=9, va="center", parse_math=False)
        for x, thumbnail in enumerate(trial.thumbnails[:n_steps]):
            panel = figure.add_subplot(grid[y, x + 1])
            style.image_panel(panel, np.repeat(thumbnail[..., None], 3, axis=2))
            if y == 0:
                epoch, step = divmod(x, probe.steps_per_epoch)
                style.title(panel, f"epoch {epoch + 1}\nimage {step + 1}", size=8)
    ends = figure.add_subplot(grid[:, -1])
    draw_letters(ends, [[trial.weights] for trial in trials])
    ends.set(xticks=[], yticks=[])
    style.title(ends, "weights\nat the end", size=8)
    caption = (
        "Two rows with equal pictures saw the same images, cut and turned alike. Equal letters are "
        f"equal weights, bit for bit. All trials have the same starting weights and the first "
        f"{amount(probe.n_images, 'training image')}, of which each epoch draws "
        f"{probe.steps_per_epoch}."
    )
    return figure.described(
        "What the network was shown under each seed, and what became of it",
        caption,
        f"Rows of small images, one row a trial. {probe.sentence()}.",
    )


def learning_rate_start(n_epochs: int = 12) -> Picture:
    """Draw the learning rate of each epoch of Cellpose's schedule, as a share of its peak.

    Parameters
    ----------
    n_epochs : int
        Of the training, 2 or more.

    Returns
    -------
    Picture

    Raises
    ------
    BadInput
        If there are fewer epochs.
    """
    from cellrepro.model.epoch_schedule import learning_rates

    shares = learning_rates(whole("n_epochs", n_epochs, 2), 100.0)
    epochs = range(1, len(shares) + 1)
    figure = Picture(height=3.5)
    axes = figure.subplots()
    bars = axes.bar(epochs, shares, color=SERIES[0], edgecolor=EDGE, width=0.75)
    axes.bar_label(bars, fmt="%.0f", padding=3, fontsize=9)
    axes.set_xticks(epochs)
    axes.set_ylim(0, 115)
    style.label_axes(axes, x="epoch", y="learning rate (% of its peak)")
    caption = (
        "The first epoch trains with 0: a training of one epoch leaves every weight as it was, so "
        "two of them that begin with one network end equal. The second epoch gets a ninth of the "
        "rate, the tenth all of it."
    )
    by_epoch = ", ".join(f"{share:.0f}" for share in shares)
    alt = f"Bar chart of the learning rate in percent by epoch: {by_epoch}."
    return figure.described(
        "Cellpose's learning rate rises from 0: epoch 1 trains nothing", caption, alt
    )
