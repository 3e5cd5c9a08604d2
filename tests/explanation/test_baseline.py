"""What a baseline lets pass, what breaks it, and what its limits could hide."""

import itertools
import re
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tifffile

from cellrepro.explanation.baseline_check import check_baseline
from cellrepro.explanation.baseline_saving import save_baseline
from cellrepro.explanation.describe import describe
from cellrepro.store import baseline_file
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import NOTHING, add_run, squares, three

MASKS = np.zeros((40, 50), np.uint16)  # 2000 pixels
MASKS[2:12, 3:13], MASKS[20:24, 20:24], MASKS[30:38, 30:48] = 3, 7, 9  # 100, 16 and 144 pixels


@pytest.fixture
def baseline(tmp_path):
    tifffile.imwrite(tmp_path / "a_masks.tif", MASKS)
    save_baseline(str(tmp_path / "a_masks.tif"), tmp_path / "a.baseline")
    return tmp_path / "a.baseline"


def lost(*labels):
    return np.where(np.isin(MASKS, labels), 0, MASKS)


def grown(n=1):
    """The largest cell with some pixels more."""
    masks = MASKS.copy()
    masks[38, 30 : 30 + n] = 9
    return masks


def other_numbers():
    return np.choose(np.searchsorted([0, 3, 7, 9], MASKS), [0, 40, 5, 1]).astype(np.int32)


CASES = {
    "equal": (MASKS, {}, ()),
    "renumbered": (other_numbers(), {}, ()),
    "one pixel": (grown(), {}, ("500 ppm of the pixels of a, at most 0 ppm",)),
    "one pixel allowed": (grown(), {"max_ppm": 500}, ()),
    "one pixel beyond": (
        grown(2),
        {"max_ppm": 999},
        ("1 000 ppm of the pixels of a, at most 999 ppm",),
    ),
    "one pixel, cells count": (grown(), {"max_lost": 0, "max_changed": 0}, ()),
    "one lost": (lost(7), {"max_lost": 0}, ("1 cell lost, at most 0",)),
    "one lost allowed": (lost(7), {"max_lost": 1}, ()),
    "one lost, share": (
        lost(7),
        {"max_changed": 0.19},
        ("20 % of the cells without a match, at most 19 %",),
    ),
    "one lost, share allowed": (lost(7), {"max_changed": 0.2}, ()),
    "one lost, in percent": (
        lost(7),
        {"max_changed": "19.5 %"},
        ("20 % of the cells without a match, at most 19.5 %",),
    ),
    "one lost, percent allowed": (lost(7), {"max_changed": "20%"}, ()),
    "less than a figure beyond": (
        grown(),
        {"max_ppm": 499.999},
        ("500 ppm of the pixels of a, at most 499.999 ppm",),
    ),
    "a rounded figure": (lost(7), {"max_changed": 0.1999}, ("20 % of the cells",)),
    "two lost": (lost(3, 7), {"max_lost": 1, "max_ppm": 1e6}, ("2 cells lost, at most 1",)),
    "none left": (0 * MASKS, {"max_ppm": 0, "max_lost": 0}, ("130 000 ppm", "3 cells lost")),
}


@pytest.mark.parametrize(("masks", "limits", "broken"), CASES.values(), ids=CASES)
def test_what_passes_and_what_breaks(baseline, masks, limits, broken):
    found = check_baseline(baseline, masks, **limits)
    assert found.ok == (not broken)
    assert len(found.broken) == len(broken)
    for text, expected in zip(found.broken, broken, strict=True):
        assert expected in text
    assert found.lost == 3 - len(np.unique(masks[masks > 0]))
    assert found.ppm == 1e6 * np.mean((masks > 0) != (MASKS > 0))


@pytest.mark.parametrize(
    "limits",
    [
        {"max_ppm": 0},
        {"max_ppm": 8000},
        {"max_ppm": 50_000},
        {"max_ppm": 1e6},
        {"max_lost": 0},
        {"max_lost": 1},
        {"max_lost": 2, "max_ppm": 60_000},
        {"max_lost": 1, "max_ppm": 60_000},
        {"max_changed": 0.1, "max_ppm": 1e6},
        {"max_changed": 0.2},
    ],
)
def test_what_the_limits_could_hide_by_trying(baseline, limits):
    """Every cell is taken away by itself: those whose loss passes are those that are named."""
    pass_without = [
        (int((label == MASKS).sum()), label)
        for label in (3, 7, 9)
        if check_baseline(baseline, lost(label), **limits).ok
    ]
    found = check_baseline(baseline, MASKS, **limits).hidden
    assert [(cell.area, cell.label) for cell in found.cells] == sorted(pass_without)
    any_so_many = [
        all(
            check_baseline(baseline, lost(*labels), **limits).ok
            for labels in itertools.combinations([label for _, label in pass_without], n)
        )
        for n in range(1, len(pass_without) + 1)
    ]
    assert found.at_once == sum(any_so_many)


