"""To and from a worker that does not see the store: what it needs, and what it has made."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.asked.spec import KEY_LENGTH
from cellrepro.bits.digests import file_digest
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.grid.file import Grid, Point
from cellrepro.grid.point import Job
from cellrepro.store.store import MANIFEST, SPEC, STAGED_DATA, SUMS, WEIGHTS, Store
from cellrepro.store.whole_files import inside
from cellrepro.words import some

STORE_PLACE = "store"
"""Where in a worker's own folder its store is."""
_MOST = 2e9  # bytes


@dataclass(frozen=True)
class Sent:
    """Files of a store, of each content once."""

    names: dict[str, str]  # digest by path in the store
    contents: dict[str, bytes]  # by digest

    @classmethod
    def of(cls, root: Path, job: Job) -> Sent:
        """What a store holds of a job: its repeats, what it segmented, and its failures."""
        data = job.point.plan.spec.images_digest[:KEY_LENGTH]
        folders = (root / "runs" / job.key, root / "failed" / job.key, root / "data" / data)
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        names = {path.relative_to(root).as_posix(): file_digest(path) for path in files}
        contents = {names[path.relative_to(root).as_posix()]: path.read_bytes() for path in files}
        return cls(names, contents)

    def unpack(self, job: Job, area: Path) -> None:
        """Store the repeats, each file held to the digest in its manifest."""
        store, spec = job.grid.store, job.point.plan.spec
        with tempfile.TemporaryDirectory(dir=area) as scratch:
            root = Path(scratch)
            for name, digest in self.names.items():
                inside(root, name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(self.contents[digest])
            run, data = Store(root).run(job.key), root / "data" / spec.images_digest[:KEY_LENGTH]
            for repeat in run.repeats if run else ():
                wrong = [
                    n
                    for n, of in repeat.manifest.files.items()
                    if file_digest(repeat.folder / n) != of
                ]
                if wrong:
                    raise BadInput(
                        f"{repeat.name} came with other bytes than were made: {some(wrong)}"
                    )
                if not store.repeat(job.key, repeat.machine, repeat.index):
                    (data / SUMS).unlink(missing_ok=True)
                    shutil.copytree(data, repeat.folder / STAGED_DATA)
                    store.commit(repeat.folder, spec)
            for folder in (root / "failed").glob("*/*/*"):
                target = store.root / folder.relative_to(root)
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(folder, target)


def travelling(job: Job) -> Job:
    """A job as it is sent to a worker: its own point, and nothing of the others of its grid.

    A worker has another current folder, so the store's becomes absolute.
    """
    store = Store(job.grid.store.root.resolve())
    return replace(job, grid=replace(job.grid, points=(), store=store))


def what_is_needed(grid: Grid) -> dict[str, bytes]:
    """What a worker needs that sees neither store nor images: by its place in its own folder."""
    files = {f"notebook/{grid.notebook.name}": grid.notebook}
    for point in grid.points:
        request = point.plan.request
        data = request.data
        files |= {
            f"{_data_place(point)}/{path.relative_to(data).as_posix()}": path
            for path in data.rglob("*")
            if path.is_file()
        }
        path, profile = request.model.path, Path(str(point.parameters.get("profile", "")))
        if path is not None and path.name == WEIGHTS and path.is_relative_to(grid.store.root):
            repeat = path.parent  # it is found by its key
            run = [repeat / MANIFEST, path, repeat.parents[1] / SPEC]
            files |= {
                f"{STORE_PLACE}/{one.relative_to(grid.store.root).as_posix()}": one for one in run
            }
        elif path is not None:
            files[f"model/{request.model.digest}/{path.name}"] = path
        if profile.is_file():
            files[f"profile/{profile.name}"] = profile
    n_bytes = sum(path.stat().st_size for path in files.values())
    if n_bytes > _MOST:
        raise NotPossibleHere(
            f"the workers do not see the store {grid.store.root}, and to send them images and "
            f"network takes {n_bytes / 1e9:.1f} GB; put both on a file system that all share"
        )
    return {name: path.read_bytes() for name, path in files.items()}


def _data_place(point: Point) -> str:
    request = point.plan.request
    return f"images/{request.spec.data_digest[:KEY_LENGTH]}/{request.data.name}"


def moved(job: Job, own: Path) -> Job:
    """The same job where a worker has what `what_is_needed` sent."""
    point, grid = job.point, job.grid
    model, profile = point.plan.request.model, Path(str(point.parameters.get("profile", "")))
    places = {"data": str(own / _data_place(point)), "store": str(own / STORE_PLACE)}
    if (sent := own / f"model/{model.digest}/{model.label}").is_file():
        places["model"] = str(sent)
    if (own / "profile" / profile.name).is_file():
        places["profile"] = str(own / "profile" / profile.name)
    notebook, store = own / "notebook" / grid.notebook.name, Store(own / STORE_PLACE)
    point = replace(point, parameters={**point.parameters, **places})
    return replace(job, point=point, grid=replace(grid, notebook=notebook, store=store))
