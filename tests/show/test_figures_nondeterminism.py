"""The pictures of what moves: what they say, that they say it in words too, what they refuse."""

import base64
import dataclasses
import io
from types import SimpleNamespace

import matplotlib.text
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cellrepro.errors import BadInput
from cellrepro.lab.audit_training import TrainingAudit
from cellrepro.lab.cost_of_determinism import Cost, CostRow
from cellrepro.lab.effects import Effect
from cellrepro.lab.seed_effect import SEEDS, SeedProbe, Trial
from cellrepro.model.training import learning_rates
from cellrepro.show.figures import nondeterminism, style
from cellrepro.store.store import Store
from cellrepro.trace.nondeterministic_operation import NondeterministicOperation
from stores import NOTHING, add_run, squares, three

PLACE = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
OP = "aten.index_put.default"


def texts(told):
    """Everything written in a picture, once it is drawn; drawing must not warn."""
    assert told.png(dpi=40).startswith(b"\x89PNG")
    found = told.picture.findobj(matplotlib.text.Text)
    return "\n".join(text.get_text() for text in found if text.get_visible())


def row(**changes):
    fields = {
        "op": OP,
        "module": "encoder.blocks.0.attn",
        "source": PLACE,
        "phase": "backward",
        "flips": 3,
        "replays": 24,
        "warned": False,
        "substitute": "rel-pos-gather",
        "max_abs": 1e-11,
        "n_elements": 12,
        "calls": 6,
        "reason": "threads add in any order",
        "remedy": "mode strict",
    }
    return NondeterministicOperation(**{**fields, **changes})


def warned(**changes):
    fields = {
        "op": "aten.put_.default",
        "source": "mine.py:3 in forward",
        "phase": "forward",
        "flips": 0,
        "replays": 0,
        "warned": True,
        "substitute": None,
        "max_abs": 0.0,
        "remedy": "use scatter",
    }
    return row(**{**fields, **changes})


def audit_of(*rows, warnings=()):
    return TrainingAudit(
        spec=SimpleNamespace(mode="fast", profile="cpu"),
        ops=rows,
        warnings=warnings,
        n_steps=3,
        n_calls=100,
        n_replayed=50,
        n_replays=200,
        threads=2,
        n_followed=0,
        kinds={"aten.mm.default": 38, OP: 6, "aten.put_.default": 6},
        replays={"aten.mm.default": 38, OP: 6 * 20, "aten.put_.default": 6 * 7},
        not_replayed={},
        groups=[],
        learning_rates=[1e-4],
        n_moved=1000,
        seconds={"plain": 0.1, "audited": 0.4},
        sentence="some sentence",
    )


def effect(**changes):
    fields = {
        "op": OP,
        "key": "a" * 16,
        "fixed_key": "b" * 16,
        "repeats": 2,
        "fixed_identical": True,
        "n_weights": 2,
        "weights_differing": 0.56,
        "relative_l2": 2e-5,
        "n_masks": 2,
        "ppm": 120.0,
        "n_objects": 3,
    }
    return Effect(**{**fields, **changes})


NO_EFFECT = {"n_weights": 1, "n_masks": 1, "weights_differing": 0.0, "relative_l2": 0.0, "ppm": 0.0}


def cost(**changes):
    rows = (
        CostRow("plain", "as it is", 0.2, 1.0, 1.0, 1.0),
        CostRow("others", "every switch", 0.3, 1.5, 1.4, 1.6),
        CostRow("strict", "the lab", 0.21, 1.05, 0.98, 1.11),
    )
    fields = {"rows": rows, "notes": ("others: only warns here",)}
    return Cost("tiny", 9, "cpu", 2, 1, 3, 2, **{**fields, **changes})


# -- a picture and its words ---------------------------------------------------------------


def test_a_picture_carries_its_caption_and_its_words():
    picture = style.note("identical")
    told = nondeterminism.Told(picture, "One field.\n  It says identical.", "a table of one field")
    data, metadata = told._repr_mimebundle_()
    assert metadata == {"image/png": {"alt": "a table of one field"}}
    assert data["text/plain"] == "a table of one field"
    assert base64.b64decode(data["image/png"]) == told.png()
    alone, both = (Image.open(io.BytesIO(one)) for one in (picture.png(), told.png()))
    assert both.width == alone.width
    assert both.crop((0, 0, *alone.size)).tobytes() == alone.convert("RGB").tobytes()
    caption = np.asarray(both)[alone.height :]
    assert caption.min() < 120  # something is written there
    assert told.caption == "One field. It says identical."


