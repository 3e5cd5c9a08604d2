"""`enum.StrEnum`, also for Python 3.10."""

from __future__ import annotations

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum as StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """An enumeration of strings, each written as its value."""

        __str__ = str.__str__
        __format__ = str.__format__
