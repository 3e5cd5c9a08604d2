"""Two passports compared: whether results are equal by their digests, how environments differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from cellrepro.comparison.verdicts import Verdict
from cellrepro.exchange.json_records import JsonObject
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.receipt import EnvironmentDifference
from cellrepro.nested_values import flattened
from cellrepro.store.numeric_class import differing_probes
from samebits.words import some


@dataclass(frozen=True)
class DigestComparison:
    """The results of two passports compared by their digests alone."""

    weights_equal: bool | None
    """None if nothing was trained."""
    n_images: int
    """Images that both segmented."""
    n_equal_labels: int | None
    """Images whose masks are the same in every bit; None if a passport has one digest over all
    masks, and these differ."""
    n_equal_outlines: int | None
    """Images with the same outlines; None as for `n_equal_labels`."""
    labels_equal: bool
    """Whether the masks of all images are the same in every bit."""
    outlines_equal: bool
    """Whether the outlines of all images are the same."""

    @classmethod
    def of(cls, original: Passport, again: Passport) -> DigestComparison:
        """Compare the results of a replay with those of the original."""
        nothing_trained = original.weights is None and again.weights is None
        weights_equal = None if nothing_trained else original.weights == again.weights
        if original.masks and again.masks:
            images = sorted(original.masks.keys() & again.masks.keys())
            pairs = [(original.masks[image], again.masks[image]) for image in images]
            same_images = original.masks.keys() == again.masks.keys()
            n_labels = sum(a.labels == b.labels for a, b in pairs)
            n_outlines = sum(a.outlines == b.outlines for a, b in pairs)
            return cls(
                weights_equal=weights_equal,
                n_images=len(images),
                n_equal_labels=n_labels,
                n_equal_outlines=n_outlines,
                labels_equal=same_images and n_labels == len(images),
                outlines_equal=same_images and n_outlines == len(images),
            )
        a = original.all_masks
        b = again.all_masks
        labels_equal = a is b or (a is not None and b is not None and a.labels == b.labels)
        outlines_equal = a is b or (a is not None and b is not None and a.outlines == b.outlines)
        n_images = 0 if a is None else a.n_images
        return cls(
            weights_equal=weights_equal,
            n_images=n_images,
            n_equal_labels=n_images if labels_equal else None,
            n_equal_outlines=n_images if outlines_equal else None,
            labels_equal=labels_equal,
            outlines_equal=outlines_equal,
        )

    @property
    def verdict(self) -> Verdict:
        """The verdict as far as digests show it."""
        if self.weights_equal is False or not self.outlines_equal:
            return Verdict.DIFFERENT
        return Verdict.IDENTICAL if self.labels_equal else Verdict.SAME_OBJECTS


def environment_differences(theirs: Passport, here: Passport) -> dict[str, EnvironmentDifference]:
    """Find what differs of all that the numbers of two repeats depend on beside their specs.

    Names are ``versions.torch``, ``threads``, ``host.processor`` …, in the order of a passport;
    operations that give other bits are listed under ``numeric_class.probes``.
    """
    there = dict(_environment(theirs))
    ours = dict(_environment(here))
    names = dict.fromkeys([*there, *ours])
    differences = {
        name: EnvironmentDifference(there.get(name), ours.get(name))
        for name in names
        if there.get(name) != ours.get(name)
    }
    probes = differing_probes(_probes(theirs), _probes(here))
    if probes:
        in_words = f"other bits in {some(sorted(probes))}"
        differences["numeric_class.probes"] = EnvironmentDifference(None, in_words)
    return differences


def _environment(passport: Passport) -> Iterator[tuple[str, JsonValue]]:
    fields: dict[str, object] = dict(passport.environment)
    fields["numeric_class"] = _numeric_class(passport).get("name")
    fields["machine"] = passport.machine
    for name, value in flattened(fields):
        yield name, _plain(value)


def _plain(value: object) -> JsonValue:
    """A value as a receipt holds it; lists become text with sorted keys."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return json.dumps(value, sort_keys=True)


def _numeric_class(passport: Passport) -> JsonObject:
    numeric_class = passport.environment.get("numeric_class")
    return numeric_class if isinstance(numeric_class, dict) else {}


def _probes(passport: Passport) -> dict[str, str]:
    probes = _numeric_class(passport).get("probes")
    return {name: str(value) for name, value in probes.items()} if isinstance(probes, dict) else {}
