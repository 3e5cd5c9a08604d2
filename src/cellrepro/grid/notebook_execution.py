"""Notebooks: found, copied out of the package, asked for their parameters, and executed."""

from __future__ import annotations

import ast
import shutil
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
from cellrepro.images.folder_files import is_litter
from cellrepro.process.child import Child
from cellrepro.process.grid_handover import handover_folder, read_ending
from cellrepro.process.process_ends import RunError
from cellrepro.progress import pass_on
from cellrepro.results import Result
from cellrepro.store.whole_files import whole_file
from cellrepro.terminal import FileName

if TYPE_CHECKING:
    from traitlets.config import Config

_SLOW_IMPORTS = ("rfc3987_syntax", "pyarrow")
"""Modules that take seconds to import, and that papermill does without."""

_LONGEST_SOCKET_FOLDER = 89
"""Bytes: the path of a socket has at most 107, and the file name of a kernel takes the rest."""


# -- found and copied ----------------------------------------------------------------------


def packaged_folder(name: str) -> Path:
    """The ``notebooks`` or ``grids`` that came with the package, or lie beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / name
    return installed if installed.is_dir() else package.parents[1] / name


@dataclass(frozen=True, repr=False)
class CopiedFiles(Result):
    """What was copied out of the package."""

    files: tuple[Path, ...]
    """The copies."""

    def sentence(self) -> str:
        """Give a line for each file."""
        return "\n".join(map(str, self.files))


def copy_packaged(folder: FileName, /) -> CopiedFiles:
    """Copy out the notebooks and grids that the package brings.

    Parameters
    ----------
    folder : str or Path
        A new folder, which gets ``notebooks/`` and ``grids/``.

    Returns
    -------
    CopiedFiles
        The copies.

    Raises
    ------
    BadInput
        If a file of such a name is there that is not the package's; nothing is written then.

    Examples
    --------
    Copy the notebooks and grids into a new folder

    ``cellrepro notebooks my_study``
    """
    target = Path(folder)
    originals = {
        target / name / file.name: file
        for name in ("notebooks", "grids")
        for file in sorted(packaged_folder(name).iterdir())
        if file.is_file() and not is_litter(file.name)
    }
    for path, file in originals.items():
        if path.exists() and path.read_bytes() != file.read_bytes():
            raise BadInput(
                f"{target} holds {path.relative_to(target)}, which is yours or has been changed; "
                "nothing was written; give a new folder"
            )
    for path, file in originals.items():
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(path) as scratch:
                shutil.copyfile(file, scratch)
    return CopiedFiles(tuple(originals))


def find_notebook(name: str, *, near: Path = Path()) -> Path:
    """Find the file that a path means, or a name under ``notebooks/``."""
    file = name if name.endswith(".ipynb") else f"{name}.ipynb"
    folders = [
        Path("notebooks"),
        near / "notebooks",
        near.parent / "notebooks",
        packaged_folder("notebooks"),
    ]
    candidates = [Path(file), near / file, *(folder / file for folder in folders)]
    for candidate in candidates:
        if candidate.is_file():
            return candidate.resolve()
    present = sorted({path.stem for folder in folders for path in folder.glob("*.ipynb")})
    raise BadInput(f"no notebook {name!r}; expected a path, or one of {', '.join(present)}")


# -- parameters ----------------------------------------------------------------------------


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


# -- executed ------------------------------------------------------------------------------


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
