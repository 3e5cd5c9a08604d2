"""The answer of a notebook, which stands at its top and is filled in as soon as it is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cellrepro.show.tables.frames import markdown

if TYPE_CHECKING:
    from IPython.display import Markdown


class Answer:
    """A place on the page for the answer, which later cells fill."""

    NOT_YET = "*The answer stands here as soon as the cells below have found it.*"

    def __init__(self) -> None:
        from IPython.display import display

        self._place = display(markdown(self.NOT_YET), display_id=True)

    def give(self, text: str) -> Markdown:
        """Put the answer into its place, and give it to be shown here, too."""
        shown = markdown(text)
        if self._place is not None:  # outside a notebook there is none
            self._place.update(shown)
        return shown
