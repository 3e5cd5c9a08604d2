"""Steps of Cellpose's ``eval`` that are taken once for all calls that give them the same."""

from __future__ import annotations

import importlib
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from cellrepro.digests.digests import array_digest, value_digest
from cellrepro.model.patching import replaced

MOST_BYTES = 2**28
"""What may be held of the results of all steps, beside the two that were used last."""

_FEWEST_RESULTS = 2


class RecentResults:
    """Results by what they were computed from; those that were not used for longest go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._results: OrderedDict[str, Any] = OrderedDict()

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """Give the result of a key: from memory, or computed now."""
        if key not in self._results:
            self._results[key] = compute()
        self._results.move_to_end(key)
        result = self._results[key]
        self._forget_oldest()
        return result

    def _forget_oldest(self) -> None:
        n_bytes = sum(_n_bytes(result) for result in self._results.values())
        while len(self._results) > _FEWEST_RESULTS and n_bytes > self.most_bytes:
            _, oldest = self._results.popitem(last=False)
            n_bytes -= _n_bytes(oldest)


def _n_bytes(result: Any) -> int:
    """Of arrays and tensors, also in a tuple."""
    if isinstance(result, tuple | list):
        return sum(_n_bytes(part) for part in result)
    return int(getattr(result, "nbytes", 0))


class SharedSteps:
    """The steps of ``eval`` beside the network that take time, each from memory where it can be.

    Of 30 thresholds on one output of the network the scaling of intensities and the coloured
    picture of the flows, which nobody looks at, are the same 30 times. Where only
    ``flow_threshold``, ``min_size`` or ``max_size_fraction`` is another, so are the paths of the
    pixels, and mostly the flows of the masks, which together are nine tenths of the time.

    Names are those of Cellpose 4.2.1.1; a step whose function an older version lacks is not
    shared. What is given to a stand-in goes on to the function that it stands for.
    """

    def __init__(self, results: RecentResults) -> None:
        self._results = results

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Share the steps for one block; what ``eval`` returns keeps its bits."""
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
        # Its second result, flows of the masks, is as large as the image and used by nobody.
        errors = self._results.get(key, lambda: original(masks, flows, device)[0])
        return errors, None


def _no_picture(original: Callable[..., Any], *arguments: Any, **options: Any) -> None:
    """Draw nothing in the place of the coloured flows."""


def _in_words(options: dict[str, Any]) -> list[tuple[str, str]]:
    return sorted((name, str(value)) for name, value in options.items())
