"""Whether a passport agrees with the files of the repeat that it is of."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from cellrepro.exchange.passport import RESULT, Passport
from cellrepro.exchange.passport_making import passport_of
from cellrepro.exchange.problem import ASK_THE_SENDER, Problem
from cellrepro.store.stored_run import Repeat
from cellrepro.words import cut, short_digest, that_differ
from samebits.errors import BadInput
from samebits.words import some

_NOT_NAMED = "nothing of this name"
_MOST_REPORTED = 10
"""Limit of the contradictions that are reported one by one."""


def contradictions(passport: Passport, repeat: Repeat, *, where: str) -> Iterator[Problem]:
    """A problem for each fact in which a passport and its repeat disagree."""
    try:
        expected = passport_of(repeat)
    except BadInput as error:
        yield Problem("damaged", str(error), where, ASK_THE_SENDER)
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
        yield Problem("contradiction", what, where, ASK_THE_SENDER)
    if len(wrong) > _MOST_REPORTED:
        others = wrong[_MOST_REPORTED:]
        what = f"{that_differ(len(others), 'more thing')}: {some(others)}"
        yield Problem("contradiction", what, where, ASK_THE_SENDER)


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
