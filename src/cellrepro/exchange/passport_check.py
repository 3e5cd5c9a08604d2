"""Whether a passport agrees with the files of its repeat, and the masks with its manifest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from cellrepro.comparison.label_numbers import canonical
from cellrepro.errors import BadInput
from cellrepro.exchange.archive.file_checks import check_masks, possible_digests
from cellrepro.exchange.passport import RESULT, Passport
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.problem import Problem
from cellrepro.exchange.strict_json import cut
from cellrepro.images.decoding import decode_labels, read_bytes
from cellrepro.store.manifest import MaskRecord
from cellrepro.store.stored_run import Repeat
from cellrepro.words import short_digest, some

_ASK = "ask its sender for the passport and the run as they were exported together"
_NOT_NAMED = "nothing of this name"
_MOST_REPORTED = 10
"""Limit of the contradictions that are reported one by one."""


def contradictions(passport: Passport, repeat: Repeat, *, where: str) -> Iterator[Problem]:
    """A problem for each fact in which a passport and its repeat disagree."""
    try:
        expected = passport_of(repeat)
    except BadInput as error:
        yield Problem("damaged", str(error), where, _ASK)
        return
    claims = _facts(passport)
    # A passport of too many images names none of them.
    facts = _facts(expected, with_masks=bool(passport.masks), with_images=bool(passport.images))
    wrong = [name for name in {**facts, **claims} if claims.get(name) != facts.get(name)]
    if not wrong:  # then compare what only people and other programs read
        claims = dict(_leaves(passport.attestation.statement.predicate))
        facts = dict(_leaves(expected.attestation.statement.predicate))
        is_renamed = len(claims) == len(facts)
        wrong = [
            name
            for name in facts
            if (name in claims or is_renamed) and claims.get(name) != facts[name]
        ]
    for name in wrong[:_MOST_REPORTED]:
        claim = _in_words(claims.get(name))
        fact = _in_words(facts.get(name))
        what = f"of {name} the passport says {claim}, and the run has {fact}"
        yield Problem("contradiction", what, where, _ASK)
    if len(wrong) > _MOST_REPORTED:
        what = f"{len(wrong) - _MOST_REPORTED} more things differ: {some(wrong[_MOST_REPORTED:])}"
        yield Problem("contradiction", what, where, _ASK)


def _facts(
    passport: Passport, *, with_masks: bool = True, with_images: bool = True
) -> Mapping[str, object]:
    """What a passport says that follows from the repeat alone, by name."""
    masks = passport.masks if with_masks else {}
    images = passport.images if with_images else {}
    return {
        "weights": passport.weights,
        "starting weights": passport.starting_weights,
        **{f"file {name}": digest for name, digest in passport.files.items()},
        **{f"masks of {image}": digests for image, digests in masks.items()},
        "all masks": passport.all_masks,
        **{f"image {name}": digest for name, digest in images.items()},
        **{f"version of {name}": version for name, version in passport.packages.items()},
        **{name: value for name, value in passport.environment.items() if name != "versions"},
        "vacuity": passport.vacuous,
        "start": passport.started,
    }


def _leaves(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Each value in a document by its path, except the verdict, which depends on other repeats.

    Other versions may write more fields or fewer, so only common ones can be compared.
    """
    if isinstance(value, dict):
        if value.get("name") == RESULT:
            return
        for name, one in value.items():
            yield from _leaves(one, f"{path}.{name}" if path else name)
    elif isinstance(value, list | tuple):
        for index, one in enumerate(value):
            name = one.get("name", index) if isinstance(one, dict) else index
            yield from _leaves(one, f"{path}.{name}")
    else:
        yield path, value


def _in_words(value: object) -> str:
    if value is None:
        return _NOT_NAMED
    return cut(short_digest(str(value)), 80)


def wrong_masks(repeat: Repeat, *, where: str) -> Iterator[Problem]:
    """Decode every mask of a repeat; a problem for each that is not the one of its manifest."""
    for image, record in repeat.manifest.masks.items():
        path = repeat.folder / record.file
        if not path.exists():
            continue
        try:
            check_masks(path, record)
            _check_outlines(path, record)
        except BadInput as error:
            why = str(error).replace(f"{repeat.folder}/", "")
            what = f"the masks of {image} are not those of which the manifest speaks: {why}"
            yield Problem("contradiction", what, f"{where}/{record.file}", _ASK)


def _check_outlines(path: Path, record: MaskRecord) -> None:
    outlines = canonical(decode_labels(path, read_bytes(path)).pixels)
    if record.canonical_digest not in possible_digests(outlines):
        raise BadInput(f"{path}: the digest of its outlines is a different one in the manifest")
    n_objects = int(outlines.max(initial=0))
    if n_objects != record.n_objects:
        raise BadInput(f"{path}: {n_objects} objects, and {record.n_objects} in the manifest")
