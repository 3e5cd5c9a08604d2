"""Many specs: a YAML file of fixed and varied parameters, one headless notebook a repeat."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere
from cellrepro.lab.machine import HOLD_VARIABLE
from cellrepro.lab.notebook_process import Job, brought, execute_in_child, without_slow_imports
from cellrepro.lab.run import (
    Plan,
    epochs_between_checkpoints,
    plan_segmentation,
    plan_training,
    replaced,
    started_with,
)
from cellrepro.progress import LINES_VARIABLE, Progress, progress
from cellrepro.store.spec import PARAMETERS, explain
from cellrepro.store.store import NOTEBOOK, Repeat, Store

Scalar = str | int | float | bool | None
Status = Literal["done", "present", "failed", "planned", "not-here"]


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
    machine : str
        Of the repeats; empty where this machine cannot carry it out.
    status : {"done", "present", "failed", "planned", "not-here"}
        ``present``: stored before, not run again; of a dry run ``planned``, or ``not-here``, what
        this machine cannot carry out.
    folder : Path
        In the store: of the run, or of what was kept of the failure.
    varied : dict
        The varied parameters.
    reason : str
        Why it failed, or why it is vacuous.
    """

    key: str
    machine: str
    status: Status
    folder: Path
    varied: dict[str, Scalar]
    reason: str = ""


