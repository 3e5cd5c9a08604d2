"""The report on all runs together: where they agree, and the cells that fewest of them have."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from cellrepro.compare.consensus import Agreement, Stability, agree
from cellrepro.show.figures import agreement as agreement_plots
from cellrepro.show.report.page import Column, Shown, Table, figure, table, which
from cellrepro.show.report.summary import Chapter
from cellrepro.store.store import Repeat
from cellrepro.text import amount, share_text

MOST_PIXELS = 3e7
"""Of different results, whose agreement is looked at."""
_MOST_CELLS = 8  # of those least stable


@dataclass(frozen=True)
class AgreementView:
    """Where all runs agree, and the cells that fewest of them have."""

    sentence: str
    figures: list[Shown]
    least: Table | None


def agreement_view(chapter: Chapter) -> AgreementView | None:
    """None where every image came out alike in all runs."""
    found, n_left_out = _agreements(chapter)
    if not found:
        return None
    image, (repeats, agreement) = min(
        found.items(), key=lambda item: item[1][1].n_stable / max(1, len(item[1][1].objects))
    )
    pixels = chapter.store.image(chapter.data_digest, image)
    n_runs, objects = agreement.n_runs, agreement.objects
    over = f"{amount(n_runs, 'run')} with {amount(agreement.n_distinct, 'different result')}"
    columns = _columns(chapter, repeats)
    unstable = [one for one in objects if one.n_runs_with < n_runs]
    figures = [
        figure(
            agreement_plots.agreement_map(pixels, agreement),
            f"The image with most unstable cells, {image}, in {over}: the share of runs "
            "that call a pixel cell, and that give it the same cell.",
            table(objects, columns, file=f"stability-{image}").data,
        )
    ]
    sentence = _stable_sentence([one for _, one in found.values()], n_left_out)
    if not unstable:
        return AgreementView(sentence, figures, None)
    caption = (
        f"The least stable of {amount(len(unstable), 'cell')} that some runs do not have: {image}, "
        f"{over}."
    )
    least = table(unstable[:_MOST_CELLS], columns, caption=caption, file=f"least-stable-{image}")
    readers = [partial(repeat.masks, image) for repeat in repeats]
    figures.append(
        figure(
            agreement_plots.least_stable(pixels, agreement, readers, n=len(least.rows)),
            f"The least stable cells of {image} in {over}, with their outlines in the runs "
            "that have them and what the other runs have there.",
            least.data,
        )
    )
    return AgreementView(sentence, figures, least)


def _columns(chapter: Chapter, repeats: Sequence[Repeat]) -> list[Column]:
    labels = [chapter.names.label(repeat) for repeat in repeats]

    def without(one: Stability) -> str:
        return "; ".join(label for i, label in enumerate(labels) if i not in set(one.runs))

    def examples(names: str) -> str:
        return which(names.split("; "), len(labels), "run", most=3)

    return [
        Column("cell at", lambda one: f"y {one.position[-2]:.0f}, x {one.position[-1]:.0f}"),
        Column("area, pixels", lambda one: one.area, "number"),
        Column("runs with it", lambda one: one.n_runs_with, "number"),
        Column("share", lambda one: round(one.share, 4), "number", "{:.2f}".format),
        Column("mean IoU", lambda one: round(one.mean_iou, 4), "number", "{:.2f}".format),
        Column("without it, for example", without, "long", examples),
    ]


def _stable_sentence(found: Sequence[Agreement], n_left_out: int) -> str:
    n_cells = sum(len(one.objects) for one in found)
    n_stable = sum(one.n_stable for one in found)
    n_runs = sorted({one.n_runs for one in found})
    runs = f"all {amount(n_runs[0], 'run')}"
    if len(n_runs) > 1:
        runs = f"all runs that segmented their image ({n_runs[0]} to {n_runs[-1]})"
    text = (
        f"{n_stable} of {amount(n_cells, 'cell')} ({share_text(n_stable / max(1, n_cells))}) are "
        f"in {runs}, over {amount(len(found), 'image')} on which runs differ."
    )
    were = "was" if n_left_out == 1 else "were"
    further = f" {amount(n_left_out, 'further image')} on which they differ {were} not looked at, "
    return text + (f"{further}so that this page is written in seconds." if n_left_out else "")


def _agreements(chapter: Chapter) -> tuple[dict[str, tuple[list[Repeat], Agreement]], int]:
    """By image, where some runs differ: most different results first, as far as time allows; and
    how many images are left out."""
    holders: dict[str, list[Repeat]] = defaultdict(list)
    for repeat in chapter.repeats:
        for name in repeat.manifest.masks:
            holders[name].append(repeat)
    digests = {
        name: [repeat.manifest.masks[name].canonical_digest for repeat in repeats]
        for name, repeats in holders.items()
    }
    differing = [name for name in digests if len(set(digests[name])) > 1]
    differing.sort(key=lambda name: -len(set(digests[name])))
    found: dict[str, tuple[list[Repeat], Agreement]] = {}
    n_pixels = 0
    for name in differing:
        if n_pixels > MOST_PIXELS:
            break
        readers = [partial(repeat.masks, name) for repeat in holders[name]]
        agreement = agree(readers, digests=digests[name])
        found[name] = holders[name], agreement
        n_pixels += agreement.n_distinct * agreement.consensus.size
    return found, len(differing) - len(found)
