"""A cache for the steps of Cellpose's ``eval``, for many calls that differ in few settings."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from cellrepro.model.patching import replaced
from samebits.digests import array_digest, value_digest

MOST_BYTES = 2**28
"""Bytes that a cache may hold, beside the two results that were used last."""

_FEWEST_RESULTS = 2


class RecentResults:
    """A cache that drops the least recently used results, bounded by their bytes.

    ``before`` is called before a result is computed; what it raises is the caller's.
    """

    def __init__(self, *, before: Callable[[], None] = lambda: None) -> None:
        self._before = before
        self._results: OrderedDict[str, Any] = OrderedDict()

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Look a result up, or compute it."""
        if key not in self._results:
            self._before()
            self._results[key] = compute()
        self._results.move_to_end(key)
        result = self._results[key]
        self._forget_oldest()
        return result

    def _forget_oldest(self) -> None:
        n_bytes = sum(_n_bytes(result) for result in self._results.values())
        while len(self._results) > _FEWEST_RESULTS and n_bytes > MOST_BYTES:
            _, oldest = self._results.popitem(last=False)
            n_bytes -= _n_bytes(oldest)


def _n_bytes(result: Any) -> int:
    """Bytes of an array or tensor, or of several in a tuple or list."""
    if isinstance(result, tuple | list):
        return sum(_n_bytes(part) for part in result)
    return int(getattr(result, "nbytes", 0))


class SharedSteps:
    """The slow steps of ``eval`` beside the network, each cached by its arguments.

    For 30 thresholds on one output of the network, the scaling of intensities is the same 30 times,
    and so is the coloured picture of the flows, which nobody looks at. Where only
    ``flow_threshold``, ``min_size`` or ``max_size_fraction`` varies, so are the paths of the
    pixels, and mostly the flows of the masks, which together are nine tenths of the time.

    Names are those of Cellpose 4.2.1.1; a step whose function an older version lacks is not cached.
    """

    def __init__(self, results: RecentResults) -> None:
        self._results = results

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Cache the steps for one block; what ``eval`` returns keeps its bits."""
        stand_ins: dict[tuple[str, str], Callable[..., Any]] = {
            ("cellpose.transforms", "normalize_img"): self._normalize_img,
            ("cellpose.dynamics", "follow_flows"): self._follow_flows,
            ("cellpose.dynamics", "flow_error"): self._flow_error,
            ("cellpose.plot", "dx_to_circ"): _no_picture,
        }
        with ExitStack() as stack:
            for (module_name, name), stand_in in stand_ins.items():
                module = importlib.import_module(module_name)
                original = getattr(module, name, None)
                if original is not None:
                    stack.enter_context(replaced(module, name, partial(stand_in, original)))
            yield

    def _normalize_img(self, original: Callable[..., Any], image: Any, **options: Any) -> Any:
        key = value_digest(["normalised", array_digest(image), _in_words(options)])
        return self._results.get(key, lambda: original(image, **options))

    def _follow_flows(
        self, original: Callable[..., Any], flows: Any, inds: Any, **options: Any
    ) -> Any:
        arrays = [array_digest(array) for array in (flows, *inds)]
        key = value_digest(["followed", arrays, _in_words(options)])
        ends = self._results.get(key, lambda: original(flows, inds=inds, **options))
        return ends.clone() if hasattr(ends, "clone") else ends.copy()  # eval writes into it

    def _flow_error(
        self, original: Callable[..., Any], masks: Any, flows: Any, device: Any = None
    ) -> tuple[Any, None]:
        arrays = [array_digest(array) for array in (masks, flows)]
        key = value_digest(["flow error", arrays, str(device)])
        # Its second result, the flows of the masks, is as large as the image, and eval drops it.
        errors = self._results.get(key, lambda: original(masks, flows, device)[0])
        return errors, None


def _no_picture(original: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Replaces the drawing of the coloured flows."""


def _in_words(options: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in options.items())
