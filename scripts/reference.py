"""Write the pages of docs/ that follow from the code: commands, JSON, scores, the store, profiles.

    python scripts/reference.py

docs/commands.md holds what ``--help`` says, as tables. The words of the others are in templates
beside them, such as docs/json.md.j2. There ``{{ table("grid.grid_runs:GridRun") }}`` is the table
of a record's fields, to which other tables link by the heading above it. Long tables are folded,
and both pages begin with what leads to them.
"""

from __future__ import annotations

import importlib
import io
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from cyclopts import App
from cyclopts.help import HelpEntry, HelpPanel
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from pages import DOCS, slug
from record_fields import Field, fields_of
from rich.console import Console

import cellrepro
from cellrepro.cli import app, examples, name_optional_places
from cellrepro.commands import COMMANDS, OF_BASELINE, Command
from cellrepro.comparison.scores import SCORES, ScoreGroup
from cellrepro.conclusions.readouts import READOUTS
from cellrepro.profiles.profile_names import profile_names
from cellrepro.profiles.profiles import load

TEMPLATES = {template.stem: template for template in sorted(DOCS.glob("*.md.j2"))}
"""By the page that each makes."""

MOST_SEEN = 2
"""Rows of a table that is not folded."""

VERY_WIDE = 10_000
"""Columns of a console that breaks no line."""

JSON_PAGE = "json.md"

HEADING = re.compile(r"^(##+) (.+)", re.MULTILINE)
HEADING_OR_TABLE = re.compile(
    r'^#+ (?P<heading>.+)|\{\{ table\("(?P<module>[\w.]+):(?P<name>\w+)"', re.MULTILINE
)


def main() -> None:
    """Write every page."""
    (DOCS / "commands.md").write_text(commands_page(), encoding="utf-8")
    for name in TEMPLATES:
        (DOCS / name).write_text(page(name), encoding="utf-8")


def page(name: str) -> str:
    """What a page of `TEMPLATES` says."""
    environment = Environment(
        loader=FileSystemLoader(DOCS), undefined=StrictUndefined, trim_blocks=True
    )
    text = environment.get_template(TEMPLATES[name].name).render(
        table=partial(fields_table, on=name),
        scores=partial(scores_table, on=name),
        scores_of_nothing=scores_of_nothing_table,
        score_sources=score_sources_table,
        readouts=readouts_table,
        profiles=profiles_table,
        recorder=recorder_table,
        contents=partial(contents_list, on=name),
    )
    return f"{text}\n"


