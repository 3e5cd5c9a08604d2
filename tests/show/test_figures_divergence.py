"""When two runs parted: what the pictures show, that nothing overlaps, what is refused."""

import dataclasses
import io
from itertools import combinations
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from PIL import Image

from cellrepro.compare.ledger_diff import Difference, LedgerComparison, compare_ledgers
from cellrepro.compare.operation_alignment import align
from cellrepro.compare.verdicts import Verdict
from cellrepro.errors import BadInput
from cellrepro.lab.divergence import find
from cellrepro.lab.divergence.result import JUDGEMENTS, Divergence, Evidence, Place
from cellrepro.lab.growth import Moment
from cellrepro.show.figures import divergence as parting
from cellrepro.store.ledger import BEFORE, STAGES, Entry
from cellrepro.trace.operation_ledger import OperationRow

PROPERTY = settings(derandomize=True, deadline=None, max_examples=6)
OP = "aten.index_put.default"
LINE = "segment_anything/modeling/image_encoder.py:322 in get_rel_pos"
IN_STEP = STAGES[4:11]
PALE, DARK, ORANGE = "#D9EEF9", "#0072B2", "#E69F00"
LONG = "encoder.blocks.11.attention.a_layer_with.a_name.longer.than.anybody.wants.projection.weight"


# -- reading a picture ---------------------------------------------------------------------


def written(told):
    """Everything written in a picture, after proof that it lies inside and nothing overlaps."""
    figure = told.picture
    canvas, found, draw = FigureCanvasAgg(figure), [], Text.draw

    def recorded(text, renderer, *args, **options):
        found.append(text)
        draw(text, renderer, *args, **options)

    with patch.object(Text, "draw", recorded):
        canvas.draw()  # drawing must not warn
    renderer = canvas.get_renderer()
    found = [
        text for text in dict.fromkeys(found) if text.get_visible() and text.get_text().strip()
    ]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in found]
    width, height = figure.bbox.width, figure.bbox.height
    for text, box in boxes:
        inside = box.x0 >= -1 and box.y0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1
        assert inside, f"{text!r} is cut: {box}"
    for (one, a), (other, b) in combinations(boxes, 2):
        x = min(a.x1, b.x1) - max(a.x0, b.x0)
        y = min(a.y1, b.y1) - max(a.y0, b.y0)
        assert x <= 1 or y <= 1, f"{one!r} lies on {other!r}"
    return "\n".join(text.get_text() for text in found)


def colours(told):
    """The colours of all pixels, as six hexadecimal digits."""
    image = Image.open(io.BytesIO(told.picture.png())).convert("RGB")
    return {"#{:02X}{:02X}{:02X}".format(*colour) for _, colour in image.getcolors(1 << 24)}


def patches(told, gid):
    return [one for one in told.picture.axes[0].patches if one.get_gid() == gid]


def points(axes, gid):
    """Where the markers of one kind stand."""
    (line,) = [line for line in axes.lines if line.get_gid() == gid]
    return list(zip(*line.get_data(), strict=True))


TOP, LEFT = Rectangle.get_y, Rectangle.get_x


# -- what is drawn -------------------------------------------------------------------------


def entry(stage, step, name, digest):
    return Entry(step, 0, stage, name, digest * 4)


def difference(step, stage, name="encoder.blocks.0", *, at=None):
    """One difference; ``at`` is the step of its entries where the difference has none."""
    place = BEFORE if at is None and step is None else at if step is None else step
    sides = [entry(stage, place, name, digest) for digest in ("408a8a4b", "0c4952cb")]
    return Difference(step, None if step is None else 0, stage, name, *sides)


def compared(*differences, n_steps=(24, 24), n_not_comparable=0):
    return LedgerComparison(differences, 1195, n_not_comparable, n_steps)


def place(**changes):
    fields = {
        "step": 4,
        "epoch": 0,
        "stage": "backward",
        "names": ("encoder.blocks.0",),
        "said": "encoder.blocks.0: 408a8a4b in A, 0c4952cb in B",
        "op": OP,
        "module": "encoder.blocks.0.attn",
        "source": LINE,
        "phase": "backward",
        "max_abs": 4.4e-11,
        "n_elements": 12,
        "inputs": "agree",
    }
    return Place(**{**fields, **changes})


