"""Well-known networks are trained in portable arithmetic: one digest, close to plain PyTorch."""

import pytest
import torch
from networks import EXAMPLES

from samebits.arithmetic.portable_mode import PortableArithmetic
from samebits.seeds import seed_everything
from samebits.tensor_digests import tensor_digest

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def trained(name, *, n_threads=1, portable=True):
    seed_everything(0, quiet=True)
    example = EXAMPLES[name]()
    torch.set_num_threads(n_threads)
    if not portable:
        return example, [example.step() for _ in range(2)]
    with PortableArithmetic():
        return example, [example.step() for _ in range(2)]


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_training_has_one_digest_and_is_close_to_plain(name):
    example, losses = trained(name)
    again, _ = trained(name, n_threads=3)
    assert tensor_digest(example.network.state_dict()) == tensor_digest(again.network.state_dict())
    if any(isinstance(part, torch.nn.Dropout) and part.p for part in example.network.modules()):
        return  # which elements fall is another draw than plain PyTorch's
    _, plain = trained(name, portable=False)
    torch.testing.assert_close(losses, plain, rtol=1e-4, atol=1e-5)
