"""Losses for networks of one's own: PyTorch's within roundings, with their gradients."""

import pytest
import torch
from torch.nn import functional

from samebits.arithmetic.portable_mode import PortableArithmetic

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

_CLASSES = torch.tensor([2, 0, 4, -100, 1, 2])
_WEIGHTS = torch.tensor([0.5, 1.0, 2.0, 0.0, 3.0])
_TARGETS = torch.linspace(-2, 2, 30).reshape(6, 5)
_PLACES = torch.tensor([[[0, 1], [2, 2]], [[1, -100], [0, 2]]])

_LOSSES = {
    "classes": lambda a: functional.cross_entropy(a, _CLASSES),
    "weighted classes": lambda a: functional.cross_entropy(a, _CLASSES, weight=_WEIGHTS),
    "summed classes": lambda a: functional.cross_entropy(a, _CLASSES, reduction="sum"),
    "each class": lambda a: functional.cross_entropy(a, _CLASSES, reduction="none").square().sum(),
    "one sample": lambda a: functional.cross_entropy(a[0], _CLASSES[0]),
    "smoothed classes": lambda a: functional.cross_entropy(a, _CLASSES, label_smoothing=0.1),
    "chances": lambda a: functional.binary_cross_entropy(a.sigmoid(), _TARGETS.sigmoid()),
    "weighted positives": lambda a: functional.binary_cross_entropy_with_logits(
        a, _TARGETS.sigmoid(), pos_weight=_WEIGHTS
    ),
    "divergence": lambda a: functional.kl_div(
        a.log_softmax(1), _TARGETS.softmax(1), reduction="batchmean"
    ),
    "cosines": lambda a: functional.cosine_similarity(a, _TARGETS).sum(),
    "margins": lambda a: functional.soft_margin_loss(a, _TARGETS.sign()),
    "smooth": lambda a: functional.smooth_l1_loss(a, _TARGETS, beta=0.7),
    "summed smooth": lambda a: functional.smooth_l1_loss(a, _TARGETS, reduction="sum"),
    "Huber's": lambda a: functional.huber_loss(a, _TARGETS, delta=0.7),
    "of pixels": lambda a: functional.cross_entropy(
        a[:4].flatten()[:18].reshape(3, 3, 2).expand(2, 3, 3, 2)[..., :2, :], _PLACES
    ),
}


@pytest.mark.parametrize("name", list(_LOSSES))
def test_losses_and_gradients_are_pytorchs_within_roundings(name):
    """Also with ignored classes, weights, and each reduction."""
    numbers = (torch.rand(6, 5, generator=torch.Generator().manual_seed(3)) - 0.5) * 6
    a = numbers.clone().requires_grad_()
    b = numbers.clone().requires_grad_()

    expected = _LOSSES[name](a)
    expected.backward()
    with PortableArithmetic():
        actual = _LOSSES[name](b)
        actual.backward()

    torch.testing.assert_close(actual, expected, rtol=2e-6, atol=1e-7)
    torch.testing.assert_close(b.grad, a.grad, rtol=2e-6, atol=1e-7)


def test_a_batch_whose_classes_are_all_ignored_has_no_gradient():
    """Its mean loss is that of no sample; PyTorch's gradient is 0, and so is the ignored loss."""
    a = torch.zeros(3, 5).requires_grad_()
    ignored = torch.full((3,), -100)
    with PortableArithmetic():
        loss = functional.cross_entropy(a, ignored)
        loss.backward()
        total = functional.nll_loss(torch.full((3, 5), -torch.inf), ignored, reduction="sum")
    assert loss.isnan()
    assert torch.equal(a.grad, torch.zeros(3, 5))
    assert total == 0
