"""Cellpose with the same bits on every machine, and the masks that it has without."""

import json
import os
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from cellpose import dynamics, models, plot, transforms

import portable_stages
from cellrepro.images.folder import read_folder
from cellrepro.model import portable_cellpose as module
from cellrepro.model.portable_cellpose import portable_cellpose
from portable_stages import images_and_settings, segmented
from samebits.errors import NotPossibleHere
from small_training import tiny

REAL_SETS = Path(__file__).parents[3] / "shared" / "data"

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]

MOST = {
    "channels": 0.0,
    "normalised": 2e-6,
    "resized": 2e-6,
    "tiles": 2e-6,
    "network": 3e-5,
    "flows": 3e-5,
    "probability": 3e-5,
}
"""By stage, how far a number may be from Cellpose's; that of the network is what came before."""

CASES = list(images_and_settings())


@pytest.mark.parametrize(("name", "image", "settings"), CASES, ids=[case[0] for case in CASES])
def test_masks_are_those_of_cellpose(name, image, settings):
    """And what leads to them differs by roundings."""
    expected, usual = segmented(image, settings, portable=False)
    actual, stages = segmented(image, settings)
    np.testing.assert_array_equal(actual.masks, expected.masks)
    assert actual.masks.any()
    pairs = {stage: (stages.arrays[stage], usual.arrays[stage]) for stage in stages.arrays}
    pairs |= {part: ([actual.flows[part]], [expected.flows[part]]) for part in actual.flows}
    for stage, most in MOST.items():
        for values, reference in zip(*pairs[stage], strict=True):
            np.testing.assert_allclose(values, reference, rtol=0, atol=most, err_msg=stage)
    for ends, reference in zip(*pairs["dynamics"], strict=True):
        distances = np.abs(ends - reference)
        assert np.quantile(distances, 0.99) < 2e-3  # pixels; few stand where flows divide


def test_masks_of_a_network_are_those_of_cellpose(small_store, small_data):
    network = tiny(path=small_store.weights)
    (image,) = read_folder(small_data).test
    expected, _ = segmented(image, {}, network=network, portable=False)
    actual, _ = segmented(image, {}, network=network)
    np.testing.assert_array_equal(actual.masks, expected.masks)
    assert actual.masks.max() > 5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["nuclei", "cells"])
def test_so_are_those_of_real_images(name, small_store):
    if not (REAL_SETS / name).is_dir():
        pytest.skip(f"{REAL_SETS / name} is not here")
    network = tiny(path=small_store.weights)
    n_found = 0
    for image in read_folder(REAL_SETS / name).test:
        expected, _ = segmented(image, {}, network=network, portable=False)
        actual, _ = segmented(image, {}, network=network)
        np.testing.assert_array_equal(actual.masks, expected.masks, err_msg=image.name)
        n_found += int(actual.masks.max())
    assert n_found > 0


def elsewhere(*arguments, **variables):
    """The digests as a process of its own finds them, with other variables."""
    finished = subprocess.run(
        [sys.executable, portable_stages.__file__, *map(str, arguments)],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout)


def without_vectors():
    """Variables with which no library uses more than the oldest vector instructions."""
    from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

    names = [name for name in __cpu_dispatch__ if __cpu_features__[name]]
    return {
        "ATEN_CPU_CAPABILITY": "default",
        "MKL_CBWR": "COMPATIBLE",
        "NPY_DISABLE_CPU_FEATURES": " ".join(names),
        "OPENCV_CPU_DISABLE": "AVX512_SKX,AVX2,FP16,AVX",
    }


def test_every_stage_has_the_same_bits_without_vector_instructions():
    """Other threads and batches besides."""
    here = portable_stages.digests(batch_size=8, threads=1)
    there = elsewhere(1, 2, **without_vectors())
    assert here == there


@pytest.mark.slow
@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_so_it_has_in_many_surroundings(capability):
    here = portable_stages.digests(batch_size=8, threads=1)
    for variables in ({}, without_vectors()):
        there = elsewhere(3, 2, **{**variables, "ATEN_CPU_CAPABILITY": capability})
        assert there == here


REPLACED = [
    (transforms, "_taper_mask cv2 gaussian_filter1d normalize_img np smooth_sharpen_img"),
    (dynamics, "flow_error masks_to_flows_gpu steps_interp torch"),
    (models, "gaussian_filter"),
    (plot, "dx_to_circ"),
]
"""What Cellpose computes otherwise on another machine."""


def test_functions_are_replaced_and_given_back():
    def seen():
        return [getattr(module, name) for module, names in REPLACED for name in names.split()]

    before = seen()
    with portable_cellpose():
        assert not any(own is borrowed for own, borrowed in zip(before, seen(), strict=True))
        assert transforms.np.float32 is np.float32
        assert transforms.np.percentile is not np.percentile
        assert transforms.cv2.resize is not cv2.resize
    assert all(own is now for own, now in zip(before, seen(), strict=True))


def test_limits_are_of_the_type_of_the_pixels():
    """NumPy 1 and 2 subtract a float64 number from float32 pixels in two ways."""
    image = (np.arange(24, dtype=np.float32) * 97).reshape(4, 6, 1)
    low, high = np.float32(100.3), np.float32(3000.7)
    with portable_cellpose():
        actual = transforms.normalize_img(image.copy(), lowhigh=(100.3, 3000.7))
    np.testing.assert_array_equal(actual, (image - low) / (high - low))


@pytest.mark.parametrize("version", ["4.20.0", "4.2.2", "4.1.1", None])
def test_another_cellpose_is_refused(monkeypatch, version):
    monkeypatch.setattr(module, "installed_version", lambda: version)
    before = dynamics.steps_interp
    with (
        pytest.raises(NotPossibleHere, match=r"Cellpose 4\.2\.0, .* only.*setup"),
        portable_cellpose(),
    ):
        pass
    assert dynamics.steps_interp is before
