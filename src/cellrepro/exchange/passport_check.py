"""A passport held to the repeat that it is of: does it say what is there?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from cellrepro.comparison.labels import canonical
from cellrepro.digests.digests import array_digest
from cellrepro.errors import BadInput
from cellrepro.exchange.archive.file_checks import check_masks
from cellrepro.exchange.passport import RESULT, Passport
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.problem import Problem
from cellrepro.images.decoding import decode_labels, read_bytes
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.stored_run import Repeat
from cellrepro.words import short_digest, some

_ASK = "ask its sender for the passport and the run as they were exported together"
_MASKS_OF = "masks of "
_IMAGE = "image "
_NOT_NAMED = "nothing of this name"
_MOST_SAID = 10
"""Contradictions that are told one by one."""


def contradictions(passport: Passport, repeat: Repeat, *, where: str) -> Iterator[Problem]:
    """Say in what a passport and a repeat do not fit."""
    try:
        expected = passport_of(repeat)
    except BadInput as error:
        yield Problem("damaged", str(error), where, _ASK)
        return
    says = _said_by(passport)
    expects = _said_by(expected)
    for group, named in ((_MASKS_OF, passport.masks), (_IMAGE, passport.images)):
        if not named:  # too many to name each
            expects = {name: one for name, one in expects.items() if not name.startswith(group)}
    wrong = [name for name in {**expects, **says} if says.get(name) != expects.get(name)]
    if not wrong:  # all that is read is right; then what only people and other programs read
        says = dict(_leaves(passport.attestation.statement.predicate))
        expects = dict(_leaves(expected.attestation.statement.predicate))
        is_renamed = len(says) == len(expects)
        wrong = [
            name
            for name in expects
            if (name in says or is_renamed) and says.get(name) != expects[name]
        ]
    for name in wrong[:_MOST_SAID]:
        said = _in_words(says.get(name))
        expected_value = _in_words(expects.get(name))
        what = f"of {name} the passport says {said}, and the run has {expected_value}"
        yield Problem("contradiction", what, where, _ASK)
    if len(wrong) > _MOST_SAID:
        what = f"{len(wrong) - _MOST_SAID} more things differ: {some(wrong[_MOST_SAID:])}"
        yield Problem("contradiction", what, where, _ASK)


def _said_by(passport: Passport) -> Mapping[str, object]:
    """What a passport says that follows from the repeat alone, by name."""
    together = passport.all_masks
    return {
        "weights": passport.weights,
        "starting weights": passport.starting_weights,
        **{f"file {name}": digest for name, digest in passport.files.items()},
        **{f"{_MASKS_OF}{image}": digests for image, digests in passport.masks.items()},
        "all masks": together,
        **{f"{_IMAGE}{name}": digest for name, digest in passport.images.items()},
        **{f"version of {name}": version for name, version in passport.packages.items()},
        **{name: value for name, value in passport.environment.items() if name != "versions"},
        "vacuity": passport.vacuous,
        "start": passport.started,
    }


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, object]]:
    """Each value in a document, by its place; without the verdict over all repeats.

    Later versions may say more, or less, so that only what both say can be compared.
    """
    if isinstance(value, dict):
        if value.get("name") == RESULT:
            return
        for name, one in value.items():
            yield from _leaves(one, f"{place}.{name}" if place else name)
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            name = one.get("name", index) if isinstance(one, dict) else index
            yield from _leaves(one, f"{place}.{name}")
    else:
        yield place, value


def _in_words(value: object) -> str:
    if value is None:
        return _NOT_NAMED
    text = short_digest(str(value))
    return text if len(text) <= 80 else f"{text[:79]}…"


def wrong_masks(repeat: Repeat, *, where: str) -> Iterator[Problem]:
    """Decode every mask of a repeat, and say which are not the ones of its manifest."""
    for image, record in repeat.manifest.masks.items():
        path = repeat.folder / record.file
        if not path.exists():
            continue
        try:
            check_masks(path, record)
            _check_outlines(path, record)
        except BadInput as error:
            said = str(error).replace(f"{repeat.folder}/", "")
            what = f"the masks of {image} are not those of which the manifest speaks: {said}"
            yield Problem("contradiction", what, f"{where}/{record.file}", _ASK)


def _check_outlines(path: Path, record: MaskRecord) -> None:
    labels = decode_labels(path, read_bytes(path)).pixels
    outlines = canonical(labels)
    candidates = [outlines, outlines[np.newaxis]] if outlines.ndim == 2 else [outlines]
    if record.canonical_digest not in [array_digest(array) for array in candidates]:
        raise BadInput(f"{path}: the digest of its outlines is a different one in the manifest")
    n_objects = int(outlines.max(initial=0))
    if n_objects != record.n_objects:
        raise BadInput(f"{path}: {n_objects} objects, and {record.n_objects} in the manifest")