BARE = dict.fromkeys(("op", "module", "source", "phase", "max_abs", "n_elements", "inputs"), None)
SEED = place(step=None, epoch=None, stage="spec", said="seed: 0 in A, 1 in B", **BARE)
FILE = place(
    step=None, epoch=None, stage="weights", said="stored file: 408a8a4b in A, 0c4952cb in B", **BARE
)


def divergence(**changes):
    fields = {
        "a": "898b5a78f1ed8f9e/0",
        "b": "898b5a78f1ed8f9e/1",
        "first": place(),
        "computed": place(),
        "stages": dict.fromkeys(("backward", "forward", "update", "weights", "flows"), ("x",)),
        "judgement": "race",
        "verdict": Verdict.DIFFERENT,
        "comparison": SimpleNamespace(weights=object(), masks={"img": object()}),
        "evidence": None,
        "n_compared": 1195,
        "notes": (),
    }
    return Divergence(**{**fields, **changes})


NOTHING = {"first": None, "computed": None, "stages": {}, "judgement": None}
NO_LEDGER = "898b5a78f1ed8f9e/0 kept no ledger, so steps were not compared"


def operation(
    index, out="a", *, op="aten.mm.default", phase="forward", norm=1.0, module="m", **more
):
    fields = {"step": 4, "source": "f.py:1 in f", "inputs": "i" * 32, "shapes": "2 -> 2"}
    fields |= {"dtypes": "float32 -> float32", **more}
    return OperationRow(
        index=index,
        op=op,
        phase=phase,
        module=module,
        norm=norm,
        outputs=out and out * 32,
        **fields,
    )


def named(row):
    return place(op=row.op, module=row.module, phase=row.phase, source=row.source)


def moment(epoch, distance, n=0, ppm=None, lost=None, gained=None):
    return Moment(epoch, 8 * epoch, n, 1000, distance, 5, ppm, lost, gained)


GROWING = [
    moment(1, 0.0, 0, 0.0, 0, 0),
    moment(2, 1e-9, 40),
    moment(3, 2e-8, 500, 0.4, 0, 0),
    moment(4, 1e-6, 800, 312.0, 1, 0),
    moment(5, 3e-5, 1000, 12000.0, 4, 3),
]


# -- all stages in one row -----------------------------------------------------------------


def states(told):
    """The states of the boxes, left to right."""
    known = {"equal": "=", "unknown": "?", "different": "≠", "first": "!"}
    boxes = [one for one in told.picture.axes[0].patches if one.get_gid() in known]
    return "".join(known[one.get_gid()] for one in sorted(boxes, key=lambda box: box.get_x()))


def test_the_chain_tells_it_all():
    told = parting.chain(divergence())
    text = written(told)
    assert states(told) == "======≠=!≠≠≠="
    assert text.count("later") == 4
    for expected in (
        "The two runs part at step 4: backward",
        "First: backward; encoder.blocks.0 has other bits",
        "Operation: index_put in encoder.blocks.0.attn, backward",
        "largest difference 4.4e-11 over 12 numbers that differ",
        LINE,
        "Judgement: a race",
    ):
        assert expected in text
    assert "408a8a4b" not in text  # digests tell a reader nothing
    assert {PALE, DARK, ORANGE} <= colours(told)
    assert "A is 898b5a78f1ed8f9e/0" in told.caption
    assert "forward differs, loss agrees, backward differs first" in told.alt
    assert "index_put in encoder.blocks.0.attn" in told.alt


def test_stages_stand_in_the_order_of_a_run():
    text = written(parting.chain(divergence()))
    names = [parting._NAMES[stage][0].replace(" ", "\n") for stage in STAGES]
    assert text.index(names[0]) < text.index(names[1])
    assert all(f"\n{name}\n" in f"\n{text}\n" for name in names)


