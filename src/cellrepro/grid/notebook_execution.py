"""The execution of a notebook by papermill, and the parameters that it takes."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cellrepro.errors import CellreproError
from cellrepro.process.calling import Children
from cellrepro.process.grid_handover import read_ending
from cellrepro.process.process_ends import RunError, Status
from samebits.errors import BadInput

if TYPE_CHECKING:
    from jupyter_client import AsyncKernelManager
    from traitlets.config import Config

_SLOW_IMPORTS = ("rfc3987_syntax", "pyarrow")
"""Modules that take seconds to import, and that papermill does without."""

_KERNEL_DIED = "Kernel died"
"""Words of nbclient and jupyter_client, at work and at the start."""

_LONGEST_SOCKET_FOLDER = 89
"""Bytes: the path of a socket has at most 107, and the file name of a kernel takes the rest."""


def notebook_parameters(notebook: Path) -> dict[str, Any]:
    """Read the cell of a notebook that is tagged ``parameters``."""
    with _without_slow_imports():
        import nbformat
        import papermill

    try:
        nbformat.read(notebook, as_version=4)
        cell = papermill.inspect_notebook(str(notebook))
        parameters = {name: ast.literal_eval(entry["default"]) for name, entry in cell.items()}
    except (
        nbformat.ValidationError,
        OSError,
        ValueError,
        KeyError,
        AttributeError,
        TypeError,
        SyntaxError,
    ) as error:
        raise BadInput(
            f"{notebook} cannot be read as a notebook whose parameters have plain literals as "
            f"defaults, each on a line of its own: {error}"
        ) from error
    if not parameters:
        raise BadInput(f"{notebook} takes no parameters; tag one of its cells `parameters`")
    return parameters


def execute(
    notebook: Path,
    output: Path,
    parameters: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    children: Children,
    minutes: float | None = None,
    handed_over: Path | None = None,
) -> None:
    """Execute a notebook with papermill; what it wrote so far is kept if it fails.

    Its kernel, a process of its own with these environment variables, does all the work. Papermill
    stays in this process, as importing it once more for every notebook takes seconds. It may leave
    why it ended beside the folder ``handed_over``.
    """
    with _without_slow_imports():
        import papermill

    logging.getLogger("papermill").addHandler(logging.NullHandler())  # what it logs is raised, too
    is_late = threading.Event()
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:

        def started(process: subprocess.Popen[Any]) -> None:
            running.enter_context(children.having(process))
            if minutes is not None:
                running.enter_context(_killed_after(minutes, process, is_late))

        try:
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=dict(parameters),
                progress_bar=False,
                store_widget_state=False,  # an explorer would put its images into the file again
                shutdown_kernel="immediate",  # nbclient waits 2.5 s for PyTorch to be taken apart
                config=_connection_by_files(folder),
                kernel_manager_class=_kernel_class(environment, notebook.parent, started),
            )
        except Exception as error:
            label = f"the notebook {notebook.name}"
            if is_late.is_set():
                raise RunError("time-limit", f"{minutes:g} minutes", label=label) from error
            if children.ended:
                raise RunError("interrupted", "", label=label) from error
            told = _told(error, handed_over)
            if told is None:
                raise
            raise told from None


def _kernel_class(
    environment: Mapping[str, str],
    folder: Path,
    started: Callable[[subprocess.Popen[Any]], None],
) -> type[AsyncKernelManager]:
    """Make the class of a kernel in a folder; nbclient takes no such options."""
    from jupyter_client import AsyncKernelManager

    class Kernel(AsyncKernelManager):
        # Jupyter's annotation is that of the class without async.
        async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
            quiet = subprocess.DEVNULL  # cells have their output for themselves
            await super().start_kernel(
                env=dict(environment), cwd=str(folder), stdout=quiet, stderr=quiet, **options
            )
            provisioner: Any = self.provisioner  # of this machine, which has a process
            started(provisioner.process)

    return Kernel


@contextmanager
def _killed_after(
    minutes: float, process: subprocess.Popen[Any], is_late: threading.Event
) -> Iterator[None]:
    """Kill a process that is still at work after some time."""

    def end_late() -> None:
        is_late.set()
        process.kill()

    limit = threading.Timer(60 * minutes, end_late)
    limit.start()
    try:
        yield
    finally:
        limit.cancel()


def _connection_by_files(folder: str) -> Config:
    """Let kernels use Unix sockets: two that start at once can be given the same TCP port."""
    from traitlets.config import Config

    if sys.platform == "win32" or len(folder.encode()) > _LONGEST_SOCKET_FOLDER:
        return Config()
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})


def _told(error: Exception, handed_over: Path | None) -> CellreproError | None:
    """Make an error for the user of one of papermill; None of what nobody foresaw."""
    from papermill.exceptions import PapermillExecutionError

    if isinstance(error, PapermillExecutionError):
        sentence = f"{error.ename}: {error.evalue}"  # all that the kernel passes on
        status: Status = "failed"
        if handed_over is not None and error.ename == RunError.__name__:
            status = read_ending(handed_over)
        return CellreproError(sentence) if status == "failed" else RunError(status, sentence)
    if isinstance(error, RuntimeError) and _KERNEL_DIED in str(error):
        sentence = f"the kernel was killed ({error}), perhaps memory ran out"
        return RunError("killed", sentence)
    return None


@contextmanager
def _without_slow_imports() -> Iterator[None]:
    """Hide `_SLOW_IMPORTS` from what this thread imports in the block."""
    finder = _NotInThisThread(frozenset(_SLOW_IMPORTS), threading.get_ident())
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


@dataclass(frozen=True)
class _NotInThisThread(MetaPathFinder):
    """An import hook that raises for some modules in one thread.

    Other threads may import them at the same time, so ``sys.modules`` is left alone.
    """

    names: frozenset[str]
    thread: int

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> None:
        """Refuse a module as if it were not installed."""
        if fullname in self.names and threading.get_ident() == self.thread:
            raise ModuleNotFoundError(f"{fullname} is left out here", name=fullname)
