"""Many specs: a YAML file of fixed and varied parameters, one headless notebook a repeat."""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from cellrepro.errors import BadInput, CellreproError, NotPossibleHere, whole, wrong_fields
from cellrepro.lab import defaults
from cellrepro.lab.notebook_process import brought, find_notebook, notebook_parameters
from cellrepro.lab.process import HOLD_VARIABLE, RUNNING, call
from cellrepro.lab.run import Plan, plan_segmentation, plan_training
from cellrepro.progress import LINES_VARIABLE, Progress, progress
from cellrepro.store.spec import PARAMETERS
from cellrepro.store.store import NOTEBOOK, Repeat, Store

Scalar = str | int | float | bool | dict[str, float] | None
Status = Literal["done", "present", "failed", "planned", "not-here"]


class GridFile(BaseModel):
    """A grid file as written; see `read_grid`."""

    model_config = ConfigDict(extra="forbid")

    notebook: str
    fixed: dict[str, Scalar] = Field(default_factory=dict)
    vary: dict[str, list[Scalar]] = Field(default_factory=dict)
    exclude: list[dict[str, Scalar]] = Field(default_factory=list)
    add: list[dict[str, Scalar]] = Field(default_factory=list)
    repeats: int = Field(default=1, ge=1)

    @field_validator("fixed", "vary", "exclude", "add", mode="before")
    @classmethod
    def _mode_off(cls, value: Any) -> Any:
        """YAML reads ``off`` as false."""
        if isinstance(value, list):
            return [cls._mode_off(entry) for entry in value]
        if not isinstance(value, dict) or "mode" not in value:
            return value
        mode = value["mode"]
        if isinstance(mode, list):
            return value | {"mode": ["off" if one is False else one for one in mode]}
        return value | {"mode": "off" if mode is False else mode}


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
    store: Store


@dataclass(frozen=True)
class GridRun:
    """How one spec of a grid ended."""

    key: str
    machine: str  # of the repeats; empty where this machine cannot carry it out
    status: Status  # ``present``: stored before; ``not-here``: this machine cannot carry it out
    folder: Path  # in the store: of the run, or of what was kept of the failure
    varied: dict[str, Scalar]
    reason: str = ""  # why it failed, or why it is vacuous


# -- reading -------------------------------------------------------------------------------


def read_grid(
    path: str | Path,
    *,
    store: str | Path = defaults.STORE,
    overrides: Mapping[str, Scalar | list[Scalar]] | None = None,
    repeats: int | None = None,
) -> Grid:
    """Read a grid file and check everything in it before anything runs.

    Parameters
    ----------
    path : str or Path
        YAML with ``notebook`` (a name under ``notebooks/`` or a path), ``fixed``, ``vary``,
        ``exclude``, ``add`` (points beside the combinations; an axis that one does not name has
        its first value) and ``repeats``; without such a file, ``grids/NAME`` of the package.
    store : str or Path
        Where runs are kept.
    overrides : dict, optional
        Parameters that replace the file's; a list is an axis.
    repeats : int, optional
        Of every spec, in the place of the file's.
    """
    if not Path(path).exists() and (own := brought("grids").parent / path).is_file():
        path = own
    file = _read_file(Path(path))
    _override(file, overrides or {})
    notebook = find_notebook(file.notebook, near=Path(path).parent)
    known = notebook_parameters(notebook)
    problems = _problems(file, notebook, known)
    if problems:
        raise BadInput(f"{path}: {'; '.join(problems)}")
    points: dict[str, Point] = {}
    for varied in _combinations(file):
        point = _point({**known, **file.fixed, **varied}, varied, store)
        twin = points.setdefault(point.plan.spec.key, point)
        if twin is not point:
            raise BadInput(
                f"{path}: {twin.label} and {point.label} are the same spec; vary only what is part "
                f"of it: data, {', '.join(PARAMETERS)}"
            )
    if not points:
        raise BadInput(f"{path} leaves no spec to run: `exclude` removes every combination")
    n_repeats = file.repeats if repeats is None else whole("repeats", repeats, least=1)
    return Grid(notebook, tuple(points.values()), n_repeats, Store(store))


def _read_file(path: Path) -> GridFile:
    try:
        return GridFile.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = wrong_fields(error) if isinstance(error, ValidationError) else error
    raise BadInput(
        f"{path} is not a grid file: {why}; expected YAML with `notebook`, `fixed`, `vary`, "
        "`exclude`, `add` and `repeats`, where `vary` holds lists"
    )


def _override(file: GridFile, overrides: Mapping[str, Any]) -> None:
    for name, value in GridFile._mode_off(dict(overrides)).items():
        if isinstance(value, list) or name in file.vary:
            file.fixed.pop(name, None)
            file.vary[name] = value if isinstance(value, list) else [value]
        else:
            file.fixed[name] = value


def _problems(file: GridFile, notebook: Path, known: Mapping[str, Any]) -> list[str]:
    """What of the names in a grid file is wrong, in sentences."""
    given = {*file.fixed, *file.vary}.union(*file.add)
    found = {
        f"{notebook.name} takes {', '.join(sorted(known))}, not {{}}": given - known.keys(),
        "{} is both fixed and varied": file.fixed.keys() & file.vary.keys(),
        "{} is set by the grid itself: write `repeats: N` at the top of the file, or give "
        "--repeats and --store on the command line": given & {"repeats", "store"},
        "`exclude` names {}, which does not vary": set().union(*file.exclude) - file.vary.keys(),
        "`vary` has no value for {}": {name for name, values in file.vary.items() if not values},
        "`{}` is missing: the folder of images": {"data"} - given,
    }
    return [text.replace("{}", ", ".join(sorted(of))) for text, of in found.items() if of]


