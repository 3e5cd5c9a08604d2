"""The notebooks and grids that come with the package: found, and copied out of it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from cellrepro.images.folder_files import is_litter
from cellrepro.store.whole_files import whole_file
from cellrepro.terminal import FileName
from samebits.errors import BadInput
from samebits.results import Result


def packaged_folder(name: str) -> Path:
    """The ``notebooks`` or ``grids`` that came with the package, or lie beside it in a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / name
    return installed if installed.is_dir() else package.parents[1] / name


@dataclass(frozen=True, repr=False)
class CopiedFiles(Result):
    """The files that were copied out of the package."""

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
