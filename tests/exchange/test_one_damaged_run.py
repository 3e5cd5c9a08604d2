"""Damaged runs take no answer away that is not about them; what was left out is named.

The verbs are those that are registered: a new one takes part as soon as it exists.
"""

import shutil

import pytest
from test_guarded_verbs import OWN_DOING

from cellrepro.progress import note_once
from cellrepro.store.store import Store
from command_line import carried_out
from command_line import commands as every_command
from hostile_stores import put
from stores import add_run, squares, three

ABOUT_ALL = {("list",): 2, ("fsck",): 1}
"""Those that answer for the damaged runs, too, with the code that means so."""


def with_content(content):
    return lambda path: put(path, content)


DAMAGES = [
    ("0/masks/img_a.tif", lambda path: put(path, path.read_bytes() + b"?")),
    ("0/masks/img_a.tif", lambda path: path.unlink()),
    ("0/weights.safetensors", lambda path: put(path, path.read_bytes() + b"?")),
    ("0/manifest.json", with_content(b"{")),
    ("0/SHA256SUMS", with_content(b"\xff")),
    ("../spec.json", with_content(b"{")),
]
"""One for each run that nobody asks about."""
ASKED_FOR = 2
"""Runs of which repeat 0 is asked for, and repeat 1 is damaged in its manifest."""


def asked(keys, folder):
    """Every command that reads a store and computes nothing, about the first two runs."""
    a, b = (f"{key}/0" for key in keys)
    about = dict.fromkeys(("a", "data", "run", "runs", "target"), a) | {"b": b}
    for command in every_command():
        options = {one.name for one in command.options}
        if command.words[0] in OWN_DOING or "store" not in options:
            continue
        names = [one.name for one in command.arguments if one.name != "command"]
        if {*names} <= {*about, "file"}:
            ending = "cellrepro.zip" if command.words[0] == "export" else "baseline"
            values = {**about, "file": str(folder / f"written.{ending}")}
            words = (*command.words, *(values[name] for name in names))
            yield (*words, "--propose", "seed") if "propose" in options else words


def answers_of(store, keys, folder):
    """By command its exit code, and what it said on both streams."""
    answers = {}
    for words in asked(keys, folder):
        note_once.cache_clear()  # each is a process of its own
        answers[words] = carried_out(*words, "--store", store)
        for file in folder.glob("written.*"):
            file.unlink()
    return answers


@pytest.mark.slow
def test_damaged_runs_take_no_answer_away(tmp_path):
    root = tmp_path / "outputs"
    store = Store(root)
    keys = []
    for seed in range(ASKED_FOR + len(DAMAGES) + 1):
        masks = three(squares(grown=2 * seed), img_b=squares(second=seed % 2 > 0))
        keys.append(add_run(store, [(1.0 + seed, masks)] * 2, seed=seed).key)
    asked_for, damaged = keys[:ASKED_FOR], keys[ASKED_FOR:-1]
    whole = tmp_path / "whole"
    shutil.copytree(root, whole)
    before = answers_of(root, asked_for, tmp_path)
    shutil.rmtree(root)
    whole.rename(root)
    for key, (name, change) in zip(damaged, DAMAGES, strict=True):
        (machine,) = root.glob(f"runs/{key}/*/")
        change(machine / name)
    for key in asked_for:
        (machine,) = root.glob(f"runs/{key}/*/")
        put(machine / "1" / "manifest.json", b"{")
    answered = {words for words, (code, *_) in before.items() if code in (0, 1)}
    assert {words[0] for words in answered} >= {"compare", "verify", "report", "export", "list"}
    for words, (code, out, err) in answers_of(root, asked_for, tmp_path).items():
        if words in answered:
            assert code in (before[words][0], ABOUT_ALL.get(words)), (words, err)
        if words in answered and out != before[words][1]:
            assert any(key in out + err for key in (*damaged, "manifest.json")), (words, out, err)


@pytest.mark.parametrize(("name", "change"), DAMAGES[:3], ids=["changed", "missing", "weights"])
def test_what_brings_a_file_back_is_said_by_whoever_names_it(tmp_path, name, change):
    """Its content lies in another repeat, and in no file that the verb was asked about."""
    store = Store(tmp_path / "outputs")
    masks = three(squares(), img_b=squares())
    runs = [add_run(store, [(1.0, masks)] * 2, seed=seed) for seed in range(2)]
    change(runs[0].repeats[0].folder.parent / name)
    named = set()
    for words, (_, out, err) in answers_of(store.root, [run.key for run in runs], tmp_path).items():
        said = out + err
        if name in said:
            named.add(words[0])
            assert "fsck --repair" in said, (words, said)
            assert "folder and run it again" not in said, (words, said)
    assert named >= ({"verify", "export", "fsck"} if "masks" in name else {"verify", "fsck"})
