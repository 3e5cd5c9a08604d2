"""Figures and tables of what does not repeat: what they show, and what they refuse."""

from types import SimpleNamespace

import numpy as np
import pytest

from cellrepro.audits.cost import Cost, CostRow
from cellrepro.audits.effect import Effect
from cellrepro.audits.seed_effects import SEEDS, SeedProbe, Trial
from cellrepro.audits.training import TrainingAudit, Updates
from cellrepro.show.figures import cost, loose_effects, masks, nondeterminism, seeds
from cellrepro.show.tables.operations import operation_table
from cellrepro.store.store import Store
from drawn import pixels, texts
from samebits.errors import BadInput
from samebits.trace.nondeterministic_operation import NondeterministicOperation
from samebits.trace.operation_audit import Audit
from stores import add_run, squares, three

PLACE = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
OP = "aten.index_put.default"


def row(op=OP, module="encoder.blocks.0.attn", source=PLACE, phase="backward", **changes):
    fields = {"flips": 3, "replays": 24, "max_abs": 1e-11, "substitute": "rel-pos-gather"}
    return NondeterministicOperation(op, module, source, phase, **{**fields, **changes})


def audit_of(*rows, warnings=()):
    return TrainingAudit(
        spec=SimpleNamespace(mode="fast", profile="cpu"),
        operations=Audit(
            ops=rows,
            n_steps=3,
            n_replayed=50,
            n_replays=200,
            kinds={"aten.mm.default": 38, OP: 6, "aten.put_.default": 6},
            replays={"aten.mm.default": 38, OP: 6 * 20, "aten.put_.default": 6 * 7},
            not_replayed={},
            n_followed=0,
            least_replays={},
            threads=2,
        ),
        updates=Updates(lowest_rate=1e-4, highest_rate=1e-3, n_weights_changed=84),
        warnings=warnings,
    )


def effect(**changes):
    fields = {"key": "a" * 16, "fixed_key": "b" * 16, "repeats": 2, "fixed_identical": True}
    fields |= {"n_weights": 2, "weights_differing": 0.56}
    return Effect(OP, **{**fields, "n_masks": 2, "ppm": 120.0, "n_objects": 3, **changes})


NO_EFFECT = {"n_weights": 1, "n_masks": 1, "weights_differing": 0.0, "ppm": 0.0}


def test_a_row_for_each_operation_and_line():
    warned = {"flips": 0, "replays": 0, "warned": True, "substitute": None, "remedy": "use scatter"}
    rows = (
        row(effect=effect()),
        row(module="encoder.blocks.1.attn", flips=5),
        row(source="mine.py:1 in f", flips=1),
    )
    warnings = (row("aten.put_.default", None, "mine.py:3 in f", "forward", **warned),)
    table = operation_table(audit_of(*rows, warnings=warnings)).data.set_index("operation")
    assert table.index.tolist() == ["index_put", "index_put", "put"]
    first, last = table.iloc[0], table.iloc[2]
    assert "encoder.blocks.0.attn and 1 more" in first["where"]
    assert first["different bits"] == pytest.approx(100 * 8 / 48)
    assert (first["pixels"], first["cells unmatched"]) == ("0.012 %", "3")
    assert last["remedy"] == "use scatter"


@pytest.mark.parametrize(
    ("warns", "changes", "expected"),
    [
        (False, {}, "≠ no warning, an effect"),
        (True, NO_EFFECT, "= a warning, no effect"),
        (False, {"fixed_identical": False}, "? no warning, effect cannot be known: something"),
        (True, {**NO_EFFECT, "vacuous": ("x",)}, "? a warning, effect cannot be known: x"),
    ],
)
def test_warning_and_effect_beside_each_other(warns, changes, expected):
    table = operation_table(audit_of(row(warned=warns, effect=effect(**changes)))).data
    assert table["warning, effect"].item().startswith(expected)


