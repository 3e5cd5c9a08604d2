"""Two segmentations by the command: the stage at which they diverge, how far, and on to cells."""

import shutil

import numpy as np
import pytest
import tifffile

import cellrepro
import planted
from cellrepro.divergence.diverge import diverge
from cellrepro.explanation.compare_files import compare
from cellrepro.images.folder import read_folder
from cellrepro.model.stages import PASSED
from cellrepro.profiles.profiles import cpu_capability
from cellrepro.store.ledger import LEDGER, LedgerRow
from cellrepro.store.row_tables import read_rows, write_rows
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import NOTHING, add_run, reseal, three


@pytest.fixture(scope="module")
def data(tmp_path_factory, small_data):
    """One image, as TIFF."""
    folder = tmp_path_factory.mktemp("one")
    tifffile.imwrite(folder / "cells.tif", read_folder(small_data).test[0].image)
    return folder


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def segmented(small_store, store):
    """Segments a folder; the key."""

    def segment(folder, **options):
        options = {"repeats": 1, "profile": "cpu", **options}
        model = str(small_store.weights)
        return cellrepro.segment(folder, model=model, store=store, quiet=True, **options).key

    return segment


@pytest.fixture(scope="module")
def usual(segmented, data, store):
    """A run of two equal repeats; that processes give equal ones is shown elsewhere."""
    key = segmented(data)
    repeat = Store(store).find(f"{key}/0")
    planted.copied(repeat, repeat.folder.parent / "1")
    return key


def answer(a, b, store, **options):
    return diverge(a, b, store=store, quiet=True, **options)


def test_equal_repeats_do_not_diverge(usual, store):
    found = answer(usual, usual, store)
    assert (found.first, found.stages) == (None, {})
    assert found.compared > 50


def test_a_setting_is_followed_to_its_stage_and_to_the_cells(usual, segmented, data, store):
    other = segmented(data, settings={"normalize.percentile": [5.0, 95.0]})
    found = answer(usual, other, store)
    assert found.first.stage == "spec"
    assert found.judgement == "settings"
    assert (found.computed.stage, found.computed.step, found.computed.image) == (
        *("normalised", 0, "cells"),
    )
    image = tifffile.imread(data / "cells.tif").astype(np.float64)

    def scaled(low, high):
        low, high = np.percentile(image, (low, high))
        return (image - low) / (high - low)

    expected = np.abs(scaled(5, 95) - scaled(1, 99))
    y, x = np.unravel_index(expected.argmax(), image.shape)
    assert found.computed.max_abs == pytest.approx(expected.max(), rel=1e-4)
    assert f"at y {y}, x {x}" in found.sentence()
    assert [line.partition(":")[0] for line in found.evidence.stages_apart][:4] == [
        *("normalised", "resized", "tiles", "network"),
    ]
    assert found.evidence.arrival == ("7 of 7 stages came out as stored",) * 2
    n = found.comparison.n_objects
    assert n["lost"] + n["gained"] + n["matched"] - n["kept"] > 0


@pytest.mark.slow
def test_a_ledger_without_the_stages_within_cellpose_tells_as_much(usual, segmented, data, store):
    """They are found by segmenting again."""
    other = segmented(data, settings={"normalize.percentile": [5.0, 95.0]})
    found = answer(usual, other, store)
    rows = Store(store).find(other).folder / LEDGER
    kept = read_rows(rows, LedgerRow)
    inside = [row for row in kept if row.name == f"cells {row.stage}" and row.stage in PASSED]
    write_rows(rows, [row for row in kept if row not in inside], LedgerRow)
    reseal(rows.parent)
    again = answer(usual, other, store)
    write_rows(rows, kept, LedgerRow)
    reseal(rows.parent)
    assert again.computed.stage == "normalised"
    assert again.computed.max_abs == found.computed.max_abs


@pytest.mark.slow
def test_files_and_pixels(usual, segmented, data, store, tmp_path):
    """Other bytes of the same pixels are a file that differs, and nothing else."""
    folder = tmp_path / "images"
    shutil.copytree(data, folder)
    image = tifffile.imread(folder / "cells.tif")
    tifffile.imwrite(folder / "cells.tif", image, compression="zlib")
    found = answer(usual, segmented(folder), store)
    assert (found.first.stage, [*found.stages], found.judgement) == ("file", ["file"], "data")
    image[7, 9] += 50
    tifffile.imwrite(folder / "cells.tif", image)
    found = answer(usual, segmented(folder), store)
    assert (found.computed.stage, found.judgement) == ("decoded", "data")
    assert found.computed.max_abs == 50
    assert "at y 7, x 9, 1 of " in found.sentence()
    told = answer(usual, segmented(folder), store, again=False)
    assert (told.computed.stage, told.computed.max_abs) == ("decoded", None)


@pytest.mark.slow
@pytest.mark.skipif(cpu_capability() in ("DEFAULT", "AVX2"), reason="needs more than AVX2")
def test_another_instruction_set_is_round_off_in_an_operation(usual, segmented, data, store):
    found = answer(usual, segmented(data, profile="cpu-avx2"), store)
    assert (found.first.stage, found.computed.stage) == ("environment", "network")
    assert found.judgement == "round-off"
    assert found.computed.op.startswith("aten.")
    assert 0 < found.computed.max_abs < 1e-3


def test_a_training_and_a_segmentation_share_no_step(tmp_path):
    """What makes the two differ is that, so no command is named that would tell."""
    store = Store(tmp_path)
    trained = add_run(store, [(1.0, three())])
    segmented = add_run(store, [(None, three(first=NOTHING))], task="segment", epochs=0)
    with pytest.raises(BadInput, match=r"task train and B of task segment.*cellrepro compare"):
        answer(trained.spec.key, segmented.spec.key, tmp_path)
    found = compare(trained.spec.key, segmented.spec.key, store=tmp_path)
    assert "diverge" not in "\n".join(found.lines())
