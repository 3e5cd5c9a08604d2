"""The pictures of README and docs are those of the product as it is."""

import json

import pictures


def test_pictures_are_made_anew_when_what_draws_them_changed():
    kept = json.loads(pictures.SOURCES.read_text(encoding="utf-8"))
    now = pictures.source_digests()
    changed = sorted(name for name in kept.keys() | now.keys() if kept.get(name) != now.get(name))
    assert not changed, (
        f"{', '.join(changed)} changed since the pictures in docs/images were made: run "
        "`make pictures`, look at them, and commit them with sources.json"
    )


def test_comments_and_docstrings_make_no_picture_old(tmp_path):
    code = tmp_path / "x.py"
    digests = []
    for text in ('"""A."""\nx = 1  # one\n', '"""B."""\nx = 1\n', '"""A."""\nx = 2\n'):
        code.write_text(text, encoding="utf-8")
        digests.append(pictures._telling(code))
    assert digests[0] == digests[1] != digests[2]
