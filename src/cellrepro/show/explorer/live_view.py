"""What the explorer shows while settings move: masks of a reference, and masks of now.

Nothing here knows of widgets or browsers: both are told what to show, and hand over what a user
does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import NDArray

from cellrepro.errors import CellreproError
from cellrepro.explanation.commands import Commands
from cellrepro.explanation.live_segmentation import (
    Kind,
    LiveAnswer,
    LiveRequest,
    Segmenting,
    pass_estimate,
)
from cellrepro.explanation.settings_of_both import setting_in_words, usual_text
from cellrepro.model.cellpose_generation import NETWORK_DIAMETER
from cellrepro.show.explorer.planes import PackedPlane
from cellrepro.show.explorer.scenes import Scene, Scenes
from cellrepro.spec.segmentation_settings import Settings
from samebits.errors import BadInput
from samebits.words import amount

REFERENCE = "reference"
NOW = "now"
_SIDE_NOW = 1
_STILL_SECONDS = 0.35  # without a change, after which the exact masks are asked for
_QUICK_PASS_SECONDS = 1.0  # a pass that takes no longer begins by itself after that
_SENT = ("a", "b", "categories", "story")


class Control(TypedDict):
    """A slider."""

    name: str
    """Of the setting."""
    label: str
    min: float
    max: float
    step: float
    usual: float | None
    """The value that stands for none given; 0 is shown as "not set"."""
    needs_pass: bool
    finer: bool
    """Whether small values have more room than large ones."""
    hint: str
    """What it does, in a sentence."""


CONTROLS: tuple[Control, ...] = (
    {
        "name": "cellprob_threshold",
        "label": "cellprob_threshold",
        "min": -6,
        "max": 6,
        "step": 0.1,
        "usual": None,
        "needs_pass": False,
        "finer": False,
        "hint": "lower: larger cells, and touching ones may merge; higher: smaller cells",
    },
    {
        "name": "flow_threshold",
        "label": "flow_threshold",
        "min": 0,
        "max": 2,
        "step": 0.05,
        "usual": None,
        "needs_pass": False,
        "finer": False,
        "hint": "lower drops more cells whose shape does not fit their flows; 0 drops none",
    },
    {
        "name": "min_size",
        "label": "min_size",
        "min": -1,
        "max": 1000,
        "step": 1,
        "usual": None,
        "needs_pass": False,
        "finer": True,
        "hint": "cells of fewer pixels are dropped",
    },
    {
        "name": "niter",
        "label": "niter",
        "min": 0,
        "max": 2000,
        "step": 10,
        "usual": 0,
        "needs_pass": False,
        "finer": True,
        "hint": "steps by which pixels move to the centre of their cell; more for long cells; "
        "not set: Cellpose chooses",
    },
    {
        "name": "diameter",
        "label": "diameter",
        "min": 1,
        "max": 200,
        "step": 1,
        "usual": NETWORK_DIAMETER,
        "needs_pass": True,
        "finer": False,
        "hint": "of a cell in pixels: the image is scaled by 30 / diameter; 30 leaves it as it is",
    },
    {
        "name": "percentile_low",
        "label": "percentile, low",
        "min": 0,
        "max": 30,
        "step": 0.5,
        "usual": None,
        "needs_pass": True,
        "finer": False,
        "hint": "this percentile of the intensities is 0 for the network",
    },
    {
        "name": "percentile_high",
        "label": "percentile, high",
        "min": 70,
        "max": 100,
        "step": 0.1,
        "usual": None,
        "needs_pass": True,
        "finer": False,
        "hint": "this percentile of the intensities is 1 for the network",
    },
)
"""The sliders. The two percentiles are the setting ``normalize.percentile``."""

_PERCENTILE = "normalize.percentile"
_USUAL_PERCENTILE = (1.0, 99.0)


@dataclass(frozen=True)
class Shown:
    """What a browser is to show from now on."""

    scene: Scene | None
    """None where only the sliders' line changes."""
    planes: Mapping[str, PackedPlane]
    """Planes by name, of this scene."""
    live: Mapping[str, object]
    """Sliders, their values, and what is said beside them; plain values."""


@dataclass(frozen=True)
class _Made:
    """Masks that are at hand."""

    settings: Settings
    line: str
    """How many cells they hold, and whether these are exact; of none, why and what to do."""
    state: Literal["exact", "preview", "empty"]
    """Empty: exact, and no cell."""

    @property
    def is_exact(self) -> bool:
        return self.state != "preview"


