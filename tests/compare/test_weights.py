"""Networks side by side: hand-made values, every bit, and no more memory than a tensor needs."""

import io
import json
import math
import pickle
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from cellrepro.compare.weight_distances import ulps_of
from cellrepro.compare.weight_files import layer_group
from cellrepro.compare.weight_histograms import difference_distributions, distribution, magnitudes
from cellrepro.compare.weight_similarity import layers_by_distance, similarity
from cellrepro.compare.weights import compare_weights
from cellrepro.errors import BadInput

# derandomize: the same examples everywhere and no example database left behind
PROPERTY = settings(derandomize=True, deadline=None, max_examples=60)


def saved(path, **tensors):
    """A safetensors file; ``__`` in a keyword stands for a dot."""
    named = {name.replace("__", "."): np.asarray(value) for name, value in tensors.items()}
    save_file(named, path)
    return path


def saved_raw(path, dtype, shape, content, name="w"):
    """A safetensors file with one tensor of a dtype that NumPy may not have."""
    entry = {"dtype": dtype, "shape": shape, "data_offsets": [0, len(content)]}
    header = json.dumps({name: entry}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)
    return path


def float32(*values):
    return np.array(values, np.float32)


def from_bits(*words):
    return np.array(words, np.uint32).view(np.float32)


@pytest.fixture
def files(tmp_path):
    a = saved(tmp_path / "a", encoder__w=float32(3, 4), out__bias=float32(0))
    b = saved(tmp_path / "b", encoder__w=float32(3, 0), out__bias=float32(12))
    return a, b


def test_compare_weights_worked_example(files):
    """a = (3, 4, 0), b = (3, 0, 12): b - a = (0, -4, 12), |a| = 5, |b| = sqrt(153), a.b = 9."""
    actual = compare_weights(*files)
    assert not actual.equal
    assert actual.verdict == "different"
    assert (actual.n_tensors, actual.n_parameters, actual.n_differing) == (2, 3, 2)
    assert actual.l2 == pytest.approx(math.sqrt(160))
    assert actual.relative_l2 == pytest.approx(math.sqrt(160) / 5)
    assert actual.cosine == pytest.approx(9 / (5 * math.sqrt(153)))
    assert (actual.max_abs, actual.max_abs_name) == (12, "out.bias")
    encoder, out = actual.per_tensor
    assert (encoder.name, encoder.shape, encoder.dtype) == ("encoder.w", (2,), "F32")
    assert (encoder.n, encoder.n_differing, encoder.l2, encoder.max_abs) == (2, 1, 4, 4)
    assert (encoder.relative_l2, encoder.cosine) == (4 / 5, 3 / 5)
    assert (encoder.mean_a, encoder.std_a, encoder.mean_b, encoder.std_b) == (3.5, 0.5, 1.5, 1.5)
    assert out.relative_l2 == math.inf  # a is all zero, b is not
    assert math.isnan(out.cosine)


def test_compare_weights_equal(files, tmp_path):
    a, _ = files
    tensors = {"out.bias": float32(0), "encoder.w": float32(3, 4)}
    save_file(tensors, tmp_path / "c", metadata={"device": "cuda"})
    assert a.read_bytes() != (tmp_path / "c").read_bytes()  # metadata are no parameter
    actual = compare_weights(a, tmp_path / "c")
    assert actual.equal
    assert actual.verdict == "identical"
    assert (actual.n_differing, actual.l2, actual.relative_l2, actual.cosine) == (0, 0, 0, 1)
    assert (actual.max_abs, actual.max_abs_name) == (0, None)
    assert [row.cosine for row in actual.per_tensor] == [1, 1]  # two zero vectors as well


@pytest.mark.parametrize(
    ("a", "b", "n_differing"),
    [
        (from_bits(0x7FC00001, 0), from_bits(0x7FC00001, 0), 0),
        (from_bits(0x7FC00001, 0), from_bits(0x7FC00002, 0), 1),
        (from_bits(0x7FA00000, 0), from_bits(0x7FE00000, 0), 1),
        (float32(0.0, 1), float32(-0.0, 1), 1),
        (float32(np.inf, 1), float32(np.inf, 1), 0),
    ],
    ids=["same NaN", "NaN payload", "signalling NaN", "signed zero", "infinity"],
)
def test_every_bit_counts(tmp_path, a, b, n_differing):
    actual = compare_weights(saved(tmp_path / "a", w=a), saved(tmp_path / "b", w=b))
    assert actual.n_differing == n_differing
    assert actual.equal is (n_differing == 0)
    if actual.equal:
        assert (actual.l2, actual.relative_l2, actual.cosine) == (0, 0, 1)


def test_signed_zero_differs_at_distance_zero(tmp_path):
    a = saved(tmp_path / "a", w=float32(0.0, 1))
    actual = compare_weights(a, saved(tmp_path / "b", w=float32(-0.0, 1)))
    assert (actual.equal, actual.l2, actual.cosine, actual.max_abs_name) == (False, 0, 1, None)


def test_a_new_nan_makes_distances_nan_and_is_named(tmp_path):
    a = saved(tmp_path / "a", u=float32(1, 2), v=float32(1), w=float32(5))
    b = saved(tmp_path / "b", u=float32(1, 9), v=float32(np.nan), w=float32(6))
    actual = compare_weights(a, b)
    assert all(math.isnan(x) for x in (actual.l2, actual.cosine, actual.max_abs))
    assert actual.max_abs_name == "v"
    assert actual.n_differing == 3
    c = saved(tmp_path / "c", u=float32(1, 2), v=float32(np.inf), w=float32(5))
    assert math.isinf(compare_weights(a, c).l2)


