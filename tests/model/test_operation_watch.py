"""Operations and draws of chosen steps, and how they are stored."""

import pytest
import torch
from torch import nn

from cellrepro.model.operation_watch import OperationWatch
from cellrepro.store.row_tables import read_rows, write_rows
from samebits import OperationRow

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def test_rows_and_draws_of_chosen_steps(tmp_path):
    net = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 1))
    watch = OperationWatch(net, steps=[1, 2])
    for index in range(3):
        with watch.step(index, 0):
            net(torch.ones(2, 4)).sum().backward()
    assert sorted({row.step for row in watch.rows}) == [1, 2]
    drawing = [row for row in watch.rows if row.draws and row.op.startswith("aten.")]
    assert drawing
    assert [(d.step, d.what) for d in watch.draws] == [(row.step, row.op) for row in drawing]
    write_rows(tmp_path / "rows.parquet", watch.rows, OperationRow)
    assert read_rows(tmp_path / "rows.parquet", OperationRow) == watch.rows