def table_of(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [headings, *rows]
    head, *body = [f"| {' | '.join(map(str, cells))} |" for cells in lines]
    return "\n".join([head, "|" + "---|" * len(headings), *body])


def folded(summary: str, table: str) -> str:
    """A long table, which a click shows, on the site and on GitHub; a short one stands as it is."""
    if table.count("\n") - 1 <= MOST_SEEN:
        return table
    return f'<details markdown="1">\n<summary>{summary}</summary>\n\n{table}\n\n</details>'


def contents_list(*, on: str) -> str:
    """What leads to the headings of a page: a line a chapter, with the headings within it."""
    chapters: list[tuple[str, list[str]]] = []
    for marks, heading in HEADING.findall(TEMPLATES[on].read_text(encoding="utf-8")):
        if marks == "##":
            chapters.append((f"**[{heading}](#{slug(heading)})**", []))
        else:
            chapters[-1][1].append(f"[{heading[0].lower()}{heading[1:]}](#{slug(heading)})")
    return "\n".join(
        "- " + ": ".join(filter(None, [of, ", ".join(of_it)])) for of, of_it in chapters
    )


# -- commands ------------------------------------------------------------------------------------


def commands_page() -> str:
    """Every command with its help, as one page: first the list of them, by what they are for."""
    parts = [
        "# Which commands are there?",
        "",
        "By what they are for; a click leads to the options, which `cellrepro COMMAND --help` "
        "says, too. With `--json` a command prints [one JSON document](json.md). Begin with "
        "`cellrepro open` or `cellrepro compare A B`. [Find your symptom](my_masks_changed.md) "
        "says which command shows it.",
        "",
    ]
    for title, verbs in COMMANDS.items():
        rows = [
            [f"[`{name}`](#{slug(name)})", command.words]
            for name, command in [*verbs.items(), *baselines(title)]
        ]
        parts += [f"**{title}**", "", table_of(["command", "what it does"], rows), ""]
    for words in words_of_commands(app):
        parts += [f"## {' '.join(words)}", "", *help_of(words)]
    return "\n".join(parts)


def baselines(title: str) -> Iterator[tuple[str, Command]]:
    """The commands of ``cellrepro baseline``, which stand among those of two files."""
    if title == "Two files":
        for name, command in OF_BASELINE.items():
            yield f"baseline {name}", command


def words_of_commands(command: App, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of each command, those of a group one after the other."""
    if command.default_command is not None:
        yield words
        return
    for verb in command:
        if not verb.startswith("-"):
            yield from words_of_commands(command[verb], (*words, verb))


def help_of(words: tuple[str, ...]) -> Iterator[str]:
    """What the help of a command says: its usage, its examples, and a table of what it takes."""
    panels: list[HelpPanel] = []
    said = io.StringIO()
    app.help_formatter = lambda console, options, panel: panels.append(panel)
    name_optional_places(words)
    app.help_print([*words], console=Console(file=said, width=VERY_WIDE))
    lines = [line.strip() for line in said.getvalue().splitlines()]
    usage, *about = [line for line in lines if line not in ("", app.help_epilogue)]
    yield from (*about, "", "```", usage, "```", "")
    entries = [entry for panel in panels if panel.format == "parameter" for entry in panel.entries]
    rows = [[names_of(entry), help_of_entry(entry)] for entry in entries]
    _, _, told = examples(words).partition("Examples:\n")
    if told:
        commands = [line.strip() for line in told.splitlines()]
        lines = [line if line.startswith("cellrepro ") else f"# {line}" for line in commands]
        yield from ("```", *lines, "```", "")
    table = table_of(["argument or option", "meaning"], rows)
    yield from (folded(f"{len(rows)} arguments and options", table), "")


def names_of(entry: HelpEntry) -> str:
    """How an argument or option is written, in a cell of a table."""
    return ", ".join(f"`{label}`" for label in entry.display_labels_with_metavar).replace(
        "|", "\\|"
    )


def help_of_entry(entry: HelpEntry) -> str:
    """What an argument or option means and is by default, in a cell of a table."""
    said = io.StringIO()
    Console(file=said, width=VERY_WIDE).print(entry.description or "")
    parts = [re.sub(r"([|*<])", r"\\\1", " ".join(said.getvalue().split()))]
    if entry.choices:
        parts.append(f"One of {', '.join(f'`{choice}`' for choice in entry.choices)}.")
    if entry.required:
        parts.append("*Required.*")
    elif entry.default:
        parts.append(f"*Default:* `{entry.default}`.")
    return " ".join(parts)


# -- fields of records ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Described:
    """A record whose fields stand in a table of a page, and the heading above it."""

    module: str
    name: str
    page: str
    heading: str

    def fields(self) -> Iterator[Field]:
        """Its fields, whose types name other described records."""
        is_of_samebits = self.module.startswith("samebits.")
        module = self.module if is_of_samebits else f"cellrepro.{self.module}"
        record = getattr(importlib.import_module(module), self.name)
        return fields_of(record, described=described())

    def link(self, *, on: str) -> str:
        """A link to its table, as it stands on a page."""
        text = f"{self.heading[0].lower()}{self.heading[1:]}"
        return f"[{text}]({'' if self.page == on else self.page}#{slug(self.heading)})"


@cache
def described() -> Mapping[str, Described]:
    """Every record that a template has a table of, by the name of its class."""
    found = {}
    for name, template in TEMPLATES.items():
        heading = ""
        for match in HEADING_OR_TABLE.finditer(template.read_text(encoding="utf-8")):
            heading = match["heading"] or heading
            if match["name"]:
                found[match["name"]] = Described(match["module"], match["name"], name, heading)
    return found


NONE = re.compile(r"(?<!`)\bNone\b(?!`)")
"""What is ``null`` in JSON."""


def fields_table(path: str, *, on: str, only: Sequence[str] = ()) -> str:
    """The fields of a record, all or only some; those alike share a row."""
    rows: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for field in described()[path.partition(":")[2]].fields():
        if not only or field.name in only:
            content = (linked(field.type, on=on), linked(NONE.sub("`null`", field.meaning), on=on))
            rows[content].append(f"`{field.name}`")
    table = table_of(
        ["field", "type", "meaning"],
        [[", ".join(names), type_words, meaning] for (type_words, meaning), names in rows.items()],
    )
    n_fields = sum(map(len, rows.values()))
    return folded(f"{n_fields} fields", table) if on == JSON_PAGE else table


def linked(text: str, *, on: str) -> str:
    """A docstring's text in a cell of a table, with links to the records that it names."""

    def link(code: re.Match[str]) -> str:
        record = described().get(code[1])
        return record.link(on=on) if record else code[0]

    return re.sub(r"`(\w+)`", link, text.replace("``", "`").replace("|", "\\|"))


# -- scores --------------------------------------------------------------------------------------


def scores_table(group: ScoreGroup, *, on: str) -> str:
    """The scores of a group: definition, range, and which number is best."""
    definitions = {field.name: field.meaning for field in described()["MaskComparison"].fields()}
    rows = [
        [
            f"`{name}`",
            linked(definitions[name], on=on),
            ", ".join(filter(None, [score.range, score.unit])),
            "–" if score.best is None else score.best,
        ]
        for name, score in SCORES.items()
        if score.group == group
    ]
    return table_of(["field", "definition", "range", "best"], rows)


def scores_of_nothing_table() -> str:
    """What each score is where one side or both have no object."""
    names: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, score in SCORES.items():
        names[score.of_nothing, score.of_one_side].append(f"`{name}`")
    return table_of(
        ["scores", "no cell on either side", "no cell on one side"],
        [[", ".join(alike), *values] for values, alike in names.items()],
    )


def readouts_table() -> str:
    """What the conclusion of an experiment can rest on."""
    rows = [[f"`{readout.name}`", readout.unit, readout.meaning] for readout in READOUTS.values()]
    return table_of(["readout", "unit", "what it is"], rows)


def score_sources_table() -> str:
    """Where each score is defined, and what the tests compare it with."""
    names: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for name, score in SCORES.items():
        if score.source:
            names[score.source, score.checked_with].append(f"`{name}`")
    return table_of(
        ["score", "defined in", "the tests compare it with"],
        [[", ".join(alike), *sources] for sources, alike in names.items()],
    )


# -- profiles and the recorder -------------------------------------------------------------------


def profiles_table() -> str:
    """Every profile that comes with the package, from its file."""
    rows = []
    for name in profile_names():
        profile = load(name)
        threads = "as many as PyTorch takes" if profile.threads is None else profile.threads
        variables = [f"`{key}={value}`" for key, value in profile.environment.items()]
        rows.append(
            [
                f"`{name}`",
                profile.device,
                threads if profile.device == "cpu" else "–",
                profile.dtype,
                ", ".join(variables) or "–",
                profile.description,
            ]
        )
    return table_of(["profile", "device", "threads", "precision", "variables", "what it is"], rows)


def recorder_table() -> str:
    """What the JSON schema says of the record that the recorder writes beside masks."""
    file = Path(cellrepro.__file__).with_name("record_schema.json")
    schema = json.loads(file.read_text(encoding="utf-8"))
    return table_of(["field", "meaning"], described_properties(schema))


def described_properties(schema: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every property of a schema with its description, those within others after them."""
    for name, within in schema.get("properties", {}).items():
        if "description" in within:
            yield f"`{prefix}{name}`", within["description"]
        if "items" in within:
            yield from described_properties(within["items"], f"{prefix}{name}[].")
        else:
            yield from described_properties(within, f"{prefix}{name}.")


if __name__ == "__main__":
    main()