@pytest.mark.parametrize(
    "b",
    [float32(4, -3, 2, 1), float32(-1, -2, 3, -4), float32(2, 1, -3, 4)],
    ids=["reversed", "negated", "two swapped"],
)
def test_what_a_hash_tensor_or_norm_would_miss(tmp_path, b):
    """Both take these for equal (PyTorch 2.15.0)."""
    torch = pytest.importorskip("torch")
    a = float32(1, 2, -3, 4)
    hashes = [torch.hash_tensor(torch.from_numpy(x)).item() for x in (a, b)]
    assert hashes[0] == hashes[1]
    assert np.abs(a).sum() == np.abs(b).sum()
    path_a, path_b = saved(tmp_path / "a", w=a), saved(tmp_path / "b", w=b)
    assert not compare_weights(path_a, path_b).equal


# Unequal layouts are a finding, not an error


def test_other_names_and_shapes(tmp_path):
    a = saved(tmp_path / "a", u=float32(1, 2), v=float32(1, 2, 3), x=float32(1))
    b = saved(tmp_path / "b", u=float32(1, 2), v=float32(1, 2), y=float32(7, 8))
    actual = compare_weights(a, b)
    assert (actual.only_a, actual.only_b) == (("x",), ("y",))
    assert not actual.equal
    assert (actual.n_tensors, actual.n_parameters, actual.n_differing) == (4, 8, 6)
    assert all(math.isnan(x) for x in (actual.l2, actual.relative_l2, actual.cosine))
    assert actual.max_abs_name is None
    u, v = actual.per_tensor
    assert (u.n_differing, u.l2) == (0, 0)
    assert (v.shape, v.shape_b, v.n_differing, v.mean_b) == ((3,), (2,), 3, 1.5)
    assert math.isnan(v.l2)


def test_a_transposed_tensor_is_not_equal(tmp_path):
    a = saved(tmp_path / "a", w=np.zeros((2, 3), np.float32))
    actual = compare_weights(a, saved(tmp_path / "b", w=np.zeros((3, 2), np.float32)))
    assert (actual.equal, actual.n_differing) == (False, 6)


def test_other_dtype_of_equal_width(tmp_path):
    a = saved(tmp_path / "a", w=np.zeros(3, np.float32))
    actual = compare_weights(a, saved(tmp_path / "b", w=np.zeros(3, np.int32)))
    assert (actual.equal, actual.n_differing, actual.l2) == (False, 3, 0)
    empty = [saved(tmp_path / str(t), w=np.zeros(0, t)) for t in (np.float32, np.int32)]
    actual = compare_weights(*empty)
    assert (actual.equal, actual.n_differing) == (False, 0)
    assert similarity(empty).equal.tolist() == [[True, False], [False, True]]


def test_integers_scalars_and_empty_tensors(tmp_path):
    tensors = {
        "flag": np.array([True, False]),
        "scalar": np.array(2, np.int64),
        "empty": np.zeros((0, 3), np.float32),
        "half": np.array([1, 2], np.float16),
    }
    a = saved(tmp_path / "a", **tensors)
    b = saved(tmp_path / "b", **tensors | {"scalar": np.array(5, np.int64)})
    actual = compare_weights(a, b)
    assert (actual.n_differing, actual.l2, actual.max_abs_name) == (1, 3, "scalar")
    rows = {row.name: row for row in actual.per_tensor}
    assert (rows["scalar"].shape, rows["scalar"].n) == ((), 1)
    assert (rows["empty"].n, rows["empty"].cosine) == (0, 1)
    assert math.isnan(rows["empty"].mean_a)


def test_without_parameters_equality_is_vacuous(tmp_path):
    a = saved(tmp_path / "a")
    actual = compare_weights(a, a)
    assert (actual.equal, actual.verdict) == (True, "vacuous")


def test_natural_order(tmp_path):
    names = ["blocks.10.w", "blocks.2.w", "W2", "blocks.2.a", "blocks.02.w"]
    save_file({name: float32(1) for name in names}, tmp_path / "a")
    rows = compare_weights(tmp_path / "a", tmp_path / "a").per_tensor
    expected = ["W2", "blocks.2.a", "blocks.02.w", "blocks.2.w", "blocks.10.w"]
    assert [row.name for row in rows] == expected


# bfloat16, which NumPy does not have


def save_torch(tensors, path):
    """A safetensors file of PyTorch's tensors."""
    from safetensors.torch import save_file

    save_file(tensors, path)


def saved_by_torch(content):
    """The bytes of what PyTorch saves."""
    torch = pytest.importorskip("torch")
    with io.BytesIO() as stream:
        torch.save(content, stream)
        return stream.getvalue()


def test_bfloat16_by_hand(tmp_path):
    words = np.array([0x3F80, 0xC000, 0x7F80, 0x0000], "<u2")  # 1, -2, infinity, 0
    a = saved_raw(tmp_path / "a", "BF16", [4], words.tobytes())
    b = saved(tmp_path / "b", w=float32(1, -2, np.inf, 0.5))
    row = compare_weights(a, b).per_tensor[0]
    assert (row.dtype, row.dtype_b, row.n_differing) == ("BF16", "F32", 4)
    assert (row.l2, row.max_abs) == (0.5, 0.5)
    words[1] = 0xC001
    c = saved_raw(tmp_path / "c", "BF16", [4], words.tobytes())
    row = compare_weights(a, c).per_tensor[0]
    assert (row.n_differing, row.l2) == (1, 2**-6)  # the last of 8 significant bits of 2


def test_bfloat16_agrees_with_torch(tmp_path):
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    rounded = torch.from_numpy(values).to(torch.bfloat16)
    save_torch({"w": rounded}, tmp_path / "a")
    save_torch({"w": rounded.float()}, tmp_path / "b")
    actual = compare_weights(tmp_path / "a", tmp_path / "b")
    assert (actual.l2, actual.n_differing, actual.equal) == (0, 1000, False)
    assert actual.per_tensor[0].std_a == pytest.approx(rounded.double().std(correction=0).item())


# What cannot be read


