"""Single files, as an attacker would write them, by the door at which a user brings them in.

Each table gives, by a name, what makes the bytes (of the place where a canary would appear) and
what the message has to say.
"""

import io
import json
import math
import os
import pickle
import struct
import zipfile

from hostile_images import (
    baseline,
    deflated,
    npy,
    npy_of_objects,
    png,
    seg,
    tiff,
)


class Canary:
    """Executes something when it is unpickled: a folder appears."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def fixed(content):
    """The same bytes, whatever the canary."""
    return lambda _: content


def nested(n):
    """Lists in lists, as JSON."""
    return b"[" * n + b"]" * n


# -- masks -----------------------------------------------------------------------------------------

_MILLION = 2**20

MASKS = {
    "a.tif of a terabyte": (fixed(tiff(2**20, 2**20, data=bytes(9))), "promises|should end"),
    "b.tif of 2**64 bytes": (fixed(tiff(2**32 - 1, 2**32 - 1, data=b"x")), "promises|decoded"),
    "c.tif of no pixels": (fixed(tiff(0, 0, data=b"x")), "no pixel"),
    "d.tif that ends before": (fixed(tiff(64, 64, data=b"x" * 9)), "should end|decoded"),
    "e.tif elsewhere": (fixed(tiff(8, 8, data=bytes(64), offset=2**31)), "should end"),
    "g.tif packed": (
        lambda _: tiff(16384, 16384, data=deflated(2**20), compression=8),
        "promises|decoded|damaged",
    ),
    "h.tif with endless tags": (
        fixed(b"II*\0\x08\0\0\0\xff\xff" + bytes(99)),
        "no image|decoded|damaged",
    ),
    "i.tif with a tag of 16 GB": (
        fixed(tiff(8, 8, data=bytes(64), more=[(65000, 4, 2**32 - 1, 8)])),
        "damaged|decoded",
    ),
    "j.tif of 2**16 bits": (fixed(tiff(8, 8, data=bytes(64), bits=65535)), "decoded|damaged"),
    "k.tif of an unknown packing": (
        fixed(tiff(8, 8, data=bytes(64), compression=60000)),
        "decoded|imagecodecs|damaged",
    ),
    "l.tif that is a program": (fixed(b"MZ" + bytes(99)), "expected TIFF"),
    "m.tif with a cursor": (fixed(b"\x1b[2J\x1b]0;pwned\x07" + bytes(99)), "expected TIFF"),
    "n.png of a terabyte": (fixed(png(2**20, 2**20)), "promises"),
    "o.png of 2**62 bytes": (fixed(png(2**31 - 1, 2**31 - 1, depth=16, colour=6)), "promises"),
    "p.png packed": (lambda _: png(60000, 60000, data=deflated(2**22)), "promises|decoded"),
    "q.png cut": (fixed(png(8, 8)[:30]), "decoded"),
    "r.png without an end": (fixed(png(4000, 4000)[:-40]), "decoded"),
    "t.npy that executes": (lambda canary: npy_of_objects(Canary(canary)), "no array of numbers"),
    "u.npy of a terabyte": (fixed(npy("(1048576, 524288)")), "no array of numbers"),
    "v.npy of 2**200 bytes": (fixed(npy(f"({2**100}, {2**100})")), "no array of numbers"),
    "w.npy of less than nothing": (fixed(npy("(-4, -4)", data=bytes(32))), "no array|shape"),
    "x.npy with a program": (
        lambda canary: npy("", header=f"__import__('os').mkdir({str(canary)!r})"),
        "no array of numbers",
    ),
    "y.npy with a deep header": (fixed(npy("", header="(" * 9999)), "no array of numbers"),
    "z.npy with a header of 2 GB": (
        fixed(b"\x93NUMPY\x02\x00" + struct.pack("<L", 2**31) + b"{"),
        "no array of numbers",
    ),
    "aa.npy of objects in fields": (
        fixed(npy("(1,)", dtype="[('a', '|O')]", data=bytes(8))),
        "no array|shape|type",
    ),
    "ab.npy of text": (fixed(npy("(2, 2)", dtype="<U4", data=bytes(64))), "type|numbers"),
}

# -- _seg.npy --------------------------------------------------------------------------------------


def reducing(module, name, *arguments):
    """A pickle of protocol 0 that calls something."""
    told = b"".join(b"V" + text.encode() + b"\n" for text in arguments)
    return b"c" + f"{module}\n{name}\n".encode() + b"(" + told + b"tR."


def doubled(n):
    """Lists of two, each with the one before twice: 2**n values in 10 n bytes."""
    text = b"\x80\x02]q\x00"
    for i in range(n):
        text += b"]q" + bytes([i + 1]) + b"(h" + bytes([i]) + b"h" + bytes([i]) + b"e"
    return text + b"."


SEGS = {
    "executes": (lambda canary: seg(Canary(canary)), "mkdir"),
    "executes by protocol 0": (
        lambda canary: seg(reducing("os", "mkdir", str(canary))),
        "os.mkdir",
    ),
    "evaluates": (
        lambda canary: seg(
            reducing("builtins", "eval", f"__import__('os').mkdir({str(canary)!r})")
        ),
        "builtins.eval",
    ),
    "imports": (lambda _: seg(reducing("antigravity", "x")), "antigravity"),
    "gets an attribute": (lambda _: seg(reducing("builtins", "getattr", "a")), "getattr"),
    "loads another pickle": (lambda _: seg(reducing("numpy", "load", "/etc/x")), "numpy.load"),
    "NumPy's own code": (
        lambda canary: seg(reducing("numpy.f2py.diagnose", "run_command", f"mkdir {canary}")),
        "run_command",
    ),
    "a cursor as a name": (lambda _: seg(reducing("\x1b[2J", "\x1b]0;x\x07")), r"\\x1b"),
    "laughs": (lambda _: seg(doubled(60)), "no dictionary|more values"),
    "deep": (lambda _: seg(b"\x80\x02" + b"]" * 500_000 + b"a" * 499_999 + b"."), "refused"),
    "text of 4 GB": (lambda _: seg(b"\x80\x02X\xff\xff\xff\xffab."), "refused"),
    "bytes of 16 EiB": (lambda _: seg(b"\x80\x04\x8e" + b"\xff" * 8 + b"ab."), "refused"),
    "a memo of 4 billion": (lambda _: seg(b"\x80\x02]r\xff\xff\xff\x7f."), "refused"),
    "a number of 10^6 digits": (
        lambda _: seg(b"\x80\x02\x8b" + struct.pack("<l", 10**6) + b"\xff" * 10**6 + b"."),
        "refused",
    ),
    "no dictionary": (lambda _: seg([1, 2]), "no dictionary"),
    "without masks": (lambda _: seg({"flows": []}), "no dictionary with an array"),
    "masks of text": (lambda _: seg({"masks": "all of them"}), "no dictionary with an array"),
    "a persistent identity": (lambda _: seg(b"\x80\x02X\x01\x00\x00\x00aQ."), "refused"),
    "cut": (lambda _: seg(pickle.dumps({"masks": 1})[:-2]), "refused"),
    "no array": (fixed(b"hello"), "refused"),
    "an array of 2**60": (fixed(npy("(1152921504606846976,)", dtype="|O")), "refused"),
}

# -- baselines -------------------------------------------------------------------------------------


def record(**changes):
    """What a baseline says of one image, and what it should not."""
    images = {"img_a": {"digest": "0" * 64, "n_objects": 1}}
    return json.dumps({"format": 1, "images": images, "limits": {}, **changes})


def flagged(content, offset, value):
    """A zip with other bytes in the headers of its first file and in its directory."""
    changed = bytearray(content)
    for mark, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        struct.pack_into("<H", changed, changed.index(mark) + offset + shift, value)
    return bytes(changed)


BASELINES = {
    "a deep record": (lambda _: baseline(nested(200_000)), "no whole baseline"),
    "a record of 300 MB": (lambda _: baseline(bytes(300 * 2**20)), "no whole baseline"),
    "a list": (lambda _: baseline("[]"), "no whole baseline"),
    "no format": (lambda _: baseline("{}"), "no whole baseline"),
    "a later format": (lambda _: baseline(record(format=99)), "99"),
    "a format with a cursor": (lambda _: baseline(record(format="\x1b[2J")), "format"),
    "images that are none": (lambda _: baseline(record(images=[1])), "no whole baseline"),
    "no digest": (lambda _: baseline(record(images={"img_a": 3})), "no whole baseline"),
    "limits of text": (lambda _: baseline(record(limits="none")), "no whole baseline"),
    "a key twice": (
        lambda _: baseline('{"format": 1, "format": 1, "images": {}, "limits": {}}'),
        "twice",
    ),
    "NaN": (lambda _: baseline(record(limits={"max_ppm": math.nan})), "max_ppm is nan"),
    "10^5 digits": (
        lambda _: baseline('{"format": 1, "images": {}, "limits": ' + "9" * 10**5 + "}"),
        "digits",
    ),
    "no masks": (lambda _: baseline(record()), "no whole baseline"),
    "masks that execute": (
        lambda canary: baseline(record(), [("masks/img_a.npy", npy_of_objects(Canary(canary)))]),
        "no whole baseline",
    ),
    "masks of a terabyte": (
        lambda _: baseline(record(), [("masks/img_a.npy", npy("(1048576, 524288)"))]),
        "no whole baseline",
    ),
    "masks of other labels": (
        lambda _: baseline(record(), [("masks/img_a.npy", npy("(2, 2)", data=bytes(8)))]),
        "no whole baseline",
    ),
    "encrypted": (lambda _: flagged(baseline(record()), 6, 1), "no whole baseline"),
    "an unknown packing": (lambda _: flagged(baseline(record()), 8, 77), "no whole baseline"),
    "cut": (lambda _: baseline(record())[:-30], "no weights|no mask file|no whole"),
    "damaged inside": (
        lambda _: baseline(record() * 99).replace(b"\x00\x00", b"\xff\xff", 3),
        "no weights|no mask file|no whole",
    ),
}

# -- weights ---------------------------------------------------------------------------------------


def safetensors(header, data=b""):
    """A file of safetensors with any header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(*, dtype="F32", shape=(1,), offsets=(0, 4)):
    """What a header says of a tensor."""
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