@pytest.mark.parametrize(
    ("changes", "expected", "said"),
    [
        (NOTHING, "=" * 13, "No difference in 1 195 entries"),
        ({**NOTHING, "n_compared": 1}, "=" * 13, "No difference in 1 entry"),
        ({**NOTHING, "n_compared": 0}, "?" * 13, "Nothing was there to be compared"),
        (
            {"first": SEED, "stages": dict.fromkeys(STAGES[1:], ("x",)), "judgement": "asked for"},
            "=!≠≠≠≠≠≠≠≠≠≠≠",
            "First: spec; seed: 0 in A, 1 in B\nIt first shows at step 4 in: backward",
        ),
        (
            {"first": place(stage="environment"), "computed": place(stage="environment")},
            "!=====≠=≠≠≠≠=",
            "Operation at step 4: index_put",
        ),
        (
            {
                **{"first": FILE, "computed": None, "judgement": "unexplained"},
                **{"stages": {"weights": ("stored file",)}, "notes": (NO_LEDGER,)},
            },
            "====??????!?=",
            "The two runs part at the end: weights",
        ),
        (
            {**NOTHING, "notes": ("9 entries …, which say nothing about each other",)},
            "===?????????=",
            "Everything that was compared has the same bits",
        ),
        (
            {**NOTHING, "comparison": SimpleNamespace(weights=None, masks={"img": 1})},
            "====???????==",
            "No difference",
        ),
        (
            {**NOTHING, "comparison": SimpleNamespace(weights=object(), masks={})},
            "===========??",
            "No difference",
        ),
    ],
    ids=[
        *("nothing differs", "one entry", "nothing compared", "another seed", "surroundings"),
        *("no ledger", "a GPU beside a processor", "not trained", "no masks"),
    ],
)
def test_boxes_of_the_chain(changes, expected, said):
    told = parting.chain(divergence(**changes))
    assert states(told) == expected
    assert said in written(told)
    for note in changes.get("notes", ()):
        assert note[1:] in told.caption


def test_the_chain_reads_the_notes_that_a_divergence_has(tmp_path):
    side = None, SimpleNamespace(folder=tmp_path, name="key/0")
    notes = find._notes(compared(n_not_comparable=3), side, side)
    told = parting.chain(divergence(**NOTHING, notes=tuple(notes)))
    assert states(told) == "===?????????="
    alone = parting.chain(divergence(**NOTHING, notes=tuple(notes[:1])))
    assert states(alone) == "====??????=?="


def test_long_words_stay_inside_the_chain():
    said = f"{LONG}{LONG}: {'very long ' * 40} in A, 1 in B"
    one = place(said=said, module=LONG, source=f"{LONG}/{LONG}.py:1 in f", inputs="differ")
    text = written(parting.chain(divergence(first=one, computed=one)))
    assert "Its inputs differ already" in text


# -- stages by steps -----------------------------------------------------------------------

REAL = (
    difference(4, "backward"),
    difference(4, "update"),
    difference(9, "forward"),
    difference(9, "loss"),
    difference(None, "weights", "stored file", at=24),
    difference(None, "flows", "img", at=24),
)


def test_the_map_shows_where_two_ledgers_part():
    told = parting.step_map(compared(*REAL))
    text = written(told)
    assert len(patches(told, "first")) == len(patches(told, "ring")) == 1
    assert len(patches(told, "different")) == 5
    assert len(patches(told, "equal")) == 7 * 24 + 5 + 3 - 6
    assert {PALE, DARK, ORANGE} <= colours(told)
    assert "The two runs part at step 4: backward" in text
    assert "first: step 4, backward\nencoder.blocks.0 has other bits" in text
    for stage in ("= environment", "= generators", "≠ final weights", "≠ flows", "= masks"):
        assert stage in text
    assert "24 steps, 1 195 entries compared" in told.caption
    assert "backward in 1 from step 4 on" in told.alt
    assert "weights after training; flows after training" in told.alt


def test_the_ring_is_at_its_step_and_stage():
    told = parting.step_map(compared(*REAL))
    (ring,), (first,) = patches(told, "ring"), patches(told, "first")
    fields = [
        one
        for state in ("equal", "different", "first")
        for one in patches(told, state)
        if one.get_width() == first.get_width()
    ]
    rows, columns = (sorted({round(read(one), 6) for one in fields}) for read in (TOP, LEFT))
    assert (len(rows), len(columns)) == (7, 24)
    assert first.get_y() == pytest.approx(rows[IN_STEP.index("backward")])
    assert first.get_x() == pytest.approx(columns[4])
    assert ring.get_x() < first.get_x()
    assert not ring.get_fill()