def test_truncated_file(files):
    a, b = files
    b.write_bytes(b.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"b is no weights file that can be read .*do that again"):
        compare_weights(a, b)
    with pytest.raises(BadInput, match="b is no weights file"):
        similarity([a, b])


@pytest.mark.parametrize(
    "content",
    [
        *(b"", b"abc", b"name,cells\n" * 50, b"\x89PNG\r\n\x1a\n" * 9, b"PK\x03\x04" * 50),
        *(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.", pickle.dumps({"w": 1.0}, protocol=2)),
        *(saved_by_torch([1, 2]), saved_by_torch({"w": 1}), saved_by_torch({})),
        saved_by_torch({"w": np.ones(2)}),
    ],
    ids=[
        *("empty", "short", "table", "picture", "zip", "cut off", "pickle"),
        *("a list", "a number", "nothing", "an array"),
    ],
)
def test_other_content(tmp_path, content):
    path = tmp_path / "model.pth"
    path.write_bytes(content)
    with pytest.raises(
        BadInput, match=r"model\.pth is no weights file .* expected \.safetensors, or"
    ):
        distribution(path)


@pytest.mark.parametrize("name", ["cpsam", "cellpose_1712345678.25", "mine.pth"])
@pytest.mark.parametrize(
    "options", [{}, {"_use_new_zipfile_serialization": False}], ids=["", "old"]
)
def test_what_torch_saved_is_compared(tmp_path, name, options):
    """Cellpose's own files, whatever they are called, beside the lab's."""
    torch = pytest.importorskip("torch")
    held = {
        "out.weight": (torch.arange(21.0) / 8).reshape(7, 3).T,  # laid out otherwise in memory
        "out.bias": torch.tensor([1.0, -0.0]).to(torch.bfloat16),
        "n": torch.tensor(3),
        "W2": torch.zeros(2, dtype=torch.bool),
    }
    own, same = tmp_path / "run.safetensors", tmp_path / name
    save_torch({key: tensor.contiguous() for key, tensor in held.items()}, own)
    torch.save({f"module.{key}": tensor for key, tensor in held.items()}, same, **options)
    found = compare_weights(own, same)
    assert (found.equal, found.n_parameters) == (True, 26)
    held["out.weight"][1, 2] += 0.5
    torch.save(held, tmp_path / "other", **options)
    found = compare_weights(own, tmp_path / "other")
    assert (found.n_differing, found.max_abs) == (1, pytest.approx(0.5))
    assert similarity([own, same, tmp_path / "other"]).l2[0, 2] == pytest.approx(0.5)


def test_code_in_a_file_of_weights_is_not_run(tmp_path):
    torch = pytest.importorskip("torch")

    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    torch.save({"w": Trap()}, tmp_path / "model.pth")
    with pytest.raises(BadInput, match=r"model\.pth is no weights file"):
        compare_weights(tmp_path / "model.pth", tmp_path / "model.pth")
    assert not (tmp_path / "sprung").exists()


def test_missing_file_and_folder(files, tmp_path):
    with pytest.raises(
        BadInput, match=r"nowhere does not exist; give a \.safetensors file of weights"
    ):
        compare_weights(files[0], tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"cannot be read .*give a file of weights"):
        compare_weights(files[0], tmp_path)


def test_a_dtype_without_numbers(tmp_path):
    a = saved_raw(tmp_path / "a", "F8_E4M3", [2], b"\x00\x01", name="layer.w")
    with pytest.raises(BadInput, match=r"a holds layer\.w as F8_E4M3, and F64, F32, .* store it"):
        compare_weights(a, a)


# Memory


def peak_bytes(function, *arguments):
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_no_file_is_ever_held_whole(tmp_path, monkeypatch):
    """32 tensors of 0.25 MiB: each file is 8 MiB, and the work needs a few tensors' worth."""
    generator = np.random.default_rng(0)
    paths = []
    for name in "ab":
        tensors = {f"w{i}": generator.random(2**16, np.float32) for i in range(32)}
        paths.append(tmp_path / name)
        save_file(tensors, paths[-1])
    assert compare_weights(*paths).n_parameters == 2**21  # imports done before measuring
    assert peak_bytes(compare_weights, *paths) < 4 * 2**20
    assert peak_bytes(distribution, paths[0]) < 4 * 2**20
    monkeypatch.setattr("cellrepro.compare.weight_similarity._PIECE_VALUES", 2**14)
    assert peak_bytes(similarity, paths) < 2**20  # less than the tensors: read in pieces


# All pairs


def test_similarity_is_every_pair_compared(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "cellrepro.compare.weight_similarity._PIECE_VALUES", 9
    )  # three parameters a piece
    generator = np.random.default_rng(1)
    shapes = {"blocks.0.w": (2, 4), "blocks.1.w": (5,), "out": ()}
    paths = [tmp_path / name for name in "abc"]
    for path in paths:
        save_file({k: generator.normal(size=s).astype(np.float32) for k, s in shapes.items()}, path)
    actual = similarity(paths)
    for i, a in enumerate(paths):
        for j, b in enumerate(paths):
            expected = compare_weights(a, b)
            assert actual.equal[i, j] == expected.equal == (i == j)
            assert actual.l2[i, j] == pytest.approx(expected.l2)
            assert actual.relative_l2[i, j] == pytest.approx(expected.relative_l2)
            assert actual.cosine[i, j] == pytest.approx(expected.cosine)
            assert actual.max_abs[i, j] == expected.max_abs
    assert actual.l2[0, 1] == actual.l2[1, 0] > 0
    assert actual.relative_l2[0, 1] != actual.relative_l2[1, 0]


def test_similarity_sees_what_scalar_products_would_lose(tmp_path):
    a = saved(tmp_path / "a", w=np.array([1e9, 1.0]))
    b = saved(tmp_path / "b", w=np.array([1e9, 1.5]))
    assert similarity([a, b]).l2[0, 1] == 0.5


def test_similarity_of_other_networks_is_nan(files, tmp_path):
    a, b = files
    other = saved(tmp_path / "other", w=float32(1))
    actual = similarity([a, other, b])
    assert np.isnan(actual.l2).tolist() == [
        [False, True, False],
        [True, False, True],
        [False, True, False],
    ]
    assert actual.l2[0, 2] == pytest.approx(math.sqrt(160))
    assert not actual.equal[0, 1]
    np.testing.assert_array_equal(np.diag(actual.cosine), [1, 1, 1])


def test_similarity_reads_equal_content_once(files, tmp_path, monkeypatch):
    a, b = files
    link = tmp_path / "link"
    link.hardlink_to(a)
    copy = tmp_path / "copy"
    copy.write_bytes(a.read_bytes())
    import cellrepro.compare.weight_files as module

    read = []
    original = module.WeightsFile.bits
    monkeypatch.setattr(
        module.WeightsFile,
        "bits",
        lambda self, *where: read.append(self.path) or original(self, *where),
    )
    actual = similarity([a, link, b, copy], digests=["1", None, "2", "1"])
    assert set(read) == {a, b}
    assert len(read) == 4  # two tensors each
    assert actual.paths == (a, link, b, copy)
    same = np.array([True, True, False, True])
    np.testing.assert_array_equal(actual.equal, same[:, None] == same)
    np.testing.assert_array_equal(actual.l2 == 0, same[:, None] == same)


def test_similarity_tells_equal_values_from_equal_bits(tmp_path):
    a = saved(tmp_path / "a", w=float32(0.0, np.nan))
    b = saved(tmp_path / "b", w=float32(-0.0, np.nan))
    c = saved(tmp_path / "c", w=float32(0.0, np.nan))
    d = saved(tmp_path / "d", w=np.array([0, np.nan]))
    actual = similarity([a, b, c, d])
    assert actual.equal[0].tolist() == [True, False, True, False]
    assert actual.l2[0, :3].tolist() == [0, 0, 0]
    assert compare_weights(a, d).equal is False


def test_similarity_of_one_and_of_none(files):
    actual = similarity(files[:1])
    assert (actual.l2.tolist(), actual.cosine.tolist()) == ([[0]], [[1]])
    with pytest.raises(BadInput, match=r"no weights file was given .* give at least one path"):
        similarity([])
    with pytest.raises(BadInput, match="1 digests were given for 2 weights files"):
        similarity(files, digests=["1"])


# Distribution


def test_distribution_by_hand(tmp_path):
    path = saved(
        tmp_path / "a",
        encoder__blocks__0__w__weight=float32(-2, 0, 0.1),
        encoder__blocks__0__w__bias=float32(1.9, np.inf, np.nan),
        out__weight=float32(0, 0),
    )
    actual = distribution(path, bins=5)
    assert list(actual) == ["encoder.blocks.0", "out"]
    counts, edges = actual["encoder.blocks.0"]
    assert (counts.dtype, counts.tolist()) == (np.int64, [1, 0, 2, 0, 1])  # the finite ones
    np.testing.assert_allclose(edges, [-2, -1.2, -0.4, 0.4, 1.2, 2])
    counts, edges = actual["out"]
    assert (counts.tolist(), edges[0], edges[-1]) == ([0, 0, 2, 0, 0], -1, 1)


def test_distribution_within_given_limits(tmp_path):
    save_file({"out.weight": np.array([-0.5, 0.1, 3.0], np.float32)}, tmp_path / "a.safetensors")
    assert magnitudes(tmp_path / "a.safetensors") == {"out": 3.0}
    counts, edges = distribution(tmp_path / "a.safetensors", bins=4, limits={"out": 2.0})["out"]
    assert edges.tolist() == [-2, -1, 0, 1, 2]
    assert counts.tolist() == [0, 1, 1, 0]  # 3.0 lies beyond
    with pytest.raises(BadInput, match=r"limits names \['W2'\], but .* also holds out"):
        distribution(tmp_path / "a.safetensors", limits={"W2": 1.0})


def test_distribution_of_chosen_tensors(files):
    assert list(distribution(files[0], names=["out.bias"])) == ["out"]
    assert distribution(files[0], names=[]) == {}
    with pytest.raises(BadInput, match=r"holds no tensor 'out.bais'; .* \['out.bias'\]"):
        distribution(files[0], names=["out.bais"])
    with pytest.raises(BadInput, match="0 bins were asked for"):
        distribution(files[0], bins=0)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("encoder.blocks.11.attn.rel_pos_h", "encoder.blocks.11"),
        ("encoder.patch_embed.proj.bias", "encoder.patch_embed"),
        ("encoder.pos_embed", "encoder.pos_embed"),
        ("out.bias", "out"),
        ("weight", "weight"),
        ("blocks.3.norm.weight", "blocks.3"),
    ],
)
def test_layer_group(name, expected):
    assert layer_group(name) == expected