def test_the_file_follows_from_its_content(tmp_path):
    for folder in ("x/masks", "y/masks"):
        (tmp_path / folder).mkdir(parents=True)
        for name, masks in (("b", grown()), ("a", MASKS)):
            np.save(tmp_path / folder / f"{name}_seg.npy", {"masks": masks})
    one, other = (tmp_path / f"{folder}.baseline" for folder in ("x", "y"))
    save_baseline(str(tmp_path / "x" / "masks"), one)
    record = save_baseline(str(tmp_path / "y" / "masks"), other)
    assert sorted(record["images"]) == ["a", "b"]
    assert other.read_bytes() == one.read_bytes()
    assert one.stat().st_size < 2000
    assert check_baseline(one, tmp_path / "y" / "masks").ok
    assert describe(str(one)).kind == "baseline"
    with pytest.raises(BadInput, match="exists, and nothing is overwritten"):
        save_baseline(str(tmp_path / "x" / "masks"), one)


def test_an_image_that_is_missing_breaks_it(tmp_path):
    for name in ("a", "b"):
        tifffile.imwrite(tmp_path / f"{name}_masks.tif", MASKS)
    save_baseline(str(tmp_path), tmp_path / "two.baseline")
    found = check_baseline(tmp_path / "two.baseline", {"b": MASKS, "c": MASKS})
    of_a, of_c = found.broken
    assert (found.ok, of_a) == (False, "no masks of a")
    assert "there are masks of c, which the baseline does not hold" in of_c
    all_and_more = check_baseline(tmp_path / "two.baseline", dict.fromkeys("abc", MASKS))
    assert (all_and_more.ok, all_and_more.broken) == (False, (of_c,))


def test_an_image_of_another_shape_breaks_it_by_name_and_the_others_are_held(tmp_path):
    for name in ("a", "b", "c"):
        tifffile.imwrite(tmp_path / f"{name}_masks.tif", MASKS)
    save_baseline(str(tmp_path), tmp_path / "three.baseline")
    now = {"a": MASKS.T.copy(), "b": MASKS, "c": lost(7)}
    found = check_baseline(tmp_path / "three.baseline", now, max_lost=0)
    of_a, of_c = found.broken
    assert not found.ok
    assert of_a.startswith("the masks of a cannot be compared: label images differ in shape")
    assert of_c == "1 cell lost, at most 0"


@pytest.mark.parametrize(
    ("masks", "limits", "message"),
    [
        (MASKS.T.copy(), {}, "masks of .* differ in shape"),
        (MASKS / 2, {}, "dtype float64"),
        ({"b": MASKS, "c": MASKS}, {}, "has masks of|baseline of a"),
        (MASKS, {"max_ppm": -1}, "max_ppm is -1; expected"),
        (MASKS, {"max_ppm": 1_000_001}, "max_ppm is 1000001; expected"),
        (MASKS, {"max_changed": 5}, "max_changed is 5; expected a share"),
        (MASKS, {"max_changed": "500 %"}, "max_changed is 5; expected a share"),
        (MASKS, {"max_changed": "five"}, "max_changed is 'five'; expected a share"),
        (MASKS, {"max_lost": 0.5}, "max_lost is 0.5; expected cells, a whole number"),
        ("absent.tif", {}, r"absent\.tif"),
    ],
)
def test_wrong_input(baseline, masks, limits, message):
    with pytest.raises(BadInput, match=message):
        check_baseline(baseline, masks, **limits)


