"""The report on runs as wholes: which are equal."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

from cellrepro.compare.names import said, sort_key
from cellrepro.compare.verdicts import Verdict
from cellrepro.show.report.page import Download, table_file, which
from cellrepro.show.report.summary import Chapter, Judged, across_machines
from cellrepro.store.digests import value_digest
from cellrepro.store.spec import PARAMETERS
from cellrepro.store.store import Repeat
from cellrepro.text import amount

_N_COLOURS = 14  # classes g-0 to g-13 of the style sheet


@dataclass(frozen=True)
class MatrixCell:
    """One spec on one machine: how its repeats came out, and to which results."""

    place: str
    verdict: str
    over: str
    detail: str
    groups: dict[str, str]  # what each is called, and its CSS class


class Equality:
    """Which repeats of a chapter came to the same result, and what each result is called: a letter
    for equal outlines in every image, a number for equal weights. Shared letters have a CSS class.
    """

    def __init__(self, chapter: Chapter):
        self.chapter = chapter
        self._by_place = {one.place: one for one in chapter.results}
        outlines: dict[str, list[Repeat]] = defaultdict(list)
        weights: dict[str, int] = {}
        self.networks: dict[str, int] = {}
        for repeat in chapter.repeats:
            digests = {name: m.canonical_digest for name, m in repeat.manifest.masks.items()}
            outlines[value_digest(digests)].append(repeat)
            trained = repeat.manifest.weights
            if trained is not None:
                number = weights.setdefault(trained.digest, len(weights) + 1)
                self.networks[repeat.name] = number
        named = {_letters(i): members for i, members in enumerate(outlines.values())}
        shared = [letter for letter in named if len(named[letter]) > 1]
        shared.sort(key=lambda letter: -len(named[letter]))
        self.masks = {repeat.name: letter for letter, group in named.items() for repeat in group}
        self.style = {letter: f"g-{i}" for i, letter in enumerate(shared[:_N_COLOURS])}
        self.numbered_otherwise = [
            letter
            for letter, group in named.items()
            if len({r.manifest.masks_digest for r in group}) > 1
        ]

    def of(self, repeat: Repeat) -> str:
        """What a repeat came to: ``A 1``; a dash for what is no result."""
        return f"{self.masks.get(repeat.name, '–')} {self.networks.get(repeat.name, '')}".strip()

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """Profile and mode."""
        found = {self.chapter.names.column(place) for place in self.chapter.names.shown}
        return sorted(found, key=lambda c: (sort_key("profile", c[0]), sort_key("mode", c[1])))

    @property
    def profiles(self) -> list[tuple[str, int]]:
        """With how many columns."""
        groups = itertools.groupby(self.columns, key=lambda column: column[0])
        return [(name, len(list(group))) for name, group in groups]

    @property
    def rows(self) -> dict[str, list[list[MatrixCell]]]:
        """By name: what there is in each column."""
        names = self.chapter.names
        found: dict[str, list[list[MatrixCell]]] = {}
        for place in sorted(names.shown, key=names.order):
            row = found.setdefault(names.row(place), [[] for _ in self.columns])
            row[self.columns.index(names.column(place))].append(self._cell(place))
        return found

    def _cell(self, place: str) -> MatrixCell:
        n_failed = sum(failure.place == place for failure in self.chapter.failures)
        failed = f"{amount(n_failed, 'repeat')} failed" if n_failed else ""
        one = self._by_place.get(place)
        if one is None:
            return MatrixCell(place, "failed", failed, "", {})
        groups = {self.of(r): self.style.get(self.masks[r.name], "") for r in one.repeats}
        over = "; ".join(filter(None, [amount(len(one.repeats), "repeat"), failed]))
        judgement = one.judgement
        plain = judgement.overall in (None, Verdict.IDENTICAL) or judgement.weights is None
        return MatrixCell(place, one.verdict, over, "" if plain else judgement.detail(), groups)

    @property
    def equal(self) -> str:
        """What every spec has in common, in one line."""
        names = self.chapter.names
        facts = names.facts[self.chapter.results[0].place]
        fields = [f for f in (*PARAMETERS, "machine") if f not in (*names.varying, "ledger")]
        labels = {name: f"{name} " for name in ("profile", "mode", "machine")}
        return ", ".join(labels.get(name, "") + said(name, facts[name]) for name in fields)

    @property
    def usual(self) -> str:
        """What short names do not mention."""
        return ", ".join(said(*item) for item in self.chapter.names.usual.items())

    @property
    def remarks(self) -> dict[str, str]:
        """Which machines agree, and why there are no verdicts, with the specs that it is about."""
        across, reasons = across_machines(self.chapter), defaultdict(list)
        for one in self.chapter.results:
            for reason in one.judgement.reasons:
                reasons[reason].append(self.chapter.names.short(one.place))
        n_across, n_specs = sum(map(len, across.values())), len(self.chapter.results)
        found = {text: which(specs, n_across, "spec") for text, specs in across.items()}
        return found | {why: which(specs, n_specs, "spec") for why, specs in reasons.items()}

    @property
    def starts(self) -> list[tuple[str, Repeat, int]]:
        """Networks that others were trained from: name, a repeat, and how many specs these are."""
        return [
            (self.chapter.names.short(one.place), one.repeats[0], self._n_trained_from(one))
            for one in self.chapter.every
            if self.chapter.names.is_start(one.place)
        ]

    def _n_trained_from(self, start: Judged) -> int:
        digests = {r.manifest.weights.digest for r in start.repeats if r.manifest.weights}
        return len({o.spec.key for o in self.chapter.results if o.spec.model_digest in digests})

    @property
    def data(self) -> Download | None:
        """Every run with its letter, number and settings."""
        facts, fields = self.chapter.names.facts, ("machine", "version", *PARAMETERS)
        rows = [
            {
                "run": repeat.name,
                **{name: facts[one.place][name] for name in fields},
                "masks": self.masks[repeat.name],
                "network": self.networks.get(repeat.name),
                "verdict": one.verdict,
                "cells": repeat.manifest.n_objects,
                "weights": repeat.manifest.weights and repeat.manifest.weights.digest,
            }
            for one in self.chapter.results
            for repeat in one.repeats
        ]
        return table_file(f"equal-results-{self.chapter.data}", rows)


def _letters(number: int) -> str:
    """A to Z, then AA, AB, …: the name of group ``number``, from 0."""
    before, last = divmod(number, 26)
    return (_letters(before - 1) if before else "") + chr(ord("A") + last)