# Properties


@st.composite
def vector_pairs(draw):
    n = draw(st.integers(1, 8))
    elements = st.floats(-1e3, 1e3, width=32)
    return tuple(draw(hnp.arrays(np.float32, n, elements=elements)) for _ in "ab")


@PROPERTY
@given(vector_pairs())
def test_distances_are_those_of_the_plain_formulas(tmp_path_factory, pair):
    folder = tmp_path_factory.mktemp("pair")
    a, b = (saved(folder / name, w=x) for name, x in zip("ab", pair, strict=True))
    there, back = compare_weights(a, b), compare_weights(b, a)
    x, y = (vector.astype(np.float64) for vector in pair)
    assert there.l2 == pytest.approx(np.linalg.norm(x - y), rel=1e-12)
    assert there.max_abs == np.abs(x - y).max()
    assert there.n_differing == np.count_nonzero(pair[0].view(np.uint32) != pair[1].view(np.uint32))
    assert there.equal is (pair[0].tobytes() == pair[1].tobytes())
    for name in ("equal", "n_differing", "l2", "max_abs"):
        assert getattr(there, name) == getattr(back, name)
    if there.l2 and x.any() and y.any():
        expected = x @ y / np.linalg.norm(x) / np.linalg.norm(y)
        assert there.cosine == pytest.approx(expected, abs=1e-12)
        assert -1 <= there.cosine <= 1
        assert there.relative_l2 == pytest.approx(there.l2 / np.linalg.norm(x), rel=1e-12)


