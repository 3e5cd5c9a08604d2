"""The files that a Python file imports from beside it: parsed from its text, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from samebits.digests import file_digest, value_digest

_INSTALLED = ("site-packages", "dist-packages")

ModuleName = tuple[str, ...]
"""The parts of a module's dotted name."""


@dataclass(frozen=True)
class ScriptContent:
    """Digests of a file that is executed, and of what it imports."""

    file: str
    """SHA-256 of the file."""
    imported: Mapping[str, str]
    """SHA-256 of each imported file by name; see `imported_beside`."""

    @classmethod
    def of(cls, file: Path) -> ScriptContent:
        """Digest a file; only of a Python file the imports are known."""
        imported = imported_beside(file) if file.suffix == ".py" else {}
        digests = {name: file_digest(path) for name, path in imported.items()}
        return cls(file=file_digest(file), imported=digests)

    def as_json(self) -> object:
        """The value that enters the key of a run."""
        # A file that imports nothing is its own digest: keys of stored runs were made so.
        return [self.file, dict(self.imported)] if self.imported else self.file

    def digest(self) -> str:
        """One digest of all files; of a file that imports nothing its SHA-256."""
        return value_digest(self.as_json()) if self.imported else self.file


def imported_beside(file: Path) -> dict[str, Path]:
    """Find what a Python file imports from its folder or package, and what these files import.

    They are sorted by their path relative to the folder of the script or of the package, without
    the file itself. Installed packages, imports by names made at run time, and files that are read
    without an import are left out.
    """
    file = file.resolve()
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    package = file.relative_to(root).parts[0] if root != file.parent else None
    if package is None and root.name in _INSTALLED:
        return {}  # whose neighbours are other distributions
    reached = {file}
    unread = [file]
    while unread:
        for imported in _imports_of(unread.pop(), root, package):
            if imported not in reached:
                reached.add(imported)
                unread.append(imported)
    reached.remove(file)
    return {path.relative_to(root).as_posix(): path for path in sorted(reached)}


def _imports_of(file: Path, root: Path, package: str | None) -> Iterator[Path]:
    """The files under a folder that one file imports; of its package only, where it is in one."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # which its own run will say
        return
    folder_in_root = file.parent.relative_to(root).parts
    for node in ast.walk(tree):
        for name in _imported_names(node, folder_in_root):
            if name and package in (None, name[0]):
                yield from _files_of(root, name)


def _imported_names(node: ast.AST, folder: ModuleName) -> Iterator[ModuleName]:
    """The modules that a statement may import; each name of ``from … import`` may be one, too."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield tuple(alias.name.split("."))
    elif isinstance(node, ast.ImportFrom):
        above = folder[: len(folder) + 1 - node.level] if node.level else ()
        below = tuple(node.module.split(".")) if node.module else ()
        module = (*above, *below)
        yield module
        for alias in node.names:
            yield (*module, alias.name)


def _files_of(root: Path, name: ModuleName) -> Iterator[Path]:
    """The files of a module and of its parent packages, as far as they are in this folder."""
    for n_parts in range(1, len(name) + 1):
        path = root.joinpath(*name[:n_parts])
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield _resolved_within(root, file)


def _resolved_within(root: Path, file: Path) -> Path:
    """A file; of a symbolic link the target, if that is in the same folder."""
    if not file.is_symlink():
        return file
    target = file.resolve()
    return target if root in target.parents else file
