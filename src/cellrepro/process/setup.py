"""What decides how a process computes, and the variables that it must be started with."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from pydantic import ValidationError

from cellrepro.determinism.mode_names import Mode
from cellrepro.determinism.process_start import startup_variables
from cellrepro.determinism.profiles import Profile
from cellrepro.determinism.seeds import seed_everything
from cellrepro.errors import NotPossibleHere
from cellrepro.process.cellpose_versions import is_installed, python_of, refuse_not_made
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.spec.spec import Spec
from cellrepro.wrong_fields import wrong_fields


@dataclass(frozen=True)
class Setup:
    """What decides how a process computes."""

    profile: Profile
    """Device, precision, threads, and the variables that go with them."""
    mode: Mode = "fast"
    """How strictly PyTorch is held to deterministic operations."""
    seed: int | None = 0
    """Of every generator; none in mode ``off``."""
    loose: str | None = None
    """The one operation that mode ``strict`` leaves as it is."""
    cellpose: str | None = None
    """The version of Cellpose, if it is not the installed one: it has an environment of its own."""

    @classmethod
    def of(cls, spec: Spec, device: str | None = None, *, asked_here: bool = False) -> Setup:
        """That of a spec, on ``device`` where there are several of its kind."""
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
        """The variables that mode and seed need, beside those of the profile."""
        return startup_variables(self.seed, mode=self.mode)


@dataclass(frozen=True)
class Interpreter:
    """The Python that a process is started with, and all its environment variables."""

    python: str
    environment: dict[str, str]


def interpreter_for(setup: Setup | None) -> Interpreter:
    """The Python and the variables that a setup needs; without one, those of this process."""
    if setup is None:
        return Interpreter(sys.executable, dict(os.environ))
    environment = setup.profile.child_environment(setup.variables())
    if setup.cellpose is None:
        return Interpreter(sys.executable, environment)
    python = python_of(setup.cellpose)
    return Interpreter(python.executable, environment | python.variables)


def only_gpu(uuid: str | None) -> dict[str, str]:
    """The variable by which a process sees one GPU alone; nothing without one."""
    return {} if uuid is None else {"CUDA_VISIBLE_DEVICES": uuid}
