"""A reference to a profile, as it is asked for in a command, a grid or a spec."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    pass


@dataclass(frozen=True)
class ProfileReference:
    """A profile by name or file, with variables that it sets as well."""

    source: str
    """One of `profile_names`, or the path of a YAML file."""
    variables: tuple[str, ...] = ()
    """Each ``NAME=VALUE``."""

    @classmethod
    def parse(cls, text: str | Path) -> ProfileReference:
        """Read a reference.

        >>> ProfileReference.parse("cpu+MKL_CBWR=COMPATIBLE")
        ProfileReference(source='cpu', variables=('MKL_CBWR=COMPATIBLE',))
        >>> ProfileReference.parse("my+lab/own.yaml").source
        'my+lab/own.yaml'
        """
        source, *variables = re.split(r"\+(?=\w+=)", str(text))
        return cls(source, tuple(variables))

    @property
    def is_file(self) -> bool:
        """Whether it names a file, which need not be there."""
        return Path(self.source).suffix in (".yaml", ".yml")

    def __str__(self) -> str:
        return "+".join([self.source, *self.variables])
