"""The likely cause of a difference, from files alone: what they record, and what the masks show.

Nothing is segmented, so that a cause is only called likely, unless the masks themselves prove it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING

from cellrepro.comparison.object_changes import ObjectKind
from cellrepro.comparison.systematic_change import SystematicChange
from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation.conditions import MODEL, PRECISION, VERSION
from cellrepro.explanation.differing_fields import follows
from cellrepro.explanation.equal_cells import hint_of_equal_cells
from cellrepro.explanation.hand_edits import EffectOfHand
from cellrepro.explanation.recorded_settings import (
    DEVICE,
    IMAGE_DIGEST,
    IMAGE_DTYPE,
    IMAGE_SHAPE,
    MODEL_DIGEST,
    RESTORE,
    STORED_NETWORK,
    GenerationNumber,
    tell_settings,
)
from cellrepro.explanation.setting_meanings import field_in_words
from cellrepro.explanation.settings_of_both import (
    SettingOfBoth,
    is_missing,
    is_usual_value,
    network_diameter,
    setting_in_words,
    usual_text,
)
from cellrepro.explanation.size_limit import SideName, SizeLimit, size_limit, smallest_cells
from cellrepro.explanation.stitching import cut_cells, stitching_text
from cellrepro.explanation.store_evidence import StoreEvidence
from cellrepro.explanation.why import Cause, Share, Why
from samebits.mode_names import Mode
from samebits.words import joined

if TYPE_CHECKING:
    from cellrepro.comparison.mask_comparison import MaskComparison
    from cellrepro.explanation.straight_cuts import OneSidedCuts

_WEIGHTS_IN_MEMORY = "weights_in_memory"
_NETWORK = (MODEL, MODEL_DIGEST, _WEIGHTS_IN_MEMORY)
STRONGEST_FIRST = (
    *_NETWORK,
    "diameter",
    "channels",
    "normalize.normalize",
    "normalize.lowhigh",
    "normalize.percentile",
    RESTORE,
    "normalize.invert",
    "normalize.tile_norm_blocksize",
    "normalize.sharpen",
    "normalize.smooth_radius",
    IMAGE_DIGEST,
    IMAGE_SHAPE,
    "image.axes",
    IMAGE_DTYPE,
    "do_3D",
    "stitch_threshold",
    "anisotropy",
    "cellprob_threshold",
    "flow_threshold",
    "min_size",
    "niter",
    "resample",
    "max_size_fraction",
    "channel_axis",
    "z_axis",
    "augment",
    "bsize",
    "tile_overlap",
    VERSION,
    "normalize.norm3D",
    "flow3D_smooth",
    "normalize.tile_norm_smooth3D",
    PRECISION,
    DEVICE,
    "batch_size",
)
"""What can change cells, by how many it usually changes; what is not in it is no cause."""
_OF_BOTH_ALONE = frozenset(
    {*_NETWORK, VERSION, PRECISION, DEVICE, IMAGE_DIGEST, IMAGE_SHAPE, IMAGE_DTYPE, "image.axes"}
)
"""What says nothing where one side alone records it: the other may have had the same."""

EDITS = "edits by hand"
IMAGE = "image"
MIN_SIZE = "min_size"
NUMBERS = "numbers"
OTHER_NUMBERS = "the same outlines, with different numbers"
"""What is said of `NUMBERS` that follow no rule."""
OUTLINES = "outlines"
POSITION = "position"
STITCHING = "stitching"
CUTS = "straight cuts"


_NO_MATCH = (
    "no cell of one overlaps a cell of the other by half or more: are both masks of this image?"
)
_SHOWN_BY_MASKS = (NUMBERS, CUTS, OUTLINES, STITCHING, POSITION)


@dataclass(frozen=True)
class FileEvidence:
    """What two files tell of why they differ."""

    verdict: Verdict
    """Of their masks."""
    settings: tuple[SettingOfBoth, ...] = ()
    generations: tuple[GenerationNumber | None, GenerationNumber | None] = (None, None)
    """Of the Cellpose that wrote each."""
    by_hand: EffectOfHand = field(default_factory=EffectOfHand)
    n_edits: tuple[int, int] = (0, 0)
    """Cells that were drawn or removed by hand in each."""
    number_rule: str = ""
    """How the numbers of one side follow from those of the other; empty where they do not."""
    systematic: SystematicChange | None = None
    """The one change by which all cells of B follow from those of A."""
    unrelated: str = ""
    """What speaks for masks of two images; empty where nothing does."""
    stitching: str = ""
    """Where planes were stitched otherwise; empty where they were not."""
    n_stitched: int = 0
    """Changed cells that are explained by that."""
    n_changed: int = 0
    """All changed cells."""
    cuts: OneSidedCuts | None = None
    """Straight cuts that one side alone has."""
    size_limit: SizeLimit | None = None
    """Up to which size one side lacks cells of the other; None where it lacks others, too."""
    smallest_cells: Mapping[SideName, int] = field(default_factory=dict)
    """Pixels of the smallest cell of each side that has one."""
    is_empty: bool = False
    """Whether one side has no cell."""
    same_outlines: bool = False
    """Whether every pixel is of the same cell in both, whatever the numbers."""
    equal_cells: str = ""
    """What cells that are equal in every pixel tell of the cause; empty where they tell nothing."""
    doubt: str = ""
    """Why a setting that is recorded may not be the cause; empty where nothing speaks against."""

    @classmethod
    def of_masks(
        cls,
        result: MaskComparison,
        *,
        number_rule: str = "",
        systematic: SystematicChange | None = None,
        unrelated: str = "",
    ) -> FileEvidence:
        """Take what two masks show, without what their files record."""
        cut = cut_cells(result)
        return cls(
            verdict=result.verdict,
            number_rule=number_rule,
            systematic=systematic,
            unrelated=unrelated,
            stitching=stitching_text(cut),
            n_stitched=len(cut),
            n_changed=sum(result.kinds.values()) - result.kinds[ObjectKind.KEPT],
            size_limit=size_limit(result),
            smallest_cells=smallest_cells(result),
            is_empty=not (result.n_objects_a and result.n_objects_b),
            same_outlines=not result.n_differing,
            equal_cells=hint_of_equal_cells(result),
            doubt=_NO_MATCH if _has_no_match(result) else "",
        )

    @property
    def differs(self) -> bool:
        """Whether the masks do."""
        return self.verdict not in (Verdict.IDENTICAL, Verdict.VACUOUS)

    @property
    def tells_settings(self) -> bool:
        """Whether at least one side records a setting."""
        recorded = (
            each for each in self.settings if not (is_missing(each.a) and is_missing(each.b))
        )
        return tell_settings(setting.name for setting in recorded)


def why_from_files(evidence: FileEvidence, *, find_out: str) -> Why | None:
    """Say what probably makes two results differ; None where they do not.

    First what the masks show of their numbers, then what both record with two values, then what
    else the masks show, then what one side alone records and is not usual.
    """
    if not evidence.differs:
        return None
    proven = proven_cause(evidence)
    if proven is not None:
        return Why(proven)
    if evidence.unrelated:  # whatever else differs, no setting explains this
        return Why(Cause(IMAGE, words=evidence.unrelated))
    likely = likely_causes(evidence)
    if likely and likely[0].name == NUMBERS:  # which come after the network
        find_out = ""
    if likely and likely[0].name == CUTS and evidence.cuts is not None:
        find_out = evidence.cuts.command
    if not likely:
        nothing = Why(
            None,
            remains=tuple(filter(None, [evidence.equal_cells, evidence.doubt])),
            find_out=find_out,
        )
        if evidence.tells_settings:
            return nothing
        return replace(nothing, nothing_tells="neither file records its settings")
    if evidence.doubt and likely[0].name not in _SHOWN_BY_MASKS:
        return Why(None, tuple(likely), nothing_tells=evidence.doubt, find_out=find_out)
    return Why(likely[0], tuple(likely[1:]), find_out=find_out)


def _has_no_match(result: MaskComparison) -> bool:
    n_fewest = min(result.n_objects_a, result.n_objects_b)
    return n_fewest > 0 and not result.n_matched and result.n_objects_a + result.n_objects_b > 3


def likely_causes(evidence: FileEvidence) -> list[Cause]:
    """List what may make two results differ, what is told most surely and strongest first."""
    likely = [*_numbers(evidence), *_recorded_by_both(evidence)]
    return [*likely, *_shown_by_masks(evidence, likely), *_recorded_by_one(evidence)]


def proven_cause(evidence: FileEvidence) -> Cause | None:
    """Give what the masks themselves prove to make the difference; None where they do not."""
    if evidence.by_hand.explains_all:
        return Cause(
            EDITS,
            *evidence.n_edits,
            confirmed=True,
            words="but for cells drawn or removed by hand, the two are the same in every pixel",
        )
    if evidence.verdict == Verdict.SAME_OBJECTS or evidence.same_outlines:
        words = evidence.number_rule or OTHER_NUMBERS
        return Cause(NUMBERS, confirmed=True, words=words)
    change = evidence.systematic
    if change is not None and change.explains_all:
        name = POSITION if change.kind in ("shifted", "turned") else OUTLINES
        return Cause(name, confirmed=True, words=change.text("A", "B"))
    return None


def _recorded_by_both(evidence: FileEvidence) -> Iterator[Cause]:
    a, b = evidence.generations
    is_of_two_generations = a is not None and b is not None and (a == "4") != (b == "4")
    if is_of_two_generations:
        words = f"A is of Cellpose {a}, B of Cellpose {b}, which have different networks"
        yield Cause(VERSION, a, b, words=words)
    by_name = {setting.name: setting for setting in evidence.settings}
    for name in STRONGEST_FIRST:
        setting = by_name.get(name)
        if setting is None or not setting.differs or not _has_effect(setting, evidence):
            continue
        is_said = (name == VERSION and is_of_two_generations) or (
            name in _NETWORK and _is_one_network(name, by_name)
        )
        if not is_said:
            usual = network_diameter(name, (a, b))
            yield Cause(name, setting.a, setting.b, usual=usual)


def _has_effect(setting: SettingOfBoth, evidence: FileEvidence) -> bool:
    """Whether two values are more than two ways to write Cellpose's usual one."""
    a, b = evidence.generations
    return not (
        is_usual_value(setting.name, setting.a, a) and is_usual_value(setting.name, setting.b, b)
    )


