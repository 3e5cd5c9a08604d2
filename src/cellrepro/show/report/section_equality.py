"""The section on equal runs: a letter for each result in cells, a number for each network."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from cellrepro.comparison.place_fields import sort_key, value_in_words
from cellrepro.comparison.portable_promise import promised_alike
from cellrepro.show.figures.letters import result_letters
from cellrepro.show.pages.parts import TableFile, table_file, which
from cellrepro.show.report.summary import OF_MACHINE, Chapter, JudgedSpec
from cellrepro.spec.spec import PARAMETERS
from cellrepro.store.stored_run import Repeat
from samebits.digests import value_digest
from samebits.words import amount

_N_COLOURS = 14  # classes g-0 to g-13 of the style sheet


@dataclass(frozen=True)
class SpecCell:
    """How the repeats of one spec on one machine came out."""

    place: str
    over: str
    """How many repeats, and how many failed."""
    verdict: str = "failed"
    detail: str = ""
    """What differs; empty where the verdict is identical."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """The CSS class of each of its results."""


@dataclass(frozen=True)
class Start:
    """A network that others were trained from."""

    name: str
    run: str
    """Its first repeat, by name."""
    model: str
    seed: str
    epochs: int


@dataclass(frozen=True)
class ResultNames:
    """How a page calls its results: equal names are equal results, in whichever chapter."""

    letters: Mapping[str, str]
    """By repeat; equal outlines in every image share one."""
    networks: Mapping[str, int]
    """By repeat that trained; equal weights share a number."""
    colours: Mapping[str, str]
    """CSS classes of letters that two or more repeats have."""

    @classmethod
    def of(cls, chapters: Sequence[Chapter]) -> ResultNames:
        """Name the results of all chapters of a page."""
        outlines: dict[str, list[str]] = defaultdict(list)
        weights: dict[str, int] = {}
        networks: dict[str, int] = {}
        for repeat in (repeat for chapter in chapters for repeat in chapter.repeats):
            records = repeat.manifest.masks
            digests = {image: record.canonical_digest for image, record in records.items()}
            outlines[value_digest(digests)].append(repeat.name)
            trained = repeat.manifest.weights
            if trained is not None:
                networks[repeat.name] = weights.setdefault(trained.digest, len(weights) + 1)
        named = dict(zip(result_letters(), outlines.values(), strict=False))
        shared = [letter for letter in named if len(named[letter]) > 1][:_N_COLOURS]
        return cls(
            letters={name: letter for letter, group in named.items() for name in group},
            networks=networks,
            colours={letter: f"g-{i}" for i, letter in enumerate(shared)},
        )


def equalities_of(chapters: Sequence[Chapter]) -> list[Equality]:
    """Say of each chapter of a page which of its repeats are equal."""
    names = ResultNames.of(chapters)
    return [Equality(chapter, names) for chapter in chapters]


class Equality:
    """Which repeats of a chapter came to the same result, by the names of the page."""

    def __init__(self, chapter: Chapter, names: ResultNames):
        self.chapter = chapter
        self._by_place = {result.place: result for result in chapter.results}
        self._colours = names.colours
        own = [repeat.name for repeat in chapter.repeats]
        self.masks = {name: names.letters[name] for name in own}
        self.networks = {name: names.networks[name] for name in own if name in names.networks}

    def of(self, repeat: Repeat) -> str:
        """Name the result of a repeat, as ``C 1``; a dash where it is no result."""
        return f"{self.masks.get(repeat.name, '–')} {self.networks.get(repeat.name, '')}".strip()

    def colour(self, repeat: Repeat) -> str:
        """Give the CSS class of its letter; empty where the letter stands alone."""
        return self._colours.get(self.masks.get(repeat.name, ""), "")

    @cached_property
    def columns(self) -> list[tuple[str, str]]:
        """The columns of the table: profile and mode."""
        names = self.chapter.names
        columns = {names.column(place) for place in names.shown}

        def order(column: tuple[str, str]) -> tuple[object, object]:
            profile, mode = column
            return sort_key("profile", profile), sort_key("mode", mode)

        return sorted(columns, key=order)

    @property
    def profiles(self) -> dict[str, int]:
        """The profiles in the order of the columns, each with its number of modes."""
        return dict(Counter(profile for profile, _ in self.columns))

    @property
    def n_networks(self) -> int:
        """How many different networks there are; 0 where none was trained."""
        return len({*self.networks.values()})

    @property
    def n_results(self) -> int:
        """How many different results in cells there are."""
        return len({*self.masks.values()})

    @property
    def n_images(self) -> int:
        """Images of each run, at most."""
        return max(result.judgement.n_images for result in self.chapter.results)

    @property
    def image_kind(self) -> str:
        """What an image is to a training, the only task that tells two kinds apart."""
        if self.chapter.task != "train":
            return "image"
        segmented = self.chapter.repeats[0].manifest.data.segmented
        return {"train": "training image", "test": "test image"}[segmented]

    @property
    def starts(self) -> list[Start]:
        """The networks that others were trained from, which are none of the results."""
        return [
            Start(
                name=self.chapter.names.of_spec(judged.place),
                run=judged.repeats[0].name,
                model=judged.spec.model,
                seed="no seed" if judged.spec.seed is None else f"seed {judged.spec.seed}",
                epochs=judged.spec.epochs,
            )
            for judged in self.chapter.judged
            if self.chapter.names.is_start(judged.place)
        ]

    @property
    def rows(self) -> dict[str, list[list[SpecCell]]]:
        """The rows of the table by name, with the cells of each column."""
        names = self.chapter.names
        rows: dict[str, list[list[SpecCell]]] = {}
        for place in sorted(names.shown, key=names.order):
            row = rows.setdefault(names.row(place), [[] for _ in self.columns])
            row[self.columns.index(names.column(place))].append(self._cell(place))
        return rows

    def _cell(self, place: str) -> SpecCell:
        n_failed = sum(failure.place == place for failure in self.chapter.failures)
        failed = f"{amount(n_failed, 'repeat')} failed" if n_failed else ""
        result = self._by_place.get(place)
        if result is None:
            return SpecCell(place, failed)
        n_repeats = amount(len(result.repeats), "repeat")
        return SpecCell(
            place=place,
            over=f"{n_repeats}; {failed}" if failed else n_repeats,
            verdict=result.verdict,
            detail=result.detail,
            groups={self.of(repeat): self.colour(repeat) for repeat in result.repeats},
        )

    @property
    def equal(self) -> str:
        """The settings that all specs share, in one line."""
        names = self.chapter.names
        facts = names.values[self.chapter.results[0].place]
        shown = self.chapter.results[0].spec.shown_parameters()
        not_common = {*names.varying, "ledger"}
        fields = [name for name in (*shown, "machine") if name not in not_common]
        labels = {name: f"{name} " for name in ("profile", "mode", "machine")}
        return ", ".join(
            labels.get(name, "") + value_in_words(name, facts[name]) for name in fields
        )

    @property
    def usual(self) -> str:
        """The usual settings, which short names leave out."""
        return ", ".join(
            value_in_words(name, value) for name, value in self.chapter.names.usual.items()
        )

    @property
    def remarks(self) -> dict[str, str]:
        """Remarks on machines, promises and missing verdicts, each with the specs it is about."""
        specs_by_remark: dict[str, list[str]] = defaultdict(list)
        for result in self.chapter.results:
            for reason in result.judgement.reasons:
                specs_by_remark[reason].append(self.chapter.names.of_spec(result.place))
        by_key: dict[str, list[JudgedSpec]] = defaultdict(list)
        for result in self.chapter.results:
            by_key[result.repeats[0].manifest.key].append(result)
        for key, results in by_key.items():
            if len(results) > 1:
                spec = self.chapter.names.without(results[0].place, OF_MACHINE) or key[:8]
                specs_by_remark[self._across(results)].append(spec)
        for results in self._promised_alike():
            specs_by_remark[self._promise(results)] += [
                self.chapter.names.of_spec(result.place) for result in results
            ]
        n_specs = len(self.chapter.results)
        return {remark: which(specs, n_specs, "spec") for remark, specs in specs_by_remark.items()}

    def _promised_alike(self) -> list[list[JudgedSpec]]:
        """Group the specs to which mode ``portable`` promises the same bits on any machine."""
        groups: list[list[JudgedSpec]] = []
        for result in self.chapter.results:
            for group in groups:
                if promised_alike(group[0].spec, result.spec):
                    group.append(result)
                    break
            else:
                if result.spec.mode == "portable":
                    groups.append([result])
        return [group for group in groups if len(group) > 1]

    def _promise(self, results: Sequence[JudgedSpec]) -> str:
        """Say whether such specs keep the promise."""
        n_results = len({self.of(repeat) for result in results for repeat in result.repeats})
        devices = f"mode portable on {amount(len(results), 'device')}"
        if n_results == 1:
            return f"{devices} came to one result, as promised"
        return (
            f"{devices} came to {n_results} results, though the same bits are promised: run "
            "`cellrepro doctor --portable` on each, and report what it says"
        )

    def _across(self, results: Sequence[JudgedSpec]) -> str:
        """Say which machines agree with themselves, and with each other."""
        parts: list[str] = []
        names_by_results: dict[frozenset[str], list[str]] = defaultdict(list)
        for result in results:
            facts = self.chapter.names.values[result.place]
            name = ", ".join(facts[field] for field in OF_MACHINE if facts[field])
            counts = Counter(map(self.of, result.repeats))
            parts.append(f"{name} {max(counts.values())} of {len(result.repeats)} equal")
            names_by_results[frozenset(counts)].append(name)
        equal = [" = ".join(names) for names in names_by_results.values()]
        return "; ".join([*parts, " ≠ ".join(equal)])

    @property
    def data(self) -> TableFile | None:
        """The CSV file: every repeat with its letter, number and settings."""
        values = self.chapter.names.values
        fields = ("machine", "version", *PARAMETERS)
        rows = [
            {
                "run": repeat.name,
                **{name: values[result.place][name] for name in fields},
                "masks": self.masks[repeat.name],
                "network": self.networks.get(repeat.name),
                "verdict": result.verdict,
                "cells": repeat.manifest.n_objects,
                "weights": repeat.manifest.weights and repeat.manifest.weights.digest,
            }
            for result in self.chapter.results
            for repeat in result.repeats
        ]
        return table_file(f"equal-results-{self.chapter.data}", rows)
