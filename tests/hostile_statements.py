"""Passports and runs that say what they should not, in a form that is right.

Each function takes a good bundle of two unsigned passports, or the folder of a repeat.
"""

import base64
import json

import hostile_zips as zips

IN_TOTO = "application/vnd.in-toto+json"


def raw(content):
    """Any bytes instead."""
    return lambda _: content


def first_line(change):
    """The first passport, changed as a JSON document."""

    def make(good):
        line, *rest = good.splitlines()
        document = json.loads(line)
        changed = change(document) or document
        return b"\n".join([json.dumps(changed).encode(), *rest]) + b"\n"

    return make


def text_of(old, new):
    """The same text with one thing replaced, so that JSON may become none."""

    def make(good):
        assert old in good, good[:3000]
        return good.replace(old, new, 1)

    return make


def enveloped(**changes):
    """The first passport in an envelope of DSSE that lies."""

    def make(good):
        line = good.splitlines()[0]
        envelope = {
            "payload": base64.b64encode(line).decode(),
            "payloadType": IN_TOTO,
            "signatures": [
                {"keyid": "SHA256:" + "A" * 43, "sig": base64.b64encode(bytes(64)).decode()}
            ],
        }
        return json.dumps({**envelope, **changes}).encode() + b"\n"

    return make


def renamed(document, name):
    """The run's name, wherever it stands as a whole."""
    document["predicate"]["runDetails"]["metadata"]["invocationId"] = name


def with_subject(**changes):
    """The first subject with other fields."""
    return first_line(lambda document: document["subject"][0].update(changes))


def twice_the_first_subject(document):
    """Two subjects of one name."""
    document["subject"].append(document["subject"][0])


BUNDLES = {
    "no bytes": (raw(b""), "no passport and no receipt"),
    "line feeds": (raw(b"\n" * 5000), "no passport and no receipt"),
    "text": (raw(b"hello\n"), "no JSON"),
    "a cursor": (raw(b"\x1b[2J\n"), "no JSON"),
    "a byte order mark": (lambda good: b"\xef\xbb\xbf" + good, "no JSON"),
    "UTF-16": (lambda good: good.decode().encode("utf-16"), "no UTF-8"),
    "no UTF-8": (raw(b'{"a": "\xff"}\n'), "no UTF-8"),
    "a NUL": (text_of(b'"_type"', b'"\0_type"'), "no JSON"),
    "a hundred thousand lines": (raw(b"{}\n" * 100_000), "lines"),
    "a line of 70 MB": (raw(b'"' + b"a" * 70 * 2**20 + b'"\n'), "larger than|bytes of JSON"),
    "a line of 9 MB": (raw(b'{"a":"' + b"a" * 9 * 2**20 + b'"}\n'), "bytes of JSON"),
    "deep": (raw(b"[" * 100_000 + b"]" * 100_000 + b"\n"), "inside each other"),
    "deep objects": (raw(b'{"a":' * 50_000 + b"1" + b"}" * 50_000 + b"\n"), "inside each other"),
    "a key twice": (text_of(b'{"_type"', b'{"_type":"x","_type"'), "twice"),
    "NaN": (text_of(b'"predicateType"', b'"a":NaN,"predicateType"'), "NaN"),
    "Infinity": (text_of(b'"predicateType"', b'"a":-Infinity,"predicateType"'), "Infinity"),
    "1e999": (text_of(b'"predicateType"', b'"a":1e999,"predicateType"'), "larger than any"),
    "10^5 digits": (
        text_of(b'"predicateType"', b'"a":' + b"9" * 10**5 + b',"predicateType"'),
        "64 bits",
    ),
    "2**64": (text_of(b'"predicateType"', b'"a":18446744073709551616,"predicateType"'), "64 bits"),
    "half a surrogate": (
        text_of(b'"predicateType"', b'"a":"\\ud800","predicateType"'),
        "surrogate",
    ),
    "a key of half a surrogate": (
        text_of(b'"predicateType"', b'"\\udfff":1,"predicateType"'),
        "surrogate",
    ),
    "a list": (raw(b"[]\n"), "no passport and no receipt"),
    "another statement": (
        first_line(lambda d: d.update(predicateType="https://example.org/x")),
        None,
    ),
    "a later kind of run": (
        first_line(
            lambda d: d["predicate"]["buildDefinition"].update(
                buildType="urn:cellrepro:buildtype:x:v9"
            )
        ),
        None,
    ),
    "no predicate": (text_of(b'"buildDefinition"', b'"x"'), None),
    "subjects of text": (first_line(lambda d: d.update(subject="all")), "no in-toto Statement"),
    "a million subjects": (
        first_line(
            lambda d: d.update(subject=[{"name": "a", "digest": {"sha256": "0"}}] * 100_000)
        ),
        "bytes of JSON",
    ),
    "two subjects of one name": (first_line(twice_the_first_subject), "no passport that"),
    "no digits": (with_subject(digest={"sha256": "x" * 64}), "no passport that"),
    "a name that climbs": (
        first_line(lambda d: renamed(d, "../../../../etc/passwd/0")),
        "KEY/MACHINE/REPEAT|no passport that",
    ),
    "a machine that climbs": (
        lambda good: first_line(lambda d: renamed(d, "0123456789abcdef/../0"))(good),
        "no passport that",
    ),
    "a name with a cursor": (
        first_line(lambda d: renamed(d, "\x1b[2J/\x1b]0;x\x07/0")),
        "no passport that|takes for commands",
    ),
    "another key": (
        first_line(lambda d: renamed(d, "0123456789abcdef/laptop-00000000/0")),
        "no passport that",
    ),
    "a spec that is none": (
        first_line(
            lambda d: d["predicate"]["buildDefinition"].update(externalParameters={"\x1b[2J": 1})
        ),
        "no passport that|takes for commands",
    ),
    "a spec of another type": (
        first_line(lambda d: d["predicate"]["buildDefinition"].update(externalParameters=[1])),
        "no passport that",
    ),
    "a verdict that is none": (
        text_of(b'"verdict":"identical"', b'"verdict":"<script>"'),
        "no passport that",
    ),
    "an envelope of nothing": (enveloped(payload=""), "no JSON"),
    "an envelope that is no base64": (enveloped(payload="\x1b[2J!"), "base64"),
    "an envelope of numbers": (enveloped(payload=3), "no text"),
    "an envelope in an envelope": (
        lambda good: enveloped(payload=base64.b64encode(enveloped()(good)).decode())(good),
        "no in-toto Statement",
    ),
    "another kind of payload": (enveloped(payloadType="text/html"), "no passport and no receipt"),
    "a hundred signatures": (enveloped(signatures=[{"sig": ""}] * 100), "signatures is no list"),
    "signatures of text": (enveloped(signatures="yes"), "signatures is no list"),
    "a signature that is none": (enveloped(signatures=[3]), "no JSON object"),
    "a deep payload": (
        enveloped(payload=base64.b64encode(b"[" * 10**5).decode()),
        "inside each other|no JSON",
    ),
}


