"""One browser for all tests of this room."""

import pytest

from lab_server import chromium


@pytest.fixture(scope="session")
def browser():
    with chromium() as browser:
        yield browser
