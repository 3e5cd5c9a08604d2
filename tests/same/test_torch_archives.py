"""Networks that PyTorch saved are read alike with and without PyTorch, and no code in them runs."""

import pickle
import zipfile
from collections import OrderedDict

import numpy as np
import pytest
import torch

from cellrepro.errors import BadInput
from cellrepro.same import weight_reading
from cellrepro.same.weight_reading import open_weights


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.setattr(weight_reading, "has_library", lambda module: module != "torch")


def network():
    """Real numbers of three widths, integers, a part of a larger tensor, and one without axes."""
    numbers = torch.arange(24, dtype=torch.float32)
    return OrderedDict(
        {
            "downsample.down.0.weight": numbers.reshape(2, 3, 4) / 7,
            "half": numbers.to(torch.bfloat16),
            "part": numbers[5:11],
            "norm.num_batches_tracked": torch.tensor(9),
            "diam_mean": torch.nn.Parameter(torch.tensor([30.0])),
        }
    )


@pytest.mark.parametrize("wrapped", [False, True], ids=["network", "checkpoint"])
def test_both_ways_read_the_same(tmp_path, monkeypatch, wrapped):
    path = tmp_path / "weights"
    torch.save({"epoch": 3, "model": network()} if wrapped else network(), path)
    expected = open_weights(path)
    monkeypatch.setattr(weight_reading, "has_library", lambda module: module != "torch")
    actual = open_weights(path)
    assert actual.keys() == expected.keys()
    for name, tensor in expected.items():
        assert (actual[name].dtype, actual[name].shape) == (tensor.dtype, tensor.shape)
        assert actual[name].under == tensor.under
        np.testing.assert_array_equal(actual[name].read(0, 99), tensor.read(0, 99))
        np.testing.assert_array_equal(actual[name].read(2, 4), tensor.read(2, 4))


class Trap:
    def __reduce__(self):
        return print, ("executed",)


def test_code_is_refused_and_not_executed(tmp_path, without_torch, capsys):
    path = tmp_path / "weights"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("weights/data.pkl", pickle.dumps({"a": Trap()}))
    with pytest.raises(BadInput, match=r"it holds builtins\.print, which only PyTorch reads"):
        open_weights(path)
    assert capsys.readouterr().out == ""


def test_a_transposed_tensor_is_refused(tmp_path, without_torch):
    torch.save({"a": torch.ones(2, 3).T}, tmp_path / "weights")
    with pytest.raises(BadInput, match="a tensor lies in it transposed"):
        open_weights(tmp_path / "weights")