def _combinations(file: GridFile) -> Iterator[dict[str, Scalar]]:
    for values in itertools.product(*file.vary.values()):
        varied = dict(zip(file.vary, values, strict=True))
        if not any(all(varied[name] == entry[name] for name in entry) for entry in file.exclude):
            yield varied
    usual = {name: values[0] for name, values in file.vary.items()}
    yield from (usual | entry for entry in file.add)


def _point(parameters: dict[str, Any], varied: dict[str, Scalar], store: str | Path) -> Point:
    """A point; the notebook runs in a folder of its own, so its paths become absolute."""
    data = str(Path(str(parameters["data"])).resolve())
    passed_on = (*PARAMETERS, "checkpoint_every", "keep_checkpoints")
    chosen = {name: parameters[name] for name in passed_on if name in parameters}
    make = plan_training if "epochs" in parameters else plan_segmentation
    plan = make(data, store=store, **chosen)
    places = {"data": data, "store": str(Path(store).resolve())}
    model, profile = str(parameters.get("model")), str(parameters.get("profile"))
    if plan.request.model.path is not None and Path(model).is_file():
        places["model"] = str(Path(model).resolve())
    if profile.endswith((".yaml", ".yml")):
        places["profile"] = str(Path(profile).resolve())
    return Point(parameters | places, varied, plan)


# -- running -------------------------------------------------------------------------------


def planned(grid: Grid) -> list[GridRun]:
    """What `run_grid` would do, without doing it."""
    runs = []
    for point in grid.points:
        status: Status = "planned"
        key, machine, reason = point.plan.spec.key, "", "; ".join(point.plan.notices)
        try:
            machine = point.plan.machine
            if all(grid.store.repeat(key, machine, index) for index in range(grid.repeats)):
                status = "present"
        except NotPossibleHere as error:
            status, reason = "not-here", str(error)
        folder = grid.store.root / "runs" / key
        runs.append(GridRun(key, machine, status, folder, point.varied, reason))
    return runs


def run_grid(grid: Grid, *, workers: int | None = None, quiet: bool = False) -> list[GridRun]:
    """Carry out what the store lacks of a grid on this machine; a failure is kept, others go on.

    Parameters
    ----------
    grid : Grid
    workers : int, optional
        Specs carried out at the same time; by default one per device, and none waits for another.
    quiet : bool
        Show no progress.

    Returns
    -------
    list of GridRun
        In the order of the grid's points.
    """
    devices = {point.plan.profile.device for point in grid.points}
    if workers is None:
        pools = {device: ThreadPoolExecutor(1) for device in devices}
    else:
        pools = dict.fromkeys(devices, ThreadPoolExecutor(whole("workers", workers, least=1)))
    with progress(len(grid.points) * grid.repeats, "grid", quiet=quiet) as bar:
        for text in dict.fromkeys(text for point in grid.points for text in point.plan.notices):
            bar.say(f"note: {text}")
        futures = [
            pools[point.plan.profile.device].submit(_run_point, grid, point, bar)
            for point in grid.points
        ]
        try:
            wait_for(futures)
        finally:
            for pool in pools.values():
                pool.shutdown(wait=False, cancel_futures=True)
            while not all(future.done() for future in futures):  # interrupted
                for child in tuple(RUNNING):
                    child.kill()
                time.sleep(0.05)
    return [future.result() for future in futures]


def _run_point(grid: Grid, point: Point, bar: Progress) -> GridRun:
    status: Status = "present"
    key, machine, index, reason = point.plan.spec.key, "", 0, ""
    folder = grid.store.root / "runs" / key
    try:
        machine = point.plan.machine
        for index in range(grid.repeats):
            started, repeat = time.monotonic(), grid.store.repeat(key, machine, index)
            if repeat is None:
                status, repeat = "done", _run_repeat(grid, point, index)
                seconds = time.monotonic() - started
                bar.say(f"done     {repeat.name}  {point.label}  {seconds:.0f} s")
            reason = "; ".join(repeat.manifest.vacuous)
            bar.advance(f"{key}/{index} {point.label}")
    except CellreproError as error:
        status, reason = "failed", str(error)
        bar.say(f"failed   {key}/{index}  {point.label}: {error}")
        for _ in range(index, grid.repeats):
            bar.advance(f"{key} {point.label}: failed")
        if machine:
            folder = grid.store.root / "failed" / key / machine / str(index)
    return GridRun(key, machine, status, folder, point.varied, reason)


def _run_repeat(grid: Grid, point: Point, index: int) -> Repeat:
    """Execute the notebook for one repeat and store what it made, with the notebook."""
    store, spec, machine = grid.store, point.plan.spec, point.plan.machine
    with store.staging() as area:
        held, executed = area / "repeat", area / NOTEBOOK
        try:
            call(
                "cellrepro.lab.notebook_process:execute",
                point.plan.request.setup,
                label=f"the notebook {grid.notebook.name}",
                variables={HOLD_VARIABLE: str(held.resolve()), LINES_VARIABLE: "lines"},
                notebook=grid.notebook,
                output=executed,
                parameters={**point.parameters, "repeats": index + 1},
            )
            made = Repeat(held).manifest if held.is_dir() else None
            if made is None or (made.key, made.repeat) != (spec.key, index):
                instead = f"made {made.key}/{made.repeat}" if made else "ended without a run"
                raise CellreproError(
                    f"the notebook {instead} instead of {spec.key}/{index}: it must call "
                    "cellrepro.train or .segment with its parameters as they are"
                )
        except CellreproError as error:
            store.keep_failure(area, spec, machine=machine, repeat=index, reason=str(error))
            raise
        shutil.move(executed, held / NOTEBOOK)
        repeat = store.commit(held, spec)
    store.forget_failure(spec.key, machine, index)
    return repeat
