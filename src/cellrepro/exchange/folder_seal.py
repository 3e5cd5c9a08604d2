"""The seal of a folder, as far as it can be read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from cellrepro.errors import BadInput
from cellrepro.store.seal import MOST_SUMS_BYTES, SUMS, read_seal, seal_text
from cellrepro.store.store_paths import regular_bytes


@dataclass(frozen=True)
class FolderSeal:
    """The seal of a folder, if it has one and it can be read."""

    text: str | None
    """None without a seal."""
    digests: dict[str, str] = field(default_factory=dict)
    """Empty if the seal cannot be read."""
    why_not_read: str = ""
    """Empty if it can be read."""

    @classmethod
    def of(cls, folder: Path) -> FolderSeal:
        """Read the seal of a folder."""
        try:
            text = regular_bytes(folder / SUMS, most_bytes=MOST_SUMS_BYTES).decode()
        except FileNotFoundError:
            return cls(None)
        except (OSError, ValueError) as error:
            return cls("", why_not_read=f"it cannot be read ({error})")
        try:
            return cls(text, read_seal(text))
        except BadInput as error:
            return cls(text, why_not_read=str(error))

    @property
    def is_there(self) -> bool:
        """Whether the folder has one."""
        return self.text is not None

    def vouches_for(self, name: str, digest: str | None) -> bool:
        """Whether one of its lines has this file with this digest."""
        line = "" if digest is None else seal_text({name: digest})
        return bool(line) and line in (self.text or "").splitlines(keepends=True)
