"""Where the images of a run are now: only where every file is as it was."""

import shutil

import pytest

from cellrepro.exchange.input_lookup import find_images, folder_of_inputs
from cellrepro.images.folder import folder_digest
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import some_spec


def test_images_are_found_by_their_digest(tmp_path, small_data):
    store = Store(tmp_path / "store")
    spec = some_spec(data_digest=folder_digest(small_data))
    assert find_images(spec, store) is None
    assert find_images(spec, store, recorded="//server/share") is None
    assert find_images(spec, store, recorded=str(small_data)) == small_data
    assert find_images(spec, store, given=small_data) == small_data
    came = folder_of_inputs(store, spec.data_digest)
    shutil.copytree(small_data, came)
    assert find_images(spec, store, recorded="/not/there\0") == came
    changed = next(came.glob("train/*_masks.tif"))
    changed.write_bytes(changed.read_bytes() + b"\0")
    assert find_images(spec, store) is None
    with pytest.raises(BadInput, match="does not hold the images of run"):
        find_images(spec, store, given=came)


def test_images_without_masks_are_found_of_a_segmentation(tmp_path, small_data):
    folder = tmp_path / "images"
    folder.mkdir()
    shutil.copy(next(small_data.glob("train/*[0-9].tif")), folder)
    digest = folder_digest(folder, to_train=False)
    store = Store(tmp_path / "store")
    assert find_images(some_spec(task="segment", data_digest=digest), store, given=folder) == folder
