"""Files sent to a worker that does not see the store, and repeats sent back.

The worker's folder for a grid holds the notebook, the images, the network and the profile, each
under its digest or file name, and a store of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.determinism.profiles import ProfileReference
from cellrepro.digests.digests import file_digest, value_digest
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.grid.job import Job
from cellrepro.grid.point import Point, profile_reference
from cellrepro.grid.points import Grid
from cellrepro.spec.spec import KEY_LENGTH
from cellrepro.store.committing import STAGED_DATA
from cellrepro.store.seal import SUMS
from cellrepro.store.store import Store
from cellrepro.store.store_paths import inside
from cellrepro.store.stored_run import MANIFEST, SPEC, WEIGHTS, Repeat
from cellrepro.words import some

_STORE = "store"
_NOTEBOOK = "notebook"
_IMAGES = "images"
_MODEL = "model"
_PROFILE = "profile"
_MOST_BYTES = 2_000_000_000
"""Most bytes that are sent to each worker."""


# -- to a worker ---------------------------------------------------------------------------


def job_to_send(job: Job) -> Job:
    """Copy a job for a worker, without the other points of its grid, so that it stays small.

    The path of the store becomes absolute, as a worker has another current folder.
    """
    store = Store(job.grid.store.root.resolve())
    return replace(job, grid=replace(job.grid, points=(), store=store))


def files_for_workers(grid: Grid) -> dict[str, bytes]:
    """Read the files that a worker needs, by their names in its folder."""
    files = {f"{_NOTEBOOK}/{grid.notebook.name}": grid.notebook}
    for point in grid.points:
        files.update(_images_of(point))
        files.update(_model_of(point, grid.store.root))
        profile = profile_reference(point.parameters)
        if profile.is_file:
            files[_profile_file(profile)] = Path(profile.source)
    n_bytes = sum(path.stat().st_size for path in files.values())
    if n_bytes > _MOST_BYTES:
        raise NotPossibleHere(
            f"the workers do not see the store {grid.store.root}, and to send them images and "
            f"network takes {n_bytes / 1e9:.1f} GB; put both on a file system that all share"
        )
    return {name: path.read_bytes() for name, path in files.items()}


def _profile_file(profile: ProfileReference) -> str:
    """The name under which a profile is sent; two folders may have a file of one name."""
    where = value_digest(profile.source)[:KEY_LENGTH]
    return f"{_PROFILE}/{where}/{Path(profile.source).name}"


def _images_of(point: Point) -> dict[str, Path]:
    """The files of a point's folder of images."""
    data = point.plan.request.data
    folder = _image_folder(point)
    return {
        f"{folder}/{path.relative_to(data).as_posix()}": path
        for path in data.rglob("*")
        if path.is_file()
    }


def _image_folder(point: Point) -> str:
    request = point.plan.request
    return f"{_IMAGES}/{request.spec.data_digest[:KEY_LENGTH]}/{request.data.name}"


def _model_of(point: Point, root: Path) -> dict[str, Path]:
    """The initial weights of a point; of a stored repeat with all that its key is looked up by."""
    model = point.plan.request.model
    if model.path is None:
        return {}
    is_stored = model.path.name == WEIGHTS and model.path.is_relative_to(root)
    if not is_stored:
        return {f"{_MODEL}/{model.digest}/{model.path.name}": model.path}
    repeat = model.path.parent
    spec = repeat.parents[1] / SPEC
    files = (repeat / MANIFEST, model.path, spec)
    return {f"{_STORE}/{file.relative_to(root).as_posix()}": file for file in files}


def job_on_worker(job: Job, folder: Path) -> Job:
    """Copy a job with the paths of `files_for_workers` on a worker."""
    store = folder / _STORE
    model = job.point.plan.request.model
    sent_model = folder / _MODEL / str(model.digest) / model.label
    profile = profile_reference(job.point.parameters)
    sent_profile = folder / _profile_file(profile)
    parameters = {
        **job.point.parameters,
        "data": str(folder / _image_folder(job.point)),
        "store": str(store),
    }
    if sent_model.is_file():
        parameters["model"] = str(sent_model)
    if sent_profile.is_file():
        parameters["profile"] = str(replace(profile, source=str(sent_profile)))
    notebook = folder / _NOTEBOOK / job.grid.notebook.name
    return replace(
        job,
        point=replace(job.point, parameters=parameters),
        grid=replace(job.grid, notebook=notebook, store=Store(store)),
    )


# -- back to the driver --------------------------------------------------------------------


@dataclass(frozen=True)
class SentFiles:
    """Files of a worker's store, each content once."""

    digests: dict[str, str]
    """Digests by the path in the store."""
    contents: dict[str, bytes]
    """Contents by digest."""

    @classmethod
    def of(cls, job: Job) -> SentFiles:
        """Read what a job has made: repeats, segmented images and failures."""
        root = job.grid.store.root
        folders = (root / "runs" / job.key, root / "failed" / job.key, _data_folder(root, job))
        digests = {}
        contents = {}
        for path in _files_in(folders):
            digest = file_digest(path)
            digests[path.relative_to(root).as_posix()] = digest
            contents[digest] = path.read_bytes()
        return cls(digests, contents)

    def store(self, job: Job, area: Path) -> None:
        """Commit them to the store of a job, after a check of every digest."""
        with tempfile.TemporaryDirectory(dir=area) as scratch:
            root = Path(scratch)
            self._write(root)
            run = Store(root).run(job.key)
            for repeat in run.repeats if run else ():
                _check_bytes(repeat)
                _store_repeat(repeat, _data_folder(root, job), job)
            _store_failures(root, job.grid.store.root)

    def _write(self, root: Path) -> None:
        for name, digest in self.digests.items():
            path = inside(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.contents[digest])


def _data_folder(root: Path, job: Job) -> Path:
    """The folder in which a store keeps the images of a job's spec."""
    return root / "data" / job.point.plan.spec.images_digest[:KEY_LENGTH]


def _files_in(folders: tuple[Path, ...]) -> Iterator[Path]:
    for folder in folders:
        for path in folder.rglob("*"):
            if path.is_file():
                yield path


def _check_bytes(repeat: Repeat) -> None:
    """Check the files of a repeat that was sent against its manifest."""
    wrong = [
        name
        for name, digest in repeat.manifest.files.items()
        if file_digest(repeat.folder / name) != digest
    ]
    if wrong:
        raise BadInput(f"{repeat.name} came with different bytes than were made: {some(wrong)}")


def _store_repeat(repeat: Repeat, data: Path, job: Job) -> None:
    """Commit a repeat that was sent, with its images, unless it is stored."""
    store = job.grid.store
    if store.repeat(job.key, repeat.machine, repeat.index):
        return
    (data / SUMS).unlink(missing_ok=True)
    shutil.copytree(data, repeat.folder / STAGED_DATA)
    store.commit(repeat.folder, job.point.plan.spec)


def _store_failures(sent: Path, root: Path) -> None:
    """Copy the failures that were sent, in place of earlier ones."""
    for folder in (sent / "failed").glob("*/*/*"):
        target = root / folder.relative_to(sent)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