def test_wider_than_bioimage_io_takes(tmp_path, invoke):
    store = Store(tmp_path / "outputs")
    for seed in (0, 1):
        masks = three(squares(numbers=(1, 2)), img_b=squares(grown=9))
        if seed:
            masks["img_a"] = np.ones_like(NOTHING)
        add_run(store, [(seed + 1, masks)], seed=seed)
    (key,) = (run.key for run in store.runs() if run.spec.seed == 0)
    saved = save_baseline(key, tmp_path / "x", propose="seed", store=store.root)
    assert saved["limits"]["max_ppm"] > 30_000
    assert saved["reproducibility_tolerance"] == []


def test_files_that_are_no_baseline(baseline, tmp_path):
    content = baseline.read_bytes()
    (tmp_path / "short").write_bytes(content[:-40])
    (tmp_path / "text").write_text("masks")
    (tmp_path / "folder").mkdir()
    said = {"short": "no whole baseline", "absent": "no such file"}
    said |= dict.fromkeys(("text", "folder"), "is no baseline; expected first")
    for name, message in said.items():
        with pytest.raises(BadInput, match=message):
            check_baseline(tmp_path / name, MASKS)
    with zipfile.ZipFile(baseline) as old, zipfile.ZipFile(tmp_path / "other", "w") as new:
        new.writestr("baseline.json", old.read("baseline.json"))
        np.save(tmp_path / "m.npy", grown().astype(np.uint8))
        new.write(tmp_path / "m.npy", "masks/a.npy")
    with pytest.raises(BadInput, match="masks of a are others than its record says"):
        check_baseline(tmp_path / "other", MASKS)
    tifffile.imwrite(tmp_path / "none.tif", 0 * MASKS)
    with pytest.raises(BadInput, match="no baseline: it stays as it is; expected first RUN"):
        save_baseline(str(tmp_path / "new.baseline"), tmp_path / "none.tif")
    with pytest.raises(BadInput, match="no cells"):
        save_baseline(str(tmp_path / "none.tif"), tmp_path / "none.baseline")


def test_a_folder_that_is_not_there_is_made(tmp_path, invoke):
    """As `export` and pages make theirs."""
    tifffile.imwrite(tmp_path / "now.tif", MASKS)
    path = tmp_path / "of" / "2026" / "now.baseline"
    assert invoke("baseline", "save", tmp_path / "now.tif", path).code == 0
    assert invoke("baseline", "check", path, tmp_path / "now.tif").code == 0


def test_the_commands(baseline, tmp_path, invoke):
    tifffile.imwrite(tmp_path / "now.tif", lost(7))
    broken = invoke("baseline", "check", baseline, tmp_path / "now.tif", "--max-ppm", 9000)
    assert broken.code == 0, broken.out  # 8000 ppm
    assert "with these limits one cell could be lost unnoticed: of 16 pixels" in broken.out
    broken = invoke("baseline", "check", baseline, tmp_path / "now.tif", "--max-lost", 0)
    assert broken.code == 1
    assert "1 cell lost, at most 0" in broken.out
    assert re.search(r"lost +7 +– +y 22, x 22 +16( +–)+$", broken.out, re.MULTILINE)
    assert "with these limits no cell can be lost unnoticed" in broken.out
    answer = invoke("baseline", "check", baseline, tmp_path / "now.tif", "--json")
    assert answer.json["ok"] is False
    assert (answer.json["lost"], answer.json["ppm"], answer.json["changed"]) == (1, 8000, 0.2)
    assert [cell["kind"] for cell in answer.json["cells"]] == ["lost"]
    assert invoke("baseline", "check", tmp_path / "now.tif", baseline).code == 2
    assert invoke("compare", baseline, tmp_path / "a_masks.tif").code == 0  # numbers are kept


