"""Whatever a user names, compared: mask files, folders of masks, baselines, weights, runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from cellrepro.comparison.mask_totals import image_weight, verdict_over
from cellrepro.comparison.verdicts import Verdict
from cellrepro.explanation.cellpose_call import IMAGE
from cellrepro.explanation.cut_evidence import cut_evidence
from cellrepro.explanation.files_at_hand import image_at_hand, network_at_hand
from cellrepro.explanation.folder_cause import why_of_folders
from cellrepro.explanation.hand_edits import EditedSide, EffectOfHand, effect_of_hand
from cellrepro.explanation.mask_file_record import RecordedMasks, recorded_masks
from cellrepro.explanation.mask_files import (
    MASK_ENDINGS,
    MaskReaders,
    newer_seg_notes,
    paired,
    readers,
)
from cellrepro.explanation.recorded_cause import FileEvidence, why_from_files
from cellrepro.explanation.recorded_settings import STORED_NETWORK, RecordedSettings
from cellrepro.explanation.references import (
    file_or_run,
    kind_in_words,
    masks_of,
    reference_kind,
)
from cellrepro.explanation.settings_of_both import SettingOfBoth, recorded_side_by_side
from cellrepro.explanation.two_results import (
    ComparedMasks,
    Comparison,
    compare_by_image,
    masks_differ,
    stitching_notes,
)
from cellrepro.explanation.why import Why
from cellrepro.images.folder_files import images_by_name, is_folder_of_images
from cellrepro.images.image_file import read_image, read_labels
from cellrepro.images.image_names import image_name
from cellrepro.images.outline_files import is_outline_file
from cellrepro.spec import defaults
from cellrepro.spec.lab_command import lab_command
from samebits.errors import BadInput

if TYPE_CHECKING:
    from cellrepro.store.store import Store


def compare(
    a: str | Path,
    b: str | Path,
    *,
    pairs: str | None = None,
    image: str | Path | None = None,
    store: str | Path = defaults.STORE,
) -> Comparison:
    """Compare two files, folders or runs that both have masks, or both have weights.

    ``pairs`` says which files of two folders belong together. ``image`` has the size of outlines,
    and is the one that the command names which finds out why the two differ.
    """
    path_a = file_or_run(a, name="a")
    path_b = file_or_run(b, name="b")
    kinds = {reference_kind(path_a), reference_kind(path_b)}
    if pairs is not None and kinds != {"folder"}:
        raise BadInput(
            f"pairs is {pairs!r}, which says what of two folders belongs together; {a} and {b} are "
            f"{kind_in_words(path_a)} and {kind_in_words(path_b)}: leave it out"
        )
    if kinds == {"masks"}:  # two files need NumPy alone, and wait for no library of a store
        return _compare_two_files(path_a, path_b, image=image, store=store)
    from cellrepro.store.store import Store

    opened_store = Store(store)
    if kinds == {"run"}:
        from cellrepro.explanation.compare_repeats import compare_repeats

        return compare_repeats(*opened_store.find_two(str(a), str(b)), store=opened_store)
    if kinds == {"folder"}:
        return _compare_folders(path_a, path_b, pairs=pairs, image=image, store=store)
    if "weights" not in kinds:
        masks_a, masks_b = masks_of_both(a, b, opened_store)
        return _compare_mask_files(masks_a, masks_b, names=(str(a), str(b)))[1]
    if kinds <= {"weights", "run"}:
        from cellrepro.explanation.compare_weights import compare_weights_files

        return compare_weights_files(_weights_of(a, opened_store), _weights_of(b, opened_store))
    raise _not_comparable(path_a, path_b)


def masks_of_both(
    a: str | Path, b: str | Path, store: Store, *, pairs: str | None = None
) -> tuple[MaskReaders, MaskReaders]:
    """Find the masks of two sides, with the same names for the same images."""
    if reference_kind(Path(a)) == reference_kind(Path(b)) == "folder":
        files_a, files_b = paired(Path(a), Path(b), pairs)
        return readers(files_a), readers(files_b)
    masks_a = masks_of(str(a), store)
    masks_b = masks_of(str(b), store)
    if len(masks_a) == len(masks_b) == 1:  # whatever they are called
        masks_b = dict(zip(masks_a, masks_b.values(), strict=True))
    return masks_a, masks_b


def shape_for_outlines(
    a: str | Path, b: str | Path, image: str | Path | None
) -> tuple[int, ...] | None:
    """The size of an image, where two files hold outlines, which have none."""
    if image is None or not (is_outline_file(Path(a)) and is_outline_file(Path(b))):
        return None
    return read_image(image).shape[:2]


def _with_any_record(file: Path) -> RecordedMasks:
    """Read masks and record; a damaged record becomes a remark, as masks need none."""
    try:
        return recorded_masks(file)
    except BadInput as error:
        remark = f"what is recorded of it is not used: {error}"
        return RecordedMasks(read_labels(file), RecordedSettings(remarks=(remark,)))


def _compare_two_files(
    a: Path, b: Path, *, image: str | Path | None, store: str | Path
) -> Comparison:
    """Compare two mask files, and what is recorded of how they were made."""
    files = _FilePair.read(a, b)
    name = image_name(a.stem)
    compared, comparison = _compare_mask_files(
        {name: files.a.reader},
        {name: files.b.reader},
        names=(str(a), str(b)),
        shape=shape_for_outlines(a, b, image),
    )
    cuts = cut_evidence(
        files.a.masks, files.b.masks, compared.by_image[name], files=(str(a), str(b))
    )
    evidence = replace(files.evidence(compared, name), cuts=cuts)
    is_stack = len(compared.by_image[name].shape) > 2
    command = "" if is_stack else _command_with_network(a, b, image, evidence.settings, store)
    why = why_from_files(evidence, find_out=command)
    remarks = [
        f"{letter}: {remark}"
        for letter, file in (("A", files.a), ("B", files.b))
        for remark in file.record.remarks
    ]
    return replace(
        comparison,
        settings=evidence.settings,
        notes=(*comparison.notes, *evidence.by_hand.notes, *remarks),
        why=_of_stacks(why) if is_stack else why,
    )


@dataclass(frozen=True, eq=False)
class _FilePair:
    """Two mask files of one image with what is recorded of each."""

    a: RecordedMasks
    b: RecordedMasks

    @classmethod
    def read(cls, a: Path, b: Path) -> _FilePair:
        read_a = _with_any_record(a)
        read_b = _with_any_record(b)
        return cls(read_a.drawn_like(read_b), read_b.drawn_like(read_a))

    def evidence(self, compared: ComparedMasks, name: str) -> FileEvidence:
        """Put what their masks show beside what is recorded of them."""
        return replace(
            _shown_by_masks(compared, name),
            settings=recorded_side_by_side(self.a.record.plain, self.b.record.plain),
            generations=(self.a.record.generation, self.b.record.generation),
            by_hand=_effect_of_edits(self.a, self.b),
            n_edits=(len(self.a.edits), len(self.b.edits)),
        )


def _shown_by_masks(compared: ComparedMasks, name: str) -> FileEvidence:
    return FileEvidence.of_masks(
        compared.by_image[name],
        number_rule=compared.number_rules.get(name, ""),
        systematic=compared.systematic.get(name),
        unrelated=compared.unrelated.get(name, ""),
    )


def _of_stacks(why: Why | None) -> Why | None:
    """Say of stacks why no command finds the cause, where nothing tells."""
    if why is None or why.cause is not None:
        return why
    return replace(why, remains=(_STACKS,))


_STACKS = (
    "a stack is not segmented again: compare the settings with which both were made, or save one "
    "plane of the image and of both masks as files, and compare these with a network"
)


def _compare_folders(
    a: Path, b: Path, *, pairs: str | None, image: str | Path | None, store: str | Path
) -> Comparison:
    """Compare the masks of two folders, and what is recorded of those that differ."""
    files_a, files_b = paired(a, b, pairs)
    compared, comparison = _compare_mask_files(
        readers(files_a), readers(files_b), names=(str(a), str(b))
    )
    newer = [
        f"{side}: {note}"
        for side, folder in (("A", a), ("B", b))
        if pairs is None
        for note in newer_seg_notes(folder)
    ]
    images: Mapping[str, str | Path] = {}
    if image is not None:
        is_folder = is_folder_of_images(image)
        images = images_by_name(Path(image)) if is_folder else {image_name(Path(image).stem): image}
    evidence: dict[str, FileEvidence] = {}
    commands: dict[str, str] = {}
    has_stacks = False
    most_first = sorted(compared.by_image.items(), key=lambda item: -image_weight(item[1]))
    for name, result in most_first:
        evidence[name] = _shown_by_masks(compared, name)
        if not evidence[name].differs:
            continue
        pair = _FilePair.read(files_a[name], files_b[name])
        evidence[name] = pair.evidence(compared, name)
        if len(result.shape) > 2:
            has_stacks = True
        else:
            files = files_a[name], files_b[name], images.get(name)
            commands[name] = _command_with_network(*files, evidence[name].settings, store)
    if image is not None:  # a file that was given is shown, and can be segmented again
        commands = dict(sorted(commands.items(), key=lambda item: item[0] not in images))
    why = why_of_folders(evidence, find_out=commands)
    return replace(
        comparison,
        notes=(*comparison.notes, *newer),
        why=_of_stacks(why) if has_stacks else why,
    )


def _effect_of_edits(a: RecordedMasks, b: RecordedMasks) -> EffectOfHand:
    """Find the cells that only one of two files has since they were drawn or removed by hand."""
    return effect_of_hand(EditedSide("A", a.masks, a.edits), EditedSide("B", b.masks, b.edits))


def _command_with_network(
    a: Path,
    b: Path,
    image: str | Path | None,
    settings: Sequence[SettingOfBoth],
    store: str | Path,
) -> str:
    """Write the command line that finds the cause of a difference with a network."""
    network = network_at_hand(settings, store)
    image = image or image_at_hand(settings, (a, b))
    return _compare_command(a, b, image, model=network, store=store)


def _compare_command(a: Path, b: Path, image: str | Path, *, model: str, store: str | Path) -> str:
    """Write the command; it names the store where it has the network."""
    of_network = store if STORED_NETWORK.fullmatch(model) else None
    return lab_command("compare", a, b, "--image", image, "--model", model, store=of_network)


def command_for_one_image(
    a: str | Path,
    b: str | Path,
    *,
    image: str | Path | None,
    model: str,
    pairs: str | None,
    store: str | Path,
) -> str:
    """Write the command that segments one image of two folders again; empty for anything else."""
    folders = Path(a), Path(b)
    if {reference_kind(folder) for folder in folders} != {"folder"}:
        return ""
    files_a, files_b = paired(*folders, pairs)
    of_both = [name for name in files_a if name in files_b]
    images = {} if image is None else images_by_name(Path(image))
    name = next((name for name in of_both if name in images), next(iter(of_both), None))
    if name is None:
        return ""
    return _compare_command(
        files_a[name], files_b[name], images.get(name, IMAGE), model=model, store=store
    )


def _compare_mask_files(
    a: MaskReaders, b: MaskReaders, *, names: tuple[str, str], shape: tuple[int, ...] | None = None
) -> tuple[ComparedMasks, Comparison]:
    compared = compare_by_image(a, b, names=names, shape=shape)
    masks = compared.by_image
    verdict = verdict_over(masks.values()) if a.keys() == b.keys() else Verdict.DIFFERENT
    comparison = Comparison(
        verdict=verdict,
        differs=("masks",) if masks_differ(verdict) else (),
        masks=masks,
        notes=(*compared.notes, *stitching_notes(masks)),
        systematic=compared.systematic,
    )
    return compared, comparison


def _weights_of(reference: str | Path, store: Store) -> Path:
    path = Path(reference)
    if reference_kind(path) == "weights":
        return path
    repeat = store.find(str(reference))
    if repeat.weights is None:
        raise BadInput(f"run {repeat.name} only segmented; it holds no weights to compare")
    return repeat.weights


def _not_comparable(a: Path, b: Path) -> BadInput:
    return BadInput(
        f"{a} and {b} are not of one kind: {kind_in_words(a)} and {kind_in_words(b)}; expected two "
        f"mask files ({', '.join(MASK_ENDINGS)}, ROIs, outlines, GeoJSON), folders of masks, "
        "baselines, KEY/REPEAT of the store, or weights files"
    )
