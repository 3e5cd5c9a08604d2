"""Steps of Cellpose's ``eval`` that are taken once for all calls that give them the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from cellrepro.bits.digests import array_digest, value_digest

MOST_BYTES = 2**28
"""What may be held of the results of all steps, beside the two that were used last."""
_FEWEST = 2


class Held:
    """Results by what they were computed from; those that were not used for longest go first."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._results: dict[str, Any] = {}
        self._n_bytes: dict[str, int] = {}

    def get(self, key: str, compute: Callable[[], Any]) -> Any:
        """The result of a key: from memory, or computed now."""
        if key in self._results:
            result = self._results.pop(key)
        else:
            result = compute()
            self._n_bytes[key] = _n_bytes(result)
        self._results[key] = result
        self._drop()
        return result

    def _drop(self) -> None:
        while len(self._results) > _FEWEST and sum(self._n_bytes.values()) > self.most_bytes:
            oldest = next(iter(self._results))
            del self._results[oldest]
            del self._n_bytes[oldest]


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
    Names are those of Cellpose 4.2.1.1; a step whose function an older version lacks is not shared.
    """

    def __init__(self, held: Held) -> None:
        self._held = held

    @contextmanager
    def in_force(self) -> Iterator[None]:
        """Share the steps for one block; what ``eval`` returns keeps its bits."""
        stand_ins: dict[tuple[str, str], Callable[[Any], Any]] = {
            ("cellpose.transforms", "normalize_img"): self._normalised,
            ("cellpose.dynamics", "follow_flows"): self._followed,
            ("cellpose.dynamics", "flow_error"): self._flow_error,
            ("cellpose.plot", "dx_to_circ"): lambda own: lambda *_, **__: None,
        }
        with ExitStack() as stack:
            for (module, name), stand_in in stand_ins.items():
                place = importlib.import_module(module)
                own = getattr(place, name, None)
                if own is not None:
                    stack.callback(setattr, place, name, own)
                    setattr(place, name, stand_in(own))
            yield

    def _normalised(self, own: Any) -> Any:
        def normalize_img(image: Any, **options: Any) -> Any:
            told = sorted((name, str(value)) for name, value in options.items())
            key = value_digest(["normalised", array_digest(image), told])
            return self._held.get(key, lambda: own(image, **options))

        return normalize_img

    def _followed(self, own: Any) -> Any:
        def follow_flows(flows: Any, inds: Any, **options: Any) -> Any:
            told = sorted((name, str(value)) for name, value in options.items())
            given = [array_digest(array) for array in (flows, *inds)]
            key = value_digest(["followed", given, told])
            ends = self._held.get(key, lambda: own(flows, inds=inds, **options))
            return ends.clone() if hasattr(ends, "clone") else ends.copy()  # eval writes into it

        return follow_flows

    def _flow_error(self, own: Any) -> Any:
        def flow_error(masks: Any, flows: Any, device: Any = None) -> Any:
            given = [array_digest(array) for array in (masks, flows)]
            key = value_digest(["flow error", given, str(device)])
            # Its second result, flows of the masks, is as large as the image and used by nobody.
            errors = self._held.get(key, lambda: own(masks, flows, device)[0])
            return errors, None

        return flow_error
