"""Planning a recorded run again, with the images and networks that are on this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from cellrepro.exchange.input_lookup import find_images, find_network
from cellrepro.exchange.passport import Passport
from cellrepro.exchange.replay_request import ReplayRequest
from cellrepro.model.encoders import ENCODERS
from cellrepro.model.weight_sources import ModelSource, find_model
from cellrepro.process.cellpose_versions import refuse_not_made
from cellrepro.profiles.profiles import Profile
from cellrepro.run.function_segmenter import plan_function
from cellrepro.run.options import SegmentationOptions, TrainingOptions, WrapOptions
from cellrepro.run.plan import Plan
from cellrepro.run.plan_sources import PlanInputs, refuse_unreadable_network
from cellrepro.run.planning import plan_segmentation, plan_training
from cellrepro.run.program_segmenter import plan_program
from cellrepro.spec.lab_command import lab_command
from cellrepro.spec.sent_spec import refuse_strange_variables
from cellrepro.spec.spec import Spec
from cellrepro.store.record_values import is_on_another_computer
from cellrepro.store.store import Store
from cellrepro.store.stored_run import Repeat
from cellrepro.words import short_digest
from samebits.errors import BadInput, NotPossibleHere
from samebits.words import joined


@dataclass(frozen=True)
class RecordedRun:
    """A run that is to be computed again."""

    name: str
    """``KEY/MACHINE/REPEAT``."""
    spec: Spec
    data_path: str | None = None
    """Path of its images at the time, if known."""
    model_path: str | None = None
    """Path of the network from which it started, if known."""

    @classmethod
    def of(cls, passport: Passport, stored: Repeat | None = None) -> RecordedRun:
        """The run of a passport; the manifest of a stored repeat knows the paths."""
        if stored is None:
            return cls(passport.name, passport.spec)
        manifest = stored.manifest
        return cls(
            passport.name,
            passport.spec,
            data_path=manifest.data.path,
            model_path=manifest.model.path,
        )


def plan_again(recorded: RecordedRun, request: ReplayRequest, store: Store) -> Plan:
    """Plan a run with the spec of a recorded one; raises if the spec cannot be met here."""
    spec = recorded.spec
    refuse_at_once(recorded, request, store)
    data = images_for(recorded, request, store)
    inputs = _RecordedInputs(recorded, request, store)
    asked = dict(spec)
    here = {"data": data, "profile": request.profile or spec.profile, "store": store.root}
    match spec.task:
        case "train":
            training = TrainingOptions.among({**asked, **here})
            plan = plan_training(training, inputs=inputs)
        case "segment":
            settings = {"settings": spec.settings.not_default(), "batch_size": None}
            segmentation = SegmentationOptions.among({**asked, **settings, **here})
            plan = plan_segmentation(segmentation, inputs=inputs)
        case "wrap":
            plan = _plan_wrapped(WrapOptions.among({**asked, **here}), request, inputs)
    names = {"data": spec.data, "model": spec.model, "key_from": spec.key_from}
    named = plan.spec.model_copy(update=names)
    plan = replace(plan, request=replace(plan.request, spec=named))
    _refuse_other_spec(recorded, plan, request)
    return plan


def _plan_wrapped(options: WrapOptions, request: ReplayRequest, inputs: PlanInputs) -> Plan:
    """Plan the program or function that the user named: what a sender names is never run."""
    first, *others = request.command
    is_function = not others and "{image}" not in first
    if is_function:
        return plan_function(options, first, inputs=inputs)
    return plan_program(options, request.command, inputs=inputs)


# -- images and networks -------------------------------------------------------------------


def images_for(recorded: RecordedRun, request: ReplayRequest, store: Store) -> Path:
    """Find the images of a recorded run."""
    folder = find_images(recorded.spec, store, given=request.data, recorded=recorded.data_path)
    if folder is None:
        raise BadInput(
            f"the images of {recorded.name} are not here; expected the folder "
            f"{recorded.spec.data}, whose digest begins with {recorded.spec.data_digest[:12]}: "
            "give it with --data FOLDER, or ask for the run exported with --images"
        )
    return folder


class _RecordedInputs(PlanInputs):
    """Finds network and profile by their content in the spec, whatever their names are here."""

    def __init__(self, recorded: RecordedRun, request: ReplayRequest, store: Store):
        super().__init__()
        self._recorded = recorded
        self._request = request
        self._store = store

    def model(self, reference: str, store: str | Path, version: str | None) -> ModelSource:
        """The network of the spec, by its digest if it has one."""
        spec = self._recorded.spec
        if spec.model_digest is not None:
            return _network(self._recorded, self._request, self._store)
        if self._request.model is not None:
            raise BadInput(
                f"--model is {self._request.model}, and {self._recorded.name} started from "
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
        """The profile of the spec, unless the user gave another one."""
        if self._request.profile is not None:
            return super().profile(self._request.profile)
        return Profile.model_validate(self._recorded.spec.profile_settings)


def _network(recorded: RecordedRun, request: ReplayRequest, store: Store) -> ModelSource:
    """Find the network of a run: the given one, or by its name, at its path, or as it was sent."""
    spec = recorded.spec
    if request.model is not None:
        source = find_model(request.model, store)
        if source.digest != spec.model_digest:
            raise BadInput(
                f"{request.model} is not the network that {recorded.name} started from: its "
                f"SHA-256 begins with {str(source.digest)[:12]}, expected "
                f"{str(spec.model_digest)[:12]}"
            )
        refuse_unreadable_network(source)
        return replace(source, label=spec.model)
    sent = find_network(spec, store)
    references = [spec.model, recorded.model_path, None if sent is None else str(sent)]
    for reference in references:
        if reference is None or is_on_another_computer(reference):
            continue
        with suppress(BadInput, OSError):
            source = find_model(reference, store)
            if source.digest == spec.model_digest:
                refuse_unreadable_network(source)
                return replace(source, label=spec.model)
    raise BadInput(
        f"the network {spec.model} that {recorded.name} started from is not here; expected a file "
        f"of SHA-256 {short_digest(str(spec.model_digest))}: give it with --model FILE, or ask for "
        "the run exported with --weights"
    )


# -- refusals ------------------------------------------------------------------------------


def refuse_at_once(recorded: RecordedRun, request: ReplayRequest, store: Store) -> None:
    """Refuse what can be refused before images and networks are read."""
    if request.profile is None:
        refuse_strange_variables(recorded.spec, whose=recorded.name)
    refuse_not_made(recorded.spec.cellpose)
    if recorded.spec.continued_from is not None:
        raise NotPossibleHere(
            f"{recorded.name} went on from the checkpoint of {recorded.spec.continued_from} with "
            "other learning rates than one training would have; checkpoints are not sent, so it "
            "cannot be computed again from what is known of it: replay the run that it went on from"
        )
    if request.command and recorded.spec.task != "wrap":
        raise BadInput(
            f"a command is given after --, and {recorded.name} is a run of Cellpose itself, which "
            "needs none: leave it out"
        )
    if not request.command and recorded.spec.task == "wrap":
        words = " ".join(recorded.spec.program or ())
        command = lab_command("verify", recorded.name, "--replay", store=store.root)
        raise BadInput(
            f"{recorded.name} ran a program, `{words[:200]}`, and nothing that was sent is "
            "executed: look at the program, and if you trust it, give the command yourself after "
            f"--, as `{command} -- COMMAND`"
        )


def _refuse_other_spec(recorded: RecordedRun, plan: Plan, request: ReplayRequest) -> None:
    """Refuse a plan whose spec is not the recorded one."""
    before = recorded.spec.model_dump(mode="json")
    now = plan.spec.model_dump(mode="json")
    allowed = {"profile", "profile_settings"} if request.profile is not None else set()
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
