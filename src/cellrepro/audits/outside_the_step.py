"""What makes two trainings differ outside the training step, tried on the user's data.

Generators, switches and Cellpose's defaults are restored.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from cellrepro.audits.experiment_of_augmentation import augmentation
from cellrepro.audits.experiment_of_hidden_state import hidden_state
from cellrepro.audits.experiment_of_loader import loader
from cellrepro.audits.experiments_of_process import import_order, initial_weights
from cellrepro.audits.experiments_of_reading import file_order, two_readings
from cellrepro.audits.source_of_difference import Source
from cellrepro.images.folder import read_folder
from cellrepro.progress import progress


def sources_of_difference(data: str | Path, *, quiet: bool = False) -> list[Source]:
    """Try each source of difference on a folder of labelled images."""
    folder = read_folder(data)
    experiments: list[Callable[[], Source]] = [
        partial(file_order, folder),
        partial(two_readings, folder),
        partial(augmentation, folder),
        partial(loader, folder),
        import_order,
        initial_weights,
        partial(hidden_state, folder),
    ]
    sources = []
    with progress(len(experiments), "sources", quiet=quiet) as bar:
        for experiment in experiments:
            source = experiment()
            sources.append(source)
            bar.advance(source.name)
    return sources
