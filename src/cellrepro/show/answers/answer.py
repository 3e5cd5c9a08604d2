"""What a command prints: one JSON document, and the same in lines of words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic_core import to_jsonable_python

from cellrepro.words import visible

Document = TypeVar("Document")


@dataclass(frozen=True)
class Answer(Generic[Document]):
    """What a command prints about a result."""

    document: Document
    """What ``--json`` prints: the fields of a dataclass, or the keys of a mapping, in their
    order."""
    lines: Sequence[str]
    """The same in words, as a terminal shows it."""

    def as_json(self) -> str:
        """The document as JSON; NaN and infinities, which JSON lacks, become null."""
        plain = to_jsonable_python(
            self.document, inf_nan_mode="null", fallback=lambda array: array.tolist()
        )
        return json.dumps(plain, indent=1, allow_nan=False) + "\n"

    def as_text(self) -> str:
        """The lines, each with its end; nothing in them moves a terminal's cursor."""
        return visible("\n".join(self.lines)) + "\n"
