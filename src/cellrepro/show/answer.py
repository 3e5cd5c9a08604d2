"""The answer of a notebook, which stands at its top and is filled in as soon as it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.show.tables.frames import markdown

if TYPE_CHECKING:
    from cellrepro.show.figures.style import Picture


class Answer:
    """Two places on the page, for the answer in words and in a picture, which later cells fill."""

    NOT_YET = "*The answer stands here as soon as the cells below have found it.*"

    def __init__(self) -> None:
        from IPython.display import display

        self._words = display(markdown(self.NOT_YET), display_id=True)
        self._picture = display(markdown(""), display_id=True)

    def give(self, text: str, picture: Picture | None = None) -> None:
        """Put the answer into its places."""
        for place, shown in ((self._words, markdown(text)), (self._picture, picture)):
            if place is not None and shown is not None:  # outside a notebook there is no place
                place.update(shown)