def test_a_longer_caption_takes_more_room():
    picture = style.note("identical")
    heights = [
        Image.open(io.BytesIO(nondeterminism.Told(picture, "many words " * n, "").png())).height
        for n in (1, 40)
    ]
    assert heights[1] > heights[0] + 20


# -- who it was ----------------------------------------------------------------------------


def test_modules_of_one_line_are_one_culprit():
    (one,) = nondeterminism.culprits(
        audit_of(row(), row(module="encoder.blocks.1.attn", flips=5, replays=24, max_abs=1e-9))
    )
    assert one.modules == ("encoder.blocks.0.attn", "encoder.blocks.1.attn")
    assert (one.flips, one.replays, one.max_abs) == (8, 48, 1e-9)
    assert one.name == "index_put"


def test_lines_and_passes_are_told_apart():
    other = row(source="mine.py:1 in f", flips=9)
    forward = row(phase="forward", flips=1)
    found = nondeterminism.culprits(audit_of(row(), other, forward))
    assert [one.flips for one in found] == [9, 3, 1]


def test_a_warning_at_the_same_place_is_not_listed_twice():
    (one,) = nondeterminism.culprits(
        audit_of(row(), warnings=(row(flips=0, replays=0, warned=True, module=None),))
    )
    assert one.warned
    assert (one.flips, one.modules) == (3, ("encoder.blocks.0.attn",))


def test_a_warning_without_a_flip_says_over_how_many_replays():
    (one,) = nondeterminism.culprits(audit_of(warnings=(warned(),)))
    assert (one.flips, one.replays) == (0, 42)  # of put_ alone, not as many as all have on average
    assert (
        "0 of 42" in nondeterminism.culprit_table([one]).loc["replays that gave other bits"].item()
    )


def test_an_operation_that_was_only_tried_is_listed():
    (one,) = nondeterminism.culprits(audit_of(), {"index_put": effect(**NO_EFFECT)})
    assert (one.flips, one.replays, one.warned) == (0, 120, False)
    assert one.substitute == "rel-pos-gather"
    assert one.source == "segment_anything/modeling/image_encoder.py in get_rel_pos"
    assert one.verdict == "no flip, no warning, no effect"


def test_an_effect_is_given_to_its_operation():
    found = nondeterminism.culprits(
        audit_of(row(), warnings=(warned(),)),
        {OP: effect(), "aten.put_.default": "not measured: because"},
    )
    assert [one.effect is not None for one in found] == [True, False]
    assert found[1].no_effect_because == "not measured: because"


def test_nothing_is_no_culprit():
    assert nondeterminism.culprits(audit_of()) == ()
    assert nondeterminism.culprit_table(()).empty


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["aten.a.default", "aten.b.default"]),
            st.sampled_from(["f.py:1 in f", None]),
            st.sampled_from(["forward", "backward"]),
            st.sampled_from(["x", "y", None]),
            st.integers(1, 9),
            st.booleans(),
        ),
        max_size=12,
    )
)
def test_no_flip_is_lost(drawn):
    rows = [
        row(op=op, source=source, phase=phase, module=module, flips=flips, replays=9, warned=warns)
        for op, source, phase, module, flips, warns in drawn
    ]
    found = nondeterminism.culprits(audit_of(*rows))
    assert sum(one.flips for one in found) == sum(one.flips for one in rows)
    assert sum(one.replays for one in found) == 9 * len(rows)
    assert {(one.op, one.source, one.phase) for one in found} == {each[:3] for each in drawn}
    assert len(found) == len({each[:3] for each in drawn})
    assert any(one.warned for one in found) == any(each[5] for each in drawn)