def _is_one_network(name: str, by_name: Mapping[str, SettingOfBoth]) -> bool:
    """Whether a name or file of a network says nothing beside what stands for its weights.

    One network can have two names; weights in memory decide, then the digest of their file.
    """
    at = _NETWORK.index(name)
    surer = [by_name[each] for each in _NETWORK[at + 1 :] if each in by_name]
    known = [setting for setting in surer if setting.is_recorded_by_both]
    if known:
        return not any(setting.differs for setting in known)
    if name != MODEL:  # what differs before it is named
        return any(each in by_name and by_name[each].differs for each in _NETWORK[:at])
    setting = by_name[MODEL]
    return len({_file_name(str(value)) for value in (setting.a, setting.b)}) == 1


def _file_name(network: str) -> str:
    """The last part of a path of any system; a run of a store is named by all its parts."""
    return network if STORED_NETWORK.fullmatch(network) else PureWindowsPath(network).name


def _numbers(evidence: FileEvidence) -> Iterator[Cause]:
    if evidence.number_rule and evidence.cuts is None:  # which a map of the foreground has not
        yield Cause(NUMBERS, words=evidence.number_rule)


def _shown_by_masks(evidence: FileEvidence, recorded: Sequence[Cause]) -> Iterator[Cause]:
    change = evidence.systematic
    if change is not None and not change.explains_all:
        yield Cause(OUTLINES, words=change.text("A", "B"))
    if evidence.stitching:
        share = Share(evidence.n_stitched, evidence.n_changed)
        yield Cause(STITCHING, words=evidence.stitching, cells=share)
    if evidence.cuts is not None:
        share = Share(evidence.cuts.n_changed, evidence.n_changed)
        yield Cause(CUTS, words=evidence.cuts.text, cells=share)
    limit = evidence.size_limit
    if (
        limit is not None
        and limit.is_telling
        and MIN_SIZE not in {cause.name for cause in recorded}
    ):
        share = Share(limit.n_missing, evidence.n_changed)
        yield Cause(MIN_SIZE, words=limit.text, cells=share)


