"""What Cellpose's run.log says: logs that each version wrote when it segmented a small image."""

import shlex
import time
from pathlib import Path

import numpy as np
import pytest
import tifffile
from test_recorded_settings import FILES

from cellrepro.explanation.run_log import log_record
from samebits.errors import BadInput

LOGS = Path(__file__).parent / "run_logs"
"""Written by ``python -m cellpose --verbose`` of the version in the name, on a machine without a
GPU, with untrained networks under the usual names; only the user's folder was renamed."""
NO_CELL = "says 1 time that no cell was found"
NO_GPU = "GPU asked for, CPU used"


@pytest.mark.parametrize(
    ("name", "generation", "expected", "said"),
    [
        (
            "cellpose_2.3.2_estimated",
            "2",
            {"model": "cyto2", "channels": [2, 1], "diameter": 30.0, "cellpose": "2.3.2"},
            [NO_GPU, "was estimated"],
        ),
        (
            "cellpose_3.1.1.2_custom",
            "3",
            {"model": "custom", "channels": [0, 0], "diameter": 42.4, "torch": "2.15.0+cu132"},
            [NO_CELL],
        ),
        (
            "cellpose_4.0.9_gpu",
            "4",
            {"model": "cpsam", "diameter": "?", "channels": "?"},
            [NO_GPU, "a default was taken", NO_CELL, "not found, using default model"],
        ),
        ("cellpose_4.2.1.1", "4", {"model": "cpsam_v2", "cellpose": "4.2.1.1"}, [NO_CELL]),
    ],
)
def test_version_device_network_and_diameter_are_read(name, generation, expected, said):
    found = log_record(LOGS / f"{name}.log")
    assert found.generation == generation
    assert {key: found.value(key) for key in expected} == expected
    assert found.value("device") == "CPU"
    assert [text in remark for text, remark in zip(said, found.remarks, strict=True)] == [
        True for _ in said
    ]


def test_a_gpu_that_was_used_and_two_diameters(tmp_path):
    text = (LOGS / "cellpose_3.1.1.2_custom.log").read_text()
    line = ">>>> using diameter 42.400 for all images"
    second = text.replace(">>>> using CPU", ">>>> using GPU (CUDA)").replace(
        line, f"{line}\n2026-11-25 23:16:50,313 [INFO] {line.replace('42.4', '30.0')}"
    )
    path = tmp_path / "run.log"
    path.write_text(second)
    found = log_record(path)
    assert (found.value("device"), found.value("diameter")) == ("GPU (CUDA)", "?")
    assert found.remarks == (
        "run.log gives more than one value of diameter (42.4, 30.0): which is of these masks is "
        "not known, so none is taken",
        "run.log says 1 time that no cell was found",
    )


BEGUN = """\
2025-11-25 23:17:24,988 [INFO] WRITING LOG OUTPUT TO /home/me/.cellpose/run.log
2025-11-25 23:17:25,010 [INFO] >>>> using GPU (CUDA)
2025-11-25 23:17:25,034 [INFO] >>>> loading model /home/me/.cellpose/models/cpsam
"""


def test_two_runs_in_one_log_are_not_mixed(tmp_path):
    second = """\
2025-11-25 23:20:25,034 [INFO] >>>> loading model /home/me/models/mymodel
2025-11-25 23:20:25,034 [INFO] >>>> using CPU
"""
    (tmp_path / "run.txt").write_text(BEGUN + second)
    found = log_record(tmp_path / "run.txt")
    assert (found.value("device"), found.value("model")) == ("?", "?")
    assert "device (GPU (CUDA), CPU), model (cpsam, mymodel)" in found.remarks[0]


@pytest.mark.parametrize("loss", ["nan", "0.4321"])
def test_the_log_of_a_training_says_so_and_has_no_command(tmp_path, invoke, loss):
    trained = f"""\
2025-11-25 23:17:26,984 [INFO] >>> n_epochs=500, n_train=9, n_test=None
2025-11-25 23:17:27,984 [INFO] >>> saving model to /home/me/models/mine
2025-11-25 23:46:57,884 [INFO] 350, train_loss={loss}, test_loss=0.0000, LR=0.000010, time 17s
"""
    (tmp_path / "train.log").write_text(BEGUN + trained)
    answer = invoke("describe", tmp_path / "train.log", "--command")
    assert "training: 500 epochs of 9 images" in answer.out
    assert f"last_train_loss: {loss}" in answer.out
    assert "trained_network: /home/me/models/mine" in answer.out
    assert ("the training has diverged: its loss is nan" in answer.out) == (loss == "nan")
    assert "no command: it records a training, and no masks" in answer.out


def test_a_log_adds_to_what_the_masks_record(invoke):
    seg = FILES / "gui_2.3.2_seg.npy"
    log = LOGS / "cellpose_2.3.2_estimated.log"
    plain = invoke("describe", seg, "--json").json
    assert plain["commands"]["not_recorded"] == ["diameter"]
    with_log = invoke("describe", seg, "--log", log, "--json").json
    assert with_log["commands"]["not_recorded"] == []
    assert "diameter=30" in with_log["commands"]["python"]
    answer = invoke("explain", seg, seg, "--log-b", log)
    lines = answer.out.splitlines()
    assert ["only", "B", "device"] in [line.split()[:3] for line in lines]
    assert NO_GPU in answer.out
    calls = invoke("explain", seg, seg, "--log-b", log, "--json").json["commands"]
    for side in ("a", "b"):
        (line,) = [each for each in lines if each.startswith(f"the call that makes {side.upper()}")]
        _, _, command = line.partition(": cellrepro ")
        printed = invoke(*shlex.split(command)).out
        assert calls[side]
        for call in calls[side]["python"].splitlines():
            assert call in printed, (side, call)


def test_a_log_that_lies_beside_is_named_and_not_taken(invoke, tmp_path):
    log = (LOGS / "cellpose_2.3.2_estimated.log").read_bytes()
    (tmp_path / "run.log").write_bytes(log)
    seg = tmp_path / "cells_seg.npy"
    seg.write_bytes((FILES / "gui_2.3.2_seg.npy").read_bytes())
    bare = tmp_path / "bare_masks.tif"
    tifffile.imwrite(bare, np.kron(np.eye(4, dtype=np.uint16), np.ones((9, 9), np.uint16)))
    answer = invoke("explain", bare, seg)
    assert answer.out.count("run.log is not used") == 1  # of B, which records its settings, none
    assert NO_GPU not in answer.out


def test_what_is_no_log_is_refused(tmp_path):
    path = tmp_path / "run.log"
    path.write_text("epoch 1 loss 0.3")
    with pytest.raises(BadInput, match=r"no run\.log of Cellpose"):
        log_record(path)


def test_a_million_lines_without_a_time(tmp_path):
    path = tmp_path / "run.log"
    path.write_text(
        "2024-01-01 10:00:00,000 [INFO] WRITING LOG OUTPUT TO run.log\n"
        "2024-01-01 10:00:01,000 [WARNING] something is odd\n" + "0%\n" * 10**6
    )
    begun = time.process_time()
    (remark,) = log_record(path).remarks
    assert time.process_time() - begun < 10
    assert "something is odd" in remark
    assert len(remark) < 1000
