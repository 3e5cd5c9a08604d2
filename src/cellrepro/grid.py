"""Many specs: a YAML file of fixed and varied parameters, one headless notebook a repeat."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import cellrepro
from cellrepro.control import determinism, profiles
from cellrepro.errors import BadInput, CellreproError
from cellrepro.headless import Job, execute_in_child
from cellrepro.record.spec import PARAMETERS, explain
from cellrepro.record.store import NOTEBOOK, Repeat, Store
from cellrepro.run import (
    HOLD_VARIABLE,
    Plan,
    epochs_between_checkpoints,
    plan_segmentation,
    plan_training,
    stored,
)
from cellrepro.show.progress import LINES_VARIABLE, Progress, progress

Scalar = str | int | float | bool | None
Status = Literal["done", "present", "failed", "planned"]


class GridFile(BaseModel):
    """A grid file as written; see `read_grid`."""

    model_config = ConfigDict(extra="forbid")

    notebook: str
    fixed: dict[str, Scalar] = Field(default_factory=dict)
    vary: dict[str, list[Scalar]] = Field(default_factory=dict)
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    repeats: int = Field(default=1, ge=1)


@dataclass(frozen=True)
class Point:
    """One point of a grid: a spec, and the parameters that make the notebook carry it out."""

    parameters: dict[str, Any]
    varied: dict[str, Scalar]
    plan: Plan

    @property
    def label(self) -> str:
        """The varied parameters, for people."""
        return ", ".join(f"{name} {value}" for name, value in self.varied.items()) or "the one spec"


@dataclass(frozen=True)
class Grid:
    """A grid file, checked: every point can be carried out as far as can be told beforehand."""

    notebook: Path
    points: tuple[Point, ...]
    repeats: int


@dataclass(frozen=True)
class GridRun:
    """How one spec of a grid ended.

    Attributes
    ----------
    key : str
    status : {"done", "present", "failed", "planned"}
        ``present``: stored before, not run again; ``planned``: a dry run.
    folder : Path
        In the store: of the run, or of what was kept of the failure.
    varied : dict
        The varied parameters.
    reason : str
        Why it failed, or why it is vacuous.
    """

    key: str
    status: Status
    folder: Path
    varied: dict[str, Scalar]
    reason: str = ""


def read_grid(
    path: str | Path, *, store: str | Path = "outputs", overrides: dict[str, Scalar] | None = None
) -> Grid:
    """Read a grid file and check everything in it before anything runs.

    Parameters
    ----------
    path : str or Path
        YAML with ``notebook`` (a name under ``notebooks/`` or a path), ``fixed``, ``vary``,
        ``exclude`` and ``repeats``.
    store : str or Path
        Where runs are kept.
    overrides : dict, optional
        Fixed parameters that replace the file's.

    Returns
    -------
    Grid

    Raises
    ------
    BadInput
        If the file is not a grid, a parameter is not the notebook's, a value cannot be used, or
        two points are the same spec.
    """
    file = _read_file(Path(path))
    notebook = find_notebook(file.notebook, near=Path(path).parent)
    fixed = {**file.fixed, **(overrides or {})}
    vary = {name: values for name, values in file.vary.items() if name not in (overrides or {})}
    known = notebook_parameters(notebook)
    _check_names(path, notebook, known, fixed=fixed, vary=vary, exclude=file.exclude)
    points = tuple(
        _point(notebook, known, {**fixed, **varied}, varied, store)
        for varied in _combinations(vary, file.exclude)
    )
    if not points:
        raise BadInput(f"{path} leaves no spec to run: `exclude` removes every combination")
    _check_distinct(path, points)
    return Grid(notebook, points, file.repeats)


def find_notebook(name: str, *, near: Path = Path()) -> Path:
    """The file a notebook's name or path means.

    Parameters
    ----------
    name : str
        A path, or a name with or without ``.ipynb`` under ``notebooks/`` of the current folder,
        of ``near`` or of the project.
    near : Path
        Another folder to look from.

    Raises
    ------
    BadInput
        If there is none; the message lists the notebooks that there are.
    """
    file = name if name.endswith(".ipynb") else f"{name}.ipynb"
    project = Path(cellrepro.__file__).resolve().parents[2]
    folders = [root / "notebooks" for root in (Path(), near, near.parent, project)]
    for candidate in [Path(file), near / file, *(folder / file for folder in folders)]:
        if candidate.is_file():
            return candidate.resolve()
    present = sorted({path.stem for folder in folders for path in folder.glob("*.ipynb")})
    raise BadInput(
        f"no notebook {name!r}; expected a path, or one of {', '.join(present) or 'notebooks/*'}"
    )


def notebook_parameters(notebook: Path) -> dict[str, Any]:
    """The names a notebook's ``parameters`` cell defines, with what papermill says of each."""
    import nbformat
    import papermill

    try:
        nbformat.read(notebook, as_version=4)
        known = papermill.inspect_notebook(str(notebook))
    except (
        nbformat.ValidationError,
        OSError,
        ValueError,
        KeyError,
        AttributeError,
        TypeError,
    ) as error:
        raise BadInput(
            f"{notebook} cannot be read as a notebook: {error}; open it in JupyterLab and save it"
        ) from error
    if not known:
        raise BadInput(f"{notebook} takes no parameters; tag one of its cells `parameters`")
    return known


