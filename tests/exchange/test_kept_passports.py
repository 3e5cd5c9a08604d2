"""What a store keeps of passports: added to, never taken from."""

import pytest

from cellrepro.errors import BadInput
from cellrepro.exchange.kept_passports import (
    attestations_of,
    keep_attestations,
    kept_attestations,
    kept_path,
)
from cellrepro.store.store import Store
from stores import add_run, three


def test_a_passport_is_kept_as_it_came(tmp_path):
    store = Store(tmp_path)
    first, second = add_run(store, [(1.0, three())] * 2).repeats
    assert kept_attestations(store, first.name) == ()
    made = attestations_of(store, first)
    assert not kept_path(store, first.name).exists()
    path = keep_attestations(store, first.name, made)
    before = path.read_bytes()
    assert keep_attestations(store, first.name, made) == path
    assert path.read_bytes() == before
    assert kept_attestations(store, first.name) == attestations_of(store, first) == made
    path.rename(kept_path(store, second.name))
    with pytest.raises(BadInput, match=f"holds the passport of {first.name}"):
        kept_attestations(store, second.name)
