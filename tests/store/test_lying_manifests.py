"""A manifest that lies, in a store with others: one bad run is one bad run, everywhere.

Each run of the store but one has one thing in its manifest that is not as it was: missing, of
another type, negative, of another length. Its seal is right, as whoever sends a run can make it.
"""

import copy
import json
import shutil
from types import SimpleNamespace

import pytest

from cellrepro.store.seal import seal_files, seal_text
from cellrepro.store.store import Store
from samebits.digests import file_digest
from samebits.heard_warning import HeardWarning
from stores import add_run, reseal, squares, three

_ENTRIES_ALIKE = {"masks", "files", "distributions", "probes", "versions", "variables", "host"}
"""Fields of which one entry stands for all."""
_OTHERS = (None, "text", -7, 0, [], {}, {"a": {"b": None}}, [[3]])
"""What stands in the place of a value."""
_HOST = {
    "processor": "Abacus 9",
    "architecture": "x86_64",
    "instructions": ["avx2"],
    "cores": 2,
    "memory": 2**34,
    "system": "Linux",
    "gpus": [],
}
_USUAL = {
    "host": _HOST,
    "numeric_class": {"name": "a1b2c3d4e5f6", "probes": {"conv/float32": "a" * 64}},
    "numeric_libraries": [{"user_api": "blas", "internal_api": "openblas", "num_threads": 2}],
    "warnings": [
        HeardWarning(
            message="slow", category="UserWarning", file="a.py", line=3, phase="train", count=2
        )
    ],
}


def _places(value, path=()):
    """Every place in a document but the whole of it."""
    if path:
        yield path
    if isinstance(value, dict):
        is_alike = path[-1:] != () and path[-1] in _ENTRIES_ALIKE
        for name in list(value)[: 1 if is_alike else None]:
            yield from _places(value[name], (*path, name))
    elif isinstance(value, list) and value:
        yield from _places(value[0], (*path, 0))


def _changed(document, path, change):
    """A copy of a document in which one thing was changed in its place."""
    copied = copy.deepcopy(document)
    holder = copied
    for step in path[:-1]:
        holder = holder[step]
    change(holder, path[-1])
    return copied


def _lies(document):
    """The document with one thing that is not so, each by what was changed."""
    for path in _places(document):
        name = ".".join(map(str, path))
        yield f"{name} missing", _changed(document, path, lambda holder, last: holder.pop(last))
        for other in _OTHERS:

            def put(holder, last, other=other):
                holder[last] = other

            yield f"{name} = {other!r}", _changed(document, path, put)

        def lengthened(holder, last):
            if isinstance(holder[last], list):
                holder[last] = holder[last] * 3

        yield f"{name} three times", _changed(document, path, lengthened)
    yield "another switch", document | {"moved": {"a_later_switch": True}}


def _put(folder, document):
    """A manifest in a repeat, and the seal that fits it."""
    path = folder / "manifest.json"
    seal = folder / "SHA256SUMS"
    path.unlink()
    seal.unlink()
    path.write_text(json.dumps(document), encoding="utf-8")
    files = document.get("files")
    named = files if isinstance(files, dict) else {}
    digests = {str(name): str(digest) for name, digest in named.items()}
    seal.write_text(seal_text({**digests, path.name: file_digest(path)}), encoding="utf-8")


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(29, id="some lies"),
        pytest.param(1, id="all lies", marks=pytest.mark.slow),
    ],
)
def liars(tmp_path_factory, request):
    """A store with a good run, and runs of both tasks each of which lies about one thing."""
    store = Store(tmp_path_factory.mktemp("liars"))
    good = add_run(store, [(1.0, three())] * 2, manifest=_USUAL)
    lies = {}
    for task, weight in (("train", 1.5), ("segment", None)):
        told = add_run(store, [(weight, three())], task=task, seed=5, manifest=_USUAL)
        folder = told.repeats[0].folder
        document = json.loads((folder / "manifest.json").read_bytes())
        kept = [*_lies(document)]
        for number, (name, lie) in enumerate(kept):
            if number % request.param and number != len(kept) - 1:
                continue
            spec = told.spec.model_copy(update={"seed": 1000 + number})
            run = store.root / "runs" / spec.key
            shutil.copytree(folder, run / folder.parent.name / "0")
            (run / "spec.json").write_text(spec.model_dump_json(), encoding="utf-8")
            seal_files(run, "spec.json")
            if lie.get("key") == document["key"]:
                lie["key"] = spec.key
            _put(run / folder.parent.name / "0", lie)
            lies[spec.key] = f"{task}: {name}"
    return SimpleNamespace(root=store.root, good=good, lies=lies)


@pytest.mark.parametrize(
    ("command", "code"),
    [(["list"], 2), (["fsck"], 1), (["verify", "STORE"], 1), (["report"], 0)],
    ids=["list", "fsck", "verify", "report"],
)
def test_the_rest_of_the_store_opens(liars, invoke, command, code):
    """Each verb over the whole store ends as it should, and the good run is where it was."""
    words = [str(liars.root) if word == "STORE" else word for word in command]
    answer = invoke(*words, "--store", liars.root, "--json")
    assert answer.code == code, answer.err
    if command[0] in ("list", "report"):
        found = {run["key"]: run["verdict"] for run in answer.json["runs"]}
        assert found[liars.good.key] == "identical"
    else:
        named = json.dumps(answer.json["problems"])
        assert liars.good.key not in named
        assert any(key in named for key in liars.lies)


def test_a_lie_is_told_of_the_run_that_tells_it(liars, invoke, tmp_path):
    """Compared with a good run each is compared or refused by name; the good one is handed on."""
    for key in list(liars.lies)[::4]:
        answer = invoke("compare", f"{liars.good.key}/0", f"{key}/0", "--store", liars.root)
        assert answer.code in (0, 1, 2), liars.lies[key]
        assert answer.code != 2 or key in answer.err, (liars.lies[key], answer.err)
    file = tmp_path / "good.cellrepro.zip"
    assert invoke("export", liars.good.key, file, "--store", liars.root).code == 0


@pytest.mark.parametrize("sealed", [False, True], ids=["a damaged file", "labels of another image"])
def test_a_damaged_mask_leaves_one_run_out(tmp_path, invoke, sealed):
    """The page is about all other runs, and names the one that is not on it."""
    store = Store(tmp_path / "store")
    good = add_run(store, [(1.0, three())] * 2)
    bad = add_run(store, [(1.5, three(img_b=squares(grown=8)))], seed=1)
    folder = bad.repeats[0].folder
    mask = folder / "masks" / "img_b.tif"
    content = bytearray(mask.read_bytes())
    content[-2000:-1990] = bytes(10) if content[-2000] else b"\7" * 10
    mask.unlink()
    mask.write_bytes(content)
    if sealed:
        reseal(folder)
    answer = invoke("report", "--store", store.root, "--json")
    assert answer.code == 0, answer.err
    assert [run["key"] for run in answer.json["runs"]] == [good.key]
    page = (store.root / "report" / "index.html").read_text(encoding="utf-8")
    assert bad.repeats[0].name in page


def test_a_run_without_times_has_no_rate(tmp_path, invoke):
    """Masks that took no time make no division by zero."""
    store = Store(tmp_path)
    run = add_run(store, [(None, three())], task="segment")
    folder = run.repeats[0].folder
    document = json.loads((folder / "manifest.json").read_bytes())
    for mask in document["masks"].values():
        mask["seconds"] = 0
    _put(folder, document)
    assert invoke("report", "--store", store.root).code == 0
