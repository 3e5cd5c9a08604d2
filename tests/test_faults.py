"""The known faults fit the code as it stands, so that ``make test-faults`` can apply them."""

from collections import Counter
from pathlib import Path

import pytest

from faults import apply

PROJECT = Path(__file__).parents[1]
FAULTS = apply.faults()


def test_there_are_enough_of_every_room():
    rooms = Counter(Path(fault.file).parts[2] for fault in FAULTS)
    assert len(FAULTS) >= 60
    assert len([room for room, n in rooms.items() if n >= 4]) >= 8


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_it_applies(fault):
    assert (PROJECT / fault.file).read_text(encoding="utf-8") != apply.broken(PROJECT, fault)
    assert [name for name in fault.tests if not (PROJECT / name.split("::")[0]).exists()] == []