# -- contents of an exported file ------------------------------------------------------------------


def replaced(ending, content):
    """The content of the first file with this ending, all digests of the archive put right."""

    def make(whole):
        contents = zips.contents_of(whole)
        name = next(name for name in contents if name.endswith(ending))
        contents[name] = content(contents[name]) if callable(content) else content
        return zips.packed(contents)

    return make


def edited(old, new):
    """A change of text."""

    def change(content):
        assert old in content
        return content.replace(old, new, 1)

    return change


CONTENTS = {
    "a deep spec": (replaced("spec.json", b"[" * 10**5), "inside each other|no JSON"),
    "a large spec": (replaced("spec.json", b" " * (2**24 + 1)), "more than 16777216"),
    "a spec of 10^5 digits": (
        replaced("spec.json", edited(b'"seed": 0', b'"seed": ' + b"9" * 10**5)),
        "64 bits",
    ),
    "half a surrogate in a spec": (
        replaced("spec.json", edited(b'"data": "', b'"data": "\\ud800')),
        "surrogate",
    ),
    "a byte order mark": (replaced("spec.json", lambda text: b"\xef\xbb\xbf" + text), "no JSON"),
    "a spec of another run": (
        replaced("spec.json", edited(b'"data": "', b'"data": "\\u001b[2J')),
        "is the spec of run|key",
    ),
    "a manifest of NaN": (replaced("/0/manifest.json", b'{"repeat": NaN}'), "NaN"),
    "a manifest that is a list": (replaced("/0/manifest.json", b"[1]"), "none that this version"),
    "a manifest with a cursor": (
        replaced("/0/manifest.json", b'{"\\u001b[2J": 1}'),
        "none that this version",
    ),
    "masks of other bytes": (replaced("/0/masks/img_a.tif", b"II*\0"), "not the file"),
    "a seal with a cursor": (replaced("/0/SHA256SUMS", b"\x1b[2J\n"), "cannot be read"),
    "a seal that climbs": (
        replaced("/0/SHA256SUMS", b"0" * 64 + b"  ../../../outside\n"),
        "cannot be read",
    ),
    "a seal of images that climbs": (
        replaced("data/dddddddddddddddd/SHA256SUMS", b"0" * 64 + b"  /etc/passwd\n"),
        "cannot be read",
    ),
    "a crate that is deep": (replaced("ro-crate-metadata.json", b"[" * 10**5), "inside|no JSON"),
    "a crate that loads a context": (
        replaced("ro-crate-metadata.json", b'{"@context": "file:///etc/passwd"}'),
        "no RO-Crate",
    ),
    "passports of others": (replaced("passports.intoto.jsonl", b"{}\n"), "no passport"),
}


# -- what a repeat holds, its seals made anew ------------------------------------------------------


def _notebook(**changes):
    document = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [], **changes}
    return json.dumps(document).encode()


FILES_OF_REPEATS = {
    "a notebook that is none": ("notebook.ipynb", b"import os", "no JSON"),
    "a notebook of format 3": ("notebook.ipynb", _notebook(nbformat=3), "format 4"),
    "a notebook with a cell that is none": (
        "notebook.ipynb",
        _notebook(cells=[3]),
        "cells are none",
    ),
    "a deep notebook": ("notebook.ipynb", b"[" * 10**5, "inside each other|no JSON"),
    "a notebook with a key twice": ("notebook.ipynb", b'{"cells": [], "cells": [3]}', "twice"),
    "a ledger that is none": ("ledger.parquet", b"PAR1" + bytes(99) + b"PAR1", "no ledger"),
}