@PROPERTY
@given(hnp.arrays(np.uint32, 4), st.integers(0, 3), st.integers(0, 31))
def test_any_flipped_bit_is_found(tmp_path_factory, bits, where, bit):
    folder = tmp_path_factory.mktemp("bits")
    flipped = bits.copy()
    flipped[where] ^= np.uint32(1 << bit)
    a = saved(folder / "a", w=bits.view(np.float32))
    assert compare_weights(a, a).l2 == 0
    actual = compare_weights(a, saved(folder / "b", w=flipped.view(np.float32)))
    assert (actual.equal, actual.n_differing) == (False, 1)


# Units in the last place


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (float32(1), float32(np.nextafter(float32(1)[0], 2)), (1, 1, (0, 1))),
        (float32(1), float32(0.5), (2**23, 2**23, (0,) * 24 + (1,))),
        (float32(-0.0), float32(0.0), (0, 0, (1,))),
        (from_bits(0x80000001), from_bits(0x00000001), (2, 2, (0, 0, 1))),
        (from_bits(0x7F7FFFFF), float32(np.inf), (1, 1, (0, 1))),
        (from_bits(0x7FC00001, 0), from_bits(0x7FC00001, 3), (3, 0, (1, 0, 1))),
        (from_bits(0x7FC00001, 0), from_bits(0x7FC00002, 3), (None, None, (0, 0, 1))),
        (np.float64([1]), np.float64([-1]), (2 * 0x3FF << 52, 2**62, (0,) * 63 + (1,))),
        (np.float16([1, 1, 1]), np.float16([1, 1 + 2**-10, 1 + 5 * 2**-10]), (5, 1, (1, 1, 0, 1))),
        (float32(1), np.float64([1]), (None, None, ())),
        (np.array([1]), np.array([2]), (None, None, ())),
        (float32(), float32(), (None, None, ())),
    ],
    ids=[
        "next",
        "a factor of two",
        "signed zero",
        "across zero",
        "infinity after the largest",
        "same NaN",
        "new NaN",
        "float64",
        "float16",
        "other dtype",
        "integers",
        "empty",
    ],
)
def test_ulp_by_hand(tmp_path, a, b, expected):
    whole = compare_weights(saved(tmp_path / "a", w=a), saved(tmp_path / "b", w=b))
    for row in (whole, *whole.per_tensor, *whole.per_layer):
        assert (row.max_ulp, row.median_ulp, row.ulp_counts) == expected


def test_ulp_of_bfloat16_counts_its_own_steps(tmp_path):
    words = np.array([0x3F80, 0x8001, 0x3F80], "<u2")  # 1, the number below 0, 1
    a = saved_raw(tmp_path / "a", "BF16", [3], words.tobytes())
    words[:] = 0x3F82, 0x0001, 0x3F80
    actual = compare_weights(a, saved_raw(tmp_path / "b", "BF16", [3], words.tobytes()))
    assert (actual.max_ulp, actual.median_ulp, actual.ulp_counts) == (2, 2, (1, 0, 2))


def test_integers_do_not_count_among_ulps(tmp_path):
    a = saved(tmp_path / "a", w=float32(1), n=np.array(7))
    b = saved(tmp_path / "b", w=float32(1), n=np.array(9))
    actual = compare_weights(a, b)
    assert (actual.max_ulp, actual.ulp_counts) == (0, (1,))
    assert {row.name: row.max_ulp for row in actual.per_layer} == {"n": None, "w": 0}


@PROPERTY
@given(hnp.arrays(np.uint16, 6), hnp.arrays(np.uint16, 6))
def test_ulps_are_steps_in_the_list_of_all_numbers(a, b):
    """Of float16 there are few enough numbers to list them all."""
    every = np.unique(np.arange(2**16, dtype=np.uint16).view(np.float16))  # -0 and 0 are one
    every = every[~np.isnan(every)]
    x, y = a.view(np.float16), b.view(np.float16)
    numbers = ~(np.isnan(x) | np.isnan(y))
    steps = np.abs(np.searchsorted(every, x[numbers]) - np.searchsorted(every, y[numbers]))
    actual = ulps_of(a[numbers], b[numbers], "F16")
    assert actual.largest == max(steps.tolist(), default=None)
    classes = np.bincount([int(step).bit_length() for step in steps] or [0], minlength=17)
    classes[0] -= not steps.size
    assert np.array_equal(classes, [*actual.counts, *[0] * (17 - len(actual.counts))])
    assert ulps_of(a, b, "F16").defined == bool((numbers | (a == b)).all())


# Places and layers


def test_the_largest_difference_has_a_place(tmp_path, monkeypatch):
    monkeypatch.setattr("cellrepro.compare.weights._PIECE", 2)
    u, v = np.zeros((2, 3, 2), np.float32), np.zeros((), np.float32)
    a = saved(tmp_path / "a", u=u, v=v)
    u[1, 2, 0], u[1, 2, 1] = -3, 3
    actual = compare_weights(a, saved(tmp_path / "b", u=u, v=v + 1))
    assert (actual.max_abs, actual.max_abs_name, actual.max_abs_index) == (3, "u", (1, 2, 0))
    assert [row.max_abs_index for row in actual.per_tensor] == [(1, 2, 0), ()]
    u[0, 1, 0], u[1, 0, 0] = 9, np.nan
    actual = compare_weights(a, saved(tmp_path / "c", u=u, v=v))
    assert (actual.max_abs_index, actual.per_tensor[1].max_abs_index) == ((1, 0, 0), None)


