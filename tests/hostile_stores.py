"""Stores that came by copying, as an attacker would prepare them."""

import json
import os
import shutil

from samebits.digests import file_digest

DEEP = b"[" * 200_000 + b"]" * 200_000


def repeat_of(store):
    """The folder of its first repeat."""
    return next(path.parent for path in sorted(store.glob("runs/*/*/0/manifest.json")))


def put(path, content):
    """Write a file, in the place of what is there."""
    if path.is_symlink() or path.exists():
        path.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def file_of(name, content):
    """A store with other bytes in one file of its first repeat."""
    return lambda store, _: put(repeat_of(store) / name, content)


def pipe(name):
    """A store in which a file is a pipe, whose reading would never end."""

    def make(store, _):
        path = repeat_of(store) / name
        path.unlink(missing_ok=True)
        os.mkfifo(path)

    return make


def endless(name):
    """A store in which a file is a link to a device that never ends."""

    def make(store, _):
        path = repeat_of(store) / name
        path.unlink(missing_ok=True)
        path.symlink_to("/dev/zero")

    return make


def huge(name):
    """A store in which a file claims a terabyte, and takes no room on the disk."""

    def make(store, _):
        path = repeat_of(store) / name
        put(path, b"")
        os.truncate(path, 2**40)

    return make


def link_out(name):
    """A store in which one of its own folders is a link to a folder of the user's."""

    def make(store, outside):
        path = store / name
        if path.is_dir():
            shutil.rmtree(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(outside)

    return make


def masks_elsewhere(store, outside):
    """The masks of a repeat lie in a folder of the user's."""
    masks = repeat_of(store) / "masks"
    shutil.rmtree(masks)
    masks.symlink_to(outside)


def mask_elsewhere(store, outside):
    """One mask is a link to a file of the user's, which a report would show."""
    mask = repeat_of(store) / "masks" / "img_a.tif"
    mask.unlink()
    mask.symlink_to(outside / "letter.txt")


def machine_elsewhere(store, outside):
    """The folder of the machine leads out."""
    machine = repeat_of(store).parent
    shutil.rmtree(machine)
    machine.symlink_to(outside)


def climbing_seal(store, outside):
    """A seal that names files outside, whose content lies in the store; the manifest is torn."""
    repeat = repeat_of(store)
    digest = file_digest(repeat / "weights.safetensors")
    put(repeat / "manifest.json", b"{")
    names = ("../../../../../outside/planted", str(outside / "planted"))
    put(repeat / "SHA256SUMS", "".join(f"{digest}  {name}\n" for name in names).encode())


def climbing_seal_of_images(store, _):
    """The same in the seal of kept images."""
    digest = file_digest(repeat_of(store) / "weights.safetensors")
    (seal,) = store.glob("data/*/SHA256SUMS")
    line = f"{digest}  ../../../outside/planted\n".encode()
    put(seal, line + seal.read_bytes())


def manifest_with(**fields):
    """A manifest that says something else."""

    def make(store, _):
        path = repeat_of(store) / "manifest.json"
        document = json.loads(path.read_bytes())
        put(path, json.dumps({**document, **fields}).encode())

    return make


def climbing_masks(store, _):
    """A manifest whose masks lie outside."""
    path = repeat_of(store) / "manifest.json"
    document = json.loads(path.read_bytes())
    document["masks"]["img_a"]["file"] = "../../../../../outside/letter.txt"
    put(path, json.dumps(document).encode())


def beside(name, content):
    """A store with another file."""
    return lambda store, _: put(store / name, content)


def beside_link(name):
    """A store with a link to a file of the user's where the lab writes."""

    def make(store, outside):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).unlink(missing_ok=True)
        (store / name).symlink_to(outside / "letter.txt")

    return make


STORES = {
    "a manifest that is a pipe": pipe("manifest.json"),
    "a spec that is a pipe": pipe("../../spec.json"),
    "a seal that is a pipe": pipe("SHA256SUMS"),
    "weights that are a pipe": pipe("weights.safetensors"),
    "a mask that is a pipe": pipe("masks/img_a.tif"),
    "a manifest without end": endless("manifest.json"),
    "a spec without end": endless("../../spec.json"),
    "a seal without end": endless("SHA256SUMS"),
    "a mask without end": endless("masks/img_a.tif"),
    "weights without end": endless("weights.safetensors"),
    "a manifest of a terabyte": huge("manifest.json"),
    "a spec of a terabyte": huge("../../spec.json"),
    "a seal of a terabyte": huge("SHA256SUMS"),
    "a deep manifest": file_of("manifest.json", DEEP),
    "a deep spec": file_of("../../spec.json", DEEP),
    "a spec that is no text": file_of("../../spec.json", b"\xff\xfe"),
    "a spec with a cursor": file_of("../../spec.json", b'{"\x1b[2J": 1}'),
    "a spec with a number of 10^5 digits": file_of(
        "../../spec.json", b'{"seed": ' + b"9" * 10**5 + b"}"
    ),
    "a seal that climbs": climbing_seal,
    "a seal of images that climbs": climbing_seal_of_images,
    "masks that climb": climbing_masks,
    "a manifest of an image that climbs": manifest_with(masks={"../../x": {}}),
    "a manifest of text": manifest_with(masks="all of them", files=3),
    "a machine with a cursor": manifest_with(device="\x1b]0;pwned\x07\u202e"),
    "masks elsewhere": masks_elsewhere,
    "a mask elsewhere": mask_elsewhere,
    "a machine elsewhere": machine_elsewhere,
    **{
        f"{name} elsewhere": link_out(name)
        for name in (
            *(".staging", ".claims", "unfinished", "failed", "received"),
            *("passports", "inputs", "networks", "aside", "unfinished/key", "failed/key"),
            "unfinished/key/machine",
        )
    },
    "a lock elsewhere": beside_link(".claims/a-b-0.lock"),
    "an unfinished training of nothing": beside("unfinished/a/b/0/spec.json", b"{"),
    "an unfinished training that is deep": beside("unfinished/a/b/0/spec.json", DEEP),
    "a failure that is deep": beside("failed/a/b/0/failure.json", DEEP),
    "a failure that names a folder": beside(
        "failed/a/b/0/failure.json", b'{"folder": "/etc", "key": [], "reason": "\\u001b[2J"}'
    ),
    "passports of nothing": beside("passports/a/b/0.intoto.jsonl", b"{}\n"),
    "a run with a cursor": beside("runs/\x1b[2J/a/0/manifest.json", b"{}"),
    "a run with a line feed": beside("runs/a\ncellrepro: fine/a/0/manifest.json", b"{}"),
}
