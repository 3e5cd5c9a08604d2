"""The form of an exported file: read by every zip program, and no other bytes are accepted."""

import hashlib
import random
import shutil
import struct
import subprocess
import sys
import zipfile
import zlib

import pytest

from cellrepro.exchange.archive.entry_names import EntryName, refuse_twins
from cellrepro.exchange.archive.reading import opened_export
from cellrepro.exchange.archive.writing import Outgoing, write_archive
from cellrepro.store.seal import seal_text
from samebits.errors import BadInput
from zip_form import Entry, local_header, offsets, tail

KEY = "0123456789abcdef"
REPEAT = f"runs/{KEY}/laptop-00c0ffee/0"
CONTENTS = {
    f"runs/{KEY}/spec.json": b"{}\n",
    f"{REPEAT}/manifest.json": b'{"a": 1}\n',
    f"{REPEAT}/masks/Zelle ä.tif": b"II*\0",
    f"{REPEAT}/masks/b.tif": b"",
}


def write(path, contents=CONTENTS):
    files = [Outgoing.of_bytes(name, content) for name, content in contents.items()]
    return write_archive(path, files, quiet=True)


def read_whole(path):
    with opened_export(path) as archive:
        names = archive.digests
        return {name: archive.content(name, most_bytes=10**6) for name in names}


@pytest.fixture
def exported(tmp_path):
    path = tmp_path / "small.cellrepro.zip"
    write(path)
    return path


def test_what_is_written_can_be_read(exported):
    assert read_whole(exported) == CONTENTS


def test_order_and_time_do_not_enter(exported, tmp_path):
    again = tmp_path / "again.zip"
    write(again, dict(reversed(CONTENTS.items())))
    assert again.read_bytes() == exported.read_bytes()


def test_an_export_has_the_bytes_that_earlier_versions_wrote(exported):
    digests = {name: hashlib.sha256(content).hexdigest() for name, content in CONTENTS.items()}
    files = {"SHA256SUMS": seal_text(digests).encode(), **CONTENTS}
    assert exported.read_bytes() == handmade(sorted(files.items()))


def test_every_other_program_reads_it(exported, tmp_path):
    with zipfile.ZipFile(exported) as archive:
        assert archive.testzip() is None
        assert archive.namelist() == sorted(archive.namelist())
        assert {name: archive.read(name) for name in CONTENTS} == CONTENTS
    subprocess.run([sys.executable, "-m", "zipfile", "-t", exported], check=True)
    for program in filter(shutil.which, ("unzip", "7z", "bsdtar")):
        options = ["-t", "-q"] if program == "unzip" else ["t"] if program == "7z" else ["-tf"]
        subprocess.run([program, *options, exported], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", exported, tmp_path / "out"], check=True)
    sums = ["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"]
    subprocess.run(sums, check=True, cwd=tmp_path / "out")


def test_a_flipped_bit_is_refused_wherever_it_stands(exported):
    whole = exported.read_bytes()
    accepted = []
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        exported.write_bytes(changed)
        try:
            read_whole(exported)
        except BadInput:
            continue
        accepted.append(place)
    assert accepted == []


def test_large_files_as_python_writes_them(tmp_path, monkeypatch):
    """With the fields of ZIP64 at every number, as if all were large; each bit of them counts."""
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 8)
    path = tmp_path / "large.cellrepro.zip"
    write(path)
    assert path.read_bytes().count(b"PK\x06\x07") == 1
    assert read_whole(path) == CONTENTS
    test_a_flipped_bit_is_refused_wherever_it_stands(path)


def test_every_cut_and_every_addition_is_refused(exported):
    whole = exported.read_bytes()
    for length in range(len(whole)):
        exported.write_bytes(whole[:length])
        with pytest.raises(BadInput):
            read_whole(exported)
    for changed in (whole + b"\0", b"\0" + whole, whole + whole):
        exported.write_bytes(changed)
        with pytest.raises(BadInput):
            read_whole(exported)


def packed_by_python(path, *, compression=zipfile.ZIP_STORED, names=tuple(CONTENTS)):
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), CONTENTS.get(name, b"x"), compression)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b""), "empty"),
        (lambda path: path.write_bytes(b"hello"), "no zip file"),
        (lambda path: path.write_bytes(b"\x1f\x8b" + bytes(80)), "never read"),
        (lambda path: packed_by_python(path, compression=zipfile.ZIP_DEFLATED), "packed anew"),
        (lambda path: packed_by_python(path), "not sorted|not as it was written"),
        (lambda path: packed_by_python(path, names=["../x"]), "no plain path"),
    ],
    ids=["empty", "text", "gzip", "deflated", "stored by another program", "leads out"],
)
def test_other_files_are_refused(tmp_path, make, message):
    path = tmp_path / "other.zip"
    make(path)
    with pytest.raises(BadInput, match=message):
        read_whole(path)