class LiveView:
    """The masks of one image as settings move, beside a reference."""

    def __init__(
        self,
        scenes: Scenes,
        first: LiveAnswer,
        now: LiveAnswer,
        segmenting: Segmenting,
        *,
        commands: Callable[[Settings], Commands],
        show: Callable[[Shown], None],
        why_none: Callable[[LiveAnswer], str],
        still_seconds: float = _STILL_SECONDS,
    ) -> None:
        self.lock = threading.RLock()
        """Held while scenes change."""
        self.sides = (0, _SIDE_NOW)
        """The sides that are shown."""
        self._scenes = scenes
        self._base = first.settings
        self._segmenting = segmenting
        self._commands = commands
        self._show = show
        self._why_none = why_none
        self._still_seconds = still_seconds
        self._number = now.number
        self._shown_number = now.number
        self._wanted = now.settings  # where the sliders stand
        self._held = now.settings  # with which the network ran last
        self._now = self._made(now)  # what is shown
        self._reference = self._made(first)
        self._pass_seconds = now.pass_seconds
        self._timer: threading.Timer | None = None
        self._state: str = self._now.state
        self._line = self._now.line
        self._refusal = ""  # of what was typed last; beside it all stays as it was

    def close(self) -> None:
        """End what segments."""
        with self.lock:
            if self._timer is not None:
                self._timer.cancel()
            self._segmenting.close()

    @property
    def live(self) -> dict[str, object]:
        """Sliders, values, and what is said beside them."""
        commands = self._commands(self._wanted)
        return {
            "controls": [dict(control) for control in CONTROLS],
            "values": values_of(self._wanted),
            "reference": values_of(self._reference.settings),
            "state": self._state,
            "line": self._line,
            "refusal": self._refusal,
            "commands": commands.texts(),
        }

    # -- what a user does ------------------------------------------------------------------

    def receive(self, message: Mapping[str, object]) -> None:
        """Take what a browser sends: ``set`` with values by slider, or what to ``do``.

        With ``with_pass`` the network runs at once where the values need it.
        """
        with self.lock:
            self._refusal = ""
            match message.get("do"):
                case "run":
                    self._run()
                case "reference":
                    self._reference = self._now
                    self._put(0, self._scenes.open(0).labels(_SIDE_NOW))
                    self._publish(with_scene=True)
                case "back":
                    self._set(values_of(self._reference.settings))
                    is_at_hand = self._now.settings == self._wanted
                    if is_at_hand and self._wanted.before_masks() != self._held.before_masks():
                        self._ask("exact")  # so that sliders answer at once again
                case _ if "set" in message:
                    self._set(message["set"], with_pass=message.get("with_pass") is True)

    def _run(self) -> None:
        self._say("waiting", self._not_yet("the network runs"))
        self._ask("exact")
        self._publish()

    def _set(self, values: object, *, with_pass: bool = False) -> None:
        try:
            self._wanted = settings_at(values, self._base)
        except BadInput as error:
            self._refusal = f"{error}. The sliders stay where they were"
            self._publish()
            return
        if self._timer is not None:
            self._timer.cancel()
        if self._is_at_hand():
            self._publish(with_scene=True)
            return
        if self._wanted.before_masks() != self._held.before_masks():
            if with_pass:
                self._run()
                return
            if self._next_pass_seconds() > _QUICK_PASS_SECONDS:
                self._say("needs-pass", self._not_yet("the network has to run again"))
                self._publish()
                return
            self._say("waiting", self._not_yet("the network runs"))
            self._publish()
        else:
            self._ask("preview")
        self._timer = threading.Timer(self._still_seconds, self._ask_when_still, (self._wanted,))
        self._timer.daemon = True
        self._timer.start()

    def _is_at_hand(self) -> bool:
        """Show exact masks with the wanted settings where there are some already."""
        made = next(
            (
                made
                for made in (self._now, self._reference)
                if made.is_exact and made.settings == self._wanted
            ),
            None,
        )
        if made is None:
            return False
        if made is not self._now:
            self._put(_SIDE_NOW, self._scenes.open(0).labels(0))
            self._now = made
        self._number += 1
        self._shown_number = self._number  # what was asked for before comes too late
        self._say(made.state, made.line)
        return True

    def _ask_when_still(self, settings: Settings) -> None:
        with self.lock:
            if settings == self._wanted:
                self._ask("exact")

    def _ask(self, kind: Kind) -> None:
        self._number += 1
        self._segmenting.ask(LiveRequest(self._number, kind, self._wanted))

    def _next_pass_seconds(self) -> float:
        return pass_estimate(self._pass_seconds, self._wanted, self._held)

    def _not_yet(self, what: str) -> str:
        """Say what is shown, what is not yet computed, and what that takes."""
        about = f"{what}, about {amount(max(1, round(self._next_pass_seconds())), 'second')}"
        shown = _changed(self._now.settings, self._wanted)
        wanted = _changed(self._wanted, self._now.settings)
        if not wanted:
            return about
        return f"shown: {', '.join(shown)}; not yet computed: {', '.join(wanted)}; {about}"

    # -- what segments answers -------------------------------------------------------------

    def answer(self, answer: LiveAnswer) -> None:
        """Show what was made; what came too late is dropped."""
        with self.lock:
            is_wanted = answer.settings == self._wanted
            if answer.problem:
                if is_wanted:
                    self._say("problem", answer.problem)
                    self._publish()
                return
            if answer.masks is None:
                return
            if answer.kind == "exact":
                self._held = answer.settings
                self._pass_seconds = answer.pass_seconds
                if not is_wanted:
                    self._set(values_of(self._wanted))  # the sliders have moved in the meantime
                    return
            if answer.number < self._shown_number:
                return
            self._shown_number = answer.number
            self._now = self._made(answer)
            self._put(_SIDE_NOW, answer.masks)
            self._say(self._now.state, self._now.line)
            self._publish(with_scene=True)

    def _made(self, answer: LiveAnswer) -> _Made:
        n_cells = 0 if answer.masks is None else int(np.count_nonzero(np.unique(answer.masks)))
        if answer.kind == "exact" and not n_cells:
            line = f"no cell is found. {self._why_none(answer)}"
            return _Made(answer.settings, line, "empty")
        how = "exact, the masks of Cellpose itself" if answer.kind == "exact" else "preview"
        return _Made(answer.settings, f"{amount(n_cells, 'cell')}: {how}", answer.kind)

    def _put(self, side: int, masks: NDArray[np.uint16 | np.uint32]) -> None:
        self._scenes.put(0, side, masks)

    def _say(self, state: str, line: str) -> None:
        self._state = state
        self._line = line

    def _publish(self, *, with_scene: bool = False) -> None:
        if not with_scene:
            self._show(Shown(None, {}, self.live))
            return
        try:
            scene = self._scenes.scene(0, *self.sides, 0)
            names = scene["planes"]
            planes = {names[key]: self._scenes.plane(names[key]) for key in _SENT}
        except CellreproError as error:
            self._say("problem", str(error))
            self._show(Shown(None, {}, self.live))
            return
        self._show(Shown(scene, planes, self.live))


