"""The setup of a process that computes, and the interpreter and variables that follow from it."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from pydantic import ValidationError

from cellrepro.process.cellpose_versions import is_installed, python_of, refuse_not_made
from cellrepro.profiles.process_start import startup_variables
from cellrepro.profiles.profiles import Profile
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.spec.spec import Spec
from cellrepro.wrong_fields import wrong_fields
from samebits.errors import NotPossibleHere
from samebits.mode_names import Mode
from samebits.seeds import seed_everything


@dataclass(frozen=True)
class Setup:
    """All that decides how a process computes."""

    profile: Profile
    """Device, precision, threads, and the variables that go with them."""
    mode: Mode = "fast"
    """How strictly PyTorch is held to deterministic operations."""
    seed: int | None = 0
    """Seed of every generator; none in mode ``off``."""
    loose: str | None = None
    """The one operation that mode ``strict`` does not hold."""
    cellpose: str | None = None
    """Version of Cellpose where it is not the installed one: it has its own environment."""

    @classmethod
    def of(cls, spec: Spec, device: str | None = None, *, asked_here: bool = False) -> Setup:
        """Make the setup of a spec, on ``device`` where there are several of its kind.

        Unless the user asked for the spec here, it may come from anybody: it then names no other
        variables than a profile does, and installs nothing.
        """
        if not asked_here:
            refuse_strange_variables(spec, whose=f"run {spec.key}")
            refuse_not_made(spec.cellpose)
        settings = dict(spec.profile_settings)
        if device is not None:
            settings["device"] = device
        try:
            profile = Profile(**settings)
        except ValidationError as error:
            raise NotPossibleHere(
                f"the profile of run {spec.key} is none that this version of cellrepro knows "
                f"({wrong_fields(error)}); use the version that made the run"
            ) from error
        return cls(
            profile=profile,
            mode=spec.mode,
            seed=spec.seed,
            loose=spec.loose,
            cellpose=None if is_installed(spec.cellpose) else spec.cellpose,
        )

    def seed_all(self) -> None:
        """Seed every generator; none in mode ``off``."""
        if self.seed is not None:
            seed_everything(self.seed, quiet=True)

    def variables(self) -> dict[str, str]:
        """The environment variables for mode and seed, beside those of the profile."""
        return startup_variables(self.seed, mode=self.mode)


@dataclass(frozen=True)
class Interpreter:
    """The Python executable of a process, and all its environment variables."""

    python: str
    environment: dict[str, str]


def interpreter_for(setup: Setup | None) -> Interpreter:
    """Find the interpreter of a setup; without one, that of this process."""
    if setup is None:
        return Interpreter(sys.executable, dict(os.environ))
    environment = setup.profile.child_environment(setup.variables())
    if setup.cellpose is None:
        return Interpreter(sys.executable, environment)
    python = python_of(setup.cellpose)
    return Interpreter(python.executable, environment | python.variables)


def only_gpu(uuid: str | None) -> dict[str, str]:
    """The variable that shows one GPU alone to a process; empty for None."""
    return {} if uuid is None else {"CUDA_VISIBLE_DEVICES": uuid}
