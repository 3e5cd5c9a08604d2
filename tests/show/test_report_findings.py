"""Findings: what specs are called, and with how many digits; the report's tests plant the rest."""

import pytest

from cellrepro.compare.names import Names
from cellrepro.show.report import findings
from cellrepro.store.spec import make_spec


def names(*changes: dict) -> Names:
    fields = {
        "data": "cells",
        "data_digest": "d" * 64,
        "model": "tiny",
        "profile": "cpu",
        "profile_settings": {"threads": 2},
    }
    specs = [make_spec(**{**fields, **change}) for change in changes]
    named = Names({str(i): spec for i, spec in enumerate(specs)})
    assert len(named.facts) == len(changes)
    return named


def test_a_name_says_what_varies():
    named = names({"seed": 0}, {"seed": 10}, {"seed": 2, "mode": "fast"})
    assert [named.short(str(i)) for i in range(3)] == [
        "strict, seed 0",
        "strict, seed 10",
        "fast, seed 2",
    ]
    assert sorted("012", key=named.order) == ["0", "2", "1"]


def test_what_follows_from_other_fields_is_not_said():
    named = names({"model": "tiny", "epochs": 9}, {"model": "cpsam", "epochs": 2})
    assert named.short("0") == "model tiny"


def test_what_is_usual_is_not_said():
    named = names(*({"model": "a" * 16 + "/0", "seed": i} for i in range(5)), {"model": "tiny"})
    assert named.usual == {"model": "aaaaaaaa/0"}
    assert named.short("1") == "seed 1"
    assert named.short("5") == "seed 0, model tiny"


def test_equal_names_of_different_profiles_are_told_apart():
    named = names({}, {"profile_settings": {"threads": 4}})
    first, second = (named.column(key)[0] for key in "01")
    assert first != second
    assert first.startswith("cpu (")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.81, 0.79, 0.83], ["0.81", "0.79", "0.83"]),
        ([0.8122, 0.8121, 0.8123], ["0.8122", "0.8121", "0.8123"]),
        ([0.5, 0.5, 0.5], ["0.50", "0.50", "0.50"]),
    ],
    ids=["apart", "close", "equal"],
)
def test_scores_have_as_few_digits_as_tell_them_apart(values, expected):
    assert findings._distinct(values) == expected


def test_a_run_with_one_operation_loose_is_not_called_strict(made_up):
    """Its repeats may differ; under the name of strict they would say that strict does not hold."""
    from cellrepro.compare.names import Names, sort_key

    specs = [made_up.spec(mode="strict"), made_up.spec(mode="strict", loose="index_put")]
    names = Names({spec.key: spec for spec in specs})
    modes = [names.facts[spec.key]["mode"] for spec in specs]
    assert modes == ["strict", "strict, index_put loose"]
    assert names.varying == ["mode"]
    assert sort_key("mode", "fast") < sort_key("mode", modes[0]) < sort_key("mode", modes[1])
    assert len({names.order(spec.key) for spec in specs}) == 2


def on_machines(*machines: dict, starts=()) -> Names:
    """One spec on several machines."""
    from conftest import some_machine, some_spec

    found = [some_machine(**machine) for machine in machines]
    places = {f"{some_spec().key}/{i}": machine for i, machine in enumerate(found)}
    return Names(dict.fromkeys(places, some_spec()), places, starts=starts)


@pytest.mark.parametrize(
    ("machines", "expected"),
    [
        ([{"label": "laptop"}, {"label": "a100"}], ["laptop", "a100"]),
        ([{}, {"versions": {"torch": "2.16.0"}}], ["torch 2.15.0", "torch 2.16.0"]),
        ([{}, {"driver": "570"}], ["driver absent", "driver 570"]),
        ([{}, {"device": "Abacus 10"}], ["abacus, Abacus 9", "abacus, Abacus 10"]),
        ([{"label": "laptop"}, {"label": "a100", "versions": {"torch": "2"}}], ["laptop", "a100"]),
    ],
    ids=["two", "upgraded", "another driver", "two devices of one name", "in several respects"],
)
def test_machines_are_named_by_what_differs(machines, expected):
    named = on_machines(*machines)
    assert [named.short(place) for place in named.facts] == expected
    assert [named.row(place) for place in named.facts] == expected


def test_machines_of_one_name_are_told_apart():
    named = on_machines(
        {"identity": "0"}, {"identity": "1"}, {"identity": "1", "numeric_class": "0b"}
    )
    said = [named.short(place) for place in named.facts]
    assert len(set(said)) == 3
    assert all(name.startswith("abacus (") for name in said)


def test_a_starting_network_is_named_as_that_and_makes_no_name_longer():
    fields = {"model": "a" * 16 + "/0", "epochs": 3}
    specs = [{"epochs": 12}, *({**fields, "seed": seed} for seed in (0, 1))]
    named = Names(
        {str(i): make_spec(data="c", data_digest="d" * 64, profile="cpu", profile_settings={},
                           **{"model": "tiny", **spec}) for i, spec in enumerate(specs)},
        starts=["0"],
    )  # fmt: skip
    assert [named.short(str(i)) for i in range(3)] == ["starting network", "seed 0", "seed 1"]
    assert sorted("012", key=named.order) == ["1", "2", "0"]
    assert named.values("epochs") == [3]


# -- axes ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def chapter(tmp_path_factory):
    from cellrepro.store.store import Store
    from stores import planted

    root = tmp_path_factory.mktemp("planted") / "store"
    planted(root)
    (only,) = findings.find(Store(root)).chapters
    return only


def test_axes_come_in_the_order_of_the_page(chapter):
    assert [axis.name for axis in chapter.axes] == ["repeats", "threads", "mode", "seed"]
    assert [axis.title for axis in chapter.axes][:2] == [
        "repeats of one spec",
        "threads and instruction sets",
    ]


def test_every_pair_of_repeats_counts_also_equal_ones(chapter):
    repeats = chapter.axes[0]
    assert len(repeats.pairs) == 5
    assert [pair.context for pair in repeats.differing] == ["cpu, fast, seed 0"]
    assert repeats.n_vacuous == 1


def test_pairs_bear_the_names_of_their_chapter(chapter):
    profiles = {p.context: (p.name_a, p.name_b, p.verdict) for p in chapter.axes[1].pairs}
    assert profiles == {
        "fast, seed 0": ("cpu", "cpu-1thread", "identical"),
        "strict, seed 0": ("cpu", "cpu-1thread", "different"),
    }
    (seeds,) = chapter.axes[3].pairs
    assert (seeds.name_a, seeds.name_b) == ("seed 0", "seed 1")


def test_two_contents_of_one_name_are_two_profiles(tmp_path):
    from cellrepro.store.store import Store
    from stores import add_run, three

    for threads in (2, 4):
        settings = {"name": "mine", "threads": threads}
        add_run(Store(tmp_path), [(1.0, three())], profile="mine", profile_settings=settings)
    (axis,) = findings.find(Store(tmp_path)).chapters[0].axes
    (pair,) = axis.pairs
    assert axis.name == "threads"
    assert pair.name_a.startswith("mine (")
    assert pair.name_a != pair.name_b


def test_fields_of_a_recipe_are_axes_where_they_vary(tmp_path):
    from cellrepro.store.store import Store
    from stores import add_run, three

    for epochs in (3, 4):
        add_run(Store(tmp_path), [(1.0, three())], epochs=epochs)
    (chapter,) = findings.find(Store(tmp_path)).chapters
    assert [(axis.name, axis.title) for axis in chapter.axes] == [("epochs", "numbers of epochs")]