@pytest.mark.parametrize(
    ("flips", "warns", "changes", "moves", "verdict"),
    [
        (3, False, {}, True, "an effect without a warning"),
        (3, True, {}, True, "a warning with an effect"),
        (3, True, NO_EFFECT, False, "a warning without an effect"),
        (3, False, NO_EFFECT, False, "flips without an effect"),
        (3, False, {"n_masks": 1}, True, "an effect without a warning"),
        (3, False, {"n_weights": 1}, True, "an effect without a warning"),
        (3, False, {"fixed_identical": False}, None, "no warning, and an effect that cannot be"),
        (3, True, {**NO_EFFECT, "vacuous": ("no object",)}, None, "a warning, and an effect that"),
        (3, False, {"vacuous": ("no object was found",)}, True, "an effect without a warning"),
        (3, True, None, None, "a warning, and an effect not measured"),
    ],
)
def test_warning_and_effect_beside_each_other(flips, warns, changes, moves, verdict):
    effects = {} if changes is None else {OP: effect(**changes)}
    (one,) = nondeterminism.culprits(audit_of(row(flips=flips, warned=warns)), effects)
    assert one.moves is moves
    assert one.verdict.startswith(verdict)


def test_the_table_answers_every_question():
    listed = nondeterminism.culprit_table(
        nondeterminism.culprits(audit_of(row(), warnings=(warned(),)), {OP: effect()})
    )
    assert listed.columns.tolist() == [OP, "aten.put_.default"]
    first = listed[OP]
    assert first["module"] == "encoder.blocks.0.attn"
    assert first["file"] == "segment_anything/modeling/image_encoder.py"
    assert first["line"] == "322 in get_rel_pos"
    assert first["pass"] == "backward"
    assert first["replays that gave other bits"] == "3 of 24"
    assert first["PyTorch warns"] == "no"
    assert first["weights that differ"] == "56 %"
    assert first["pixels that differ"] == "120 ppm"
    assert first["objects without a match"] == "3"
    assert first["substitute"] == "rel-pos-gather"
    second = listed["aten.put_.default"]
    assert second["PyTorch warns"] == "yes"
    assert second["weights that differ"] == "not measured"
    assert second["substitute"] == "none"


def test_one_operation_on_two_lines_has_two_columns():
    found = nondeterminism.culprits(audit_of(row(), row(source="mine.py:7 in f")))
    assert nondeterminism.culprit_table(found).columns.tolist() == [OP, f"{OP} at 7 in f"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"fixed_identical": False}, ("cannot be told", "-", "-")),
        ({"vacuous": ("no object was found",), "n_masks": 1}, ("56 %", "no object found", "-")),
        ({"vacuous": ("no object was found",), "n_masks": 2}, ("56 %", "120 ppm", "3")),
        (NO_EFFECT | {"n_objects": 0}, ("none", "0 ppm", "0")),
    ],
    ids=["something else moves", "no cells", "cells in one repeat only", "none"],
)
def test_an_effect_in_the_table(changes, expected):
    found = nondeterminism.culprits(audit_of(row()), {OP: effect(**changes)})
    listed = nondeterminism.culprit_table(found)[OP]
    names = ("weights that differ", "pixels that differ", "objects without a match")
    assert tuple(listed[name] for name in names) == expected


# -- what flipped --------------------------------------------------------------------------


def test_flips_by_place():
    told = nondeterminism.flips_by_place(audit_of(row(), warnings=(warned(),)))
    written = texts(told)
    assert "Equal inputs, other bits: index_put" in written
    assert "index_put, backward\nencoder.blocks.0.attn" in written
    assert "3 of 24, PyTorch is silent" in written
    assert "2 other kinds of operation" in written
    assert "0 of 176" in written
    assert "3 training steps in mode fast" in told.caption
    (axes,) = told.picture.axes
    assert [bar.get_width() for bar in axes.patches] == [12.5, 0]


def test_no_flip_is_said():
    written = texts(nondeterminism.flips_by_place(audit_of()))
    assert "No operation gave other bits" in written
    assert "all 3 kinds\nof operation" in written
    assert "0 of 200" in written


def test_many_places_are_summed_up():
    rows = [row(module=f"block.{i}", flips=20 - i) for i in range(14)]
    written = texts(nondeterminism.flips_by_place(audit_of(*rows)))
    assert "4 more places" in written
    assert "block.9" in written
    assert "block.10" not in written


# -- what it does --------------------------------------------------------------------------


