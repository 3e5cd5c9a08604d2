"""What a recorded spec asks for, planned once more: with the images and networks that are here."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.determinism.profiles import Profile
from cellrepro.errors import BadInput, NotPossibleHere
from cellrepro.exchange.given import Given
from cellrepro.exchange.image_folders import find_images, find_network
from cellrepro.model.encoders import ENCODERS
from cellrepro.model.weight_sources import ModelSource, find_model
from cellrepro.process.cellpose_versions import refuse_not_made
from cellrepro.run.function_segmenter import plan_function
from cellrepro.run.options import SegmentationOptions, TrainingOptions, WrapOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import PlanInputs, refuse_unreadable_network
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.run.program_segmenter import plan_program
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.spec.spec import Spec
from cellrepro.store.manifest import is_on_another_computer
from cellrepro.store.store import Store
from cellrepro.words import joined, short_digest


@dataclass(frozen=True)
class Recorded:
    """What is recorded of a run that is to be computed again."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    spec: Spec
    """What was asked for."""
    data_path: str | None = None
    """Where its images were, where that is known."""
    model_path: str | None = None
    """Where the network was from which it started, where that is known."""


def plan_again(recorded: Recorded, given: Given, store: Store) -> Plan:
    """Plan what a recorded run asked for."""
    spec = recorded.spec
    refuse_at_once(recorded, given)
    data = images_for(recorded, given, store)
    inputs = _RecordedInputs(recorded, given, store)
    asked = dict(spec)
    here = {"data": data, "profile": given.profile or spec.profile, "store": store.root}
    match spec.task:
        case "train":
            training = TrainingOptions.among({**asked, **here})
            plan = plan_training(training, inputs=inputs)
        case "segment":
            settings = {"settings": spec.settings.not_default(), "batch_size": None}
            segmentation = SegmentationOptions.among({**asked, **settings, **here})
            plan = plan_segmentation(segmentation, inputs=inputs)
        case "wrap":
            plan = _plan_wrapped(WrapOptions.among({**asked, **here}), given, inputs)
    names = {"data": spec.data, "model": spec.model, "key_from": spec.key_from}
    named = plan.spec.model_copy(update=names)
    plan = replace(plan, request=replace(plan.request, spec=named))
    _refuse_other_spec(recorded, plan, given)
    return plan


def _plan_wrapped(options: WrapOptions, given: Given, inputs: PlanInputs) -> Plan:
    """A program or function is only run when its reader names it himself."""
    first, *others = given.command
    is_function = not others and "{image}" not in first
    if is_function:
        return plan_function(options, first, inputs=inputs)
    return plan_program(options, given.command, inputs=inputs)


# -- images and networks -------------------------------------------------------------------


def images_for(recorded: Recorded, given: Given, store: Store) -> Path:
    """Find the images of a recorded run."""
    folder = find_images(recorded.spec, store, given=given.data, recorded=recorded.data_path)
    if folder is None:
        raise BadInput(
            f"the images of {recorded.name} are not here; expected the folder "
            f"{recorded.spec.data}, whose digest begins with {recorded.spec.data_digest[:12]}: "
            "give it with --data FOLDER, or ask for the run exported with --images"
        )
    return folder


class _RecordedInputs(PlanInputs):
    """Network and profile as a spec has them, whatever they are named here."""

    def __init__(self, recorded: Recorded, given: Given, store: Store):
        super().__init__()
        self._recorded = recorded
        self._given = given
        self._store = store

    def model(self, reference: str, store: str | Path, version: str | None) -> ModelSource:
        """The network of the spec, by its digest where it has one."""
        spec = self._recorded.spec
        if spec.model_digest is not None:
            return _network(self._recorded, self._given, self._store)
        if self._given.model is not None:
            raise BadInput(
                f"--model is {self._given.model}, and {self._recorded.name} started from "
                f"{spec.model}, which is known by its name: leave it out"
            )
        if Path(spec.model).name != spec.model:  # a sender names no file of the reader's
            raise BadInput(
                f"{self._recorded.name} says that it started from {spec.model!r} and gives no "
                f"digest; expected {joined([*ENCODERS])}, or a name of Cellpose's: ask its sender "
                "for the file as it was exported"
            )
        return super().model(spec.model, store, version)

    def profile(self, name: str | Path) -> Profile:
        """The profile of the spec, unless a different one was given."""
        if self._given.profile is not None:
            return super().profile(self._given.profile)
        return Profile.model_validate(self._recorded.spec.profile_settings)


