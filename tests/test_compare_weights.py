"""Networks side by side: hand-made values, every bit, and no more memory than a tensor needs."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import save_file

from cellrepro.compare import compare_weights, distribution, layer_group, magnitudes, similarity
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
    from safetensors.torch import save_file as save_torch

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
    with pytest.raises(BadInput, match=r"b cannot be read as a safetensors file .*do that again"):
        compare_weights(a, b)
    with pytest.raises(BadInput, match="b cannot be read"):
        similarity([a, b])


@pytest.mark.parametrize(
    "content", [b"", b"abc", b"PK\x03\x04" * 50], ids=["empty", "short", "zip"]
)
def test_other_content(tmp_path, content):
    path = tmp_path / "model.pth"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"model\.pth cannot .* PyTorch checkpoint, save its state"):
        distribution(path)


def test_missing_file_and_folder(files, tmp_path):
    with pytest.raises(BadInput, match=r"nowhere does not exist; give a \.safetensors file"):
        compare_weights(files[0], tmp_path / "nowhere")
    with pytest.raises(BadInput, match="cannot be read as a safetensors file"):
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
    monkeypatch.setattr("cellrepro.compare.weights._CHUNK_VALUES", 2**14)
    assert peak_bytes(similarity, paths) < 2**20  # less than the tensors: read in pieces


# All pairs


def test_similarity_is_every_pair_compared(tmp_path, monkeypatch):
    monkeypatch.setattr("cellrepro.compare.weights._CHUNK_VALUES", 9)  # three parameters a piece
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
    import cellrepro.compare.weights as module

    read = []
    original = module._WeightsFile.bits
    monkeypatch.setattr(
        module._WeightsFile,
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
