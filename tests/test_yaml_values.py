"""Numbers are numbers and words are words, in every option and file alike."""

from types import SimpleNamespace

import pytest
import yaml

from cellrepro.grid.grid_file import read_file
from cellrepro.store.references import has_values
from cellrepro.terminal_values import overrides, pairs_in
from cellrepro.yaml_values import read_yaml
from stores import some_spec

VALUES = {
    "1e-3": 0.001,
    "1E5": 1e5,
    "-2.5e+2": -250.0,
    ".5": 0.5,
    "12": 12,
    "off": "off",
    "on": "on",
    "yes": "yes",
    "No": "No",
    "true": True,
    "null": None,
    "2024-01-01": "2024-01-01",
    "1.2.3": "1.2.3",
    "12e": "12e",
    "[1e-3, off]": [0.001, "off"],
}


@pytest.mark.parametrize(("text", "expected"), VALUES.items())
def test_a_value_is_what_it_looks_like(text, expected):
    found = read_yaml(text)
    assert (found, type(found)) == (expected, type(expected))


def test_options_and_grid_files_read_alike(tmp_path):
    file = tmp_path / "grid.yaml"
    file.write_text(
        "notebook: 01_seeded_training\n"
        "fixed: {learning_rate: 1e-3}\n"
        "vary: {mode: [off, strict]}\n"
        "on: all\n"
    )
    grid = read_file(file)
    assert grid.fixed == overrides(["learning_rate=1e-3"]) == {"learning_rate": 0.001}
    assert grid.vary == {"mode": ["off", "strict"]}
    assert grid.on == "all"
    assert grid.overridden(overrides(["mode=off"])).vary["mode"] == ["off"]


@pytest.mark.parametrize(
    ("wanted", "is_found"),
    [
        ("learning_rate=1e-3", True),
        ("learning_rate=0.001", True),
        ("learning_rate=1e-4", False),
        ("mode=off", True),
        ("mode=strict", False),
        ("seed=null", True),
        ("model=1e3", True),
    ],
)
def test_runs_are_found_by_what_was_asked(wanted, is_found):
    """Text of a field stays text, also where it looks like a number."""
    spec = some_spec(seed=None, mode="off", learning_rate=0.001, model="1e3")
    run = SimpleNamespace(spec=spec, key=spec.key)
    assert has_values(run, "a machine", pairs_in([wanted], "--where")) is is_found


def test_numbers_are_those_of_yaml_1_2_and_no_key_is_given_twice():
    assert read_yaml("[12:30, 0010, 1_000, 0, -3]") == ["12:30", "0010", "1_000", 0, -3]
    with pytest.raises(yaml.YAMLError, match="'seed' is given twice"):
        read_yaml("{seed: 1, epochs: 3, seed: 2}")
