"""The known faults fit the code as it stands, so that ``make test-faults`` can put them in."""

from pathlib import Path

import pytest

from faults.by_name import faults

PROJECT = Path(__file__).parents[1]


@pytest.mark.parametrize("fault", faults(), ids=lambda fault: fault.name)
def test_it_applies(fault):
    assert (PROJECT / fault.file).is_file()
    assert fault.original() is not None
    assert [name for name in fault.tests if not (PROJECT / name.split("::")[0]).exists()] == []
