"""The execution of a notebook by papermill, and the parameters that it takes."""

from __future__ import annotations

import ast
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from cellrepro.errors import BadInput, CellreproError
from cellrepro.process.child import Child
from cellrepro.process.grid_handover import handover_folder, read_ending
from cellrepro.process.process_ends import RunError
from cellrepro.progress_log import pass_on

if TYPE_CHECKING:
    from traitlets.config import Config

_SLOW_IMPORTS = ("rfc3987_syntax", "pyarrow")
"""Modules that take seconds to import, and that papermill does without."""

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


def execute(child: Child, *, notebook: Path, output: Path, parameters: Mapping[str, Any]) -> None:
    """Execute a notebook with papermill; what it wrote so far is kept if it fails."""
    pass_on(lambda text: child.tell("progress", text))
    with _without_slow_imports():
        import papermill
        from nbclient.exceptions import DeadKernelError
        from papermill.exceptions import PapermillExecutionError

    try:
        with tempfile.TemporaryDirectory() as folder:
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=dict(parameters),
                cwd=str(notebook.parent),
                progress_bar=False,
                log_output=True,
                stdout_file=sys.stderr,
                stderr_file=sys.stderr,
                store_widget_state=False,  # an explorer would put its images into the file again
                shutdown_kernel="immediate",  # nbclient waits 2.5 s for PyTorch to be taken apart
                config=_connection_by_files(folder),
            )
    except PapermillExecutionError as error:
        raise _ending_of(error.ename, f"{error.ename}: {error.evalue}") from None
    except DeadKernelError as error:
        sentence = f"the kernel was killed ({error}), perhaps memory ran out"
        raise RunError("killed", sentence) from None


def _connection_by_files(folder: str) -> Config:
    """Let kernels use Unix sockets: two that start at once can be given the same TCP port."""
    from traitlets.config import Config

    if sys.platform == "win32" or len(folder.encode()) > _LONGEST_SOCKET_FOLDER:
        return Config()
    return Config({"KernelManager": {"transport": "ipc", "ip": f"{folder}/kernel"}})


def _ending_of(error_name: str, sentence: str) -> CellreproError:
    """Make an error again, of which the kernel passes on only the text."""
    folder = handover_folder()
    if folder is None or error_name != RunError.__name__:
        return CellreproError(sentence)
    status = read_ending(folder)
    return CellreproError(sentence) if status == "failed" else RunError(status, sentence)


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
