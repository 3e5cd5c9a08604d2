"""What identifies a machine lasts as long as the machine does."""

import pytest

from cellrepro.store import machine_identity


@pytest.mark.parametrize(
    ("number", "address"),
    [
        (0x3CA9F4000001, "3ca9f4000001"),
        (0x0242AC110002, ""),  # of a container
        (0x013CA9F40001, ""),  # drawn by Python
    ],
)
def test_a_network_address_that_may_be_another_tomorrow_tells_no_machine(number, address):
    assert machine_identity.lasting_address(number) == address
