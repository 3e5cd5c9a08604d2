"""Packages by their address: ``pkg:pypi/torch@2.15.0`` (package-url, ECMA-427)."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

_PYTHON = "python"
_FORM = re.compile(r"pkg:(pypi|generic)/([^/@?#]+)@([^/@?#]+)")


def package_url(name: str, version: str) -> str:
    """Give the address of one version of a package of PyPI, or of Python itself.

    >>> package_url("fill_voids", "2.1+cpu"), package_url("python", "3.11.7")
    ('pkg:pypi/fill-voids@2.1%2Bcpu', 'pkg:generic/python@3.11.7')
    """
    if name == _PYTHON:
        return f"pkg:generic/{_PYTHON}@{quote(version, safe='')}"
    return f"pkg:pypi/{quote(name.lower().replace('_', '-'), safe='')}@{quote(version, safe='')}"


def package_of(url: str | None) -> tuple[str, str] | None:
    """Give name and version of a package by its address; None where it is none of these.

    >>> package_of("pkg:pypi/torch@2.15.0%2Bcpu"), package_of("https://example.org")
    (('torch', '2.15.0+cpu'), None)
    """
    parts = _FORM.fullmatch(url or "")
    if parts is None:
        return None
    return unquote(parts[2]), unquote(parts[3])