def test_flips_by_place():
    rows = [row(module=f"block.{i}", flips=20 - i) for i in range(14)]
    picture = nondeterminism.flips_by_place(audit_of(*rows))
    assert "20 of 24, PyTorch is silent" in texts(picture)
    widths = [bar.get_width() for bar in picture.axes[0].patches]
    assert (len(widths), widths[0], widths[-1]) == (11, pytest.approx(100 * 20 / 24), 0)


def test_loose_repeats_are_shown_by_what_differs(tmp_path):
    store = Store(tmp_path / "store")
    fixed = add_run(store, [(1.0, three())] * 3)
    outcomes = [(1.5, three()), (1.5, three()), (1.75, three(img_b=squares(grown=8)))]
    loose = add_run(store, outcomes, loose="index_put")
    found = effect(key=loose.key, fixed_key=fixed.key, repeats=3)
    picture = loose_effects.results(store, found)
    letters = ["".join(text.get_text() for text in panel.texts) for panel in picture.axes]
    assert letters == ["CCCDDE", "CCCCCD"]
    picture = loose_effects.masks_changed(store, found)
    assert "img_b: most cells without a match here" in picture.caption
    a, _, b = store.run(loose.key).repeats
    assert masks.cells_changed(store, a, b, image="img_c").caption.startswith("img_c: over all")
    with pytest.raises(BadInput, match="no image 'img_z'; expected one of img_a, img_b, img_c"):
        masks.cells_changed(store, a, b, image="img_z")
    assert "encoder.blocks.0.attn.weight" in texts(loose_effects.weights_changed(store, found))


def test_without_an_image_of_both_no_cells_are_drawn(tmp_path):
    store = Store(tmp_path)
    a = add_run(store, [(1.0, three())]).repeats[0]
    others = (
        add_run(store, [(1.0, {})], seed=1).repeats[0],
        add_run(store, [(1.0, {"img_z": squares()})], seed=2).repeats[0],
        add_run(store, [(1.0, three())], data_digest="e" * 64).repeats[0],
    )
    for b in others:
        assert "no masks of one image" in texts(masks.cells_changed(store, a, b))


def test_repeats_of_another_store_are_refused(tmp_path):
    with pytest.raises(BadInput, match=r"holds 0 repeats of .*give the store they were trained"):
        loose_effects.results(Store(tmp_path / "elsewhere"), effect())


def test_cost():
    rows = (
        CostRow("plain", "as it is", 0.2, 1.0, 1.0, 1.0),
        CostRow("strict", "the lab", 0.21, 1.05, 0.98, 1.11),
    )
    picture = cost.cost_bars(Cost("tiny", "cpu", 2, 3, 5, rows))
    assert "nothing that could be measured (a step takes" in texts(picture)
    assert "not measured (2 rounds" in texts(cost.cost_bars(Cost("tiny", "cpu", 2, 3, 2, rows)))
    assert [bar.get_width() for bar in picture.axes[0].patches] == [1.0, 1.05]
    without_strict = cost.cost_bars(Cost("tiny", "cpu", 2, 3, 2, rows[:1]))
    assert without_strict.get_suptitle() == "Time of a training step, plain Cellpose is 1"


def test_seeds_row_by_row():
    def trial(what, seed, weights, order):
        shown = np.random.default_rng(order).integers(0, 256, (4, 64, 64), np.uint8)
        batches = tuple(f"{order}{i}" for i in range(4))
        return Trial(what, seed, batches, shown, (0, 5), weights)

    usual, torch, data = SEEDS
    trials = (
        *(trial(usual, seed, "w", 0) for seed in (1, 2)),
        *(trial(torch, seed, f"t{seed}", 0) for seed in (1, 2)),
        *(trial(data, seed, f"d{seed}", seed) for seed in (1, 2)),
    )
    picture = seeds.seed_strips(SeedProbe(trials, 6, 2, 77))
    assert "".join(text.get_text() for text in picture.axes[-1].texts) == "CCDEFG"
    images = pixels(picture)
    assert len(images) == 24
    assert np.array_equal(images[-1][..., 0], trials[-1].thumbnails[-1])
