"""The seals: what sha256sum checks, and one form alone."""

import subprocess

import pytest

from cellrepro.store.seal import SUMS, read_seal, seal_files, seal_text
from cellrepro.store.store import Store
from samebits.errors import BadInput
from stores import add_run, three

DIGEST = "0" * 64


def test_sha256sum_checks_every_seal(tmp_path):
    """Of a repeat, of its run and of its images; every file is named once."""
    run = add_run(Store(tmp_path / "outputs"), [(1.0, three())] * 2)
    sealed = sorted(path.parent for path in (tmp_path / "outputs").rglob(SUMS))
    assert len(sealed) == 4  # two repeats, their run, their images
    for folder in sealed:
        named = read_seal((folder / SUMS).read_text(encoding="utf-8"))
        if folder.name != run.key:
            files = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
            assert named.keys() == files - {SUMS}
        checked = subprocess.run(
            ["sha256sum", "--check", "--strict", "--quiet", SUMS], cwd=folder, check=False
        )
        assert checked.returncode == 0


@pytest.mark.parametrize("name", ["a.tif", "mask é.tif", "back\\slash", "line\nfeed", "cr\r"])
def test_names_are_written_as_sha256sum_writes_them(tmp_path, name):
    (tmp_path / name).write_bytes(b"content")
    written = subprocess.run(["sha256sum", "--", name], cwd=tmp_path, capture_output=True).stdout
    digests = read_seal(written.decode())
    assert [*digests] == [name]
    assert seal_text(digests) == written.decode()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{DIGEST}  a", "each ended by a line feed"),
        (f"{DIGEST}  b\n{DIGEST}  a\n", "sorted by name"),
        (f"{DIGEST}  a\n{DIGEST}  a\n", "none twice"),
        (f"{DIGEST[:-1]}A  a\n", "line 1 .* lower-case hex"),
        (f"{DIGEST} *a\n", "two blanks"),
        (f"{DIGEST}  a\n\n", "line 2"),
        (f"\\{DIGEST}  a\n", "as it was written"),
    ],
    ids=["no end", "order", "twice", "capital", "binary mark", "empty line", "needless escape"],
)
def test_another_form_is_refused(text, message):
    with pytest.raises(BadInput, match=message):
        read_seal(text)


def test_an_image_whose_name_a_seal_escapes_is_found(tmp_path):
    folder = tmp_path / "data" / ("d" * 16)
    folder.mkdir(parents=True)
    (folder / "back\\slash.tif").write_bytes(b"pixels")
    seal_files(folder, "back\\slash.tif")
    store = Store(tmp_path)
    assert store.kept_file("d" * 64, "back\\slash.tif") == folder / "back\\slash.tif"
    assert store.kept_file("d" * 64, "other.tif") is None
