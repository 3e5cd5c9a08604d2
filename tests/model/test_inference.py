"""Masks through Cellpose's own ``eval``, which looks and leaves no trace."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from cellpose.models import CellposeModel

from cellrepro.images.folder import read_folder
from cellrepro.model.evaluator import evaluator, shared_defaults
from cellrepro.model.inference import segment
from cellrepro.spec.segmentation_settings import Settings
from samebits.digests import array_digest
from samebits.errors import BadInput
from samebits.generator_digests import generator_digests
from samebits.modes import mode_in_force
from small_training import tiny

PRISTINE = dict(shared_defaults())

pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    # Cellpose 4.2.1.1 makes a sparse tensor in dynamics.py; PyTorch 2.15 would be asked to check.
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
]


@pytest.fixture(scope="module")
def network(small_store):
    """A network that has learnt to find cells."""
    return tiny(path=small_store.weights)


@pytest.fixture(scope="module")
def image(small_data):
    return read_folder(small_data).test[0]


def test_finds_cells_and_moves_no_generator(network, image):
    before = generator_digests()
    (result,) = segment(network, (image,))
    assert generator_digests() == before
    assert (result.name, result.masks.dtype) == (image.name, np.uint32)
    assert result.masks.shape == image.image.shape
    found = np.unique(result.masks)
    assert found.tolist() == list(range(len(found)))
    assert len(found) > 5
    assert result.seconds > 0


def test_puts_the_network_into_evaluation(network, image):
    """In training the layer drop would make every look at an image another one."""
    network.train()
    a, b = (array_digest(next(segment(network, (image,))).masks) for _ in range(2))
    assert not network.training
    assert a == b


@pytest.mark.parametrize(("options", "expected"), [({}, [8, 1]), ({"batch_size": 4}, [4, 4, 1])])
def test_the_batch_size_is_that_of_the_tiles(network, image, options, expected):
    """An image of three tiles by three."""
    n_tiles = []
    seen = network.register_forward_hook(lambda *given: n_tiles.append(len(given[1][0])))
    large = replace(image, image=np.tile(image.image, (2, 2)))
    with seen:
        list(segment(network, (large,), **options))
    assert n_tiles == expected


@pytest.mark.parametrize(
    ("pixels", "any_cell"),
    [(lambda image: np.stack([image] * 3, axis=-1), True), (np.zeros_like, False)],
    ids=["channels last", "nothing to see"],
)
def test_masks_of_other_images(network, image, pixels, any_cell):
    (result,) = segment(network, (replace(image, image=pixels(image.image)),))
    assert (result.masks.shape, result.masks.dtype) == (image.image.shape, np.uint32)
    assert result.masks.any() == any_cell


class DependsOnTheBatch(torch.nn.Module):
    """A network of which a tile's output depends on the tiles beside it."""

    def __init__(self, network):
        super().__init__()
        self.network, self.backbone = network, network.backbone
        self.device, self.dtype = network.device, network.dtype

    def forward(self, tiles):
        outputs, style = self.network(tiles)
        return outputs + tiles.mean() * len(tiles), style


def test_strict_does_not_depend_on_the_batch(network, image):
    large = np.tile(image.image, (2, 2))
    evaluate = evaluator(DependsOnTheBatch(network))

    def results(sizes):
        found = (evaluate(large, batch_size=size, niter=10) for size in sizes)
        return {tuple(map(array_digest, vars(output).values())) for output in found}

    with mode_in_force("strict", device="cpu"):
        assert len(results((1, 3, 16))) == 1
    with mode_in_force("fast", device="cpu"):
        assert len(results((1, 3))) == 2, "the planted network does not depend on it"


# -- settings --------------------------------------------------------------------------------


CHANGING = {
    "diameter": 20.0,
    "flow_threshold": 0.05,
    "cellprob_threshold": 1.0,
    "niter": 10,
    "min_size": 150,
    "max_size_fraction": 0.004,
    "augment": True,
    "tile_overlap": 0.5,
    "normalize.normalize": False,
    "normalize.percentile": (5.0, 80.0),
    "normalize.lowhigh": (20.0, 90.0),
    "normalize.sharpen": 4.0,
    "normalize.smooth_radius": 4.0,
    "normalize.tile_norm_blocksize": 100,
    "normalize.invert": True,
}
USUAL = {
    **{"diameter": 30.0, "niter": 200, "normalize.percentile": (1.0, 99.0)},
    **{"resample": False, "normalize.norm3D": False, "flow_threshold": 0.4},  # of flat images
}
TOGETHER = [
    {"diameter": 20.0, "resample": False},
    {"normalize.tile_norm_blocksize": 100, "normalize.tile_norm_smooth3D": 4},
    {"augment": True, "diameter": 45.0, "cellprob_threshold": -1.0, "batch_size": 3},
]


