"""Data sets by name: the synthetic one, which is made, and public ones, which are fetched."""

from __future__ import annotations

from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.images import public_sets, synthetic

SYNTHETIC = "synthetic"


def describe_all() -> dict[str, str]:
    """What each name means, in a line."""
    made = {SYNTHETIC: "synthetic nuclei with exact masks, the same bytes on every machine"}
    return made | {name: public_sets.describe(name).description for name in public_sets.names()}


def provide(name: str, *, data_dir: Path = Path("data"), mirror: str | None = None) -> Path:
    """Make or fetch a data set under ``data_dir``, or check the one that is there.

    Parameters
    ----------
    name : str
        One of `describe_all`.
    data_dir : Path
        Made if need be.
    mirror : str, optional
        Where to fetch a public set from instead of its publisher.

    Returns
    -------
    Path
        The folder of images.
    """
    if name == SYNTHETIC:
        if mirror is not None:
            raise BadInput(
                f"--mirror is {mirror!r}, but {SYNTHETIC} images are made here; leave it out"
            )
        synthetic.write_folder(data_dir / SYNTHETIC)
        return data_dir / SYNTHETIC
    return public_sets.fetch(name, data_dir=data_dir, mirror=mirror, progress=True)