@pytest.fixture
def trained(tmp_path):
    """A store with two equal held repeats, and two loose ones that differ in one image."""
    store = Store(tmp_path / "store")
    held = add_run(store, [(1.0, three()), (1.0, three())])
    loose = add_run(
        store, [(1.5, three()), (1.75, three(img_b=squares(grown=8)))], loose="index_put"
    )
    return store, effect(key=loose.key, fixed_key=held.key)


def test_equal_letters_are_equal_bits(trained):
    told = nondeterminism.results(*trained)
    panels = told.picture.axes
    letters = [[text.get_text() for text in panel.texts] for panel in panels]
    assert letters == [["A", "A", "B", "C"], ["A", "A", "A", "B"]]
    assert [panel.get_title() for panel in panels] == ["weights", "masks"]
    assert "only index_put loose" in texts(told)
    assert "held, 2 repeats gave 1 set of weights and 1 of masks" in told.alt
    assert "loose, 2 sets of weights and 2 of masks" in told.alt


def test_the_image_that_differs_is_shown(trained):
    told = nondeterminism.masks_moved(*trained)
    assert "img_b, segmented" in told.caption
    assert "only index_put loose" in told.caption
    assert "of its pixels differ, the most of 3 images" in told.caption
    assert "pixels differ; objects lost 0, gained 0" in texts(told)


def test_the_parts_that_moved_are_shown(trained):
    told = nondeterminism.weights_moved(*trained)
    assert "encoder.blocks.0.attn.weight" in texts(told)
    assert "out.bias" not in texts(told)
    assert "2 different sets of weights over 2 repeats" in told.alt


@pytest.mark.parametrize(
    ("masks", "expected"),
    [
        (three(), "not one pixel of 3 images differs"),
        (dict.fromkeys(three(), NOTHING), "no object was found, so this says nothing about cells"),
    ],
    ids=["equal masks", "no cells"],
)
def test_masks_that_did_not_move(tmp_path, masks, expected):
    store = Store(tmp_path / "store")
    loose = add_run(store, [(1.5, masks), (1.75, masks)], loose="index_put")
    assert expected in nondeterminism.masks_moved(store, effect(key=loose.key)).caption


def test_of_three_repeats_the_two_furthest_apart_are_shown(tmp_path):
    store = Store(tmp_path / "store")
    outcomes = [(1.0, three()), (1.0, three()), (1.2, three(squares(second=False)))]
    loose = add_run(store, outcomes, loose="index_put")
    told = nondeterminism.masks_moved(store, effect(key=loose.key, repeats=3))
    assert "repeat 0: 2 objects" in texts(told)
    assert "repeat 2: 1 object" in texts(told)


def test_another_store_is_refused(trained, tmp_path):
    _, measured = trained
    with pytest.raises(BadInput, match=r"holds 0 repeats of .*give the store they were trained"):
        nondeterminism.results(Store(tmp_path / "elsewhere"), measured)


# -- what it costs -------------------------------------------------------------------------


def test_cost():
    told = nondeterminism.cost_bars(cost())
    written = texts(told)
    assert "Held (mode strict), a step takes 1.05 times as long (0.98 to 1.11)" in written
    assert "1.05 (0.98 to 1.11), 0.21 s" in written
    assert "1.00, 0.2 s" in written
    assert "2 rounds of 3 steps, tiny on cpu, 2 threads" in told.caption
    assert "others: only warns here" in told.caption
    (axes,) = told.picture.axes
    assert [bar.get_width() for bar in axes.patches] == [1.0, 1.5, 1.05]
    assert told.alt == f"Bar chart. {cost().sentence()}."


def test_cost_without_strict():
    assert "Time of a training step" in texts(nondeterminism.cost_bars(cost(rows=cost().rows[:1])))


# -- all in one ----------------------------------------------------------------------------


def test_a_row_for_each_operation():
    found = nondeterminism.culprits(audit_of(row(), warnings=(warned(),)), {OP: effect()})
    told = nondeterminism.summary(found, cost())
    written = texts(told)
    for expected in (
        *("index_put", "backward of encoder.blocks.0.attn", "image_encoder.py:322 in get_rel_pos"),
        *("3 of 24", "56 %", "distance 2e-05", "120 ppm", "over 2 repeats", "rel-pos-gather"),
        *("≠ an effect without a warning", "Why: threads add in any order", "of a step (0.98 to"),
        *("put", "mine.py:3 in forward", "0 of 42", "yes", "not measured", "use scatter"),
        "? a warning, and an effect not measured",
    ):
        assert expected in written
    assert written.count("price:") == 1  # of what has a substitute
    assert "index_put, backward of encoder.blocks.0.attn" in told.alt
    assert "put, forward of encoder.blocks.0.attn" in told.alt


