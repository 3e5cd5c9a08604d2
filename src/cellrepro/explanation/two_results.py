"""Two results beside each other: the answer of `compare`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from cellrepro.comparison.changed_cells import cell_rows, cells_of, listed_cells, shift_note
from cellrepro.comparison.mask_comparison import MaskComparison, compare_masks
from cellrepro.comparison.mask_totals import MaskTotals, totals_over
from cellrepro.comparison.systematic_change import (
    SystematicChange,
    images_by_change,
    over_images,
    turns_between,
)
from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation.crops import part_by_masks
from cellrepro.explanation.differing_fields import field_lines
from cellrepro.explanation.folder_content import folder_content
from cellrepro.explanation.label_notes import (
    counts_by_plane,
    label_notes,
    no_cell_note,
    of_images,
)
from cellrepro.explanation.mask_files import MaskReaders, read_both
from cellrepro.explanation.one_size import at_one_size
from cellrepro.explanation.setting_meanings import recorded_in_words
from cellrepro.explanation.settings_of_both import value_text
from cellrepro.explanation.stitching import cut_cells, stitching_text
from cellrepro.images.image_axes import size_text
from cellrepro.images.size_factor import times_text
from cellrepro.spec.lab_command import lab_command
from cellrepro.words import short_digest
from samebits.errors import BadInput
from samebits.results import MOST_LINES, Result, Row, derived, table_lines
from samebits.words import amount, joined, some

if TYPE_CHECKING:
    from cellrepro.comparison.state_comparison import StateComparison
    from cellrepro.comparison.weight_comparison import WeightsComparison
    from cellrepro.comparison.weight_files import FileComparison
    from cellrepro.conclusions.conclusion import Conclusion
    from cellrepro.explanation.explanation import Explanation
    from cellrepro.explanation.mask_files import MaskReaders
    from cellrepro.explanation.settings_of_both import SettingOfBoth
    from cellrepro.explanation.why import Cause, Why
    from cellrepro.images.integer_images import Integers
    from cellrepro.images.outlines import Shape


_MOST_NAMES = 4  # of tensors, images

Differs = Literal[
    "environment",
    "spec",
    "data",
    "weights-init",
    "weights",
    "optimizer",
    "scheduler",
    "step",
    "seed",
    "generators",
    "tensors",
    "values",
    "masks",
    "truth",
]
"""``weights-init`` is before any training, ``truth`` are scores; ``optimizer`` to ``values`` stand
in checkpoints beside their networks."""


class TwoValues(NamedTuple):
    """A field as each side has it; None where a side does not have it."""

    a: Any
    b: Any


_DIFFERS_IN_WORDS: Mapping[str, str] = {
    "spec": "what was asked for",
    "weights-init": "initial weights",
    "truth": "score against the ground truth",
}
"""Words of `Comparison.differs` that say little by themselves, as a terminal shows them."""


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """Two results compared: in what they differ, and how far."""

    verdict: Verdict
    """Over masks and weights, whichever both sides have."""
    differs: tuple[Differs, ...] = ()  # else the property of `Result` would be the default
    """What differs: environment, spec, data, weights-init, weights, masks, truth; of two
    checkpoints also optimizer, scheduler, step, seed, generators, tensors, values."""
    masks: Mapping[str, MaskComparison] = field(default_factory=dict)
    """Figures by image."""
    weights: WeightsComparison | None = None
    """None where there are no weights."""
    environment: Mapping[str, TwoValues] = field(default_factory=dict)
    """Fields of the environment that differ, each with its two values."""
    spec: Mapping[str, TwoValues] = field(default_factory=dict)
    """Fields of the specifications that differ, each with its two values."""
    ap50: tuple[float | None, float | None] | None = None
    """Average precision at IoU 0.5 against the ground truth; None where there is no truth."""
    ap50_train: tuple[float | None, float | None] | None = None
    """The same on training images."""
    files: FileComparison | None = field(default=None, repr=False)
    """Two weights files compared as bytes; no part of the verdict."""
    state: StateComparison | None = None
    """What two checkpoints hold beside their networks."""
    settings: tuple[SettingOfBoth, ...] = ()
    """What two mask files record of how they were made, as far as one of them does; what differs
    first."""
    notes: tuple[str, ...] = ()
    """What a reader has to know, a sentence each: what was not compared, and how it stands beside
    what seeds do."""
    systematic: Mapping[str, SystematicChange] = field(default_factory=dict)
    """By image, the one change of all cells by which B follows from A: a pixel smaller, shifted;
    where cells are lost or gained beside it, that of the cells that both sides have."""
    conclusions: tuple[Conclusion, ...] = ()
    """What the groups of images say under A and under B, for each readout, where ``--groups`` names
    them."""
    html: Path | None = None
    """The page, where one was asked for."""
    why: Why | None = field(default=None, repr=False)
    """What makes the two differ; None where they do not, or nobody looked: in folders, weights."""
    explanation: Explanation | None = None
    """The answer of `explain`, where a network was given."""

    @property
    def exit_code(self) -> int:
        """0 where the two are identical, and differ in nothing else."""
        is_same = self.verdict == Verdict.IDENTICAL and not self.differs
        return int(not is_same)

    @derived
    def objects(self) -> dict[str, object]:
        """Numbers of objects, of each side ``n_a`` and ``n_b``; in ``changes``, for each,
        `ObjectChange` with its ``image``, and ``a``, ``b``, ``y`` and ``x`` for its numbers and
        place."""
        changes = [cell.change.of_image(cell.image) for cell in cells_of(self.masks)]
        of_sides = {"n_a": self.totals.n_objects_a, "n_b": self.totals.n_objects_b}
        return {**of_sides, **self.n_objects, "changes": changes}

    @derived
    def cause(self) -> Cause | None:
        """What makes the two differ; null where nothing tells, or they do not differ."""
        return None if self.why is None else self.why.cause

    @property
    def differing_settings(self) -> tuple[SettingOfBoth, ...]:
        """Settings that both sides record with different values, and that may change cells."""
        return tuple(
            setting for setting in self.settings if setting.differs and setting.may_change_cells
        )

    @property
    def totals(self) -> MaskTotals:
        """What adds up over all images."""
        return totals_over(self.masks.values())

    @property
    def n_objects(self) -> dict[str, int]:
        """Objects over all images: in a, in b, matched, by what became of them, renumbered."""
        return self.totals.objects_by_name()

    @derived
    def ppm(self) -> float:
        """Differing pixels per million over all images; 0 over nothing."""
        return self.totals.ppm

    def sentence(self) -> str:
        """Say the verdict, in what the two differ, and by how much their masks and weights do."""
        head = str(self.verdict)
        if self.differs:
            head += f"; the two differ in {joined(self._differs_in_words)}"
        parts = [head]
        if self.why is not None:
            parts.append(self.why.sentence)
        if self.differing_settings and self.cause is None:
            named = [
                f"{recorded_in_words(each.name)} {short_digest(str(each.a))} and "
                f"{short_digest(str(each.b))}"
                for each in self.differing_settings
            ]
            parts.append(f"made with different settings: {joined(named)}")
        if self.weights is not None:
            parts.append(f"weights: {self.weights.sentence()}")
        if self.state is not None:
            parts += self.state.sentences()
        parts += self.systematic_sentences
        if self.masks:
            parts.append(f"masks: {self._masks_sentence.rstrip('.')}")
        return "; ".join(parts)

    @property
    def _differs_in_words(self) -> list[str]:
        words = dict(_DIFFERS_IN_WORDS)
        if self.lacks_images:
            words["masks"] = "masks, as one side has images that the other lacks"
        return [words.get(part, part) for part in self.differs]

    @property
    def lacks_images(self) -> bool:
        """Whether masks differ for no other reason than that one side has more images."""
        return "masks" in self.differs and not masks_differ(self.totals.verdict)

    @property
    def _masks_sentence(self) -> str:
        of_both = "of the images that both have: " if self.lacks_images else ""
        return f"{of_both}{self.totals.sentence()}"

    def rows(self) -> list[Row]:
        """Give each setting, and each field of environment and specification that differs."""
        return [
            {"field": name, "A": values.a, "B": values.b}
            for fields in (self._settings_by_name(), self.environment, self.spec)
            for name, values in fields.items()
        ]

    def lines(self) -> list[str]:
        """Say the verdict, and what differs: settings, weights, masks, scores."""
        return list(self._lines())

    def _lines(self) -> Iterator[str]:
        differs = f": {', '.join(self._differs_in_words)}" if self.differs else ""
        if differs and self.verdict == Verdict.IDENTICAL:
            differs = f" results; what differs{differs}"
        yield f"{self.verdict}{differs}"
        if self.conclusions:  # what was asked for comes before why
            from cellrepro.conclusions.conclusion import conclusion_lines

            yield from (f"  {line}" for line in conclusion_lines(self.conclusions))
        if self.why is not None:
            yield from (f"  {line}" for line in self.why.lines())
        for setting in self.differing_settings:
            if self.cause is not None and setting.name == self.cause.name:
                continue  # said above
            a, b = (
                short_digest(value_text(setting.name, value)) for value in (setting.a, setting.b)
            )
            yield f"  setting {recorded_in_words(setting.name)}: {a} and {b}"
        systematic = self.systematic_sentences
        yield from (f"  {sentence}" for sentence in systematic)
        if self.masks:
            yield f"  masks: {self._masks_sentence}"
        # Cells that follow from one change are not listed one by one.
        unexplained = {
            name: result
            for name, result in self.masks.items()
            if name not in self.systematic or not self.systematic[name].explains_all
        }
        listed = listed_cells(unexplained)
        rows = cell_rows(listed, a="A", b="B", n_images=len(self.masks), most=MOST_LINES)
        yield from table_lines(rows, indent=4, n_rows=len(listed))
        if note := shift_note(cell.change for cell in listed[:MOST_LINES]):
            yield f"    {note}"
        if self.ap50 is not None and None not in self.ap50:
            yield "  ground truth: AP@0.5 {:.3f} and {:.3f}".format(*self.ap50)
        if self.ap50_train is not None and None not in self.ap50_train:
            yield "  on training images: AP@0.5 {:.3f} and {:.3f}".format(*self.ap50_train)
        if self.weights is not None:
            yield from _weights_lines(self.weights)
        if self.state is not None:
            yield from (f"  {sentence}" for sentence in self.state.sentences())
        if self.files is not None:
            yield "  files: " + "\n    ".join(self.files.sentences())
        yield from (f"  {line}" for line in field_lines("asked for:", self.spec))
        unforced = {
            name: values
            for name, values in self.environment.items()
            if not follows_from_spec(name, self.spec)
        }
        yield from (f"  {line}" for line in field_lines("computed with:", unforced))
        n_forced = len(self.environment) - len(unforced)
        if n_forced:
            fields = amount(n_forced, "field")
            yield f"  computed with: {fields} that mode or profile set; --json names them"
        if self.explanation is not None:
            from cellrepro.explanation.explanation_lines import replay_lines

            yield from (f"  {line}" for line in replay_lines(self.explanation))
        for note in self.notes_beside_cause:
            if note not in systematic:
                yield f"  note: {note}"
        if self.html is not None:
            yield f"  page: {self.html}"

    @property
    def notes_beside_cause(self) -> tuple[str, ...]:
        """The notes, without the one that says the cause."""
        return tuple(note for note in self.notes if not self._is_said_by_cause(note))

    @property
    def systematic_sentences(self) -> tuple[str, ...]:
        """Say of which images B follows from A by one change, where the cause does not say it."""
        sentences = _systematic_sentences(self.systematic, len(self.masks))
        return tuple(each for each in sentences if not self._is_said_by_cause(each))

    def _is_said_by_cause(self, note: str) -> bool:
        words = "" if self.cause is None else self.cause.words
        return bool(words) and note.endswith(words)

    def _settings_by_name(self) -> dict[str, TwoValues]:
        return {each.name: TwoValues(each.a, each.b) for each in self.differing_settings}


_SET_BY_MODE = ("switches.", "variables.CUBLAS_WORKSPACE_CONFIG")
"""Beginnings of the fields of an environment that mode and profile set."""


def follows_from_spec(name: str, spec: Mapping[str, TwoValues]) -> bool:
    """Whether a field of the environment differs because the mode or the profile does."""
    return name.startswith(_SET_BY_MODE) and not {"mode", "profile"}.isdisjoint(spec)


def _weights_lines(weights: WeightsComparison) -> Iterator[str]:
    """Say how far two networks lie apart, and which tensors only one of the two has."""
    from cellrepro.comparison.weight_tensors import layers_of

    yield f"  weights: {weights.sentence()}"
    layers = layers_of(tensor.name for tensor in weights.per_tensor)
    if layers:
        n_layers = len(layers_of(tensor.name for tensor in weights.tensors))
        yield f"    in {len(layers)} of {amount(n_layers, 'layer')}: {some(layers, _MOST_NAMES)}"
    if weights.only_a:
        yield f"    only in A: {some(weights.only_a, _MOST_NAMES)}"
    if weights.only_b:
        yield f"    only in B: {some(weights.only_b, _MOST_NAMES)}"


# -- their masks, image by image -----------------------------------------------------------


@dataclass(frozen=True)
class ComparedMasks:
    """The masks of the images that two sides have in common."""

    by_image: Mapping[str, MaskComparison]
    notes: tuple[str, ...]
    """What only one side has, and what may be no label image."""
    number_rules: Mapping[str, str] = field(default_factory=dict)
    """By image, how numbers of one side follow from those of the other, where they do."""
    systematic: Mapping[str, SystematicChange] = field(default_factory=dict)
    """The one change of all cells of an image, where there is one."""
    unrelated: Mapping[str, str] = field(default_factory=dict)
    """By image, what speaks for masks of two images."""


def compare_by_image(
    a: MaskReaders, b: MaskReaders, *, names: tuple[str, str], shape: Shape | None = None
) -> ComparedMasks:
    """Compare the masks of equal names, one image at a time.

    ``names`` are those of the two sides, ``shape`` is that of an image in which outlines are drawn
    where both sides are such.
    """
    who = " and ".join(names)
    in_both = [name for name in a if name in b]
    for name, masks in zip(names, (a, b), strict=True):
        if not masks:
            raise BadInput(
                f"{name} is {folder_content(Path(name))}; expected a folder with files such as "
                "NAME_masks.tif, NAME_seg.npy or ROIs"
            )
    if not in_both:
        images = "; ".join(
            f"{side} has {some(list(masks))}" for side, masks in zip(names, (a, b), strict=True)
        )
        raise BadInput(
            f"{who}: {len(a)} and {len(b)} masks, and no image of the same name ({images}); "
            "expected masks of the same images: NAME_masks, NAME_cp_masks, NAME_seg.npy and NAME "
            "are those of the image NAME. Of two folders `--pairs order`, or the names of files as "
            '`--pairs "{image}_label.tif"`, says what belongs together'
        )
    by_image: dict[str, MaskComparison] = {}
    notes: list[str] = []
    number_rules: dict[str, str] = {}
    systematic: dict[str, SystematicChange] = {}
    unrelated: dict[str, str] = {}
    for side, only in (("A", a.keys() - b.keys()), ("B", b.keys() - a.keys())):
        if only:
            notes.append(f"only {side} has masks of {', '.join(sorted(only))}")
    for name in in_both:
        try:
            labels_a, labels_b, drawn = read_both(a[name], b[name], shape=shape)
            _refuse_other_size(labels_a, labels_b, names)
            result = compare_masks(labels_a, labels_b)
        except BadInput as error:
            of_image = f"image {name}: " if len(a) + len(b) > 2 else ""
            raise BadInput(f"{of_image}{error}") from error
        by_image[name] = result
        of_labels = label_notes(labels_a, labels_b, result)
        by_plane = counts_by_plane(labels_a, labels_b)
        sentences = [*drawn, *by_plane, *of_labels.sentences]
        if of_labels.number_rule:
            number_rules[name] = of_labels.number_rule
        change = of_labels.systematic
        if change is not None:
            systematic[name] = change
            sentences.remove(change.text("A", "B"))  # said once of all images that have it
        notes += (of_images([name], len(in_both)) + sentence for sentence in sentences)
        if of_labels.unrelated:
            unrelated[name] = of_labels.unrelated
    notes += _systematic_sentences(systematic, len(in_both))
    notes += _empty_notes(by_image)
    return ComparedMasks(by_image, tuple(notes), number_rules, systematic, unrelated)


def _systematic_sentences(
    systematic: Mapping[str, SystematicChange], n_images: int
) -> Iterator[str]:
    """Say each change of all cells once, with the images that have it."""
    for names in images_by_change(systematic):
        text = over_images([systematic[name] for name in names]).text("A", "B")
        yield of_images(names, n_images) + text


def _refuse_other_size(labels_a: Integers, labels_b: Integers, names: tuple[str, str]) -> None:
    """Refuse masks of two sizes, as nothing pairs their pixels, with what may be the reason."""
    a = labels_a.shape
    b = labels_b.shape
    if a == b:
        return
    sizes = f"A has masks of {size_text(a)}, B of {size_text(b)}"
    if len(a) != len(b):
        raise BadInput(
            f"{sizes}; a plane (Y, X) is not compared with a stack (Z, Y, X): save one plane of "
            "the stack as a file of its own"
        )
    expected = f"{sizes}; expected one size"
    are_files = all(Path(name).is_file() for name in names)
    command = lab_command("explain", *names, store=None) if are_files else "cellrepro explain A B"
    part = part_by_masks(labels_a, labels_b) if len(a) == 2 else None
    if part is not None:
        raise BadInput(
            f"{expected}. {part.cropped} shows a part of {part.whole}, about {part.place}. "
            f"`{command}` compares what both show, cell by cell"
        )
    scaled = at_one_size(labels_a, labels_b)
    if scaled is not None:
        result = compare_masks(*scaled.masks)
        if scaled.is_of_one_image(result):
            raise BadInput(
                f"{expected}. {scaled.text(result)}. `{command}` compares the two at one size, "
                "cell by cell"
            )
    reasons = [f"B is A {turn}: turn it back" for turn in turns_between(labels_a > 0, labels_b > 0)]
    if _fits_into(a, b) or _fits_into(b, a):
        reasons.append(
            "one is a crop of the other that was segmented by itself, with hardly a cell in "
            f"common: `{command} --image IMAGE --model MODEL`, with the whole image and the "
            "network, finds where it lies"
        )
    reasons.append("two different images: give the two masks of one image")
    times = times_text("A", a, "B", b)
    if times and labels_a.any() and labels_b.any():
        reasons.append(
            f"one image at two sizes, as {times}, of which hardly a cell agrees: bring both images "
            "to one size, or scale the setting diameter with the image, and segment again"
        )
    if not times:
        reasons.append(
            "a part of an image that was enlarged or reduced, too, which is not looked for: bring "
            "its masks to the pixel size of the whole first"
        )
    raise BadInput("\n  - ".join([f"{expected}. Reasons may be", *reasons]))


def _fits_into(part: Sequence[int], whole: Sequence[int]) -> bool:
    return all(n <= n_of_whole for n, n_of_whole in zip(part, whole, strict=True))


def _empty_notes(by_image: Mapping[str, MaskComparison]) -> Iterator[str]:
    """Say of the side that has no cell in an image in which the other has some."""
    empty_in_a = [name for name, each in by_image.items() if not each.n_objects_a]
    empty_in_b = [name for name, each in by_image.items() if not each.n_objects_b]
    for side, empty, others in (("A", empty_in_a, empty_in_b), ("B", empty_in_b, empty_in_a)):
        names = [name for name in empty if name not in others]
        if names:
            yield of_images(names, len(by_image)) + no_cell_note(side)


def stitching_notes(masks: Mapping[str, MaskComparison]) -> Iterator[str]:
    """Say of stacks between which planes cells of one side are cut on the other."""
    for name, result in masks.items():
        stitching = stitching_text(cut_cells(result))
        if stitching:
            yield of_images([name], len(masks)) + stitching


def masks_differ(verdict: Verdict) -> bool:
    """Whether a verdict over masks means a difference, be it in the numbers of objects alone."""
    return verdict not in (Verdict.IDENTICAL, Verdict.VACUOUS)
