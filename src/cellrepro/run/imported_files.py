"""The files beside a Python file that it imports: known from its text, nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from cellrepro.digests.digests import file_digest, value_digest

_INSTALLED = ("site-packages", "dist-packages")

ModuleName = tuple[str, ...]
"""The parts of a module's dotted name."""


@dataclass(frozen=True)
class ScriptContent:
    """What the content of a file that is executed depends on, as far as its text shows it."""

    file: str
    """SHA-256 of the file."""
    imported: Mapping[str, str]
    """SHA-256 of what a Python file imports from beside it; see `imported_beside`."""

    @classmethod
    def of(cls, file: Path) -> ScriptContent:
        """That of a file; only of one in Python the imports are known."""
        imported = imported_beside(file) if file.suffix == ".py" else {}
        digests = {name: file_digest(path) for name, path in imported.items()}
        return cls(file=file_digest(file), imported=digests)

    def as_json(self) -> object:
        """The value that stands for it in the key of a run."""
        # A file that imports nothing is its own digest: keys of stored runs were made so.
        return [self.file, dict(self.imported)] if self.imported else self.file

    def digest(self) -> str:
        """One digest of all of it; of a file that imports nothing its SHA-256."""
        return value_digest(self.as_json()) if self.imported else self.file


def imported_beside(file: Path) -> dict[str, Path]:
    """Find what a Python file imports from its own folder, or from its own package, and so on.

    Files by their path relative to the folder of the script or of the package, sorted; without the
    file itself. What is installed, what is imported by a name made at run time, and what is read
    without an import are not in it.
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
    """The files under a folder that one file imports, of its own package where it is in one."""
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
    """The modules that a statement in a file of some folder may import, with what is taken from
    them, which may be modules, too."""
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
    """The file of a module, and of the packages that it lies in, where they are in this folder."""
    for n_parts in range(1, len(name) + 1):
        path = root.joinpath(*name[:n_parts])
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield _resolved_within(root, file)


def _resolved_within(root: Path, file: Path) -> Path:
    """A file, or what a link to another one of the same folder leads to."""
    if not file.is_symlink():
        return file
    target = file.resolve()
    return target if root in target.parents else file