def test_bars_have_the_lengths_they_say():
    (one,) = nondeterminism.culprits(audit_of(row(flips=12, replays=24)), {OP: effect()})
    (axes,) = nondeterminism.summary([one]).picture.axes
    flips, weights = axes.patches[1], axes.patches[3]
    assert flips.get_width() == pytest.approx(axes.patches[0].get_width() / 2)
    assert weights.get_width() == pytest.approx(0.56 * axes.patches[2].get_width())


def test_a_rare_flip_is_not_drawn_as_none():
    (one,) = nondeterminism.culprits(audit_of(row(flips=1, replays=10**6)))
    (axes,) = nondeterminism.summary([one]).picture.axes
    assert axes.patches[1].get_width() > 0.01


def test_nothing_moved_is_said():
    told = nondeterminism.summary(())
    assert "no operation moved, and PyTorch warned of none" in texts(told)
    assert "Nothing moved." in told.alt


def test_more_operations_take_more_room():
    found = nondeterminism.culprits(audit_of(row(), warnings=(warned(),)))
    heights = [
        Image.open(io.BytesIO(nondeterminism.summary(found[:n]).png())).height for n in (1, 2)
    ]
    assert heights[1] > heights[0] + 100


# -- seeds and epochs ----------------------------------------------------------------------


def probe(n=4):
    def trial(what, seed, weights, order):
        shown = np.random.default_rng(order).integers(0, 256, (n, 64, 64), np.uint8)
        names = tuple(f"img_{i}" for i in range(n))
        batches = tuple(f"{order}{i}" for i in range(n))
        n_changed = (0,) * (n // 2) + (5,) * (n // 2)
        return Trial(what, seed, "g", names, batches, shown, n_changed, weights)

    usual, torch, data = SEEDS
    trials = (
        *(trial(usual, seed, "w", 0) for seed in (1, 2)),
        *(trial(torch, seed, f"t{seed}", 0) for seed in (1, 2)),
        *(trial(data, seed, f"d{seed}", seed) for seed in (1, 2)),
    )
    return SeedProbe(trials, 6, 9, n // 2, 2, 77)


def test_seeds_row_by_row():
    told = nondeterminism.seed_strips(probe())
    written = texts(told)
    assert "torch.manual_seed(2)" in written
    assert "random.seed(1)\nnp.random.seed(1)" in written
    assert "epoch 2\nimage 2" in written
    letters = [line for line in written.splitlines() if line in set("ABCDEF")]
    assert letters == ["A", "A", "B", "C", "D", "E"]
    assert "NumPy and Python: seeds 1 and 2 give the same images and the same weights" in told.alt
    assert "each epoch draws 2 of 6 images" in told.caption
    shown = [panel.images[0].get_array() for panel in told.picture.axes if panel.images]
    assert len(shown) == 24
    assert np.array_equal(shown[0], probe().trials[0].thumbnails[0])
    assert np.array_equal(shown[-1], probe().trials[-1].thumbnails[-1])


def test_long_trials_are_cut_short():
    told = nondeterminism.seed_strips(probe(20))
    assert len([panel for panel in told.picture.axes if panel.images]) == 6 * 8


def test_the_rate_starts_at_nothing():
    told = nondeterminism.learning_rate_start(learning_rates(12, 0.001))
    assert told.alt.endswith("by epoch: 0, 11, 22, 33, 44, 56, 67, 78, 89, 100, 100, 100.")
    assert "the first epoch trains with 0" in texts(told)


@pytest.mark.parametrize("rates", [[], [0.0]], ids=["none", "one epoch"])
def test_rates_that_are_all_nothing(rates):
    with pytest.raises(BadInput, match="expected those of 2 epochs or more"):
        nondeterminism.learning_rate_start(rates)


def test_a_cost_is_not_needed_for_the_summary():
    found = nondeterminism.culprits(audit_of(row()), {OP: dataclasses.replace(effect(), n_masks=1)})
    assert "price" not in texts(nondeterminism.summary(found))