def test_layers_by_hand(tmp_path):
    """Layer 0: (3, 4) to (3, 0) and (0) to (12). Layer 1: same bits. Layer 2: in a only."""
    a = saved(
        tmp_path / "a",
        e__blocks__0__x=float32(3, 4),
        e__blocks__0__y=float32(0),
        e__blocks__1__x=float32(5),
        e__blocks__2__x=float32(6, 7),
    )
    b = saved(
        tmp_path / "b",
        e__blocks__0__x=float32(3, 0),
        e__blocks__0__y=float32(12),
        e__blocks__1__x=float32(5),
    )
    first, second, third = compare_weights(a, b).per_layer
    assert (first.name, first.n_tensors, first.n, first.n_differing) == ("e.blocks.0", 2, 3, 2)
    assert first.l2 == pytest.approx(math.sqrt(160))
    assert first.relative_l2 == pytest.approx(math.sqrt(160) / 5)
    assert first.cosine == pytest.approx(9 / (5 * math.sqrt(153)))
    assert (first.max_abs, first.max_abs_name, first.max_abs_index) == (12, "e.blocks.0.y", (0,))
    assert (second.name, second.l2, second.cosine, second.max_ulp) == ("e.blocks.1", 0, 1, 0)
    assert second.max_abs_name is None
    assert (third.name, third.n_tensors, third.n, third.n_differing) == ("e.blocks.2", 1, 2, 2)
    assert math.isnan(third.l2)
    assert third.max_ulp is None


def test_pieces_change_nothing(tmp_path, monkeypatch):
    generator = np.random.default_rng(3)
    a, b = (
        saved(tmp_path / name, u=generator.normal(size=(7, 5)), v=generator.normal(size=11))
        for name in "ab"
    )
    whole = compare_weights(a, b)
    monkeypatch.setattr("cellrepro.compare.weights._PIECE", 3)
    monkeypatch.setattr("cellrepro.compare.weight_histograms._PIECE", 3)
    assert distribution(a, bins=5)["u"][0].sum() == 35
    for one, other in zip(whole.per_tensor, compare_weights(a, b).per_tensor, strict=True):
        for name, expected in vars(one).items():
            actual = getattr(other, name)
            if isinstance(expected, float):
                assert actual == pytest.approx(expected, rel=1e-13, abs=1e-15)
            else:
                assert actual == expected


# All pairs at once


def agrees_with_pairs(paths, *, cosine=1e-12):
    """Each entry of the tables beside the comparison of the two files."""
    table = similarity(paths)
    for i, a in enumerate(paths):
        for j, b in enumerate(paths):
            pair = compare_weights(a, b)
            near = {"rel": 1e-12, "abs": 0, "nan_ok": True}
            assert table.equal[i, j] == pair.equal
            assert table.l2[i, j] == pytest.approx(pair.l2, **near)
            assert table.relative_l2[i, j] == pytest.approx(pair.relative_l2, **near)
            assert table.cosine[i, j] == pytest.approx(pair.cosine, abs=cosine, nan_ok=True)
            assert table.max_abs[i, j] == pytest.approx(pair.max_abs, rel=0, abs=0, nan_ok=True)
            for n, layer in enumerate(pair.per_layer):
                assert table.layers[n] == layer.name
                assert table.layer_l2[n, i, j] == pytest.approx(layer.l2, **near)
                assert table.layer_relative_l2[n, i, j] == pytest.approx(layer.relative_l2, **near)
    return table


def spread(generator, n_files, n, *, start=1.0, noise=1.0):
    """Networks of n parameters that go out from one, so that all are close if noise is small."""
    common = start * generator.normal(size=n)
    return [common + noise * generator.normal(size=n) for _ in range(n_files)]