@pytest.fixture(scope="module")
def field_of_view(image):
    """Of several tiles, so that their overlap counts."""
    return np.tile(image.image, (2, 2))[:300, :280].copy()


@pytest.fixture(scope="module")
def cellpose_model(network):
    """Cellpose's own, as its constructor would make it from a file of these weights."""
    model = CellposeModel.__new__(CellposeModel)
    model.net, model.device, model.gpu = network.eval(), network.device, False
    model.backbone, model.pretrained_model = "sam_vitl", ""
    return model


def as_cellpose_takes_them(asked):
    """Arguments of ``eval`` as a user writes them."""
    found = {name: value for name, value in asked.items() if "." not in name}
    fields = {n.partition(".")[2]: value for n, value in asked.items() if "." in n}
    if "sharpen" in fields:
        fields["sharpen_radius"] = fields.pop("sharpen")
    return found | ({"normalize": fields} if fields else {})


@pytest.fixture(scope="module")
def usual_masks(network, field_of_view):
    return evaluator(network)(field_of_view, **Settings().arguments()).masks


@pytest.mark.parametrize(
    ("asked", "changes"),
    [
        *(({name: value}, True) for name, value in CHANGING.items()),
        *((asked, True) for asked in TOGETHER),
        (USUAL, False),
    ],
    ids=str,
)
def test_settings_do_what_they_do_in_eval(
    network, cellpose_model, field_of_view, usual_masks, asked, changes
):
    arguments = as_cellpose_takes_them(asked)
    masks = evaluator(network)(field_of_view, **Settings(**asked).arguments()).masks
    expected, *_ = cellpose_model.eval(field_of_view, **arguments)
    np.testing.assert_array_equal(masks, expected)
    assert np.array_equal(masks, usual_masks) is not changes
    assert shared_defaults() == PRISTINE, "the next image would be normalised otherwise"


# -- stacks ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stack(image):
    """Four planes of which each is a little darker and lies a little elsewhere, (Z, Y, X)."""
    planes = [np.roll(image.image[:48, :56], k, axis=1) * (1 - 0.2 * k) for k in range(4)]
    return np.stack(planes).astype(image.image.dtype)


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"stitch_threshold": 0.3},
        {"stitch_threshold": 0.3, "normalize.norm3D": False},
        {"do_3D": True, "min_size": 40, "anisotropy": 2.0, "flow3D_smooth": (1.0, 0.0, 0.0)},
    ],
    ids=str,
)
def test_stacks_are_segmented_as_by_eval(network, cellpose_model, stack, asked):
    """And a plain stack before leaves no trace, though Cellpose's own defaults would change."""
    arguments = as_cellpose_takes_them(asked)
    if "flow3D_smooth" in arguments:
        arguments["flow3D_smooth"] = [*arguments["flow3D_smooth"]]
    together = asked.keys() & {"do_3D", "stitch_threshold"}
    places = {"z_axis": 0} if together else {"channel_axis": 3}
    given = stack if together else stack[..., None]
    evaluate = evaluator(network)
    evaluate(stack, stack=True)
    assert shared_defaults() == PRISTINE
    output = evaluate(stack, stack=True, **Settings(**asked).arguments())
    masks = output.masks
    fields = {**PRISTINE, **arguments.pop("normalize", {})}
    expected, (_, own_flows, own_probability), _ = cellpose_model.eval(
        given, normalize=fields, **places, **arguments
    )
    np.testing.assert_array_equal(output.flows, own_flows)
    np.testing.assert_array_equal(output.probability, own_probability)
    if together:
        np.testing.assert_array_equal(masks, expected)
        return
    for own, plane in zip(expected, masks, strict=True):
        np.testing.assert_array_equal(
            own, np.where(plane > 0, plane - plane[plane > 0].min() + 1, 0)
        )
    numbers = [{*np.unique(plane)} - {0} for plane in masks]
    assert len(set().union(*numbers)) == sum(map(len, numbers)), "planes share a number"


def test_what_is_for_stacks_is_refused_for_one_plane(network, image):
    with pytest.raises(BadInput, match="do_3D and stitch_threshold are for stacks"):
        evaluator(network)(image.image, do_3D=True)
