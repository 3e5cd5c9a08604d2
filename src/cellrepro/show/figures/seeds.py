"""Figures of seeds: which changes what the network is shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cellrepro.show.figures import style
from cellrepro.show.figures.letters import draw_letters
from cellrepro.show.figures.style import Picture
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
