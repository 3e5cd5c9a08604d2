"""The explorer as one PNG, for places without a kernel: saved notebooks, HTML, papers."""

from __future__ import annotations

from typing import Any

from cellrepro.show.explorer.planes import Views, grey, unpacked
from cellrepro.show.figures.masks import difference
from cellrepro.show.figures.style import WIDTH, heading


def still(
    views: Views, scene: dict[str, Any], *, title: str = "", line: str = "", panel: int = 560
) -> bytes:
    """Outlines of A, outlines of B, where they differ and, of many runs, how many agree.

    Parameters
    ----------
    views : Views
    scene : dict
        From `Views.scene`.
    title, line : str
        Above and below the panels.
    panel : int
        Longer side of each panel, pixels.

    Returns
    -------
    bytes
        A PNG file.
    """
    names = {key: name for key, name in scene["planes"].items() if key not in ("story", "objects")}
    planes = {key: views.plane(name) for key, name in names.items()}
    arrays = {key: unpacked(plane) for key, plane in planes.items() if key != "image"}
    votes = (arrays["cells"], planes["cells"]["n_runs"]) if "cells" in arrays else None
    name_a, name_b = (_name(scene, side) for side in "ab")
    figure = difference(
        grey(planes["image"]), arrays["a"], arrays["b"], name_a=name_a, name_b=name_b,
        truth=arrays.get("truth"), votes=votes, side=panel,
    )  # fmt: skip
    if title:
        heading(figure, title)
    kinds = ", ".join(f"{n} {kind}" for kind, n in scene["kinds"].items() if n)
    figure.caption = f"cells: {kinds or 'none'}. {line}"
    n_columns = 3 if votes is None else 2
    return figure.png(dpi=round(n_columns * panel / (WIDTH - 0.3)), caption=True)


def _name(scene: dict[str, Any], side: str) -> str:
    name, short = scene["names"][side], scene["short"][side]
    return name if name == short else f"{short}: {name}"
