"""The reference pages whose tables follow from the code: JSON, scores, the store, profiles.

    python scripts/website.py commands    # writes them, and docs/commands.md

Their words are in the templates of docs/, such as docs/json.md.j2. What a table says of a field is
what the docstring of its class says, so that no page can differ from the code.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

import cellrepro
from cellrepro.comparison.scores import SCORES, ScoreGroup
from cellrepro.determinism.mode_names import profile_names
from cellrepro.determinism.profiles import load

DOCS = Path(__file__).resolve().parents[1] / "docs"
PACKAGE = Path(cellrepro.__file__).parent
PAGES = ("json.md", "scores.md", "store.md", "profiles.md")
"""Each is written from the template of its name, with ``.j2``."""


@dataclass(frozen=True)
class Record:
    """A class whose fields a page lists.

    Attributes
    ----------
    module : str
        In which it is.
    title : str
        What a reader calls it; the heading over its table.
    page : str
        On which its table stands.
    """

    module: str
    title: str
    page: str = "json.md"

    @property
    def anchor(self) -> str:
        """What follows ``#`` in a link to its heading."""
        return re.sub(r"[^\w\- ]", "", self.title.lower()).replace(" ", "-")


RECORDS: Mapping[str, Record] = {
    "Imported": Record("cellrepro.exchange.importing", "import"),
    "ImportedPassports": Record("cellrepro.exchange.passport_files", "import"),
    "ImportedRepeat": Record("cellrepro.exchange.importing", "A repeat of the file"),
    "Verification": Record("cellrepro.exchange.verification_result", "verify"),
    "SignatureCheck": Record("cellrepro.exchange.signed.signature_check", "A signature"),
    "VerifiedReceipt": Record("cellrepro.exchange.verified", "A receipt"),
    "PassportFile": Record("cellrepro.exchange.description", "describe a file of passports"),
    "VerifiedRepeat": Record("cellrepro.exchange.verified", "A repeat and its passport"),
    "Replay": Record("cellrepro.exchange.replay", "A replay"),
    "FirstDivergence": Record("cellrepro.exchange.receipt", "Where a replay parts"),
    "EnvironmentDifference": Record("cellrepro.exchange.receipt", "A difference of environments"),
    "BaselineCheck": Record("cellrepro.explanation.baseline_check", "baseline check"),
    "Hidden": Record("cellrepro.explanation.baseline_comparison", "Cells that could vanish"),
    "Cell": Record("cellrepro.explanation.baseline_comparison", "A cell of a baseline"),
    "StoreCheck": Record("cellrepro.exchange.store_check", "fsck"),
    "Problem": Record("cellrepro.exchange.problem", "A problem"),
    "Repair": Record("cellrepro.exchange.store_check", "A repair"),
    "BatchDependent": Record(
        "cellrepro.trace.batch_invariance", "An operation that depends on the batch"
    ),
    "BatchInvariance": Record("cellrepro.trace.batch_invariance", "Dependence on the batch"),
    "BatchResult": Record("cellrepro.audits.batch_results", "Masks with one batch size"),
    "Change": Record("cellrepro.explanation.causes", "A cause"),
    "Commands": Record("cellrepro.explanation.commands", "Commands of a side"),
    "Comparison": Record("cellrepro.explanation.two_results", "compare"),
    "CutImage": Record("cellrepro.explanation.straight_cuts", "Cuts of an image"),
    "Cuts": Record("cellrepro.explanation.straight_cuts", "tiles --masks"),
    "DescribedPassport": Record("cellrepro.exchange.description", "A passport in a file"),
    "Compared": Record("cellrepro.run.outcome", "What the verdict covers"),
    "Description": Record("cellrepro.explanation.description", "describe"),
    "Diagnosis": Record("cellrepro.audits.doctor", "doctor"),
    "PortableWitness": Record("cellrepro.audits.portable_witness", "doctor --portable"),
    "StageDigest": Record("cellrepro.audits.portable_witness", "A stage"),
    "FirstDifference": Record("cellrepro.divergence.first_difference", "A first difference"),
    "Divergence": Record("cellrepro.divergence.result", "diverge"),
    "EqualRepeats": Record("cellrepro.comparison.judgement", "Equal repeats"),
    "Effect": Record("cellrepro.audits.effect", "Effect of an operation"),
    "ValueTried": Record("cellrepro.explanation.fit", "A setting that finds nothing"),
    "Estimate": Record("cellrepro.grid.grid_runs", "What a point will take"),
    "Evidence": Record("cellrepro.divergence.evidence", "Evidence"),
    "Explanation": Record("cellrepro.explanation.explanation", "explain"),
    "CellposeCheck": Record("cellrepro.exchange.cellpose_check", "What was loaded back"),
    "ExplorerPage": Record("cellrepro.show.pages.explorer_page", "explore"),
    "FileComparison": Record("cellrepro.comparison.weight_files", "Two weights files as bytes"),
    "DifferingPart": Record("cellrepro.comparison.weight_files", "A part of files that differs"),
    "MaskComparison": Record("cellrepro.comparison.mask_comparison", "Figures of an image"),
    "MaskCounts": Record("cellrepro.comparison.mask_comparison", "Pixels", "scores.md"),
    "StateComparison": Record("cellrepro.comparison.state_comparison", "Beside the networks"),
    "ValuePair": Record("cellrepro.comparison.state_comparison", "A value that differs"),
    "GeneratorPair": Record("cellrepro.comparison.generator_pairs", "A generator in two files"),
    "ExportedPassports": Record("cellrepro.exchange.passport_files", "export"),
    "ExportedModel": Record("cellrepro.exchange.cellpose_file", "export"),
    "VerifiedModel": Record("cellrepro.exchange.verified", "A file with a network"),
    "Exported": Record("cellrepro.exchange.export", "export"),
    "BioimageioPackage": Record("cellrepro.exchange.bioimageio.package", "export"),
    "Tolerance": Record("cellrepro.exchange.bioimageio.tolerance", "The tolerance of a package"),
    "Place": Record(
        "cellrepro.exchange.bioimageio.measured_tolerance", "A machine under a profile"
    ),
    "HiddenObjects": Record(
        "cellrepro.exchange.bioimageio.tolerance", "What a tolerance could hide"
    ),
    "CopiedFiles": Record("cellrepro.grid.packaged_files", "notebooks"),
    "Demo": Record("cellrepro.demo", "demo"),
    "KnownData": Record("cellrepro.images.image_sets", "data without a name"),
    "LabMade": Record("cellrepro.process.lab_setup", "setup"),
    "ProvidedData": Record("cellrepro.images.image_sets", "data NAME"),
    "Report": Record("cellrepro.show.report.build", "report"),
    "Finding": Record("cellrepro.audits.findings", "A finding"),
    "GridRuns": Record("cellrepro.grid.grid_runs", "grid"),
    "GridRun": Record("cellrepro.grid.grid_runs", "A point of a grid"),
    "Growth": Record("cellrepro.divergence.growth", "growth"),
    "Moment": Record("cellrepro.divergence.growth", "A moment"),
    "NondeterministicOperation": Record(
        "cellrepro.trace.nondeterministic_operation", "An operation"
    ),
    "ObjectChange": Record("cellrepro.comparison.object_changes", "What became of a cell"),
    "Part": Record("cellrepro.explanation.crops", "A part of the image"),
    "Window": Record("cellrepro.model.window", "A window of the image"),
    "RecordedSettings": Record("cellrepro.explanation.recorded_settings", "What files record"),
    "RecordedValue": Record("cellrepro.explanation.recorded_settings", "A recorded value"),
    "Fit": Record("cellrepro.explanation.fit", "How near a side was made again"),
    "Seam": Record("cellrepro.comparison.straight_borders", "Straight ends at tile borders"),
    "Sensitivity": Record("cellrepro.explanation.sensitivity", "sensitivity"),
    "SettingOfBoth": Record("cellrepro.explanation.settings_of_both", "A setting"),
    "Side": Record("cellrepro.explanation.sides", "A side"),
    "RepeatRecord": Record("cellrepro.store.stored_run", "A repeat"),
    "Outcome": Record("cellrepro.run.outcome", "train, segment, wrap, wrap-python"),
    "SegmentationAudit": Record("cellrepro.audits.segmentation", "audit --task segment"),
    "StoredRun": Record("cellrepro.show.run_list", "A stored run"),
    "StoredRuns": Record("cellrepro.show.run_list", "list"),
    "StraightBorder": Record("cellrepro.comparison.straight_borders", "A straight cut"),
    "TensorComparison": Record("cellrepro.comparison.weight_comparison", "A tensor"),
    "Tiled": Record("cellrepro.explanation.tiled_cells", "An image with its tiles"),
    "TileDependence": Record("cellrepro.explanation.tiles", "tiles"),
    "TrackedRun": Record("cellrepro.exchange.tracking", "A run of a tracker"),
    "Tracking": Record("cellrepro.exchange.tracking", "track"),
    "TrainingAudit": Record("cellrepro.audits.training", "audit"),
    "Variant": Record("cellrepro.explanation.variations", "A setting that was varied"),
    "Verdicts": Record("cellrepro.run.outcome", "Two verdicts"),
    "WarningMeaning": Record("cellrepro.audits.torch_warning", "What a warning means"),
    "WeightsComparison": Record("cellrepro.comparison.weight_comparison", "Differences of weights"),
    "DataRecord": Record("cellrepro.store.manifest", "data", "store.md"),
    "Draw": Record("cellrepro.trace.random_draws", "ledger-draws.parquet", "store.md"),
    "LedgerRow": Record("cellrepro.store.ledger", "ledger.parquet", "store.md"),
    "Look": Record("cellrepro.store.training_record", "A look", "store.md"),
    "MachineRecord": Record("cellrepro.store.environment_record", "machine", "store.md"),
    "Manifest": Record("cellrepro.store.manifest", "manifest.json", "store.md"),
    "MaskRecord": Record("cellrepro.store.manifest", "The masks of one image", "store.md"),
    "ModelRecord": Record("cellrepro.store.manifest", "model", "store.md"),
    "OperationRow": Record("cellrepro.trace.operation_ledger", "ledger-ops.parquet", "store.md"),
    "Site": Record("cellrepro.call_site", "A place", "store.md"),
    "Spec": Record("cellrepro.spec.spec", "spec.json", "store.md"),
    "TrainingRecord": Record("cellrepro.store.training_record", "training", "store.md"),
    "UntilRecord": Record("cellrepro.store.training_record", "until", "store.md"),
    "WarningRecord": Record("cellrepro.store.manifest", "A warning", "store.md"),
    "WeightsRecord": Record("cellrepro.store.training_record", "weights", "store.md"),
    "Profile": Record("cellrepro.determinism.profiles", "Fields of a profile", "profiles.md"),
}
"""By the name of the class."""

