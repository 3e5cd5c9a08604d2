"""Authors, licence and citations of a package, parsed from what the user wrote."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from samebits.errors import BadInput

_AUTHOR = re.compile(r"(?P<name>[^/\\()]+?)\s*(\((?P<user>[A-Za-z0-9-]{1,39})\))?")
_DOI = re.compile(r"(?:https?://(?:dx\.)?doi\.org/|doi:)?(?P<doi>10\.[0-9]{4,9}/\S+)")
_URL = re.compile(r"https?://\S+")


@dataclass(frozen=True)
class Author:
    """An author of the network."""

    name: str
    github_user: str | None = None
    """The review of bioimage.io asks for one of at least one author."""

    @classmethod
    def parse(cls, text: str) -> Author:
        """Read ``NAME`` or ``NAME (GITHUB_USER)``.

        >>> Author.parse("Ada Lovelace (ada-l)")
        Author(name='Ada Lovelace', github_user='ada-l')
        """
        parts = _AUTHOR.fullmatch(text.strip())
        if parts is None:
            raise BadInput(
                f"--author {text!r} is no name; expected NAME, or NAME (GITHUB_USER) as in "
                "'Ada Lovelace (ada-l)'"
            )
        return cls(parts["name"], parts["user"])


@dataclass(frozen=True)
class Citation:
    """A paper or page that users of the network are asked to cite."""

    text: str
    doi: str | None = None
    url: str | None = None
    """Given if there is no DOI."""

    @classmethod
    def parse(cls, text: str) -> Citation:
        """Read words that end with a DOI or the address of a page.

        >>> Citation.parse("Smith et al. 2026, https://doi.org/10.1234/cells.5")
        Citation(text='Smith et al. 2026', doi='10.1234/cells.5', url=None)
        """
        words, _, last = text.strip().rpartition(" ")
        doi = _DOI.fullmatch(last)
        url = None if doi else _URL.fullmatch(last)
        if doi is None and url is None:
            raise BadInput(
                f"--cite {text!r} ends with no DOI and no address; expected words and a DOI, as in "
                "'Smith et al. 2026 10.1234/cells.5'"
            )
        return cls(
            text=words.strip(" ,;:") or last,
            doi=doi["doi"] if doi else None,
            url=last if url else None,
        )


CELLPOSE_PAPERS = (
    Citation(
        "Stringer, Wang, Michaelos and Pachitariu: Cellpose: a generalist algorithm for cellular "
        "segmentation. Nature Methods 18, 100-106 (2021)",
        doi="10.1038/s41592-020-01018-x",
    ),
    Citation(
        "Pachitariu, Rariden and Stringer: Cellpose-SAM: superhuman generalization for cellular "
        "segmentation. bioRxiv (2025)",
        doi="10.1101/2025.04.28.651001",
    ),
)
"""Cited by every package of a network of Cellpose 4."""


@dataclass(frozen=True)
class Credits:
    """Authors, licence and citations of a package."""

    authors: tuple[Author, ...]
    license: str | None
    """An identifier of the SPDX list, if one was given."""
    citations: tuple[Citation, ...] = ()
    """Papers of the user's own, beside `CELLPOSE_PAPERS`."""

    @classmethod
    def parse(
        cls, authors: Sequence[str], license_id: str | None, cite: Sequence[str] = ()
    ) -> Credits:
        """Parse what the user wrote."""
        return cls(
            authors=tuple(Author.parse(text) for text in authors),
            license=license_id or None,
            citations=tuple(Citation.parse(text) for text in cite),
        )

    @property
    def missing(self) -> tuple[str, ...]:
        """What is missing for the collection of bioimage.io, a sentence each."""
        sentences = []
        if not self.authors:
            sentences.append("it names no author: give --author NAME, once for each")
        if self.license is None:
            sentences.append(
                "it has no licence, so that nobody else may use it: give --license with an "
                "identifier of https://spdx.org/licenses, as CC-BY-4.0; a network that was trained "
                "further from another one is bound by the licence of that one, too"
            )
        return tuple(sentences)
