"""Is this the seed it claims: a checkpoint's generators against the seed it names."""

import numpy as np
import pytest
import torch

from cellrepro.determinism.seeding import seed_everything
from cellrepro.store import checkpoints
from cellrepro.store.digests import generator_digests
from small_training import ORIGIN, Small, change_plain

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def checkpoint_after(tmp_path, *, torch_numbers=0, cuda=None):
    small = Small()
    seed_everything(3)
    if torch_numbers:
        torch.rand(torch_numbers)
    np.random.seed(123)  # as every epoch does
    found = checkpoints.read_plain(small.save(tmp_path))
    found.generators["cuda"] = cuda
    return found


@pytest.mark.parametrize("torch_numbers", [0, 100_000])
def test_generators_follow_from_their_seed(tmp_path, torch_numbers):
    checkpoint = checkpoint_after(tmp_path, torch_numbers=torch_numbers)
    before = generator_digests()
    found = checkpoints.seed_check(checkpoint)
    assert generator_digests() == before
    assert found.problems == ()
    assert found.sentence() == "follows from seed 3 (torch); not checked: python, numpy"


def test_generators_do_not_follow_from_another_seed(tmp_path):
    found = checkpoints.seed_check(checkpoint_after(tmp_path, torch_numbers=4), seed=4)
    assert found.follows == ()
    assert found.sentence() == "not seed 4: torch's generator has seed 3"


def test_a_claim_that_was_changed_in_the_checkpoint_is_found(tmp_path):
    small = Small()
    folder = small.save(tmp_path)
    change_plain(origin={**vars(ORIGIN), "spec": {**ORIGIN.spec, "seed": 5}})(folder)
    assert checkpoints.seed_check(checkpoints.read_plain(folder)).problems


def of_cuda(seed, offset=0):
    """A state as CUDA's generator gives it, and as a checkpoint holds bytes."""
    state = seed.to_bytes(8, "little") + offset.to_bytes(8, "little")
    return list(state)


@pytest.mark.parametrize(
    ("states", "problems"),
    [
        ([of_cuda(3)], ()),
        ([of_cuda(3, 400), of_cuda(3)], ()),
        ([of_cuda(3), of_cuda(4)], ("cuda:1's generator has seed 4",)),
        ([of_cuda(3 + 2**40)], (f"cuda:0's generator has seed {3 + 2**40}",)),
    ],
    ids=["one", "two, one used", "the second of another", "of another in its high bytes"],
)
def test_a_gpus_generator_says_its_seed(tmp_path, states, problems):
    assert checkpoints.seed_check(checkpoint_after(tmp_path, cuda=states)).problems == problems