WORDS = {
    "str": "text",
    "int": "integer",
    "Count": "integer from 0",
    "Score": "number from 0 to 1",
    "Seconds": "number from 0",
    "float": "number",
    "bool": "true or false",
    "object": "any",
    "Any": "any",
    "Path": "path",
    "Inside": "text",
    "Timestamp": "text",
    "NumericClass": "{name: any}",
    "SecondsByPhase": "{name: number}",
    "Digest": "64 hex digits",
    "Verdict": "[verdict](words.md)",
    "SignatureState": "`unsigned`, `unknown`, `good` or `bad`",
    "TargetKind": "`run`, `passport`, `file` or `store`",
    "JsonValue": "any",
    "ProblemKind": "`damaged`, `missing`, `extra`, `leftover`, `misplaced`, `contradiction` or "
    "`signature`",
    "DivergenceJudgement": "text",
    "GenerationNumber": "text",
    "IntervalOver": "text",
    "Result": "object",
    "Repeat": "[a repeat](#a-repeat)",
    "ReportedSpec": "object",
    "DescribedKind": "text",
    "Copy": "text",
    "JobStatus": "text",
    "Logged": "`logged`, `completed` or `already there`",
    "LedgerKind": "`off`, `steps` or `ops`",
    "Mode": "[mode](profiles.md#modes)",
    "Groups": "list of lists of integers",
    "Level": "`error`, `warning` or `info`",
    "Scalar": "text, number, true or false",
    "Limits": "{name: number}",
    "ObjectKind": "`kept`, `moved`, `lost`, `gained`, `split` or `merged`",
    "CheckedMode": "[mode](profiles.md#modes)",
    "Data": "text",
    "Epochs": "integer",
    "LearningRate": "number",
    "Ledger": "`off`, `steps` or `ops`",
    "Named": "text",
    "Seed": "integer or null",
    "Task": "`train` or `segment` or `wrap`",
    "Version": "text",
    "_Chance": "number",
    "Settings": "[settings](settings.md#what-eval-takes)",
    "Switch": "text",
    "SideKind": "text",
    "NetworkDoubt": "text",
    "Reproduced": "`made`, `in part`, `not found` or `vacuous`",
    "Condition": "{name: any}",
    "TwoValues": "[any, any]",
    "Differs": "text",
    "Numbering": "text",
    "Scores": "list of number",
    "StatePart": "text",
    "GeneratorKind": "text",
    "Method": "text",
    "TileCause": "`tiling`, `normalisation` or `none`",
    "JsonRecord": "any",
    "ShellLine": "text",
}
"""What a reader of JSON calls a type that has no table of its own."""


