"""What the user should read first is said by every command that carries out a plan."""

import inspect

import numpy as np
import pytest
import tifffile

import cellrepro

SEGMENTING = {"data", "model", "settings"}
"""Parameters of whatever segments a folder of images with a network."""


def segmenting():
    functions = (getattr(cellrepro, name) for name in cellrepro.__all__)
    for function in filter(inspect.isfunction, functions):
        if set(inspect.signature(function).parameters) >= SEGMENTING:
            is_quick = function is cellrepro.tiles  # what says it is one for all
            yield pytest.param(function, marks=() if is_quick else pytest.mark.slow)


@pytest.mark.parametrize("function", [*segmenting()], ids=lambda function: function.__name__)
def test_an_untrained_network_is_remarked_on(function, tmp_path, capfd):
    noise = np.random.default_rng(0).integers(0, 999, (64, 64))
    (tmp_path / "images").mkdir()
    tifffile.imwrite(tmp_path / "images" / "a.tif", noise.astype(np.uint16))
    function(tmp_path / "images", model="tiny", store=tmp_path / "store")
    assert capfd.readouterr().err.count("tiny has learnt nothing yet") == 1