def _recorded_by_one(evidence: FileEvidence) -> Iterator[Cause]:
    """Values that are not usual, of which the other side records nothing.

    A side without a cell is left out: what is usual finds some.
    """
    by_name = {setting.name: setting for setting in evidence.settings}
    if not evidence.is_empty and evidence.tells_settings:
        for name in STRONGEST_FIRST:
            setting = by_name.get(name)
            if setting is None or setting.is_recorded_by_both or not setting.is_recorded:
                continue
            if name not in _OF_BOTH_ALONE and not setting.is_usual:
                of_cellpose_4 = not set(evidence.generations) & {"2", "3"}
                usual = usual_text(name) if of_cellpose_4 else ""
                yield Cause(name, setting.a, setting.b, usual=usual)
    if evidence.by_hand.notes:
        share = Share(evidence.by_hand.n_cells, evidence.n_changed)
        words = joined(evidence.by_hand.notes)
        yield Cause(EDITS, *evidence.n_edits, words=words, cells=share)


# -- of two runs -----------------------------------------------------------------------------

CHANCE = "chance"
_SAME = "both were asked for the same, in the same environment"
_HELD: tuple[Mode, ...] = ("strict", "portable")
"""Modes in which repeats of one spec should be equal."""
_OF_SETTINGS = "settings."
_OF_SPEC = ("program", "data_digest", "model", "model_digest", "epochs", _OF_SETTINGS)
"""Fields of a spec that change most; then come all others, and `_LAST_OF_SPEC`."""
PROFILE = "profile"
_PROFILE_SETTINGS = "profile_settings"
_ROUNDING = (PROFILE, _PROFILE_SETTINGS, "ranks", "mode", "loose")
"""Fields that change the last digits alone: which of them changes cells, none of them tells."""
_LAST_OF_SPEC = ("seed", "data_seed", *_ROUNDING)
_NAMES_FOR_PEOPLE = ("data", "settings", "key_from", "ledger")
_OTHER_MACHINE = ("machine.device", "device", "numeric_class")
"""What tells that two runs were computed on two kinds of machine."""
_ENVIRONMENT = (
    "machine.device",
    "device",
    "numeric_class",
    "cpu_capability",
    "versions.torch",
    "versions.cellpose",
    "versions.",
    "threads",
    "switches.",
    "variables.",
    "numeric_libraries",
    "machine.",
)


