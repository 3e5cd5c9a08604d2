"""The report on runs as wholes: which are equal."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import cached_property
from itertools import count, product
from string import ascii_uppercase

from cellrepro.asked.spec import PARAMETERS
from cellrepro.bits.digests import value_digest
from cellrepro.same.names import sort_key, value_in_words
from cellrepro.same.verdicts import Verdict
from cellrepro.show.report.page import View, table_file, which
from cellrepro.show.report.summary import OF_MACHINE, Chapter, Judged
from cellrepro.store.store import Repeat
from cellrepro.words import amount

_N_COLOURS = 14  # classes g-0 to g-13 of the style sheet


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
        letters = ("".join(some) for n in count(1) for some in product(ascii_uppercase, repeat=n))
        named = dict(zip(letters, outlines.values(), strict=False))  # A to Z, then AA, AB, …
        self.masks = {repeat.name: letter for letter, group in named.items() for repeat in group}
        shared = [letter for letter in named if len(named[letter]) > 1][:_N_COLOURS]
        self._style = {letter: f"g-{i}" for i, letter in enumerate(shared)}

    def of(self, repeat: Repeat) -> str:
        """What a repeat came to: ``A 1``; a dash for what is no result."""
        return f"{self.masks.get(repeat.name, '–')} {self.networks.get(repeat.name, '')}".strip()

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """Profile and mode."""
        found = {self.chapter.names.column(place) for place in self.chapter.names.shown}
        return sorted(found, key=lambda c: (sort_key("profile", c[0]), sort_key("mode", c[1])))

    @property
    def rows(self) -> dict[str, list[list[View]]]:
        """By name: what there is in each column."""
        names = self.chapter.names
        found: dict[str, list[list[View]]] = {}
        for place in sorted(names.shown, key=names.order):
            row = found.setdefault(names.row(place), [[] for _ in self.columns])
            row[self.columns.index(names.column(place))].append(self._cell(place))
        return found

    def _cell(self, place: str) -> View:
        """How the repeats of one spec on one machine came out, and to which results."""
        n_failed = sum(failure.place == place for failure in self.chapter.failures)
        over = [f"{amount(n_failed, 'repeat')} failed"] if n_failed else []
        cell = View(place=place, verdict="failed", detail="", groups={})
        one = self._by_place.get(place)
        if one is not None:
            over.insert(0, amount(len(one.repeats), "repeat"))
            cell.verdict = one.verdict
            cell.groups = {self.of(r): self._style.get(self.masks[r.name], "") for r in one.repeats}
            if one.judgement.overall not in (None, Verdict.IDENTICAL):
                cell.detail = one.judgement.detail()
        cell.over = "; ".join(over)
        return cell

    @property
    def equal(self) -> str:
        """What every spec has in common, in one line."""
        names = self.chapter.names
        facts = names.values[self.chapter.results[0].place]
        telling = self.chapter.results[0].spec.shown_parameters()
        fields = [f for f in (*telling, "machine") if f not in (*names.varying, "ledger")]
        labels = {name: f"{name} " for name in ("profile", "mode", "machine")}
        return ", ".join(
            labels.get(name, "") + value_in_words(name, facts[name]) for name in fields
        )

    @property
    def usual(self) -> str:
        """What short names do not mention."""
        return ", ".join(value_in_words(*item) for item in self.chapter.names.usual.items())

    @property
    def remarks(self) -> dict[str, str]:
        """Which machines agree, and why there are no verdicts, with the specs that it is about."""
        found, n_specs = defaultdict(list), len(self.chapter.results)
        for one in self.chapter.results:
            for reason in one.judgement.reasons:
                found[reason].append(self.chapter.names.of_spec(one.place))
        by_key: dict[str, list[Judged]] = defaultdict(list)
        for one in self.chapter.results:
            by_key[one.repeats[0].manifest.key].append(one)
        for key, several in by_key.items():
            if len(several) > 1:
                spec = self.chapter.names.without(several[0].place, OF_MACHINE) or key[:8]
                found[self._across(several)].append(spec)
        return {remark: which(specs, n_specs, "spec") for remark, specs in found.items()}

    def _across(self, several: list[Judged]) -> str:
        """Which machines agree with themselves, and with each other."""
        parts: list[str] = []
        alike: dict[frozenset, list[str]] = defaultdict(list)  # machines by their results
        for one in several:
            facts = self.chapter.names.values[one.place]
            name = ", ".join(facts[field] for field in OF_MACHINE if facts[field])
            counts = Counter(map(self.of, one.repeats))
            parts.append(f"{name} {max(counts.values())} of {len(one.repeats)} equal")
            alike[frozenset(counts)].append(name)
        return "; ".join([*parts, " ≠ ".join(" = ".join(names) for names in alike.values())])

    @property
    def data(self) -> View | None:
        """Every run with its letter, number and settings."""
        facts, fields = self.chapter.names.values, ("machine", "version", *PARAMETERS)
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