def run_grid(
    grid: Grid, *, store: str | Path = "outputs", workers: int | None = None, quiet: bool = False
) -> list[GridRun]:
    """Carry out what the store lacks of a grid; a failure is kept and the others go on.

    Parameters
    ----------
    grid : Grid
    store : str or Path
        The one given to `read_grid`.
    workers : int, optional
        Specs carried out at the same time; by default one per device.
    quiet : bool
        Show no progress.

    Returns
    -------
    list of GridRun
        In the order of the grid's points.
    """
    if workers is not None and workers < 1:
        raise BadInput(f"workers is {workers}; expected 1 or more")
    place = Store(store)
    slots = _Slots(grid, workers)
    children = _Children()
    n_repeats = len(grid.points) * grid.repeats
    with progress(n_repeats, "grid", quiet=quiet) as bar, children:
        pool = ThreadPoolExecutor(slots.n_threads)

        def one(point: Point) -> GridRun:
            with slots.taken(point):
                return _run_point(grid, point, place, bar, children)

        futures: list[Future[GridRun]] = [pool.submit(one, point) for point in grid.points]
        try:
            wait_for(futures)
        finally:
            children.stop()
            pool.shutdown(wait=True, cancel_futures=True)
    return [future.result() for future in futures]


def planned(grid: Grid, *, store: str | Path = "outputs") -> list[GridRun]:
    """What `run_grid` would do, without doing it."""
    place = Store(store)
    runs = []
    for point in grid.points:
        spec = point.plan.spec
        complete = all(stored(place, spec, index) for index in range(grid.repeats))
        runs.append(
            GridRun(
                spec.key,
                "present" if complete else "planned",
                place.root / "runs" / spec.key,
                point.varied,
                "; ".join(point.plan.notices),
            )
        )
    return runs


# -- reading -------------------------------------------------------------------------------


def _read_file(path: Path) -> GridFile:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        return GridFile.model_validate(content)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"the grid file {path} cannot be read: {error}") from error
    except yaml.YAMLError as error:
        raise BadInput(f"the grid file {path} is not YAML: {error}") from error
    except ValidationError as error:
        raise BadInput(
            f"{path} is not a grid file: {explain(error)}; expected `notebook`, `fixed`, `vary`, "
            "`exclude` and `repeats`, where `vary` holds lists"
        ) from error