def values_of(settings: Settings) -> dict[str, float]:
    """The value of each slider."""
    by_name = settings.by_name()
    low, high = by_name[_PERCENTILE] or _USUAL_PERCENTILE
    values = {"percentile_low": low, "percentile_high": high}
    for control in CONTROLS:
        if control["name"] not in values:
            value = by_name[control["name"]]
            values[control["name"]] = (control["usual"] or 0) if value is None else value
    return values


def settings_at(values: object, base: Settings) -> Settings:
    """The settings where sliders stand; the other settings are those of ``base``."""
    known = {control["name"]: control for control in CONTROLS}
    if not isinstance(values, Mapping) or not set(values) <= set(known):
        raise BadInput(f"sliders are {values!r}; expected values of {', '.join(known)}")
    before = values_of(base)
    for name, value in values.items():
        limits = f"{known[name]['min']:g} to {known[name]['max']:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadInput(f"{name} is {value!r}; expected a number from {limits}")
        if value != before[name] and not known[name]["min"] <= value <= known[name]["max"]:
            raise BadInput(f"{name} is {value:g}; expected {limits}")
    changes: dict[str, object] = {}
    for name, value in values.items():
        if name.startswith("percentile_") or value == before[name]:
            continue
        is_none = known[name]["usual"] is not None and value == known[name]["usual"]
        whole = name in ("min_size", "niter")
        if whole and int(value) != value:
            raise BadInput(f"{name} is {value}; expected a whole number")
        changes[name] = None if is_none else (int(value) if whole else value)
    ends = tuple(
        float(values.get(name, before[name])) for name in ("percentile_low", "percentile_high")
    )
    if ends != (before["percentile_low"], before["percentile_high"]):
        changes[_PERCENTILE] = None if ends == _USUAL_PERCENTILE else ends
    return base.replaced(**changes)


def _changed(settings: Settings, before: Settings) -> list[str]:
    """The sliders' settings that differ, with their values in the first."""
    now = settings.by_name()
    then = before.by_name()
    return [
        f"{name.removeprefix('normalize.')} {_value_text(name, now[name])}"
        for name in dict.fromkeys(_setting_of(control) for control in CONTROLS)
        if now[name] != then[name]
    ]


def _setting_of(control: Control) -> str:
    return _PERCENTILE if control["name"].startswith("percentile_") else control["name"]


def _value_text(name: str, value: float | tuple[float, float] | None) -> str:
    if name == _PERCENTILE:
        low, high = value if isinstance(value, tuple) else _USUAL_PERCENTILE
        ends = f"{low:g} to {high:g}"
        return ends if value else setting_in_words(name, None, unset_as=ends)
    return setting_in_words(name, value, unset_as=usual_text(name) if name == "diameter" else "")