def _network(recorded: Recorded, given: Given, store: Store) -> ModelSource:
    """The network from which a run started: as given, by its name, where it was, or as sent."""
    spec = recorded.spec
    if given.model is not None:
        source = find_model(given.model, store)
        if source.digest != spec.model_digest:
            raise BadInput(
                f"{given.model} is not the network that {recorded.name} started from: its SHA-256 "
                f"begins with {str(source.digest)[:12]}, expected {str(spec.model_digest)[:12]}"
            )
        refuse_unreadable_network(source)
        return replace(source, label=spec.model)
    sent = find_network(spec, store)
    places = [spec.model, recorded.model_path, None if sent is None else str(sent)]
    for place in places:
        if place is None or is_on_another_computer(place):
            continue
        with suppress(BadInput, OSError):
            source = find_model(place, store)
            if source.digest == spec.model_digest:
                refuse_unreadable_network(source)
                return replace(source, label=spec.model)
    raise BadInput(
        f"the network {spec.model} that {recorded.name} started from is not here; expected a file "
        f"of SHA-256 {short_digest(str(spec.model_digest))}: give it with --model FILE, or ask for "
        "the run exported with --weights"
    )


# -- what cannot be asked for again --------------------------------------------------------


def refuse_at_once(recorded: Recorded, given: Given) -> None:
    """Refuse what is clear without a look at images and networks."""
    if given.profile is None:
        refuse_strange_variables(recorded.spec, whose=recorded.name)
    refuse_not_made(recorded.spec.cellpose)
    if recorded.spec.continued_from is not None:
        raise NotPossibleHere(
            f"{recorded.name} went on from the checkpoint of {recorded.spec.continued_from} with "
            "other learning rates than one training would have; checkpoints are not sent, so it "
            "cannot be computed again from what is known of it: replay the run that it went on from"
        )
    if given.command and recorded.spec.task != "wrap":
        raise BadInput(
            f"a command is given after --, and {recorded.name} is a run of Cellpose itself, which "
            "needs none: leave it out"
        )
    if not given.command and recorded.spec.task == "wrap":
        words = " ".join(recorded.spec.program or ())
        raise BadInput(
            f"{recorded.name} ran a program, `{words[:200]}`, and nothing that was sent is "
            "executed: look at the program, and if you trust it, give the command yourself after "
            f"--, as `cellrepro verify {recorded.name} --replay -- COMMAND`"
        )


def _refuse_other_spec(recorded: Recorded, plan: Plan, given: Given) -> None:
    """Refuse to take something for a replay that is not what was asked for."""
    before = recorded.spec.model_dump(mode="json")
    now = plan.spec.model_dump(mode="json")
    allowed = {"profile", "profile_settings"} if given.profile is not None else set()
    differing = [name for name in now if now[name] != before.get(name) and name not in allowed]
    if not differing and (allowed or plan.spec.key == recorded.spec.key):
        return
    if recorded.spec.task == "wrap" and differing:
        raise BadInput(
            f"the command is not the one of {recorded.name}: {joined(differing)} differ; expected "
            f"`{' '.join(recorded.spec.program or ())[:200]}` with every file that it names as it "
            "was then"
        )
    raise NotPossibleHere(
        f"this version of cellrepro cannot ask for the run {recorded.name} again: "
        f"{joined(differing) or 'its key'} would differ; use the version that made it, which its "
        "passport names"
    )
