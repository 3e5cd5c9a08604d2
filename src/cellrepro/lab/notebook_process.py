"""One notebook executed without a person: ``python -m cellrepro.lab.notebook_process JOB.json``.

The grid starts it with the profile's environment, because papermill ignores ``env=`` (2.7.0). The
exit code and the last line of standard output say how it ended; the notebook's own metadata does
not, it says "completed" after a killed kernel (papermill 2.7.0).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import cellrepro
from cellrepro.errors import BadInput
from cellrepro.lab.process import end_with_caller

_TAIL_LINES = 12


@dataclass(frozen=True)
class Job:
    """A notebook, where the executed copy goes, and its parameters (plain literals)."""

    notebook: str
    output: str
    parameters: dict[str, Any]

    def to_json(self) -> str:
        """As `from_json` reads it."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        return cls(**json.loads(text))


def brought(folder: str) -> Path:
    """The ``notebooks`` or ``grids`` that came with the package, or lie beside it in a checkout."""
    package = Path(cellrepro.__file__).resolve().parent
    installed = package / folder
    return installed if installed.is_dir() else package.parents[1] / folder


def copy_brought(target: Path) -> list[Path]:
    """Copy the notebooks and grids that the package brings into a folder of the user's.

    Parameters
    ----------
    target : Path
        Made if missing; gets ``notebooks/`` and ``grids/``.

    Returns
    -------
    list of Path
        The copies. Those that were there already are left alone.

    Raises
    ------
    BadInput
        If there is anything else in the folder; nothing is written then.
    """
    from cellrepro.images.folder import is_litter

    copies = {
        Path(target, name, file.name): file.read_bytes()
        for name in ("notebooks", "grids")
        for file in sorted(brought(name).iterdir())
        if file.is_file() and not is_litter(file.name)
    }
    if target.exists() and not target.is_dir():
        raise BadInput(f"{target} is a file; give a folder for the notebooks")
    for path in sorted(target.rglob("*")):
        if path.is_dir() or is_litter(path.relative_to(target)):
            continue
        if path not in copies or path.read_bytes() != copies[path]:
            raise BadInput(
                f"{target} holds {path.relative_to(target)}, which is yours or has been changed, "
                "and nothing of yours is overwritten: nothing was written; give a new folder"
            )
    for path, content in copies.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return list(copies)


def execute(job: Job) -> None:
    """Execute a notebook with papermill; what it wrote so far is kept if it fails.

    Its kernel is killed once the last cell has run.

    Raises
    ------
    papermill.exceptions.PapermillExecutionError
        If a cell raises.
    nbclient.exceptions.DeadKernelError
        If the kernel is killed.
    """
    import papermill

    papermill.execute_notebook(
        job.notebook,
        job.output,
        parameters=job.parameters,
        cwd=str(Path(job.notebook).parent),
        progress_bar=False,
        log_output=True,
        stdout_file=sys.stderr,
        stderr_file=sys.stderr,
        store_widget_state=False,  # an explorer would put its images into the file again
        # nbclient's own way waits 2.5 s for PyTorch to be taken apart, and ends the kernel then
        shutdown_kernel="immediate",
    )


def execute_in_child(
    job: Job,
    environment: Mapping[str, str],
    *,
    start: Callable[..., subprocess.Popen[str]] = subprocess.Popen,
    ended: Callable[[subprocess.Popen[str]], None] = lambda child: None,
) -> str | None:
    """Execute a notebook in a process of its own; why it failed, or none.

    Parameters
    ----------
    job : Job
    environment : mapping of str to str
        All of the child's variables.
    start, ended : callable
        Start the process like `subprocess.Popen`, and hear of its end.
    """
    with tempfile.TemporaryDirectory() as scratch, tempfile.TemporaryFile("w+") as log:
        path = Path(scratch, "job.json")
        path.write_text(job.to_json(), encoding="utf-8")
        child = start(
            [sys.executable, "-P", "-m", "cellrepro.lab.notebook_process", str(path)],
            env=environment,
            stdin=subprocess.PIPE,  # held open: the child ends when this process does
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        # Not `communicate`, which would close the child's standard input and so end it.
        with child:
            said = child.stdout.read() if child.stdout is not None else ""
            child.wait()
        ended(child)
        if child.returncode == 0:
            return None
        log.seek(0)
        tail = "".join(log.readlines()[-_TAIL_LINES:])
    lines = [line for line in said.splitlines() if line.startswith("{")]
    said = f"the notebook's process ended with code {child.returncode}"
    if lines:
        try:
            return json.loads(lines[-1])["reason"]
        except ValueError:
            said += f"; its answer was cut off ({lines[-1][-40:]!r})"
    return f"{said}; its last words:\n{tail}"


@contextmanager
def without_slow_imports() -> Iterator[None]:
    """Import papermill without what takes seconds and no notebook needs here.

    A grammar of addresses for jsonschema (rfc3987-syntax 1.1), and Hadoop for papermill (2.7.0).
    """
    skipped = {"rfc3987_syntax", "pyarrow"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(skipped, None))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in skipped:
            del sys.modules[name]


def main() -> int:
    """Execute the job named on the command line; the exit code of the process."""
    with without_slow_imports():
        from nbclient.exceptions import DeadKernelError
        from papermill.exceptions import PapermillExecutionError

    end_with_caller()
    job = Job.from_json(Path(sys.argv[1]).read_text(encoding="utf-8"))
    try:
        execute(job)
    except PapermillExecutionError as error:
        print(json.dumps({"reason": f"{error.ename}: {error.evalue}", "cell": error.exec_count}))
        return 1
    except DeadKernelError as error:
        print(json.dumps({"reason": f"the kernel was killed ({error}), perhaps memory ran out"}))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
