"""The section on where runs were computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cellrepro.comparison.place_fields import place_of
from cellrepro.show.pages.parts import Cell, Table, TableFile, table, table_file
from cellrepro.show.report.summary import OF_MACHINE, Chapter
from cellrepro.store.environment_record import ENVIRONMENT_FIELDS
from cellrepro.store.manifest import Manifest
from cellrepro.store.stored_run import Repeat
from samebits.words import amount

_FIELDS: dict[str, Any] = {
    **dict.fromkeys(ENVIRONMENT_FIELDS, True),
    "cuda": True,
    "machine": {"label"},
    "numeric_class": {"name"},
}
_PLAIN = {"True": "on", "False": "off", "None": "not set", "[]": "none"}


@dataclass(frozen=True)
class EnvironmentSection:
    """The environments of all runs that are compared."""

    n: int
    """How many different ones there are."""
    n_runs: int
    differing: Table
    equal: Table
    data: TableFile | None


def environment_section(chapters: Sequence[Chapter]) -> EnvironmentSection:
    """Make the section on environments: the fields that differ, and those that do not."""
    from pandas import DataFrame

    repeats = [(chapter, repeat) for chapter in chapters for repeat in chapter.repeats]
    texts: dict[str, dict[str, str]] = {}  # most runs share their environment with others
    fields = DataFrame([_fields(repeat.manifest, texts) for _, repeat in repeats]).fillna("–")
    differing = [name for name in fields if fields[name].nunique() > 1]
    environments: dict[tuple[str, ...], list[str]] = defaultdict(list)
    rows_of_fields = fields[differing].itertuples(index=False, name=None)
    for (chapter, repeat), values in zip(repeats, rows_of_fields, strict=True):
        environments[values].append(_setting(chapter, repeat))
    rows: list[dict[str, object]] = [{"field": name} for name in differing]
    first_environment = next(iter(environments), ())
    for number, (values, settings) in enumerate(environments.items(), start=1):
        distinct_settings = "; ".join(dict.fromkeys(settings))
        title = f"{number}: {distinct_settings} ({amount(len(settings), 'repeat')})"
        for row, value, first in zip(rows, values, first_environment, strict=True):
            row[title] = Cell(value, marked=value != first)
    equal = [{"field": name, "value": fields[name][0]} for name in fields if name not in differing]
    fields.insert(0, "run", [repeat.name for _, repeat in repeats])
    return EnvironmentSection(
        n=len(environments),
        n_runs=len(repeats),
        differing=table(rows, dict.fromkeys(rows[0], "value") if rows else {}),
        equal=table(equal, {"value": "value"}),
        data=table_file("environment", fields.to_dict("records")),
    )


def _setting(chapter: Chapter, repeat: Repeat) -> str:
    """Name profile and mode, and the machine where there are several."""
    place = place_of(repeat)
    names = chapter.names
    machine = [names.values[place][name] for name in OF_MACHINE if name in names.varying]
    return ", ".join(filter(None, [*machine, *names.column(place)]))


def _fields(manifest: Manifest, texts: dict[str, dict[str, str]]) -> dict[str, str]:
    """Get the fields of an environment as texts; equal environments are formatted once."""
    content = manifest.model_dump_json(include=_FIELDS)
    if content not in texts:
        texts[content] = _texts(manifest)
    return texts[content]


def _texts(manifest: Manifest) -> dict[str, str]:
    from pandas import json_normalize

    fields = manifest.model_dump(include=_FIELDS)
    libraries = fields.pop("numeric_libraries")
    fields["library"] = {_library_name(library): _library_facts(library) for library in libraries}
    flat = json_normalize(fields, sep=": ").iloc[0].to_dict()
    if isinstance(flat.get("host: memory"), int):
        flat["host: memory"] = f"{flat['host: memory'] / 2**30:.1f} GiB"
    return {name: _PLAIN.get(str(value), str(value)) for name, value in flat.items()}


def _library_name(library: Mapping[str, object]) -> str:
    name = library.get("internal_api") or library.get("user_api")
    return f"{name} {library.get('version') or ''}".strip()


def _library_facts(library: Mapping[str, object]) -> dict[str, object]:
    return {name: library[name] for name in ("architecture", "num_threads") if library.get(name)}