def handmade(files):
    """An archive of our form with the directory and contents that are given."""
    entries = [Entry(name, len(content), zlib.crc32(content)) for name, content in files]
    body = b"".join(
        local_header(entry) + content for entry, (_, content) in zip(entries, files, strict=True)
    )
    return body + tail(entries)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([f"{REPEAT}/masks/A.tif", f"{REPEAT}/masks/a.tif"], "same name"),
        ([f"{REPEAT}/masks/a.tif", f"{REPEAT}/masks/a.tif"], "same name|not sorted"),
        ([f"{REPEAT}/masks/b.tif", f"{REPEAT}/masks/a.tif"], "not sorted"),
        ([f"{REPEAT}/masks/con.tif"], "device on Windows"),
        ([f"{REPEAT}/masks/a\\b.tif"], "Windows takes in no name"),
        ([f"{REPEAT}/masks/a\x1b[2J.tif"], "cannot be printed"),
        ([f"{REPEAT}/masks/a\u0308.tif"], "NFC"),
        ([f"{REPEAT}/masks/{'a' * 300}.tif"], "more than 240 bytes"),
        ([f"/{REPEAT}/masks/a.tif"], "no plain path"),
        ([f"runs/{KEY}/../{KEY}/spec.json"], "no plain path"),
        ([f"{REPEAT}/weights.pth"], "no file of an exported run"),
        (["runs/xyz/spec.json"], "no file of an exported run"),
        ([], "holds no SHA256SUMS"),
    ],
)
def test_names_that_could_do_harm_are_refused(tmp_path, names, message):
    path = tmp_path / "hostile.zip"
    path.write_bytes(handmade([(name, b"x") for name in names]))
    with pytest.raises(BadInput, match=message) as refusal:
        read_whole(path)
    assert str(refusal.value).isprintable()


def test_sums_must_name_everything(tmp_path):
    path = tmp_path / "hostile.zip"
    path.write_bytes(handmade([("SHA256SUMS", b""), (f"runs/{KEY}/spec.json", b"{}")]))
    with pytest.raises(BadInput, match="differ in"):
        read_whole(path)


def test_numbers_that_lie_take_no_memory(tmp_path):
    """A directory that promises 2**63 bytes is refused by the file's own length."""
    path = tmp_path / "hostile.zip"
    huge = Entry("SHA256SUMS", 2**63, 0)
    path.write_bytes(local_header(huge) + tail([huge]))
    with pytest.raises(BadInput, match=r"cannot be read|not as it was"):
        read_whole(path)
    end = struct.pack("<4s4H2IH", b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0)
    path.write_bytes(bytes(200) + end)
    with pytest.raises(BadInput, match="not where its end says"):
        read_whole(path)


@pytest.mark.parametrize("size", [2**31 + 7, 2**32 + 7], ids=["2 GiB", "4 GiB"])
def test_large_files_of_earlier_versions_are_read(tmp_path, size):
    """A sparse file, whose skeleton Python's own reader takes apart."""
    entries = [
        Entry(f"{REPEAT}/manifest.json", size, 1),
        Entry(f"{REPEAT}/masks/b.tif", 5, 2),
    ]
    path = tmp_path / "large.zip"
    with path.open("wb") as file:
        for entry, start in zip(entries, offsets(entries), strict=False):
            file.seek(start)
            file.write(local_header(entry))
        file.seek(offsets(entries)[-1])
        file.write(tail(entries))
    with zipfile.ZipFile(path) as archive:
        found = [(info.filename, info.file_size, info.CRC) for info in archive.infolist()]
        starts = [info.header_offset for info in archive.infolist()]
        archive.open(entries[1].name).close()  # compares local header and directory
    assert found == [(entry.name, entry.size, entry.crc) for entry in entries]
    assert starts == offsets(entries)[:-1]
    with pytest.raises(BadInput, match="holds no SHA256SUMS"):  # its skeleton is accepted
        read_whole(path)


@pytest.mark.slow
def test_more_files_than_sixteen_bits_count(tmp_path):
    contents = {f"{REPEAT}/masks/{i}.tif": b"" for i in range(2**16)}
    path = tmp_path / "many.zip"
    write(path, contents)
    with zipfile.ZipFile(path) as archive:
        assert len(archive.namelist()) == len(contents) + 1
    with opened_export(path) as archive:
        assert archive.digests.keys() == contents.keys()


def test_random_bytes_between_files_are_refused(tmp_path, exported):
    generator = random.Random(0)
    whole = exported.read_bytes()
    for _ in range(200):
        place = generator.randrange(len(whole))
        exported.write_bytes(whole[:place] + generator.randbytes(3) + whole[place:])
        with pytest.raises(BadInput):
            read_whole(exported)


def test_places():
    assert EntryName.parse(f"{REPEAT}/masks/a.b.tif").group == f"{KEY}/laptop-00c0ffee/0"
    assert EntryName.parse(f"inputs/{KEY}/train/a.TIF").file == "train/a.TIF"
    refuse_twins(["a/b", "a/c"])
