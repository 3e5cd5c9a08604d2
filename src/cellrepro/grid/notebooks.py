"""Notebooks: where those of the package are, what they take, and executing one without a person."""

from __future__ import annotations

import ast
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cellrepro.errors import BadInput, CellreproError
from cellrepro.images.folder import is_litter
from cellrepro.process.child import Child
from cellrepro.process.endings import RunError, read_ending
from cellrepro.process.held_repeat import hold_folder
from cellrepro.progress import pass_on


def brought(folder: str) -> Path:
    """The ``notebooks`` or ``grids`` that came with the package, or lie beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / folder
    return installed if installed.is_dir() else package.parents[1] / folder


def copy_brought(target: Path) -> list[Path]:
    """Copy the package's notebooks and grids into a folder, where none is another's."""
    copies = {
        target / name / file.name: file
        for name in ("notebooks", "grids")
        for file in sorted(brought(name).iterdir())
        if file.is_file() and not is_litter(file.name)
    }
    for path, file in copies.items():
        if path.exists() and path.read_bytes() != file.read_bytes():
            raise BadInput(
                f"{target} holds {path.relative_to(target)}, which is yours or has been changed; "
                "nothing was written; give a new folder"
            )
    for path, file in copies.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, path)
    return list(copies)


def find_notebook(name: str, *, near: Path = Path()) -> Path:
    """The file that a path means, or a name under ``notebooks/`` here, near or in the package."""
    file = name if name.endswith(".ipynb") else f"{name}.ipynb"
    folders = [root / "notebooks" for root in (Path(), near, near.parent)] + [brought("notebooks")]
    for candidate in [Path(file), near / file, *(folder / file for folder in folders)]:
        if candidate.is_file():
            return candidate.resolve()
    present = sorted({path.stem for folder in folders for path in folder.glob("*.ipynb")})
    raise BadInput(f"no notebook {name!r}; expected a path, or one of {', '.join(present)}")


def notebook_parameters(notebook: Path) -> dict[str, Any]:
    """The names and defaults of a notebook's ``parameters`` cell."""
    with without_slow_imports():
        import nbformat
        import papermill

    wrong = (nbformat.ValidationError, OSError, ValueError, KeyError, AttributeError, TypeError)
    try:
        nbformat.read(notebook, as_version=4)
        known = papermill.inspect_notebook(str(notebook))
        parameters = {name: ast.literal_eval(entry["default"]) for name, entry in known.items()}
    except (*wrong, SyntaxError) as error:
        raise BadInput(
            f"{notebook} cannot be read as a notebook whose parameters have plain literals as "
            f"defaults, each on a line of its own: {error}"
        ) from error
    if not parameters:
        raise BadInput(f"{notebook} takes no parameters; tag one of its cells `parameters`")
    return parameters


def execute(child: Child, *, notebook: Path, output: Path, parameters: dict[str, Any]) -> None:
    """Execute a notebook with papermill; what it wrote so far is kept if it fails."""
    pass_on(lambda text: child.tell("progress", text))
    with without_slow_imports():
        import papermill
        from nbclient.exceptions import DeadKernelError
        from papermill.exceptions import PapermillExecutionError
        from traitlets.config import Config

    try:
        with tempfile.TemporaryDirectory() as folder:
            # Of kernels that start at once two can be given one TCP port; a path has 107 bytes.
            files = {"transport": "ipc", "ip": f"{folder}/kernel"}
            fits = sys.platform != "win32" and len(folder.encode()) < 90
            papermill.execute_notebook(
                str(notebook),
                str(output),
                parameters=parameters,
                cwd=str(notebook.parent),
                progress_bar=False,
                log_output=True,
                stdout_file=sys.stderr,
                stderr_file=sys.stderr,
                store_widget_state=False,  # an explorer would put its images into the file again
                shutdown_kernel="immediate",  # nbclient waits 2.5 s for PyTorch to be taken apart
                config=Config({"KernelManager": files if fits else {}}),
            )
    except PapermillExecutionError as error:
        raise _ending_of(error.ename, f"{error.ename}: {error.evalue}") from None
    except DeadKernelError as error:
        sentence = f"the kernel was killed ({error}), perhaps memory ran out"
        raise RunError("killed", sentence) from None


def _ending_of(error_name: str, sentence: str) -> CellreproError:
    """The error that ended a notebook, of which the kernel passes on only the text."""
    folder = hold_folder()
    if folder is None or error_name != RunError.__name__:
        return CellreproError(sentence)
    status = read_ending(folder)
    return CellreproError(sentence) if status == "failed" else RunError(status, sentence)


@contextmanager
def without_slow_imports() -> Iterator[None]:
    """Import papermill without what takes seconds: a grammar of addresses, and Hadoop."""
    skipped = {"rfc3987_syntax", "pyarrow"} - sys.modules.keys()
    sys.modules.update(dict.fromkeys(skipped, None))  # type: ignore[arg-type]
    try:
        yield
    finally:
        for name in skipped:
            del sys.modules[name]
