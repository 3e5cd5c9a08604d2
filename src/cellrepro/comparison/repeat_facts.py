"""A stored repeat, and everything in which it could differ from another.

Of two devices, threads and instruction set count only where both profiles set them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cellrepro.comparison.place_fields import versions_of
from cellrepro.comparison.spread_axes import (
    OBSERVING,
    ROUNDING_VARIABLES,
)

if TYPE_CHECKING:
    from cellrepro.store.stored_run import Repeat


@dataclass(frozen=True, eq=False)
class Sample:
    """A stored repeat, and everything in which it could differ from another."""

    repeat: Repeat

    @cached_property
    def facts(self) -> dict[str, Any]:
        """Every axis but repeats, every other field of the spec, and the numeric class.

        The ledger is none of them: observing a run changes none of its bits.
        """
        spec = self.repeat.spec
        machine = self.repeat.manifest.machine
        by_profile = _set_by_profile(spec.profile_settings)
        parameters = {name: value for name, value in spec.parameters().items() if name != OBSERVING}
        return {
            **parameters,
            **by_profile,
            # One name may stand for two contents, and a content may have two names.
            "profile": tuple(by_profile.values()),
            "model": spec.model_digest or spec.model,
            "mode": spec.mode_in_words,
            "machine": (machine.identity, machine.device),
            "version": tuple(sorted(versions_of(machine).items())),
            "class": machine.numeric_class,
        }

    def facts_without(self, *names: str) -> tuple:
        """All facts, some excepted; equal for repeats that are alike in the others."""
        return tuple(value for name, value in self.facts.items() if name not in names)

    def differing_facts(self, other: Sample) -> set[str]:
        """Name the facts in which two differ; threads of two devices, only where both set them."""
        differing = {name for name in self.facts if self.facts[name] != other.facts[name]}
        unset = _set_by_profile({})["threads"]
        if "device" in differing and unset in (self.facts["threads"], other.facts["threads"]):
            differing.discard("threads")
        return differing

    def in_one_computer(self, other: Sample) -> bool:
        """Whether the devices of two are in one computer, as far as the manifests show."""
        manifest = self.repeat.manifest
        other_manifest = other.repeat.manifest
        if manifest.machine.identity == other_manifest.machine.identity:
            return True
        parts = ("processor", "memory", "gpus")
        return all(manifest.host.get(name) == other_manifest.host.get(name) for name in parts)


def _set_by_profile(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Device; threads and instruction set; precision, as a profile sets them."""
    variables = sorted(settings.get("environment", {}).items())
    rounding = tuple(item for item in variables if item[0] in ROUNDING_VARIABLES)
    sharing = tuple(item for item in variables if item[0] not in ROUNDING_VARIABLES)
    return {
        "device": settings.get("device", "cpu"),
        "threads": (
            settings.get("threads"),
            settings.get("cpu_capability"),
            settings.get("onednn", True),
            sharing,
        ),
        "precision": (settings.get("dtype", "float32"), settings.get("tf32", False), rounding),
    }
