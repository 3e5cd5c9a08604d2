"""Single steps are timed in turns, from equal starts, and leave the network as it was."""

import pytest

from cellrepro.errors import BadInput
from cellrepro.images.folder import read_folder
from cellrepro.model.network import import_cellpose, seeded_network
from cellrepro.model.step_timing import SideBySide, check_variants
from cellrepro.store.digests import tensors_digest

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Cellpose's own loop asks for autocast to float32, which PyTorch answers with a warning.
    pytest.mark.filterwarnings("ignore:In CPU autocast"),
]


def test_every_variant_is_timed_and_the_network_left_as_it_was(small_data):
    import_cellpose()
    network = seeded_network("tiny", seed=0)
    before = tensors_digest(network.state_dict())
    images = read_folder(small_data).train[:1]
    bench = SideBySide(network, images, steps=1, variants=("plain", "strict"))
    seconds = bench.round()
    assert {name: len(times) for name, times in seconds.items()} == {"plain": 1, "strict": 1}
    assert all(second > 0 for times in seconds.values() for second in times)
    assert tensors_digest(network.state_dict()) == before
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("variants", ["plain", ("fast",), ("plain", "quick"), ("plain", "plain")])
def test_what_is_no_choice_of_variants(variants):
    with pytest.raises(BadInput, match="variants is"):
        check_variants(variants)