def read_grid(
    path: str | Path,
    *,
    store: str | Path = "outputs",
    overrides: dict[str, Scalar | list[Scalar]] | None = None,
) -> Grid:
    """Read a grid file and check everything in it before anything runs.

    Parameters
    ----------
    path : str or Path
        YAML with ``notebook`` (a name under ``notebooks/`` or a path), ``fixed``, ``vary``,
        ``exclude`` and ``repeats``; where there is no such file, ``grids/NAME`` of the package.
    store : str or Path
        Where runs are kept.
    overrides : dict, optional
        Parameters that replace the file's; a list is an axis, a value in the place of an axis
        leaves that value of it.

    Returns
    -------
    Grid

    Raises
    ------
    BadInput
        If the file is not a grid, a parameter is not the notebook's, a value cannot be used, or
        two points are the same spec.
    """
    if not Path(path).exists() and (own := brought("grids").parent / path).is_file():
        path = own
    file = _read_file(Path(path))
    notebook = find_notebook(file.notebook, near=Path(path).parent)
    fixed, vary = dict(file.fixed), dict(file.vary)
    for name, value in (overrides or {}).items():
        if isinstance(value, list):
            fixed.pop(name, None)
            vary[name] = value
        elif name in vary:
            vary[name] = [value]
        else:
            fixed[name] = value
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
        of ``near`` or of the package.
    near : Path
        Another folder to look from.

    Raises
    ------
    BadInput
        If there is none; the message lists the notebooks that there are.
    """
    file = name if name.endswith(".ipynb") else f"{name}.ipynb"
    folders = [root / "notebooks" for root in (Path(), near, near.parent)] + [brought("notebooks")]
    for candidate in [Path(file), near / file, *(folder / file for folder in folders)]:
        if candidate.is_file():
            return candidate.resolve()
    present = sorted({path.stem for folder in folders for path in folder.glob("*.ipynb")})
    raise BadInput(
        f"no notebook {name!r}; expected a path, or one of {', '.join(present) or 'notebooks/*'}"
    )


def notebook_parameters(notebook: Path) -> dict[str, Any]:
    """The names a notebook's ``parameters`` cell defines, with what papermill says of each."""
    with without_slow_imports():
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
    """Carry out what the store lacks of a grid on this machine; a failure is kept, others go on.

    Each device has a queue of its own, in the order of the grid's points. A training that was
    killed goes on from its last checkpoint.

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
    queues, children = _Queues(grid.points, workers), _Children()
    ended: dict[int, GridRun] = {}
    n_repeats = len(grid.points) * grid.repeats
    notes = dict.fromkeys(text for point in grid.points for text in replaced(point.plan))
    with progress(n_repeats, "grid", quiet=quiet) as bar, children:
        for text in notes:
            bar.say(f"note: {text}")

        def work() -> None:
            while (taken := queues.take()) is not None:
                try:
                    point = grid.points[taken]
                    ended[taken] = _run_point(grid, point, place, bar, children)
                finally:
                    queues.done(taken)

        pool = ThreadPoolExecutor(queues.n_threads)
        futures = [pool.submit(work) for _ in range(queues.n_threads)]
        try:
            wait_for(futures)
        finally:
            queues.close()
            children.stop()
            pool.shutdown(wait=True)
    for future in futures:
        future.result()
    return [ended[index] for index in range(len(grid.points))]


def planned(grid: Grid, *, store: str | Path = "outputs") -> list[GridRun]:
    """What `run_grid` would do, without doing it."""
    place = Store(store)
    runs = []
    for point in grid.points:
        key, reason, machine = point.plan.spec.key, "; ".join(point.plan.notices), ""
        status: Status = "planned"
        try:
            machine = point.plan.machine
            if all(place.repeat(key, machine, index) for index in range(grid.repeats)):
                status = "present"
        except NotPossibleHere as error:
            status, reason = "not-here", str(error)
        folder = place.root / "runs" / key
        runs.append(GridRun(key, machine, status, folder, point.varied, reason))
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


class _Queues:
    """The points that wait, a queue for each device."""

    def __init__(self, points: Sequence[Point], workers: int | None):
        self._devices = [point.plan.profile.device for point in points]
        self._waiting: dict[str, deque[int]] = defaultdict(deque)
        for index, device in enumerate(self._devices):
            self._waiting[device].append(index)
        self._running: Counter[str] = Counter()
        self._most, self._lock = workers or 1, threading.Lock()
        self.n_threads = workers or len(self._waiting)

    def take(self) -> int | None:
        """The next point of the device with the least to do; none if no device has room."""
        with self._lock:
            free = [d for d in self._waiting if self._waiting[d] and self._running[d] < self._most]
            if not free:
                return None
            device = min(free, key=self._running.__getitem__)
            self._running[device] += 1
            return self._waiting[device].popleft()

    def done(self, index: int) -> None:
        with self._lock:
            self._running[self._devices[index]] -= 1

    def close(self) -> None:
        with self._lock:
            self._waiting.clear()


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
    key, machine, index, ran = point.plan.spec.key, "", 0, 0
    reasons: list[str] = []
    try:
        machine = point.plan.machine
        for index in range(grid.repeats):
            started, present = time.monotonic(), store.repeat(key, machine, index)
            repeat = present or _run_repeat(grid, point, index, store, children)
            ran += present is None
            reasons = repeat.manifest.vacuous
            how = "was there" if present else "vacuous" if reasons else "done"
            bar.advance(f"{key}/{index} {point.label}: {how}")
            if not present:
                bar.say(
                    f"{how:8} {repeat.name}  {point.label}  {time.monotonic() - started:.0f} s"
                    + (f"  {'; '.join(reasons)}" if reasons else "")
                )
    except CellreproError as error:
        bar.say(f"failed   {key}/{index}  {point.label}: {error}")
        for left in range(index, grid.repeats):
            how = "failed" if left == index else "not run, as an earlier repeat failed"
            bar.advance(f"{key}/{left} {point.label}: {how}")
        kept = store.root / "failed" / key / (machine or _NO_MACHINE) / str(index)
        if not machine:  # of a failed notebook more is kept, where it failed
            with store.staging() as area:
                store.keep_failure(
                    area, point.plan.spec, machine=_NO_MACHINE, repeat=index, reason=str(error)
                )
        return GridRun(key, machine, "failed", kept, point.varied, str(error))
    status: Status = "done" if ran else "present"
    folder = store.root / "runs" / key
    return GridRun(key, machine, status, folder, point.varied, "; ".join(reasons))


_NO_MACHINE = "not-here"


def _run_repeat(grid: Grid, point: Point, index: int, store: Store, children: _Children) -> Repeat:
    """Execute the notebook for one repeat and store what it made, with the notebook."""
    spec, machine = point.plan.spec, point.plan.machine
    with store.staging() as area:
        held, executed = area / "repeat", area / NOTEBOOK
        parameters = {**point.parameters, "repeats": index + 1}
        job = Job(str(grid.notebook), str(executed), parameters)
        reason = _execute(job, point, held, children)
        if reason is None:
            reason = _unlike_asked(held, spec.key, index)
        if reason is not None:
            store.keep_failure(area, spec, machine=machine, repeat=index, reason=reason)
            raise CellreproError(reason)
        shutil.move(executed, held / NOTEBOOK)
        repeat = store.commit(held, spec)
    for place in (machine, _NO_MACHINE):
        store.forget_failure(spec.key, place, index)
    return repeat


def _execute(job: Job, point: Point, held: Path, children: _Children) -> str | None:
    """Run a job in a child process with the profile's environment; why it failed, or none."""
    spec = point.plan.spec
    extra = {
        **started_with(spec),
        HOLD_VARIABLE: str(held.resolve()),
        LINES_VARIABLE: "lines",
    }
    environment = point.plan.profile.child_environment(extra)
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
