"""The files beside a Python file that it imports: known from its text, nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from cellrepro.bits.digests import file_digest

_INSTALLED = ("site-packages", "dist-packages")


def imported_beside(file: Path) -> dict[str, Path]:
    """Find what a Python file imports from its own folder, or from its own package, and so on.

    Parameters
    ----------
    file : Path
        A script, or a module of a package.

    Returns
    -------
    dict of str to Path
        Files by their path relative to the folder of the script or of the package, sorted; without
        the file itself. What is installed, what is imported by a name made at run time, and what
        is read without an import are not in it.
    """
    file = file.resolve()
    root = file.parent
    while (root / "__init__.py").is_file():
        root = root.parent
    package = file.relative_to(root).parts[0] if root != file.parent else None
    if package is None and root.name in _INSTALLED:
        return {}  # whose neighbours are other distributions
    found: dict[Path, None] = {file: None}
    waiting = [file]
    while waiting:
        module = waiting.pop()
        for imported in _imports_of(module, root, package):
            if imported not in found:
                found[imported] = None
                waiting.append(imported)
    del found[file]
    return {path.relative_to(root).as_posix(): path for path in sorted(found)}


def digest_with_imports(file: Path) -> str | list[object]:
    """The SHA-256 of a file, and where it imports others from beside it, theirs by name."""
    digest = file_digest(file)
    if file.suffix != ".py":
        return digest
    others = imported_beside(file)
    if not others:
        return digest
    return [digest, {name: file_digest(path) for name, path in others.items()}]


def _imports_of(file: Path, root: Path, package: str | None) -> Iterator[Path]:
    """The files under a folder that one file imports, of its own package where it is in one."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # which its own run will say
        return
    of_file = file.parent.relative_to(root).parts
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [tuple(alias.name.split(".")) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = of_file[: len(of_file) + 1 - node.level] if node.level else ()
            module = (*above, *(node.module.split(".") if node.module else ()))
            names = [module, *((*module, alias.name) for alias in node.names)]
        else:
            continue
        for name in names:
            if name and package in (None, name[0]):
                yield from _files_of(root, name)


def _files_of(root: Path, name: tuple[str, ...]) -> Iterator[Path]:
    """The file of a module, and of the packages that it lies in, where they are in this folder."""
    for n_parts in range(1, len(name) + 1):
        path = root.joinpath(*name[:n_parts])
        for file in (path.with_name(f"{path.name}.py"), path / "__init__.py"):
            if file.is_file():
                yield (
                    file.resolve() if file.is_symlink() and root in file.resolve().parents else file
                )
