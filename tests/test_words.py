"""Sentences where a careless one would read "by up to 0 ppm" or "0.806 to 0.806"."""

import ast
import re
from pathlib import Path
from typing import Annotated

import numpy as np
import pytest
from pydantic import Field, TypeAdapter, ValidationError

import cellrepro
from cellrepro.audits.effect import Effect
from cellrepro.comparison.consensus import agree
from cellrepro.comparison.judgement import judge
from cellrepro.comparison.mask_comparison import compare_masks
from cellrepro.profiles.process_start import require_at_startup
from cellrepro.run import program_segmenter
from cellrepro.show.explorer.widget import explore
from cellrepro.show.figures.agreement import map_heading
from cellrepro.show.report.build import write_report
from cellrepro.store.store import Store
from cellrepro.wrong_fields import wrong_fields
from samebits.errors import BadInput
from samebits.results import html_table
from samebits.shown_text import visible
from samebits.trace.operation_alignment import align
from stores import NOTHING, add_run, some_manifest, some_spec, squares, three

# A range whose ends read alike; nothing of something; one of what several are.
CARELESS = re.compile(
    r"(?P<end>[\d.]+( %| ppm)?) to (?P=end)\b|up to 0\b|\b0 also|\b1 (\w+s\b(?<!ppms)(?<!less)) "
    r"|\b1 different \w+\b|\ball 1\b"
)
# Pixels in parts per million beside cells in per cent; below 0.01 % they are.
MANY_PPM = re.compile(r"\d{3}(\.\d+)?( |\u00a0|&nbsp;)ppm")


def page_text(folder):
    """What a report says, without its tags, tables and figures."""
    html = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert not MANY_PPM.search(html)
    for part in ("style", "script", "svg", "table"):
        html = re.sub(rf"<{part}\b.*?</{part}>", " ", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", html))


MISSING = three(squares(second=False))
STORES = {
    "one repeat": [({}, [(1.0, three())])],
    "two equal": [({}, [(1.0, three())] * 2)],
    "different weights, equal masks": [({"mode": "fast"}, [(1.0, three()), (2.0, three())])],
    "two profiles that agree": [({}, [(1.0, three())]), ({"profile": "gpu"}, [(1.0, three())])],
    "two seeds": [({"seed": seed}, [(1.0 + seed, [three(), MISSING][seed])]) for seed in (0, 1)],
    "no cells": [({}, [(1.0, dict.fromkeys(three(), NOTHING))] * 2)],
}


@pytest.mark.parametrize("runs", STORES.values(), ids=STORES)
def test_no_sentence_of_a_report_is_careless(tmp_path, runs):
    store = Store(tmp_path)
    for fields, outcomes in runs:
        add_run(store, outcomes, **fields)
    write_report(store)
    assert [found[0] for found in CARELESS.finditer(page_text(tmp_path))] == []


def test_sentences_of_masks():
    same, other = squares(), squares(grown=1)
    sentence = compare_masks(same, other).sentence()
    assert sentence.endswith(": 2 kept, none changed. 0.043 % of the pixels differ.")
    smaller = same.copy()
    smaller[5:15, 5:15] = 0
    smaller[6:14, 6:14] = 1
    sentence = compare_masks(same, smaller).sentence()
    assert "kept (1 of them 36 % smaller)" in sentence
    assert map_heading(agree([NOTHING] * 3)) == "3 runs: none holds a cell"
    many = np.arange(1, 2501).reshape(50, 50)
    assert not re.search(r"\d{4}", compare_masks(many, np.where(many > 1200, many, 0)).sentence())
    line = explore(same, same, same).scene["line"]
    assert line == "2 kept, none changed; no pixel differs, of 2 304"


def test_one_of_several_is_said_as_one():
    assert (
        agree([squares(), squares(second=False)])
        .sentence()
        .endswith("1 of 2 cells is in all of them")
    )
    rows = [{"a": number} for number in range(3)]
    assert "and 1 more row<" in html_table(rows, most=2)


def test_sentences_of_repeats_and_operations():
    assert (
        judge([some_manifest(), some_manifest(repeat=1)])
        .sentence()
        .endswith("over 2 repeats, 1 image")
    )
    assert align([], []).sentence() == "neither side ran an operation"
    effect = Effect(
        op="aten.x", repeats=2, key="a", fixed_key="b", fixed_identical=True, n_weights=2,
        weights_differing=1e-7, n_masks=1, ppm=0.0, n_objects=0,
    )  # fmt: skip
    assert effect.sentence() == (
        "with x alone left as it is, 2 repeats end in 2 different networks (0.10 ppm of their "
        "weights differ); no pixel differs"
    )


def test_on_windows_commands_keep_their_backslashes_and_are_said_for_powershell(monkeypatch):
    """The name of the system is planted, and given back: pytest needs the true one."""
    with monkeypatch.context() as planted:
        planted.setattr("os.name", "nt")
        words = program_segmenter._words_of(r"C:\py\python.exe 'C:\my files\segment.py' {image}")
        label = program_segmenter._label_of(tuple(words))
        refusal = None
        try:
            require_at_startup({"NEVER_SET": "b c"})
        except BadInput as error:
            refusal = str(error)
    assert words[:2] == [r"C:\py\python.exe", r"C:\my files\segment.py"]
    assert label == "python.exe segment.py"
    assert "`$env:NEVER_SET='b c'; python ...`" in refusal


def test_a_strangers_text_is_bounded():
    """A terminal shows what a sentence needs of a name of 100,000 letters."""
    name = "m" * 100_000
    assert len(some_spec(model=name, data=name, profile=name).label) < 1000
    shown = visible(f"first\n{name}\nlast")
    assert len(shown) < 6000
    assert shown.startswith("first\n")
    assert shown.endswith("… (100000 letters)\nlast")


def test_what_a_text_has_to_look_like_is_said_in_words_not_as_a_pattern():
    package = Path(cellrepro.__file__).parent
    sources = (path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    declared = {text for source in sources for text in re.findall(r'pattern=(r?"[^"]+")', source)}
    assert declared
    for text in declared:
        form = TypeAdapter(Annotated[str, Field(pattern=ast.literal_eval(text))])
        with pytest.raises(ValidationError) as refused:
            form.validate_python("?")
        said = wrong_fields(refused.value)
        assert not re.search(r"[\\^$\[\]{}|]", said), said
        for example in re.findall(r"such as (\S+)$", said):
            form.validate_python(example)