@pytest.mark.parametrize(
    "networks",
    [
        lambda g: spread(g, 5, 1500),
        lambda g: spread(g, 5, 1500, noise=1e-5),
        lambda g: [x + 1 for x in spread(g, 3, 1500, noise=1e-9)] + spread(g, 3, 1500, noise=1e-3),
        lambda g: [np.zeros(1500), *spread(g, 2, 1500, noise=1e-6), np.ones(1500)],
        lambda g: [1e6 * x if i == 0 else x for i, x in enumerate(spread(g, 4, 1500, noise=1e-4))],
        lambda g: [x * 10.0**-i for i, x in enumerate(spread(g, 5, 1500, start=0))],
        lambda g: [np.ones(1500) + 1e-3 * g.choice([-1, 1], 1500) for _ in range(5)],
        lambda g: [np.where(np.arange(1500) == i, 1e3, 1e-3 * i) for i in range(5)],
    ],
    ids=[
        "far",
        "close",
        "two clusters",
        "zeros and ones",
        "one far larger",
        "other sizes",
        "steps of one size",
        "one parameter rules",
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tables_agree_with_pairs(tmp_path, monkeypatch, networks, dtype):
    monkeypatch.setattr(
        "cellrepro.compare.weight_similarity._BLOCK_VALUES", 2**11
    )  # several blocks
    files = [
        saved(tmp_path / str(i), e__blocks__0__w=x[:1100].astype(dtype), out=x[1100:].astype(dtype))
        for i, x in enumerate(networks(np.random.default_rng(5)))
    ]
    table = agrees_with_pairs(files)
    assert ((table.l2 == 0) == np.eye(len(files), dtype=bool)).all()


def test_tables_with_what_is_no_number(tmp_path):
    x = np.random.default_rng(0).normal(size=(5, 600)).astype(np.float32)
    x[1, 3] = x[2, 3] = np.nan
    x[3, 4] = np.inf
    x[4, 4] = np.inf
    files = [saved(tmp_path / str(i), u=row[:2], w=row[2:]) for i, row in enumerate(x)]
    table = agrees_with_pairs(files)
    assert np.isnan(table.l2[0, 1])
    assert np.isfinite(table.l2[1, 2])  # the same NaN in both
    assert np.isinf(table.l2[0, 3])
    assert np.isfinite(table.l2[3, 4])  # the same infinity


def test_tables_of_other_dtypes_of_one_network(tmp_path):
    x = np.random.default_rng(0).normal(size=700).astype(np.float16)
    kinds = (np.float16, np.float32, np.float64)
    table = agrees_with_pairs([saved(tmp_path / k.__name__, w=x.astype(k)) for k in kinds])
    assert not table.l2.any()
    assert np.array_equal(table.equal, np.eye(3, dtype=bool))


def test_distances_whose_squares_float64_does_not_have(tmp_path):
    a, b = (saved(tmp_path / name, w=np.array([1.0, x])) for name, x in (("a", 0), ("b", 1e-200)))
    assert compare_weights(a, b).l2 == similarity([a, b]).l2[0, 1] == 1e-200
    c, d = (saved(tmp_path / name, w=np.array([1.0, x])) for name, x in (("c", 0), ("d", 1e200)))
    assert compare_weights(c, d).l2 == similarity([c, d]).l2[0, 1] == math.inf
    assert similarity([c, d]).max_abs[0, 1] == 1e200


def test_layer_tables_by_hand(files, tmp_path):
    """encoder: (3, 4), (3, 0), (3, 4); out: 0, 12, 12."""
    c = saved(tmp_path / "c", encoder__w=float32(3, 4), out__bias=float32(12))
    table = similarity([*files, c])
    assert table.layers == ("encoder.w", "out")
    np.testing.assert_allclose(table.layer_l2[0], [[0, 4, 0], [4, 0, 4], [0, 4, 0]])
    np.testing.assert_allclose(table.layer_l2[1], [[0, 12, 12], [12, 0, 0], [12, 0, 0]])
    np.testing.assert_allclose(table.layer_relative_l2[0][0], [0, 4 / 5, 0])
    np.testing.assert_allclose(table.layer_relative_l2[0][1], [4 / 3, 0, 4 / 3])
    np.testing.assert_allclose(table.layer_cosine[0][0], [1, 3 / 5, 1])
    out, encoder = layers_by_distance(table)
    assert (out.layer, out.least, out.median, out.most) == ("out", 0, 1, math.inf)
    assert out.furthest == (0, 1)
    assert len(out.pairs) == 6
    assert encoder.relative_l2 == pytest.approx((4 / 5, 0, 4 / 3, 4 / 3, 0, 4 / 5))
    assert (encoder.median, encoder.furthest) == (pytest.approx(4 / 5), (1, 0))


def test_layers_of_equal_and_of_other_networks(files, tmp_path):
    assert layers_by_distance(similarity([files[0], files[0]])) == ()
    other = saved(tmp_path / "other", out__bias=float32(1, 2))
    table = similarity([*files, other])
    assert np.isnan(table.layer_l2[:, 0, 2]).all()
    assert np.isnan(table.layer_l2[table.layers.index("encoder.w"), 2, 2])
    assert all(row.pairs == ((0, 1), (1, 0)) for row in layers_by_distance(table))


def test_each_file_is_read_once(tmp_path, monkeypatch):
    import cellrepro.compare.weight_files as module

    generator = np.random.default_rng(0)
    files = [
        saved(tmp_path / n, v=generator.normal(size=9), w=generator.normal(size=30)) for n in "abc"
    ]
    n_read = dict.fromkeys(files, 0)
    original = module.WeightsFile.bits

    def counted(self, *where):
        found = original(self, *where)
        n_read[self.path] += found.nbytes
        return found

    monkeypatch.setattr(module.WeightsFile, "bits", counted)
    monkeypatch.setattr("cellrepro.compare.weight_similarity._PIECE_VALUES", 12)
    similarity(files)
    assert list(n_read.values()) == [8 * 39] * 3
    difference_distributions(files)
    assert list(n_read.values()) == [2 * 8 * 39] * 3


@st.composite
def close_networks(draw):
    """Up to five networks, of which some are equal, and some differ from another in one place."""
    n = draw(st.integers(1, 5))
    elements = st.floats(-1e3, 1e3, width=32)
    networks = [draw(hnp.arrays(np.float32, n, elements=elements))]
    for _ in range(draw(st.integers(1, 4))):
        network = networks[draw(st.integers(0, len(networks) - 1))].copy()
        where = draw(st.integers(0, n - 1))
        step = draw(st.sampled_from([0, 1, 1, 5, 2**23]))
        network[where] = (np.int32(step) + network[where : where + 1].view(np.int32)).view("f4")[0]
        networks.append(network if np.isfinite(network).all() else networks[0])
    return networks


@PROPERTY
@given(close_networks())
def test_tables_are_distances(tmp_path_factory, networks):
    folder = tmp_path_factory.mktemp("networks")
    files = [saved(folder / str(i), w=x) for i, x in enumerate(networks)]
    table = similarity(files)
    x = np.stack(networks).astype(np.float64)
    apart = x[:, None] - x
    np.testing.assert_allclose(table.l2, np.sqrt((apart**2).sum(2)), rtol=1e-12, atol=0)
    np.testing.assert_array_equal(table.max_abs, np.abs(apart).max(2))
    np.testing.assert_array_equal(table.l2 == 0, (apart == 0).all(2))
    np.testing.assert_array_equal(table.l2, table.l2.T)
    np.testing.assert_array_equal(table.cosine, table.cosine.T)
    through = (table.l2[:, :, None] + table.l2[None]).min(1)
    assert (table.l2 <= through * (1 + 1e-12)).all()
    order = np.arange(len(files))[::-1]
    turned = similarity([files[i] for i in order])
    np.testing.assert_allclose(turned.l2[np.ix_(order, order)], table.l2, rtol=1e-12, atol=0)


def test_the_order_and_size_of_pieces_is_irrelevant(tmp_path, monkeypatch):
    generator = np.random.default_rng(2)
    networks = spread(generator, 4, 3000, noise=1e-4) + spread(generator, 2, 3000)
    files = [saved(tmp_path / str(i), w=x.astype(np.float32)) for i, x in enumerate(networks)]
    mixed = generator.permutation(3000)
    others = [saved(tmp_path / f"m{i}", w=x[mixed].astype("f4")) for i, x in enumerate(networks)]
    table = similarity(files)
    monkeypatch.setattr("cellrepro.compare.weight_similarity._PIECE_VALUES", 700 * 6)
    monkeypatch.setattr("cellrepro.compare.weight_similarity._BLOCK_VALUES", 1)
    again = similarity(others)
    np.testing.assert_allclose(again.l2, table.l2, rtol=1e-12, atol=0)
    np.testing.assert_allclose(again.cosine, table.cosine, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(again.max_abs, table.max_abs)


@pytest.mark.parametrize("noise", [1, 1e-6], ids=["far", "close"])
def test_more_networks_than_one_matrix_product_holds(tmp_path, noise):
    x = np.array(spread(np.random.default_rng(7), 43, 700, noise=noise))
    table = similarity([saved(tmp_path / str(i), w=row) for i, row in enumerate(x)])
    apart = x[:, None] - x
    np.testing.assert_allclose(table.l2, np.sqrt((apart**2).sum(2)), rtol=1e-12, atol=0)
    np.testing.assert_array_equal(table.max_abs, np.abs(apart).max(2))
    np.testing.assert_array_equal(table.cosine, table.cosine.T)


@pytest.mark.parametrize(
    "rows",
    [
        [[1.2e154, 0], [-1.2e154, 0], [1.2e154, 1e140]],
        [[0.968e154, 0], [0.9285e154, 0], [0.968e154, 1e140]],
    ],
    ids=["squares of differences too", "twice the products do not"],
)
def test_tables_where_sums_of_squares_leave_float64(tmp_path, rows):
    files = [saved(tmp_path / str(i), w=np.array(row)) for i, row in enumerate(rows)]
    table = agrees_with_pairs(files)
    assert table.l2[0, 2] == 1e140
    assert table.max_abs[0, 1] == rows[0][0] - rows[1][0]


def test_tables_where_squares_of_differences_are_lost(tmp_path):
    files = [saved(tmp_path / str(x), w=np.array([1, x])) for x in (0, 1e-170)]
    table = similarity(files)
    assert table.l2[0, 1] == table.max_abs[0, 1] == 1e-170
    assert table.layer_l2[0, 0, 1] > 0


# Distributions of differences


def test_differences_by_hand(tmp_path):
    """b - a = (0, 1, 1.5, -2, 0.25, -0.25), then out = (0, nan)."""
    a = saved(tmp_path / "a", enc__w=float32(1, 1, 1, 1, 1, 1), out=float32(5, 5))
    b = saved(tmp_path / "b", enc__w=float32(1, 2, 2.5, -1, 1.25, 0.75), out=float32(5, np.nan))
    actual = difference_distributions([a, b, a])
    assert actual.layers == ("enc.w", "out")
    assert actual.pairs == ((0, 1), (0, 2))
    assert actual.edges.tolist() == [-4, -2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2, 4]
    assert actual.counts[0].tolist() == [[1, 0, 0, 1, 1, 1, 0, 2, 0], [0, 0, 0, 0, 1, 0, 0, 0, 0]]
    assert actual.n_zero.tolist() == [[1, 1], [6, 2]]
    assert actual.n_undefined.tolist() == [[0, 1], [0, 0]]
    turned = difference_distributions([a, b], pairs=[(1, 0)])
    assert turned.counts[0, 0].tolist() == actual.counts[0, 0, ::-1].tolist()


def test_differences_of_equal_networks_and_of_extreme_ones(files, tmp_path):
    actual = difference_distributions([files[0], files[0]])
    assert (actual.edges.tolist(), actual.counts.sum(), actual.n_zero.sum()) == ([-1, 1], 3, 3)
    a, b = (
        saved(tmp_path / n, w=np.array([0, 0, s * 1e308])) for n, s in (("a", 0.9), ("b", -0.8))
    )
    c = saved(tmp_path / "c", w=np.array([5e-324, 1e-300, -0.8e308]))
    actual = difference_distributions([a, c], pairs=[(0, 1)])
    assert (actual.counts.sum(), actual.n_undefined.sum(), actual.n_zero.sum()) == (3, 0, 0)
    assert np.isinf(actual.edges[-1])
    assert difference_distributions([a, b]).counts.sum() == 3


def test_differences_of_what_has_none(files, tmp_path):
    with pytest.raises(BadInput, match=r"1 weights files were given, .* give another path"):
        difference_distributions(files[:1])
    with pytest.raises(BadInput, match=r"the pair \(0, 2\) was asked for, .* files 0 to 1"):
        difference_distributions(files, pairs=[(0, 2)])
    other = saved(tmp_path / "other", w=float32(1))
    with pytest.raises(BadInput, match=r"other holds other tensors than .*a, by name or shape"):
        difference_distributions([files[0], other])


@PROPERTY
@given(vector_pairs())
def test_every_difference_is_in_its_interval(tmp_path_factory, pair):
    folder = tmp_path_factory.mktemp("pair")
    actual = difference_distributions(
        [saved(folder / name, w=x) for name, x in zip("ab", pair, strict=True)]
    )
    apart = pair[1].astype(np.float64) - pair[0]
    for low, high, count in zip(actual.edges, actual.edges[1:], actual.counts[0, 0], strict=False):
        if low < 0 < high:
            inside = (apart > low) & (apart < high)
        else:
            inside = (apart >= low) & (apart < high) if low > 0 else (apart > low) & (apart <= high)
        assert np.count_nonzero(inside) == count
    assert actual.n_zero[0, 0] == np.count_nonzero(apart == 0)
