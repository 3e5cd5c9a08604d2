"""What a worker is sent."""

import pickle
from pathlib import Path

import yaml

from cellrepro.grid.job import Job
from cellrepro.grid.points import read_grid
from cellrepro.grid.sending import files_for_workers, job_on_worker, job_to_send
from conftest import SMALL


def test_a_job_is_as_large_in_a_large_grid(notebook, small_data, tmp_path):
    def n_bytes(n_seeds):
        fixed = {"data": str(small_data), **SMALL}
        content = {"notebook": str(notebook), "fixed": fixed, "vary": {"seed": [*range(n_seeds)]}}
        (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
        grid = read_grid(tmp_path / "grid.yaml", store=tmp_path / "outputs")
        return len(pickle.dumps(job_to_send(Job(grid, grid.points[0]))))

    assert n_bytes(20) == n_bytes(2)


def test_a_profile_of_ones_own_is_sent_and_keeps_its_variables(notebook, small_data, tmp_path):
    """Also from a folder whose name holds a plus."""
    own = tmp_path / "my+lab" / "own.yaml"
    own.parent.mkdir()
    own.write_text("device: cpu\nthreads: 1\n")
    fixed = {"data": str(small_data), **SMALL, "profile": f"{own}+MKL_CBWR=COMPATIBLE"}
    content = {"notebook": str(notebook), "fixed": fixed, "vary": {"seed": [0]}}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
    grid = read_grid(tmp_path / "grid.yaml", store=tmp_path / "outputs")
    files = files_for_workers(grid)
    assert own.read_bytes() in files.values()
    for name, sent in files.items():
        path = tmp_path / "worker" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sent)
    job = job_on_worker(Job(grid, grid.points[0]), tmp_path / "worker")
    profile = job.point.parameters["profile"]
    assert profile.startswith(str(tmp_path / "worker"))
    assert profile.endswith("own.yaml+MKL_CBWR=COMPATIBLE")


def test_profiles_of_one_name_in_two_folders_are_both_sent(notebook, small_data, tmp_path):
    profiles = [tmp_path / folder / "own.yaml" for folder in "ab"]
    for threads, path in enumerate(profiles, start=1):
        path.parent.mkdir()
        path.write_text(f"device: cpu\nthreads: {threads}\n")
    vary = {"profile": [str(path) for path in profiles]}
    content = {"notebook": str(notebook), "fixed": {"data": str(small_data), **SMALL}, "vary": vary}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(content))
    grid = read_grid(tmp_path / "grid.yaml", store=tmp_path / "outputs")
    for name, sent in files_for_workers(grid).items():
        path = tmp_path / "worker" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(sent)
    jobs = [job_on_worker(Job(grid, point), tmp_path / "worker") for point in grid.points]
    received = [Path(job.point.parameters["profile"]).read_text() for job in jobs]
    assert received == [path.read_text() for path in profiles]
