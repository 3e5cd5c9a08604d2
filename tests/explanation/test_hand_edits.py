"""What was done by hand in a GUI: counted, placed, and told apart from what settings do."""

import numpy as np
import pytest
import tifffile

from cellrepro.explanation.hand_edits import hand_edits
from cellrepro.images.seg_file import read_seg

BY_NETWORK = np.zeros((40, 60), np.uint16)
for number, (top, left) in enumerate([(2, 2), (2, 20), (20, 2), (20, 20), (20, 40)], start=1):
    BY_NETWORK[top : top + 9, left : left + 8] = number


def pixels_of(mask):
    return list(np.nonzero(mask))


def removed(mask):
    return ["09/22/2023, 10:03:00", "removed mask", pixels_of(mask)]


def drawn(mask):
    return ["09/22/2023, 10:04:00", "added mask", pixels_of(mask)]


def write_gui_file(path, masks, changes, *, is_drawn=()):
    labels = np.unique(masks[masks > 0])
    content = {
        "masks": masks,
        "colors": np.zeros((labels.size, 3)),
        "ismanual": np.array([label in is_drawn for label in labels]),
        "manual_changes": changes,
        "model_path": "cpsam",
        "flow_threshold": 0.4,
        "cellprob_threshold": 0.0,
        "normalize_params": {"normalize": True},
        "diameter": 30.0,
    }
    np.save(path, content)


@pytest.fixture
def edited(tmp_path):
    """Two of five cells were removed, one was drawn; and the same without a hand."""
    masks = np.where(np.isin(BY_NETWORK, [2, 4]), 0, BY_NETWORK)
    new = np.zeros(masks.shape, bool)
    new[5:15, 42:55] = True
    masks[new] = 9
    changes = [removed(BY_NETWORK == 2), removed(BY_NETWORK == 4), drawn(new)]
    write_gui_file(tmp_path / "a_seg.npy", masks, changes, is_drawn=[9])
    tifffile.imwrite(tmp_path / "script_masks.tif", BY_NETWORK)
    return tmp_path


def test_what_only_one_side_has_by_hand_is_named_with_its_place(edited, invoke):
    answer = invoke("compare", edited / "a_seg.npy", edited / "script_masks.tif")
    assert "2 cells that only B has were removed by hand in A" in answer.out
    assert "at y 6 x 24, y 24 x 24" in answer.out
    assert "1 cell that only A has was drawn by hand in A" in answer.out
    turned = invoke("compare", edited / "script_masks.tif", edited / "a_seg.npy")
    assert "2 cells that only A has were removed by hand in B" in turned.out


def test_two_cells_removed_around_one_place_are_two(tmp_path, invoke):
    """One inside the other: their centres are written alike."""
    both = np.zeros((40, 40), np.uint16)
    both[10:31, 10:31] = 1
    both[17:24, 17:24] = 2
    both[2:6, 2:6] = 3
    kept = np.where(both == 3, both, 0)
    write_gui_file(tmp_path / "a_seg.npy", kept, [removed(both == 1), removed(both == 2)])
    tifffile.imwrite(tmp_path / "script_masks.tif", both)
    answer = invoke("compare", tmp_path / "a_seg.npy", tmp_path / "script_masks.tif")
    assert "2 cells that only B has were removed by hand in A" in answer.out


def test_nothing_is_replayed_where_all_was_done_by_hand(edited, invoke):
    tifffile.imwrite(edited / "a.tif", np.full(BY_NETWORK.shape, 9, np.uint8))
    sides = (edited / "a_seg.npy", edited / "script_masks.tif")
    answer = invoke("explain", *sides)
    assert answer.code == 1, answer.err
    assert answer.out.count("by hand, the two are the same in every pixel") == 1
    assert answer.out.count("2 cells that only B has were removed by hand in A") == 1
    assert "cellrepro explain" not in answer.out  # which would segment for an hour
    replay = ("--image", edited / "a.tif", "--model", "tiny")
    found = invoke("explain", *sides, *replay, "--json").json
    assert (found["unexplained"], found["reproduced"]) == (0, {})


def test_a_setting_that_differs_as_well_is_not_hidden_by_hand(edited, invoke):
    lost = np.where(BY_NETWORK == 5, 0, BY_NETWORK)
    tifffile.imwrite(edited / "script_masks.tif", lost)
    answer = invoke("explain", edited / "a_seg.npy", edited / "script_masks.tif")
    assert "2 cells that only B has were removed by hand in A" in answer.out
    assert "but for what was done by hand" not in answer.out


def test_a_command_says_what_it_cannot_make(edited, invoke):
    answer = invoke("describe", edited / "a_seg.npy", "--command")
    assert "# 1 cell drawn by hand, which no command makes" in answer.out
    assert "# 2 cells removed by hand, which no command makes" in answer.out
    assert len(answer.out) < 3000
    changes = invoke("describe", edited / "a_seg.npy", "--json").json["details"]["settings"]
    assert changes["manual_changes"] == [
        "drawn at y 10 x 48",
        "removed at y 6 x 24",
        "removed at y 24 x 24",
    ]


def test_what_was_undone_is_no_edit(tmp_path):
    """The GUI logs no undoing; and removing what was drawn leaves all as the network had it."""
    new = np.zeros(BY_NETWORK.shape, bool)
    new[5:15, 42:55] = True
    changes = [
        removed(BY_NETWORK == 1),
        drawn(new),
        removed(new),
        ["?", "removed mask", [[1], "x"]],
    ]
    write_gui_file(tmp_path / "a_seg.npy", BY_NETWORK, changes)
    assert hand_edits(read_seg(tmp_path / "a_seg.npy")) == ()


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ({"colors": np.zeros((3, 3))}, "the masks hold 5 cells, and colors has 3 entries"),
        ({"ismanual": np.zeros(3, bool)}, "the masks hold 5 cells, and ismanual has 3 entries"),
        ({}, None),
    ],
)
def test_lists_that_contradict_the_masks_are_said(tmp_path, invoke, lists, says):
    write_gui_file(tmp_path / "a_seg.npy", BY_NETWORK, [])
    content = np.load(tmp_path / "a_seg.npy", allow_pickle=True).item()
    np.save(tmp_path / "a_seg.npy", content | lists)
    out = invoke("describe", tmp_path / "a_seg.npy").out
    assert ("contradicts itself" in out) == (says is not None)
    assert says is None or says in out


def test_omniposes_file_has_its_own_call_and_no_command_of_cellpose(tmp_path, invoke):
    write_gui_file(tmp_path / "a_seg.npy", BY_NETWORK, [])
    content = np.load(tmp_path / "a_seg.npy", allow_pickle=True).item()
    del content["normalize_params"], content["diameter"]
    call = "model.eval(imgs, omni=True, mask_threshold=-1.0)"
    np.save(tmp_path / "a_seg.npy", content | {"runstring": call, "affinity_graph": None})
    answer = invoke("describe", tmp_path / "a_seg.npy", "--command")
    assert "written by: the GUI of Omnipose" in answer.out
    assert f"    {call}" in answer.out
    assert "python -m cellpose" not in answer.out


def test_a_stack_of_the_gui_says_what_it_does_not_record(tmp_path, invoke):
    write_gui_file(tmp_path / "a_seg.npy", np.stack([BY_NETWORK] * 3), [])
    out = invoke("describe", tmp_path / "a_seg.npy", "--command").out
    assert "not recorded, and decisive for them: do_3D, stitch_threshold, anisotropy, z_axis" in out
