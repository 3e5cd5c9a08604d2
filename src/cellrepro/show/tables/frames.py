"""Rows made a data frame, and a data frame made readable in a notebook."""

from __future__ import annotations

import html
import numbers
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from cellrepro.words import unbroken
from samebits.digests import value_digest

if TYPE_CHECKING:
    import pandas as pd
    from IPython.display import HTML, Markdown
    from pandas.io.formats.style import Styler

_WRAPPED = 32
"""Letters beyond which a text is wrapped in its column."""


def frame(
    rows: Sequence[Mapping[str, object]],
    index: str,
    *,
    columns: Sequence[str] | None = None,
    dtype: type | None = None,
) -> pd.DataFrame:
    """Make a data frame of rows with one column as its index."""
    import pandas as pd

    return pd.DataFrame(rows, columns=columns, dtype=dtype).set_index(index)


def readable(table: pd.DataFrame, *, decimals: int = 3) -> Styler:
    """Style a table for the page: words to the left, long ones wrapped, numbers rounded.

    Names of images and runs come from outside, so no text is taken for HTML. A dash stands for
    what is missing.

    Parameters
    ----------
    table : DataFrame
    decimals : int
        Of numbers that are not whole.

    Returns
    -------
    Styler
        Which shows itself in a notebook.
    """
    from pandas.io.formats.style import Styler

    shown = table.reset_index()  # rows may share a name, which a style refuses of an index
    words = [name for name in shown if any(isinstance(value, str) for value in shown[name])]
    long = [name for name in words if shown[name].map(str).map(len).max() > _WRAPPED]
    # From the content: tables of one page share no styles, and equal tables are equal output.
    identifier = value_digest([shown.to_json(), decimals])[:8]
    wrapped = {"white-space": "normal", "min-width": "15em", "overflow-wrap": "anywhere"}
    return (
        Styler(shown, uuid=identifier, cell_ids=False)
        .hide(axis="index")
        .format(partial(_shown, decimals=decimals), na_rep="–", thousands=" ", escape="html")
        .format_index(escape="html", axis="columns")
        .set_properties(**{"text-align": "left", "white-space": "nowrap"}, subset=words)
        .set_properties(**wrapped, subset=long)
        .set_table_styles([{"selector": "th", "props": "text-align: left"}])
    )


def _shown(value: object, *, decimals: int) -> object:
    """A number with commas between thousands and a minus sign; all else as it is."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    places = 0 if isinstance(value, numbers.Integral) else decimals
    return f"{value:,.{places}f}".replace("-", "−")


def folded(summary: str, table: Styler) -> HTML:
    """Show a table that unfolds below its summary, a plain text."""
    from IPython.display import HTML

    return HTML(f"<details><summary>{html.escape(summary)}</summary>{table.to_html()}</details>")


def markdown(text: str) -> Markdown:
    """Show sentences on the page; names in them come from outside: no HTML, no link, no picture.

    A link would be followed: Jupyter cleans nothing of what was executed in it.
    """
    from IPython.display import Markdown

    parts = text.split("`")
    parts[::2] = map(unbroken, parts[::2])  # a command is copied, with its spaces
    return Markdown(html.escape("`".join(parts), quote=False).replace("[", "&#91;"))