def _check_names(
    path: str | Path,
    notebook: Path,
    known: dict[str, Any],
    *,
    fixed: dict[str, Scalar],
    vary: dict[str, list[Scalar]],
    exclude: Sequence[dict[str, Scalar]],
) -> None:
    given = {*fixed, *vary}
    problems = []
    unknown = sorted(given - known.keys())
    if unknown:
        problems.append(
            f"{notebook.name} takes {', '.join(sorted(known))}, not {', '.join(unknown)}"
        )
    twice = sorted(fixed.keys() & vary.keys())
    if twice:
        problems.append(f"{', '.join(twice)} is both fixed and varied")
    by_grid = sorted(given & {"repeats", "store"})
    if by_grid:
        problems.append(
            f"{', '.join(by_grid)} is set by the grid itself: write `repeats: N` at the top of "
            "the file, and give --store on the command line"
        )
    unseen = sorted({name for entry in exclude for name in entry} - vary.keys())
    if unseen:
        problems.append(f"`exclude` names {', '.join(unseen)}, which does not vary")
    empty = sorted(name for name, values in vary.items() if not values)
    if empty:
        problems.append(f"`vary` has no value for {', '.join(empty)}")
    if "data" not in given:
        problems.append("`data` is missing: the folder of images")
    if problems:
        raise BadInput(f"{path}: {'; '.join(problems)}")


def _combinations(
    vary: dict[str, list[Scalar]], exclude: Sequence[dict[str, Scalar]]
) -> Iterator[dict[str, Scalar]]:
    for values in itertools.product(*vary.values()):
        varied = dict(zip(vary, values, strict=True))
        if not any(all(varied[name] == entry[name] for name in entry) for entry in exclude):
            yield varied


def _point(
    notebook: Path,
    known: dict[str, Any],
    parameters: dict[str, Any],
    varied: dict[str, Scalar],
    store: str | Path,
) -> Point:
    """A point with every value of its spec spelt out, so that the notebook's defaults count."""
    defaults = {name: _literal(notebook, entry) for name, entry in known.items()}
    complete = {**defaults, **parameters}
    chosen = {name: complete[name] for name in PARAMETERS if name in complete}
    make = plan_training if "epochs" in known else plan_segmentation
    data = str(Path(str(complete["data"])).resolve())
    plan = make(data, store=store, **chosen)
    if "checkpoint_every" in complete:
        keep = complete.get("keep_checkpoints", False)
        epochs_between_checkpoints(plan, complete["checkpoint_every"], keep=keep)
    if plan.model.path is not None and Path(str(complete["model"])).is_file():
        chosen["model"] = str(Path(str(complete["model"])).resolve())
    if str(chosen.get("profile", "")).endswith((".yaml", ".yml")):
        chosen["profile"] = str(Path(str(chosen["profile"])).resolve())
    extra = {name: value for name, value in parameters.items() if name not in PARAMETERS}
    complete = {**extra, **chosen, "data": data, "store": str(Path(store).resolve())}
    return Point(complete, varied, plan)


def _literal(notebook: Path, entry: dict[str, Any]) -> Any:
    import ast

    try:
        return ast.literal_eval(entry["default"])
    except (ValueError, SyntaxError) as error:
        raise BadInput(
            f"{notebook}: parameter {entry['name']} is {entry['default']!r}; expected a plain "
            "literal on a line of its own, so that the grid can name the spec"
        ) from error


def _check_distinct(path: str | Path, points: Sequence[Point]) -> None:
    by_key: dict[str, list[str]] = defaultdict(list)
    for point in points:
        by_key[point.plan.spec.key].append(point.label)
    for labels in by_key.values():
        if len(labels) > 1:
            raise BadInput(
                f"{path}: {' and '.join(labels[:2])} are the same spec; vary only what is part of "
                f"it: data, {', '.join(PARAMETERS)}"
            )


# -- running -------------------------------------------------------------------------------


class _Slots:
    """How many specs may run at once on each device."""

    def __init__(self, grid: Grid, workers: int | None):
        devices = {_device(point) for point in grid.points}
        self.n_threads = workers or len(devices)
        self._free = {device: threading.Semaphore(workers or 1) for device in devices}

    def taken(self, point: Point) -> threading.Semaphore:
        return self._free[_device(point)]