def torch_zip(content, *, method=zipfile.ZIP_STORED, parts=()):
    """A file as torch.save writes it, around any pickle."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        archive.writestr("weights/data.pkl", content)
        for name, part in parts:
            archive.writestr(name, part)
    return buffer.getvalue()


_OLD = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."

WEIGHTS = {
    "no bytes": (fixed(b""), "no weights|empty"),
    "text": (
        fixed(b"hello, this is a network\n"),
        "no weights|it holds nothing that the lab compares|expected a file with a network",
    ),
    "executes": (lambda c: torch_zip(pickle.dumps({"w": Canary(c)}, 2)), "mkdir"),
    "executes by protocol 0": (
        lambda c: torch_zip(reducing("os", "mkdir", str(c))),
        "no weights",
    ),
    "executes by protocol 4": (lambda c: torch_zip(pickle.dumps({"w": Canary(c)}, 4)), "mkdir"),
    "executes as before 1.6": (
        lambda c: _OLD + pickle.dumps({"w": Canary(c)}, 2),
        "mkdir|no weights",
    ),
    "a network as a class": (
        lambda _: torch_zip(b"\x80\x02ctorch.nn.modules.linear\nLinear\n)\x81."),
        "Linear",
    ),
    "a name with a cursor": (lambda _: torch_zip(b"\x80\x02c\x1b[2J\n\x1b[H\n)R."), "no weights"),
    "laughs": (lambda _: torch_zip(doubled(100)), "no weights"),
    "deep": (
        lambda _: torch_zip(b"\x80\x02" + b"]" * 10**5 + b"a" * (10**5 - 1) + b"."),
        "no weights",
    ),
    "steps without end": (lambda _: torch_zip(b"\x80\x02" + b"N0" * 10**6 + b"N."), "no weights"),
    "compressed": (
        lambda _: torch_zip(bytes(2**28), method=zipfile.ZIP_DEFLATED),
        "compressed",
    ),
    "two pickles": (
        lambda _: torch_zip(b"\x80\x02}.", parts=[("b/data.pkl", b"\x80\x02}.")]),
        "did not write",
    ),
    "cut": (lambda _: torch_zip(b"\x80\x02}.")[:-9], "no weights"),
    "a header of 8 EiB": (fixed(struct.pack("<Q", 2**63 - 1) + b"{}"), "no weights"),
    "a header of 16 EiB": (
        fixed(b"\xff" * 8 + b"{}"),
        "no weights|it holds nothing that the lab compares|expected a file with a network",
    ),
    "a deep header": (fixed(safetensors(nested(100_000))), "no weights"),
    "a header that is a list": (fixed(safetensors(b"[]")), "no weights"),
    "a tensor beyond the end": (
        fixed(safetensors({"w": tensor(shape=[2**20], offsets=[0, 2**22])})),
        "no weights",
    ),
    "a tensor of 2**80": (
        fixed(safetensors({"w": tensor(shape=[2**40, 2**40], offsets=[0, 4])}, bytes(4))),
        "no weights",
    ),
    "a tensor before the beginning": (
        fixed(safetensors(b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[-4,0]}}')),
        "no weights",
    ),
    "tensors over each other": (
        fixed(safetensors({"a": tensor(), "b": tensor()}, bytes(4))),
        "no weights",
    ),
    "a gap": (
        fixed(safetensors({"a": tensor(), "b": tensor(offsets=(8, 12))}, bytes(12))),
        "no weights",
    ),
    "bytes behind it": (fixed(safetensors({"a": tensor()}, bytes(99))), "no weights"),
    "an unknown type": (
        fixed(safetensors({"w": tensor(dtype="\x1b[2J")}, bytes(4))),
        "no weights",
    ),
    "a tensor twice": (
        fixed(
            safetensors(
                b'{"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
                b'"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
                bytes(4),
            )
        ),
        "no weights",
    ),
}

# -- grids -----------------------------------------------------------------------------------------

_GRID = b"notebook: 01_seeded_training\nfixed: {data: data}\n"

GRIDS = {
    "executes": (
        lambda c: f"notebook: !!python/object/apply:os.mkdir ['{c}']\n".encode(),
        "could not determine a constructor|python/object",
    ),
    "executes by new": (
        lambda c: f"fixed: !!python/object/new:os.mkdir ['{c}']\n".encode(),
        "could not determine a constructor|python/object",
    ),
    "imports": (fixed(b"notebook: !!python/module:antigravity\n"), "python/module"),
    "laughs": (
        fixed(
            b"a: &a [x, x]\n"
            + b"".join(
                b"%c: &%c [*%c, *%c]\n" % (97 + i, 97 + i, 96 + i, 96 + i) for i in range(1, 25)
            )
        ),
        "not a grid file",
    ),
    "laughs in a value": (
        fixed(
            b"notebook: 01_seeded_training\nfixed:\n  data: data\n  settings:\n"
            + b"    a0: &a0 [x, x]\n"
            + b"".join(b"    a%d: &a%d [*a%d, *a%d]\n" % (i, i, i - 1, i - 1) for i in range(1, 30))
        ),
        "more than 200000 values",
    ),
    "holds itself": (fixed(b"fixed: &a\n  data: *a\n"), "not a grid file"),
    "deep": (fixed(b"fixed: " + nested(50_000)), "not a grid file"),
    "10^18 points": (
        fixed(
            _GRID
            + b"vary:\n"
            + b"".join(
                b"  %s: [%s]\n" % (name, b", ".join(b"%d" % i for i in range(2, 1000)))
                for name in (b"seed", b"data_seed", b"epochs", b"batch_size", b"learning_rate")
            )
        ),
        "points",
    ),
    "no YAML": (fixed(b"\x00\x01\x02"), "not a grid file"),
    "a cursor": (fixed(b'"\\x1b[2J": 1\nnotebook: x\n'), "not a grid file"),
    "no text": (fixed(b"\xff\xfe\x00"), "not a grid file"),
    "a key twice": (fixed(b"notebook: a\nnotebook: b\nfixed: {}\n"), "twice|not a grid file|a"),
    "a notebook elsewhere": (
        fixed(b"notebook: ../../../../etc/passwd\nfixed: {data: data}\n"),
        "notebook",
    ),
    "a number of 10^6 digits": (fixed(b"repeats: " + b"9" * 10**6), "not a grid file"),
    "a date that is none": (fixed(b"fixed: {data: 9999-99-99}\n"), "not a grid file"),
}

# -- the record beside a label image ---------------------------------------------------------------

SIDECARS = {
    "deep": (b'{"settings": ' + nested(100_000), "no record of settings"),
    "settings of text": (b'{"settings": "all"}', "settings is no table"),
    "versions of text": (b'{"settings": {}, "versions": "x"}', "versions is no table"),
    "versions of a list": (b'{"settings": {}, "versions": [1]}', "versions is no table"),
    "no precision": (b'{"settings": {}, "precision": "float"}', "precision is 'float'"),
    "a precision of a list": (b'{"settings": {}, "precision": [1]}', "expected one of bfloat16"),
    "a model of a list": (b'{"settings": {}, "model": [1]}', "model is no text"),
    "an unknown setting": (b'{"settings": {"\\u001b[2J": 1}}', "expected"),
    "a setting of a table": (b'{"settings": {"diameter": {"a": [1]}}}', "diameter"),
    "NaN": (b'{"settings": {"diameter": NaN}}', "diameter is nan"),
    "10^5 digits": (b'{"settings": {"diameter": ' + b"9" * 10**5 + b"}}", "digits"),
}