def why_of_runs(
    spec: Mapping[str, tuple[object, object]],
    environment: Mapping[str, tuple[object, object]],
    *,
    maker: Cause | None = None,
    store: StoreEvidence,
    mode: Mode,
    find_out: str,
) -> Why:
    """Say what probably makes two runs differ: a field of the spec, else of the environment.

    Of several fields the masks of other runs in the store decide, where they do. ``maker`` says of
    two tasks that their masks are of two networks. ``mode`` is that of A, which decides whether
    repeats may differ by chance.
    """
    fields = own_fields(spec)
    ranked = sorted(fields, key=_rank_in_spec)
    open_ones = [name for name in ranked if name not in store.ruled_out]
    open_ones.sort(key=lambda name: name not in store.shown)
    told = tuple(_store_sentences(store, open_ones))
    precisions = _precisions_text(spec)
    causes = [_cause_in_spec(name, *fields[name]) for name in open_ones]
    causes = [replace(each, detail=precisions) if each.name == PROFILE else each for each in causes]
    if maker is not None:
        return Why(maker, tuple(causes), evidence=told, find_out=find_out)
    if ranked and not causes:
        nothing = "each setting that differs changes no pixel by itself"
        return Why(None, nothing_tells=nothing, evidence=told, find_out=find_out)
    if len(causes) > 1 and open_ones[0] in _ROUNDING and open_ones[0] not in store.shown:
        nothing = (
            f"{joined([_both(cause) for cause in causes])} differ, and no other run of the store "
            "tells which of them matters: run A once more with one of them as in B, and compare "
            "the new run with both"
        )
        return Why(None, nothing_tells=nothing, evidence=told, find_out=find_out)
    if causes and PROFILE not in fields:  # which says of the machine what matters
        others = [name for name in _OTHER_MACHINE if name in environment][:1]
        causes += [Cause(name, *environment[name]) for name in others]
    if not causes:
        of_machine = [name for name in environment if _rank_among(name, _ENVIRONMENT) >= 0]
        of_machine.sort(key=lambda name: _rank_among(name, _ENVIRONMENT))
        causes = [Cause(name, *environment[name]) for name in of_machine]
    if not causes:
        if mode not in _HELD:
            words = f"{_SAME}, and mode {mode} lets repeats differ; mode strict keeps them equal"
            return Why(Cause(CHANCE, words=words), find_out=find_out)
        return Why(None, nothing_tells=_SAME, evidence=told, find_out=find_out)
    is_known = [cause.name for cause in causes] == ["seed"]  # which alone changes all that follows
    return Why(causes[0], tuple(causes[1:]), evidence=told, find_out="" if is_known else find_out)


