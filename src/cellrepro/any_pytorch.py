"""The names of `samebits` that the lab exports, too; each is loaded on first use."""

import samebits


def __getattr__(name: str) -> object:
    return getattr(samebits, name)
