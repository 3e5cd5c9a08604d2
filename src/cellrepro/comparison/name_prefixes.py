"""Names of two networks' tensors, apart from what a wrapper put before all of them.

Lightning writes ``model.``, `DataParallel` ``module.``, ``torch.compile`` ``_orig_mod.``, and each
of them may be wrapped in another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

_DEEPEST = 4  # parts of a prefix
_LEAST_SHARE = 0.5  # of the names of the smaller network that must then be in both


def prefixes_of_wrappers(a: Iterable[str], b: Iterable[str]) -> tuple[str, str]:
    """Find the prefixes without which the names of two networks agree best; empty for none.

    >>> prefixes_of_wrappers(["w", "b"], ["model.w", "model.b"])
    ('', 'model.')
    >>> prefixes_of_wrappers(["net.w", "net.b"], ["net.w", "net.c"])
    ('', '')
    """
    names_a = set(a)
    names_b = set(b)
    n_best = len(names_a & names_b)
    n_least = max(n_best + 1, _LEAST_SHARE * min(len(names_a), len(names_b)))
    best = ("", "")
    if not names_a or not names_b or n_best == min(len(names_a), len(names_b)):
        return best
    prefixes_b = _prefixes(names_b)
    for prefix_a in _prefixes(names_a):
        stripped_a = {without_prefix(name, prefix_a) for name in names_a}
        for prefix_b in prefixes_b:
            stripped_b = {without_prefix(name, prefix_b) for name in names_b}
            if len(stripped_a) < len(names_a) or len(stripped_b) < len(names_b):
                continue  # two tensors would have one name
            n_in_both = len(stripped_a & stripped_b)
            if n_in_both >= n_least and n_in_both > n_best:
                n_best = n_in_both
                best = (prefix_a, prefix_b)
    return best


def without_prefix(name: str, prefix: str) -> str:
    """A name without a prefix, where it begins with that."""
    return name.removeprefix(prefix)


def _prefixes(names: Iterable[str]) -> list[str]:
    """No prefix, and those with which at least half of the names begin; the shortest first."""
    names = list(names)
    counts: Counter[str] = Counter()
    for name in names:
        parts = name.split(".")[:-1][:_DEEPEST]
        counts.update(".".join(parts[: n + 1]) + "." for n in range(len(parts)))
    common = [prefix for prefix, n in counts.items() if 2 * n >= len(names)]
    return ["", *sorted(common, key=len)]