def _cause_in_spec(field: str, a: object, b: object) -> Cause:
    name = field.removeprefix(_OF_SETTINGS)
    return Cause(name, a, b, usual=network_diameter(name))


def _precisions_text(spec: Mapping[str, tuple[object, object]]) -> str:
    """Say the precisions of two profiles, which segmenting again can vary; empty for equal ones."""
    settings = spec.get(_PROFILE_SETTINGS, (None, None))
    a, b = (each.get("dtype") if isinstance(each, Mapping) else None for each in settings)
    return "" if a == b else f"{PRECISION} {a} in A, {b} in B"


def own_fields(
    spec: Mapping[str, tuple[object, object]],
) -> dict[str, tuple[object, object]]:
    """Leave out of the fields that differ what is a name, or follows from another one of them."""
    return {name: values for name, values in spec.items() if not _is_label(name, spec)}


def _store_sentences(store: StoreEvidence, open_ones: Sequence[str]) -> Iterator[str]:
    for name in open_ones:
        if name in store.shown:
            yield f"{name} matters: {store.shown[name]}"
    for name, run in store.ruled_out.items():
        yield f"not {name}: {run}"
    if store.unsteady:
        yield (
            f"the repeats of {joined(store.unsteady)} have different masks among themselves, so "
            "that a part may be chance"
        )


def _both(cause: Cause) -> str:
    a, b = (
        setting_in_words(cause.name, value, unset_as=cause.usual) for value in (cause.a, cause.b)
    )
    return f"{field_in_words(cause.name)} ({a} in A, {b} in B)"


def _is_label(name: str, spec: Mapping[str, object]) -> bool:
    """Whether a field is a name, or follows from another one that differs."""
    return name in _NAMES_FOR_PEOPLE or follows(name, spec)


def _rank_in_spec(name: str) -> tuple[int, int]:
    """Rank among the fields of a spec, and among the settings of a segmentation."""
    setting = name.removeprefix(_OF_SETTINGS)
    among_settings = STRONGEST_FIRST.index(setting) if setting in STRONGEST_FIRST else 0
    first = _rank_among(name, _OF_SPEC)
    if first >= 0:
        return first, among_settings
    return len(_OF_SPEC) + 1 + _rank_among(name, _LAST_OF_SPEC), 0


def _rank_among(name: str, ranks: Sequence[str]) -> int:
    """The place of a name, or of a beginning that ends in a dot; -1 where it has none."""
    for rank, each in enumerate(ranks):
        if name == each or (each.endswith(".") and name.startswith(each)):
            return rank
    return -1