def write_pages() -> None:
    """Write every page of `PAGES`."""
    for name in PAGES:
        (DOCS / name).write_text(page(name), encoding="utf-8")


def page(name: str) -> str:
    """What a page says.

    Parameters
    ----------
    name : str
        One of `PAGES`.
    """
    environment = Environment(
        loader=FileSystemLoader(DOCS), undefined=StrictUndefined, trim_blocks=True
    )
    text = environment.get_template(f"{name}.j2").render(
        table=partial(table, on=name),
        part=partial(part, on=name),
        profiles=profiles_table,
        recorder=recorder_table,
        scores=partial(scores_table, on=name),
        scores_of_nothing=scores_of_nothing_table,
        score_sources=score_sources_table,
    )
    return text + "\n"


# -- fields of a class ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Field:
    """A field as a page lists it.

    Attributes
    ----------
    name : str
    type : ast.expr
        Its annotation.
    meaning : str
        From the docstring; empty where that says nothing.
    """

    name: str
    type: ast.expr
    meaning: str


def fields_of(name: str) -> list[Field]:
    """The fields of a class of `RECORDS`, those of its bases first.

    Parameters
    ----------
    name : str
        Of the class.
    """
    return list(_fields_in(RECORDS[name].module, name).values())


def _fields_in(module: str, name: str) -> dict[str, Field]:
    """The fields of a class by name; its source is read, so that PyTorch is not imported."""
    tree = _tree_of(module)
    definitions = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
    origins = {
        alias.name: node.module
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("cellrepro.")
        for alias in node.names
    }
    found: dict[str, Field] = {}
    for base in reversed(definitions[name].bases):  # the order of pydantic, and of the JSON
        if isinstance(base, ast.Name) and base.id in definitions:
            found |= _fields_in(module, base.id)
        elif isinstance(base, ast.Name) and base.id in origins:
            found |= _fields_in(str(origins[base.id]), base.id)
    return found | {field.name: field for field in _own_fields(definitions[name])}


