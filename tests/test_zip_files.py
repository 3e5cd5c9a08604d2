"""Zip files of unknown origin: their list of parts is bounded, their content is not."""

import zipfile

import pytest

from cellrepro.explanation.baseline_check import check_baseline
from cellrepro.explanation.describe import describe
from cellrepro.pickles import Refused
from cellrepro.store import baseline_file
from cellrepro.zip_files import opened_zip
from samebits.errors import BadInput
from stores import squares


@pytest.fixture
def endless(tmp_path):
    """An archive whose list of parts has 17 MB."""
    path = tmp_path / "endless.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(260):
            part = zipfile.ZipInfo("baseline.json" if number == 0 else f"{number}.roi")
            part.comment = bytes(2**16 - 1)
            archive.writestr(part, "{}")
    return path


def test_an_endless_list_of_parts_is_read_by_nobody(endless):
    with pytest.raises(Refused, match="its list of parts has more than"), opened_zip(endless):
        pass
    assert not baseline_file.is_one(endless)
    with pytest.raises(BadInput, match=r"no whole baseline \(its list of parts has more than"):
        check_baseline(endless, squares())
    with pytest.raises(BadInput, match="its list of parts has more than"):
        describe(str(endless))


def test_a_large_part_is_read_whole(tmp_path):
    content = bytes(2**24 + 1)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a", content)
    with opened_zip(tmp_path / "a.zip") as archive, archive.open("a") as stream:
        assert stream.read(2**25) == content