def _device(point: Point) -> str:
    return str(point.plan.spec.profile_settings["device"])


class _Children:
    """The processes under way, so that all of them end when the grid does."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock, self._stopped = threading.Lock(), False

    def __enter__(self) -> _Children:
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()

    def start(self, command: list[str], **options: Any) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped:
                raise KeyboardInterrupt
            child = subprocess.Popen(command, **options)
            self._running.add(child)
            return child

    def ended(self, child: subprocess.Popen[str]) -> None:
        with self._lock:
            self._running.discard(child)

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for child in self._running:
                child.kill()


def _run_point(
    grid: Grid, point: Point, store: Store, bar: Progress, children: _Children
) -> GridRun:
    spec = point.plan.spec
    folder = store.root / "runs" / spec.key
    ran = 0
    for index in range(grid.repeats):
        if stored(store, spec, index) is not None:
            bar.advance(f"{spec.key}/{index} {point.label}: was there")
            continue
        started = time.monotonic()
        try:
            repeat = _run_repeat(grid, point, index, store, children)
        except CellreproError as error:
            for _ in range(index, grid.repeats):
                bar.advance(f"{spec.key}/{index} {point.label}: failed")
            bar.say(f"failed   {spec.key}/{index}  {point.label}: {error}")
            kept = store.root / "failed" / spec.key / str(index)
            return GridRun(spec.key, "failed", kept, point.varied, str(error))
        ran += 1
        bar.advance(f"{spec.key}/{index} {point.label}: done")
        reasons = repeat.manifest.vacuous
        bar.say(
            f"{'vacuous' if reasons else 'done   '}  {repeat.name}  {point.label}  "
            f"{time.monotonic() - started:.0f} s" + (f"  {'; '.join(reasons)}" if reasons else "")
        )
    last = stored(store, spec, grid.repeats - 1)
    reasons = last.manifest.vacuous if last is not None else []
    status: Status = "done" if ran else "present"
    return GridRun(spec.key, status, folder, point.varied, "; ".join(reasons))


def _run_repeat(grid: Grid, point: Point, index: int, store: Store, children: _Children) -> Repeat:
    """Execute the notebook for one repeat and store what it made, with the notebook."""
    spec = point.plan.spec
    with store.staging() as area:
        held, executed = area / "repeat", area / NOTEBOOK
        parameters = {**point.parameters, "repeats": index + 1}
        job = Job(str(grid.notebook), str(executed), parameters)
        reason = _execute(job, point, held, children)
        if reason is None:
            reason = _unlike_asked(held, spec.key, index)
        if reason is not None:
            store.keep_failure(area, spec, repeat=index, reason=reason)
            raise CellreproError(reason)
        shutil.move(executed, held / NOTEBOOK)
        repeat = store.commit(held, spec)
    store.forget_failure(spec.key, index)
    return repeat


def _execute(job: Job, point: Point, held: Path, children: _Children) -> str | None:
    """Run a job in a child process with the profile's environment; why it failed, or none."""
    spec = point.plan.spec
    extra = {
        **determinism.environment(spec.mode),
        HOLD_VARIABLE: str(held.resolve()),
        LINES_VARIABLE: "lines",
    }
    environment = profiles.Profile(**spec.profile_settings).child_environment(extra)
    return execute_in_child(job, environment, start=children.start, ended=children.ended)


def _unlike_asked(held: Path, key: str, index: int) -> str | None:
    if not held.is_dir():
        return "the notebook ended without a run: it never called cellrepro.train or .segment"
    manifest = Repeat(held).manifest
    if (manifest.key, manifest.repeat) != (key, index):
        return (
            f"the notebook carried out {manifest.key}/{manifest.repeat} instead of {key}/{index}: "
            "it must pass its parameters on as they are"
        )
    return None
