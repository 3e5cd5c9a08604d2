"""Files of weights may differ while the parameters agree, and the demonstration must be true."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from cellrepro.model.identity import save_in_several_ways


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "weights.safetensors"
    special = np.array([0.0, -0.0, np.nan, np.inf], np.float32)
    save_file({"b": special, "a": np.arange(6, dtype=np.float32).reshape(2, 3)}, path)
    return save_in_several_ways(path)


def test_the_name_of_a_torch_file_changes_its_bytes(saved):
    monday, tuesday, *_ = saved
    assert monday.file_digest != tuesday.file_digest


def test_safetensors_do_not_depend_on_the_order(saved):
    *_, in_order, backwards = saved
    assert in_order.file_digest == backwards.file_digest


def test_every_parameter_agrees_in_all(saved):
    """Signed zero and NaN included: the comparison is of bits."""
    assert [row.parameters_equal for row in saved] == [True] * 4


def test_a_changed_parameter_would_be_noticed(tmp_path, monkeypatch):
    path = tmp_path / "weights.safetensors"
    save_file({"a": np.zeros(3, np.float32)}, path)
    monkeypatch.setattr(torch, "load", lambda *args, **kwargs: {"a": -torch.zeros(3)})
    rows = save_in_several_ways(path)
    assert [row.parameters_equal for row in rows] == [False, False, True, True]