def test_hatches_tell_what_colours_tell():
    told = parting.step_map(compared(*REAL))
    assert {one.get_hatch() for one in patches(told, "different")} == {"////"}
    assert {one.get_hatch() for one in patches(told, "equal")} == {None}

    def grey(colour):
        return np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722))

    assert grey(PALE) > grey(ORANGE) + 0.2 > grey(DARK) + 0.4


def test_another_field_may_be_ringed():
    told = parting.step_map(compared(*REAL), first=place(step=9, stage="forward"))
    assert "first: step 9, forward" in written(told)
    assert len(patches(told, "different")) == 5


@pytest.mark.parametrize(("n", "size"), [(101, 2), (5000, 50)], ids=["101 steps", "5000 steps"])
def test_many_steps_share_fields(n, size):
    differing = [difference(step, "weights") for step in range(n // 2, n)]
    differing.append(difference(n - 1, "loss"))
    told = parting.step_map(compared(*differing, n_steps=(n, n)))
    text = written(told)
    n_columns = -(-n // size)
    fields = [patch for state in ("equal", "different", "first") for one in patches(told, state)]
    assert len(fields) == 7 * n_columns + 5 + 3
    # A field differs if any of its steps does.
    assert len(patches(told, "different")) == n_columns - n // 2 // size - 1 + 1
    assert (f"each field: {size} steps" in text) == (size > 1)
    assert (f"stands for {size} steps" in told.caption) == (size > 1)


@PROPERTY
@given(
    st.integers(1, 250),
    st.sets(st.tuples(st.sampled_from(IN_STEP), st.integers(0, 249)), max_size=30),
)
def test_every_field_is_as_its_steps_are(n, places):
    places = sorted({(step % n, stage) for stage, step in places})
    told = parting.step_map(compared(*(difference(*one) for one in places), n_steps=(n, n)))
    size = 1 if n <= 100 else 2 if n <= 200 else 5
    expected = {(step // size, stage) for step, stage in places}
    assert len(patches(told, "first")) == bool(places)
    assert len(patches(told, "different")) == max(0, len(expected) - 1)
    assert len(patches(told, "equal")) == 7 * -(-n // size) + 8 - len(expected)


EVERYTHING = (
    *(difference(None, stage) for stage in STAGES[:5]),
    *(difference(step, stage) for step in range(5) for stage in IN_STEP),
    *(difference(None, stage, at=5) for stage in STAGES[10:]),
)


@pytest.mark.parametrize(
    ("comparison", "said"),
    [
        (compared(), "The two ledgers agree in everything"),
        (compared(difference(0, "forward"), n_steps=(1, 1)), "part at step 0: forward"),
        (compared(*EVERYTHING, n_steps=(5, 7)), "part before training: environment"),
        (compared(difference(None, "rng", at=BEFORE)), "part before training: generators"),
        (compared(difference(None, "weights", at=24)), "part after training: weights"),
        (compared(difference(None, "masks", at=0), n_steps=(0, 0)), "no training step that both"),
        (compared(difference(4999, "weights", LONG), n_steps=(5000,) * 2), "part at step 4 999"),
        (compared(difference(0, "rng", LONG), n_steps=(80, 80)), "part at step 0: generators"),
    ],
    ids=[
        *("nothing", "one step", "everything", "first draws", "file", "no steps"),
        *("last of many", "first"),
    ],
)
def test_maps_of_all_kinds(comparison, said):
    told = parting.step_map(comparison)
    assert said in written(told)
    assert bool(patches(told, "first")) == bool(comparison.differences)


def test_a_map_says_what_it_does_not_show():
    told = parting.step_map(compared(*REAL, n_steps=(24, 30), n_not_comparable=12))
    assert "A made 24 steps and B 30" in told.caption
    assert "12 entries could not be compared" in told.caption


def test_the_map_of_two_real_ledgers():
    def ledger(loss):
        rows = [("environment", -1, "x", "a" * 8), ("rng", -1, "torch", "a" * 8)]
        for step in range(3):
            rows += [(stage, step, "x", "a" * 8) for stage in IN_STEP if stage != "loss"]
            rows.append(("loss", step, "loss", loss if step == 2 else "a" * 8))
        return [entry(*row) for row in [*rows, ("masks", 3, "img", loss)]]

    told = parting.step_map(compare_ledgers(ledger("a" * 8), ledger("b" * 8)))
    assert "first: step 2, loss" in written(told)
    assert len(patches(told, "different")) == 1  # the masks
    assert len(patches(told, "equal")) == 7 * 3 + 8 - 2


# -- operations of one step ----------------------------------------------------------------


def step_of(n=40, parts_at=20, **changes):
    """One step on two sides, equal before an operation and apart after it; every fifth a view."""
    sides = [], []
    for index in range(n):
        phase = "forward" if index < n // 2 else "backward" if index < n - 2 else "update"
        view = index % 5 == 4
        other = index >= parts_at
        op = "aten.view.default" if view else OP if index == parts_at else "aten.mm.default"
        for side, rows in enumerate(sides):
            out = "" if view else "b" if other and side else "a"
            norm = None if view else 1 + 10.0 ** (index - n) * (other and side)
            rows.append(operation(index, out, op=op, phase=phase, norm=norm, **changes))
    return sides


def test_every_operation_of_a_step():
    a, b = step_of()
    told = parting.operations_map(align(a, b), parting=named(a[20]))
    text = written(told)
    (axes,) = told.picture.axes
    equal, differing = points(axes, "equal"), points(axes, "different")
    assert [x for x, _ in equal] == [i for i in range(20) if i % 5 != 4]
    assert [x for x, _ in differing] == [i for i in range(20, 40) if i % 5 != 4]
    assert len({y for _, y in equal}) == 1
    assert max(y for _, y in equal) < min(y for _, y in differing)
    heights = [y for x, y in differing if x > 26]  # the norms before are equal to the last bit
    assert heights == sorted(heights)
    assert points(axes, "named")[0] == differing[0]
    assert "index_put\nm" in text
    assert all(phase in text for phase in ("forward", "backward", "update"))
    assert "Other outputs in 16 of 32 operations of step 4, first in index_put" in text
    assert ORANGE in colours(told)
    assert "Where they part: index_put in m, backward" in told.alt
    assert "all 40 operations correspond" in told.caption


def test_a_point_stands_at_its_difference():
    a = [operation(0), operation(1, norm=1.0), operation(2, norm=1.0), operation(3, norm=None)]
    b = [
        operation(0),
        *(operation(i, "b", norm=norm) for i, norm in ((1, 0.999), (2, 1), (3, None))),
    ]
    (axes,) = parting.operations_map(align(a, b)).picture.axes
    heights = dict(points(axes, "different"))
    assert heights[1] == pytest.approx(-3, abs=1e-6)
    assert heights[2] == heights[3]  # of one norm, or without: on a line between
    assert points(axes, "equal")[0][1] < heights[2] < -3
    labels = {
        label.get_text(): y
        for label, y in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)
    }
    assert labels["equal bits"] == points(axes, "equal")[0][1]
    assert labels["other bits, same norm"] == heights[2]
    assert labels["$10^{-3}$"] == -3


def test_phases_are_bands():
    a, b = step_of()
    (axes,) = parting.operations_map(align(a, b)).picture.axes
    bands = [one for one in axes.patches if one.get_gid() == "band"]
    edges = [(band.get_x(), band.get_x() + band.get_width()) for band in bands]
    assert [edge for edge, _ in edges[1:]] == [19.5, 37.5]
    assert (edges[0][0], edges[-1][1]) == axes.get_xlim()


def test_what_only_one_side_ran_is_marked():
    a, b = step_of()
    more = [operation(40, op="aten.extra.default"), operation(41, "", op="aten.extra_view.default")]
    b = [dataclasses.replace(row, index=row.index + 1) for row in b]
    b.insert(0, operation(0, op="aten.randn.default"))
    (axes,) = parting.operations_map(align([*a, *more], b)).picture.axes
    assert [x for x, _ in points(axes, "only A")] == [40]
    assert [x for x, _ in points(axes, "only B")] == [-0.5]
    text = written(parting.operations_map(align([*a, *more], b)))
    assert "only A ran it" in text
    assert "only B ran it" in text


@pytest.mark.parametrize(
    ("n", "parts_at", "module"),
    [(1, 0, "m"), (1000, 0, LONG), (1000, 999, LONG), (1000, 500, None), (40, 41, "m")],
    ids=["one", "first of many", "last of many", "outside", "none"],
)
def test_steps_of_all_kinds(n, parts_at, module):
    a, b = step_of(n, parts_at, module=module)
    if parts_at == 999:
        a[999], b[999] = operation(999, module=LONG), operation(999, "b", norm=2, module=LONG)
    wanted = None if parts_at > n else named(a[parts_at])
    told = parting.operations_map(align(a, b), parting=wanted)
    text = written(told)
    if wanted is None:
        assert "All 32 operations of step 4 that can be compared have equal outputs" in text
    else:
        assert points(told.picture.axes[0], "named")[0][0] == parts_at
        assert ("outside any module" in text) == (module is None)


@pytest.mark.parametrize("parts_at", [2, 25, 28, 33, 39])
def test_where_no_norm_differs_the_name_stands_clear(parts_at):
    a = [operation(i, phase="forward" if i < 15 else "backward", module=LONG) for i in range(40)]
    b = [
        dataclasses.replace(row, outputs="b" * 32) if i >= parts_at else row
        for i, row in enumerate(a)
    ]
    a[parts_at] = dataclasses.replace(a[parts_at], op=OP)
    b[parts_at] = dataclasses.replace(b[parts_at], op=OP)
    told = parting.operations_map(align(a, b), parting=named(a[parts_at]))
    assert "index_put" in written(told)
    assert "No norm differs." in told.alt


def test_of_several_of_a_name_the_one_that_differs_is_marked():
    a = [operation(i) for i in range(4)]
    b = [operation(0), operation(1), operation(2, "b"), operation(3, "b")]
    told = parting.operations_map(align(a, b), parting=named(a[0]))
    assert points(told.picture.axes[0], "named")[0][0] == 2


# -- over the epochs -----------------------------------------------------------------------


def test_growth_from_weights_to_cells():
    told = parting.growth_curve(GROWING, at_operation=4.4e-11)
    text = written(told)
    weights, pixels, objects = told.picture.axes[:3]
    assert "From 4.4e-11 at one operation to 12 000 ppm of the pixels." in told.caption
    assert "The weights drift apart: 0 to 3.0e-05; 12 000 ppm of the pixels" in text
    assert [x for x, _ in points(weights, "value")] == [2, 3, 4, 5]
    assert points(weights, "value")[0][1] == pytest.approx(-9)
    assert [x for x, _ in points(pixels, "value")] == [3, 4, 5]
    assert points(pixels, "value")[2][1] == pytest.approx(np.log10(12000))
    bars = {
        gid: [bar.get_height() for bar in objects.patches if bar.get_gid() == gid]
        for gid in ("gained", "lost")
    }
    assert bars == {"gained": [0, 0, 0, 3], "lost": [0, 0, -1, -4]}
    (beside,) = [axes for axes in told.picture.axes if axes.patches and axes is not objects]
    assert [bar.get_height() for bar in beside.patches] == [0, 4, 50, 80, 100]
    assert {parting.SERIES[0], parting.SERIES[1], parting.SERIES[2], parting.SERIES[3]} <= colours(
        told
    )
    assert "epoch 4: 80 % of the weights differ, distance 1.0e-06, 312 ppm" in told.alt
    assert "1 cell lost, 0 gained" in told.alt


def test_zero_is_drawn_as_zero():
    told = parting.growth_curve(GROWING)
    for axes in told.picture.axes[:2]:
        ((x, y),) = points(axes, "zero")
        assert x == 1
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels[list(axes.get_yticks()).index(y)] == "0"
        assert y < min(height for _, height in points(axes, "value"))
        assert axes.get_ylim()[0] < y
    assert "at one operation" not in told.caption


@pytest.mark.parametrize(
    ("moments", "n_panels", "said"),
    [
        ([moment(i, 0.0, 0, 0.0, 0, 0) for i in range(1, 6)], 3, "stay equal, bit for bit, in 5"),
        ([moment(8, 2e-5, 1000, 500.0, 1, 2)], 3, "The weights lie 2.0e-05 of their length apart"),
        ([moment(i, 10 ** (i / 10 - 9), 500) for i in range(60)], 1, "drift apart: 1.0e-09 to"),
        ([moment(1, 1e-6, 10, 5.0), moment(2, 1e-5, 20, 6.0)], 2, "6 ppm of the pixels"),
        (
            [moment(1, 1e-6, 10, 5.0, 0, 0), moment(2, np.nan, 1000, 1e6, 999, 1000)],
            3,
            "not finite",
        ),
        (
            [moment(i, 1e-6, 900, *((i * 1e4, i, 7) if not i % 20 else ())) for i in range(101)],
            3,
            "ppm of the pixels",
        ),
        ([moment(i, 1e-6, 900, i + 0.5, i, 7) for i in range(300)], 3, "ppm of the pixels"),
    ],
    ids=["equal", "one epoch", "no masks", "no objects", "no number", "some masks", "many epochs"],
)
def test_curves_of_all_kinds(moments, n_panels, said):
    told = parting.growth_curve(moments, at_operation=0)
    assert said in written(told)
    beside = 1
    assert len(told.picture.axes) == n_panels + beside
    assert told.caption.startswith("From 0 at one operation to ")
    assert len(told.alt) < 2500
    assert ("No masks were made" in told.caption) == (n_panels == 1)


def test_without_masks_the_weights_are_what_is_reached():
    told = parting.growth_curve([moment(1, 1e-9, 5), moment(2, 3e-5, 5)], at_operation=4.4e-11)
    assert "From 4.4e-11 at one operation to 3.0e-05 of the length of the weights." in told.caption


def test_scores_against_the_ground_truth_have_a_panel():
    scores = {3: (0.5, 0.5), 4: (0.75, 0.5), 5: (0.875, 0.25)}
    scored = [dataclasses.replace(one, ap50=scores.get(one.epoch)) for one in GROWING]
    told = parting.growth_curve(scored)
    panel = told.picture.axes[3]
    lines = {line.get_label(): line.get_xydata().tolist() for line in panel.lines}
    assert lines == {
        "A": [[3, 0.5], [4, 0.75], [5, 0.875]],
        "B": [[3, 0.5], [4, 0.5], [5, 0.25]],
    }
    assert "AP@0.5 0.875 and 0.250" in told.alt
    assert "mean over the images that have a ground truth" in told.caption
    assert "ground truth" not in parting.growth_curve(GROWING).caption


def test_moments_in_any_order_are_one_curve():
    one, other = parting.growth_curve(GROWING), parting.growth_curve(GROWING[::-1])
    assert (one.alt, one.caption) == (other.alt, other.caption)
    assert points(one.picture.axes[0], "value") == points(other.picture.axes[0], "value")


# -- what was looked at --------------------------------------------------------------------

SEEN = Evidence(
    how="repetition",
    n_repetitions=6,
    n_replays=200,
    flips=3,
    n_asked=24,
    alignment="38 operations correspond; only B ran 2",
    parting="it is the first",
    ends_as="b",
    arrival=("restored from the initial weights", "restored from the checkpoint at step 3"),
)


def test_the_evidence_in_plain_words():
    table = parting.evidence_table(divergence(evidence=SEEN, notes=("one thing", "another")))
    found = table["what was found"]
    assert found["runs"] == "A: 898b5a78f1ed8f9e/0, B: 898b5a78f1ed8f9e/1"
    assert found["judgement"].startswith("a race: asked again")
    assert found["they part at"] == "step 4, backward; encoder.blocks.0 has other bits"
    assert found["it first shows in"] == "-"
    assert found["operation"] == OP
    assert found["line"] == LINE
    assert found["module"] == "encoder.blocks.0.attn"
    assert found["pass"] == "backward"
    assert found["largest difference"] == "4.4e-11"
    assert found["replays of it that gave other bits"] == "3 of 24"
    assert found["state before the step"].count("restored from") == 2
    assert found["the repeated step ended"] == "in the bits of B"
    assert found["operations that correspond"] == "38 operations correspond; only B ran 2"
    assert found["round-off"] == "-"
    assert found["not looked at"] == "one thing; another"


@pytest.mark.parametrize(
    ("changes", "row", "expected"),
    [
        (NOTHING, "they part at", "-"),
        ({"judgement": "something new"}, "judgement", "something new"),
        ({"first": SEED}, "it first shows in", "step 4, backward; encoder.blocks.0 has other bits"),
        ({"first": SEED}, "they part at", "spec; seed: 0 in A, 1 in B"),
        ({"evidence": None}, "how it was looked at", "-"),
        ({"evidence": Evidence("a new way")}, "how it was looked at", "a new way"),
        (
            {"evidence": Evidence("stored operations", n_replays=200, flips=0)},
            "replays of it that gave other bits",
            "0, it was not among those asked again",
        ),
    ],
)
def test_evidence_of_all_kinds(changes, row, expected):
    table = parting.evidence_table(divergence(**changes))
    assert table.loc[row].item() == expected
    assert table.index.equals(parting.evidence_table(divergence()).index)
    assert (table["what was found"] != "").all()


@pytest.mark.parametrize("how", sorted(parting._LOOKED))
def test_the_ways_of_looking_are_those_of_a_divergence(how):
    assert f"``{how}``" in Evidence.__doc__


def test_the_judgements_are_those_of_a_divergence():
    assert parting._JUDGED.keys() == JUDGEMENTS.keys()
    assert tuple(parting._NAMES) == STAGES


# -- what is refused -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: parting.chain("key/0"), "chain got str 'key/0'; give it a Divergence"),
        (lambda: parting.evidence_table(None), "evidence_table got NoneType None; give it a Div"),
        (lambda: parting.step_map([]), "give it a LedgerComparison"),
        (lambda: parting.step_map(compared(difference(0, "dream"))), "'dream' is no stage of a"),
        (
            lambda: parting.step_map(compared(*REAL), first=place(step=5)),
            "nothing differs at backward of step 5",
        ),
        (lambda: parting.step_map(compared(), first=place()), "nothing differs at backward"),
        (lambda: parting.step_map(compared(*REAL), first="spec"), "give it a Place of a Div"),
        (lambda: parting.chain(divergence(first=place(stage="x"))), "'x' is no stage of a run"),
        (lambda: parting.operations_map([]), "give it an Alignment"),
        (lambda: parting.operations_map(align([], [])), "holds no operation with outputs"),
        (
            lambda: parting.operations_map(align(*step_of()), parting=place(module="elsewhere")),
            "no operation of the alignment is index_put in elsewhere, backward",
        ),
        (lambda: parting.operations_map(align(*step_of()), parting="mm"), "give it a Place"),
        (lambda: parting.growth_curve([]), "no moment was given to draw"),
        (lambda: parting.growth_curve(["epoch 1"]), "give it Moments"),
        (lambda: parting.growth_curve(GROWING, at_operation=-1.0), "at_operation is -1.0"),
        (lambda: parting.growth_curve(GROWING, at_operation=float("nan")), "at_operation is nan"),
    ],
)
def test_wrong_input(call, message):
    with pytest.raises(BadInput, match=message):
        call()


def test_a_place_without_an_operation_marks_none():
    told = parting.operations_map(align(*step_of()), parting=place(**BARE))
    assert not [line for line in told.picture.axes[0].lines if line.get_gid() == "named"]
    assert "first in" not in written(told)


@pytest.mark.parametrize(
    ("verdict", "vacuous"),
    [(Verdict.IDENTICAL, False), (Verdict.VACUOUS, True)],
    ids=["trained", "nothing trained"],
)
def test_equality_over_nothing_is_said(verdict, vacuous):
    """No difference between two runs that trained nothing is no proof."""
    said = divergence(first=None, computed=None, verdict=verdict).sentence()
    assert said.startswith("no difference in 1195 entries")
    assert ("vacuous" in said) is vacuous