def test_limits_from_what_seeds_do(tmp_path, invoke):
    """They are what the seeds of the same recipe reach at most, other recipes left out."""
    store = Store(tmp_path / "outputs")
    more = squares()
    more[40:44, 40:44] = 3  # two cells that the baseline lacks, which are no loss to it
    more[40:44, 5:9] = 4
    for seed, masks in ((0, squares()), (1, more), (2, squares(grown=9, second=False))):
        add_run(store, [(seed + 1, three(masks))], seed=seed)
    add_run(store, [(9, three(NOTHING))], seed=3, epochs=50)
    (key,) = (run.key for run in store.runs() if run.spec.seed == 0)
    path = tmp_path / "run.baseline"
    out = invoke("baseline", "save", key, path, "--propose", "seed", "--store", store.root)
    assert out.code == 0, out.err
    (tolerance,) = baseline_file.read(path).record["reproducibility_tolerance"]
    assert tolerance["mismatched_elements_per_million"] >= 1
    others = [run.key for run in store.runs() if run.spec.seed in (1, 2)]
    found = [check_baseline(path, other, store=store.root) for other in others]
    assert all(one.ok for one in found)
    limits = found[0].limits
    for limit, most in (("max_ppm", "ppm"), ("max_changed", "changed")):
        reached = max(getattr(one, most) for one in found)
        assert reached <= limits[limit] <= 1.1 * reached
        assert float(f"{limits[limit]:.2g}") == limits[limit]  # so that it can be read
    assert limits["max_lost"] == max(one.lost for one in found) == 1
    with pytest.raises(BadInput, match=r"nothing that differs .* in mode only"):
        save_baseline(key, tmp_path / "no", propose="mode", store=store.root)
    with pytest.raises(BadInput, match="'sead'; expected one of repeats, seed"):
        save_baseline(key, tmp_path / "no", propose="sead", store=store.root)
    assert not (tmp_path / "no").exists()
    assert not check_baseline(path, dict.fromkeys(three(), NOTHING)).ok


TEST = """
import numpy as np, pytest
@pytest.mark.parametrize("name", ["equal", "lost"])
def test_masks(cellrepro_baseline, name):
    cellrepro_baseline("a.baseline", np.load(f"{name}.npy"))
"""


def test_the_fixture(baseline, tmp_path):
    np.save(tmp_path / "equal.npy", MASKS)
    np.save(tmp_path / "lost.npy", lost(7))
    (tmp_path / "test_it.py").write_text(TEST)
    plugin = ("-p", "cellrepro.pytest_plugin", "-p", "no:cacheprovider")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugin, "test_it.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stdout
    assert re.search("lost +7 .* y 22, x 22", ended.stdout)
    assert re.search(
        r"FAILED test_it.py::test_masks\[lost\](.|\n)*1 failed, 1 passed", ended.stdout
    )


def test_entries_are_packed_and_made_by_one_system(baseline):
    """The same bytes on Windows, too, as far as zlib gives them."""
    with zipfile.ZipFile(baseline) as archive:
        entries = archive.infolist()
    assert {entry.create_system for entry in entries} == {3}
    assert {entry.compress_type for entry in entries} == {zipfile.ZIP_DEFLATED}


@pytest.mark.parametrize(
    ("limits", "every"),
    [({"max_changed": "100 %"}, True), ({"max_lost": 3}, True), ({"max_lost": 2}, False)],
)
def test_limits_that_pass_masks_without_a_cell_say_so(baseline, limits, every):
    found = check_baseline(baseline, 0 * MASKS, **limits)
    assert (found.ok, found.hidden.all_at_once) == (every, every)


def test_a_stack_numbered_anew_in_each_plane_is_held_plane_by_plane(tmp_path):
    order = np.array([[0, 1, 2, 3], [0, 2, 3, 1], [0, 3, 1, 2]])  # of no cell twice the same
    stack = order[:, np.searchsorted([0, 3, 7, 9], MASKS)]
    np.save(tmp_path / "s.npy", stack)
    save_baseline(str(tmp_path / "s.npy"), tmp_path / "s.baseline")
    assert check_baseline(tmp_path / "s.baseline", 5 * stack).ok
    gone = np.where((stack == 3) & (np.arange(3) == 1)[:, None, None], 0, stack)
    found = check_baseline(tmp_path / "s.baseline", gone, max_lost=0)
    assert (found.ok, found.lost) == (False, 1)
    assert found.changed_cells[0].change.position == (1, 21.5, 21.5)
    stitched = np.repeat(MASKS[None], 3, axis=0)  # every outline, and which planes are one cell
    assert not check_baseline(tmp_path / "s.baseline", stitched).ok


@pytest.mark.parametrize("limit", [float("inf"), float("nan"), -1, 0.5])
def test_a_limit_that_is_no_count(tmp_path, limit):
    np.save(tmp_path / "a_masks.npy", np.eye(9, dtype=np.uint16))
    save_baseline(tmp_path / "a_masks.npy", tmp_path / "base.json")
    with pytest.raises(BadInput, match="max_lost is"):
        check_baseline(tmp_path / "base.json", tmp_path / "a_masks.npy", max_lost=limit)
