"""What a worker is sent."""

import pickle

import yaml

from cellrepro.grid.job import Job
from cellrepro.grid.points import read_grid
from cellrepro.grid.sending import job_to_send
from conftest import SMALL


def test_a_job_is_as_large_in_a_large_grid(notebook, small_data, tmp_path):
    def n_bytes(n_seeds):
        fixed = {"data": str(small_data), **SMALL}
        content = {"notebook": str(notebook), "fixed": fixed, "vary": {"seed": [*range(n_seeds)]}}
        (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
        grid = read_grid(tmp_path / "grid.yaml", store=tmp_path / "outputs")
        return len(pickle.dumps(job_to_send(Job(grid, grid.points[0]))))

    assert n_bytes(20) == n_bytes(2)