@cache
def _tree_of(module: str) -> ast.Module:
    path = PACKAGE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    return ast.parse(path.read_text(encoding="utf-8"))


def _own_fields(definition: ast.ClassDef) -> Iterator[Field]:
    """The fields that a class itself adds, and the properties that stand behind them in JSON."""
    listed = _attributes(ast.get_docstring(definition) or "")
    for node, following in zip(definition.body, [*definition.body[1:], ast.Pass()], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            name = node.target.id
            if not name.startswith("_") and not _is_kept_back(node):
                yield Field(name, node.annotation, listed.get(name) or _text_of(following))
        elif isinstance(node, ast.FunctionDef) and node.returns is not None and _is_derived(node):
            yield Field(node.name, node.returns, " ".join((ast.get_docstring(node) or "").split()))


def _is_kept_back(node: ast.AnnAssign) -> bool:
    """Whether a field has ``repr=False``, and so is no JSON."""
    keywords = node.value.keywords if isinstance(node.value, ast.Call) else []
    return any(
        keyword.arg == "repr" and ast.unparse(keyword.value) == "False" for keyword in keywords
    )


def _is_derived(node: ast.FunctionDef) -> bool:
    """Whether a property or method stands in the JSON, too."""
    return any(ast.unparse(one) in ("derived", "in_json") for one in node.decorator_list)


def _text_of(node: ast.stmt) -> str:
    """The text of a statement that is nothing else, on one line."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""


def _attributes(docstring: str) -> dict[str, str]:
    """What the section *Attributes* of a docstring says, by name."""
    _, _, section = docstring.partition("\nAttributes\n----------\n")
    section = re.split(r"\n\n\w+\n---", section)[0]
    entries = re.findall(r"^(\w[\w, ]*) : [^\n]*((?:\n(?: .*|(?=\n)))*)", section, re.MULTILINE)
    return {
        name: " ".join(meaning.split()) for names, meaning in entries for name in names.split(", ")
    }


# -- as tables -----------------------------------------------------------------------------------


def part(name: str, *, on: str) -> str:
    """The table of a class under its heading.

    Parameters
    ----------
    name : str
        Of the class.
    on : str
        The page.
    """
    return f"### {RECORDS[name].title}\n\n{table(name, on=on)}"


def table(name: str, *, on: str, only: Sequence[str] = ()) -> str:
    """The fields of a class: name, type, meaning; those that share a meaning share a row.

    Parameters
    ----------
    name : str
        Of the class.
    on : str
        The page, as which links are written.
    only : sequence of str
        Names of the fields that are listed, where not all are.
    """
    rows = []
    listed = [field for field in fields_of(name) if not only or field.name in only]
    by_content = groupby(listed, lambda field: (ast.unparse(field.type), field.meaning))
    for _, alike in by_content:
        fields = list(alike)
        names = ", ".join(f"`{field.name}`" for field in fields)
        words = type_words(fields[0].type, on=on)
        rows.append(f"| {names} | {words} | {_as_markdown(fields[0].meaning, on=on)} |")
    return "\n".join(["| field | type | meaning |", "|---|---|---|", *rows])


def _as_markdown(text: str, *, on: str) -> str:
    """A docstring's text in a cell of a table, with links to the classes that it names."""
    plain = text.replace("``", "`").replace("|", "\\|")
    return re.sub(
        r"`(\w+)`", lambda found: _link(found[1], on=on) if found[1] in RECORDS else found[0], plain
    )


def type_words(annotation: ast.expr, *, on: str) -> str:
    """A type in the words of somebody who reads JSON.

    Parameters
    ----------
    annotation : ast.expr
    on : str
        The page, as which links are written.

    Raises
    ------
    ValueError
        If it is no type that JSON has a word for.

    Examples
    --------
    >>> type_words(ast.parse("Sequence[int] | None").body[0].value, on="json.md")
    'list of integer or null'
    """
    words = partial(type_words, on=on)
    match annotation:
        case ast.Constant(value=None):
            return "null"
        case ast.Name(id=name) if name in RECORDS:
            return _link(name, on=on)
        case ast.Name(id=name) if name in WORDS:
            return WORDS[name]
        case ast.BinOp(op=ast.BitOr()):
            return f"{words(annotation.left)} or {words(annotation.right)}"
        case ast.Subscript(value=ast.Name(id=name), slice=inner):
            return _generic_words(name, inner, on=on)
    raise ValueError(f"{ast.unparse(annotation)}: add it to RECORDS or WORDS in {__file__}")


def _link(name: str, *, on: str) -> str:
    """A link to the table of a class."""
    record = RECORDS[name]
    page = "" if record.page == on else record.page
    return f"[{record.title[0].lower()}{record.title[1:]}]({page}#{record.anchor})"


def _generic_words(name: str, inner: ast.expr, *, on: str) -> str:
    """A type with types in brackets, in words."""
    words = partial(type_words, on=on)
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    if name == "Annotated":
        return words(items[0])
    if name == "Literal":
        return " or ".join(f"`{ast.literal_eval(item)}`" for item in items)
    if name in ("Mapping", "dict", "Counter"):
        return f"{{name: {words(items[-1])}}}"
    if name == "tuple" and not (len(items) == 2 and ast.unparse(items[1]) == "..."):
        return f"[{', '.join(words(item) for item in items)}]"
    return f"list of {words(items[0])}"


# -- scores --------------------------------------------------------------------------------------


def scores_table(group: ScoreGroup, *, on: str) -> str:
    """The scores of a group: definition, range, and which number is best.

    Parameters
    ----------
    group : str
        As the scores declare it.
    on : str
        The page, as which links are written.
    """
    definitions = {field.name: field.meaning for field in fields_of("MaskComparison")}
    rows = []
    for name, score in SCORES.items():
        if score.group == group:
            definition = _as_markdown(definitions[name], on=on)
            values = ", ".join(filter(None, [score.range, score.unit]))
            best = "–" if score.best is None else score.best
            rows.append(f"| `{name}` | {definition} | {values} | {best} |")
    return "\n".join(["| field | definition | range | best |", "|---|---|---|---|", *rows])


def scores_of_nothing_table() -> str:
    """What each score is where one side or both have no object."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, score in SCORES.items():
        alike.setdefault((score.of_nothing, score.of_one_side), []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {both} | {one} |" for (both, one), names in alike.items()]
    heads = "| scores | no cell on either side | no cell on one side |"
    return "\n".join([heads, "|---|---|---|", *rows])


def score_sources_table() -> str:
    """Where each score is defined, and what the tests compare it with."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, score in SCORES.items():
        if score.source:
            alike.setdefault((score.source, score.checked_with), []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {source} | {by} |" for (source, by), names in alike.items()]
    heads = "| score | defined in | the tests compare it with |"
    return "\n".join([heads, "|---|---|---|", *rows])


# -- what is no class ----------------------------------------------------------------------------


def profiles_table() -> str:
    """Every profile that comes with the package, from its file."""
    rows = []
    for name in profile_names():
        profile = load(name)
        threads = "as many as PyTorch takes" if profile.threads is None else profile.threads
        variables = ", ".join(f"`{key}={value}`" for key, value in profile.environment.items())
        rows.append(
            f"| `{name}` | {profile.device} | {threads if profile.device == 'cpu' else '–'} "
            f"| {profile.dtype} | {variables or '–'} | {profile.description} |"
        )
    heads = "| profile | device | threads | precision | variables | what it is |"
    return "\n".join([heads, "|---|---|---|---|---|---|", *rows])


def recorder_table() -> str:
    """What the JSON schema says of the sidecar of the recorder."""
    schema = json.loads((PACKAGE / "record_schema.json").read_text(encoding="utf-8"))
    rows = [f"| `{name}` | {meaning} |" for name, meaning in _described(schema, "")]
    return "\n".join(["| field | meaning |", "|---|---|", *rows])


def _described(schema: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Every property of a schema with its description, those within others after them."""
    for name, within in schema.get("properties", {}).items():
        inner = within.get("items", within)
        is_list = "items" in within
        if "description" in within:
            yield f"{prefix}{name}", within["description"]
        yield from _described(inner, f"{prefix}{name}[]." if is_list else f"{prefix}{name}.")
