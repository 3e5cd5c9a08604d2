"""Networks side by side: two, many, and histograms, from small files made here."""

import json
import math
import tracemalloc
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from cellrepro.comparison.weight_comparison import compare_weights
from cellrepro.comparison.weight_distributions import difference_distributions, distributions
from cellrepro.comparison.weight_similarity import similarity
from cellrepro.comparison.weight_statistics import weight_statistics
from samebits.errors import BadInput


def saved(path, **tensors):
    """A safetensors file; ``__`` in a keyword stands for a dot."""
    save_file({name.replace("__", "."): np.asarray(v) for name, v in tensors.items()}, path)
    return path


def saved_raw(path, dtype, content):
    """A safetensors file with one tensor of a dtype that NumPy may not have."""
    n = len(content) // (2 if dtype == "BF16" else 1)
    header = {"w": {"dtype": dtype, "shape": [n], "data_offsets": [0, len(content)]}}
    encoded = json.dumps(header).encode()
    path.write_bytes(len(encoded).to_bytes(8, "little") + encoded + content)
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


# -- two networks ----------------------------------------------------------------------------


def test_a_worked_example(files, tmp_path):
    """a = (3, 4, 0), b = (3, 0, 12): b - a = (0, -4, 12), |a| = 5, |b| = sqrt(153), a.b = 9."""
    found = compare_weights(*files)
    assert (found.equal, found.verdict) == (False, "different")
    assert (found.n_tensors, found.n_parameters, found.n_differing) == (2, 3, 2)
    assert found.l2 == pytest.approx(math.sqrt(160))
    assert found.relative_l2 == pytest.approx(math.sqrt(160) / 5)
    assert found.cosine == pytest.approx(9 / (5 * math.sqrt(153)))
    assert (found.max_abs, found.max_abs_name) == (12, "out.bias")
    encoder, out = found.tensors
    assert (encoder.name, encoder.shape, encoder.dtype) == ("encoder.w", (2,), "F32")
    assert (encoder.n_differing, encoder.relative_l2, encoder.cosine) == (1, 4 / 5, 3 / 5)
    assert (out.relative_l2, np.isnan(out.cosine)) == (math.inf, True)  # a is all zero, b is not
    assert compare_weights(*files, prefix="encoder.").n_parameters == 2
    tensors = {"out.bias": float32(0), "encoder.w": float32(3, 4)}
    save_file(tensors, tmp_path / "c", metadata={"device": "cuda"})
    same = compare_weights(files[0], tmp_path / "c")
    assert (same.verdict, same.n_differing, same.l2, same.relative_l2) == ("identical", 0, 0, 0)
    assert (same.cosine, same.max_abs_name, same.max_ulp) == (1, None, 0)
    nothing = saved(tmp_path / "nothing")
    assert compare_weights(nothing, nothing).verdict == "vacuous"


@pytest.mark.parametrize(
    ("a", "b", "n_differing"),
    [
        (from_bits(0x7FC00001, 0), from_bits(0x7FC00001, 0), 0),
        (from_bits(0x7FC00001, 0), from_bits(0x7FC00002, 0), 1),
        (float32(0.0, 1), float32(-0.0, 1), 1),
        (float32(1, 2, -3, 4), float32(4, -3, 2, 1), 4),  # torch.hash_tensor takes it for equal
    ],
    ids=["same NaN", "NaN payload", "signed zero", "reversed"],
)
def test_every_bit_counts(tmp_path, a, b, n_differing):
    found = compare_weights(saved(tmp_path / "a", w=a), saved(tmp_path / "b", w=b))
    table = similarity([tmp_path / "a", tmp_path / "b"])
    assert found.n_differing == n_differing
    assert found.equal == table.equal[0, 1] == (n_differing == 0)
    if found.equal:
        assert (found.l2, found.cosine, table.l2[0, 1]) == (0, 1, 0)


def test_other_names_shapes_and_types_are_findings(tmp_path):
    a = saved(tmp_path / "a", u=float32(1, 2), v=float32(1, 2, 3), x=float32(1))
    b = saved(tmp_path / "b", u=float32(1, 2), v=float32(1, 2), y=float32(7, 8))
    found = compare_weights(a, b)
    assert (found.only_a, found.only_b, found.equal) == (("x",), ("y",), False)
    assert (found.n_tensors, found.n_parameters, found.n_differing) == (4, 8, 6)
    assert all(math.isnan(x) for x in (found.l2, found.relative_l2, found.cosine))
    u, v = found.tensors
    assert (u.n_differing, u.l2) == (0, 0)
    assert (v.shape, v.shape_b, v.n_differing) == ((3,), (2,), 3)
    assert math.isnan(v.l2)
    empty = {"empty": np.zeros((0, 3), np.float32)}
    zeros = [saved(tmp_path / dtype, **empty, w=np.zeros((2, 3), dtype)) for dtype in ("f4", "i4")]
    found = compare_weights(*zeros)
    assert (found.equal, found.n_differing, found.l2) == (False, 6, 0)
    assert not similarity(zeros).equal[0, 1]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (float32(1), float32(np.nextafter(float32(1)[0], 2)), (1, 1)),
        (from_bits(0x80000001), from_bits(0x00000001), (2, 2)),
        (from_bits(0x7F7FFFFF), float32(np.inf), (1, 1)),
        (from_bits(0x7FC00001, 0), from_bits(0x7FC00002, 3), (None, None)),
        (np.float64([1]), np.float64([-1]), (2 * 0x3FF << 52, 2**62)),
        (np.array([1]), np.array([2]), (None, None)),
    ],
    ids=["next", "across zero", "infinity", "new NaN", "float64", "integers"],
)
def test_units_in_the_last_place(tmp_path, a, b, expected):
    whole = compare_weights(saved(tmp_path / "a", w=a), saved(tmp_path / "b", w=b))
    for row in (whole, *whole.tensors):
        assert (row.max_ulp, row.median_ulp) == expected


def test_bfloat16_which_numpy_does_not_have(tmp_path):
    words = np.array([0x3F80, 0xC000, 0x7F80, 0x0000], "<u2")  # 1, -2, infinity, 0
    a = saved_raw(tmp_path / "a", "BF16", words.tobytes())
    row = compare_weights(a, saved(tmp_path / "b", w=float32(1, -2, np.inf, 0.5))).tensors[0]
    assert (row.dtype, row.dtype_b, row.n_differing) == ("BF16", "F32", 4)
    assert (row.l2, row.max_abs) == (0.5, 0.5)
    words[1] = 0xC001
    row = compare_weights(a, saved_raw(tmp_path / "c", "BF16", words.tobytes())).tensors[0]
    assert (row.n_differing, row.l2, row.max_ulp) == (1, 2**-6, 1)  # the last of 8 bits of 2


def test_tensors_larger_than_a_piece(tmp_path):
    """Sums and equal bits over the border of two pieces, and nothing is held whole."""
    generator = np.random.default_rng(0)
    a = {f"w{i}": generator.normal(size=(2, 2**17)).astype(np.float32) for i in range(6)}
    b = {n: (x + 1e-3 * generator.normal(size=x.shape)).astype(np.float32) for n, x in a.items()}
    b["w5"] = a["w5"].copy()
    b["w5"][1, -1] += 9
    save_file(a, tmp_path / "a")
    save_file(b, tmp_path / "b")
    found = compare_weights(tmp_path / "a", tmp_path / "b")
    x, y = (np.concatenate([t.ravel() for t in each.values()]).astype(float) for each in (a, b))
    assert found.l2 == pytest.approx(np.linalg.norm(y - x), rel=1e-12)
    assert found.cosine == pytest.approx(x @ y / np.linalg.norm(x) / np.linalg.norm(y), rel=1e-12)
    assert (found.max_abs_name, found.tensors[5].n_differing) == ("w5", 1)
    tracemalloc.start()
    compare_weights(tmp_path / "a", tmp_path / "b")
    similarity([tmp_path / "a", tmp_path / "b"])
    weight_statistics(tmp_path / "a")
    assert tracemalloc.get_traced_memory()[1] < (tmp_path / "a").stat().st_size * 3
    tracemalloc.stop()


# -- files -----------------------------------------------------------------------------------


def test_what_torch_saved_is_compared(tmp_path):
    """Cellpose's own files, whatever they are called, beside the lab's."""
    torch = pytest.importorskip("torch")
    from safetensors.torch import save_file as save_tensors

    held = {
        "out.weight": (torch.arange(21.0) / 8).reshape(7, 3).T,  # laid out otherwise in memory
        "out.bias": torch.tensor([1.0, -0.0]).to(torch.bfloat16),
        "n": torch.tensor(3),
        "W2": torch.zeros(2, dtype=torch.bool),
    }
    own = tmp_path / "run.safetensors"
    save_tensors({key: tensor.contiguous() for key, tensor in held.items()}, own)
    for name, options in (("cpsam", {}), ("old.pth", {"_use_new_zipfile_serialization": False})):
        of_many_gpus = {f"module.{key}": tensor for key, tensor in held.items()}
        torch.save(of_many_gpus, tmp_path / name, **options)
        found = compare_weights(own, tmp_path / name)
        assert (found.equal, found.n_parameters) == (True, 26)
    held["out.weight"][1, 2] += 0.5
    torch.save(held, tmp_path / "other")
    found = compare_weights(own, tmp_path / "other")
    assert (found.n_differing, found.max_abs) == (1, 0.5)
    assert similarity([own, tmp_path / "other"]).l2[0, 1] == 0.5


@pytest.mark.parametrize(
    ("key", "of_several_gpus"),
    [("model_state_dict", False), ("state_dict", True), ("model", True), ("trainer.net", False)],
)
def test_the_network_in_a_checkpoint_is_found(key, of_several_gpus, tmp_path):
    """As most people's own trainings save it: beside an optimizer, an epoch, losses, generators."""
    torch = pytest.importorskip("torch")
    with torch.random.fork_rng():
        network = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    held = network.state_dict()
    torch.save(held, tmp_path / "plain.pth")
    prefix = "module." if of_several_gpus else ""
    stored = {f"{prefix}{name}": tensor for name, tensor in held.items()}
    outer, _, inner = key.partition(".")
    torch.save(
        {
            "epoch": 3,
            "optimizer_state_dict": optimizer.state_dict(),
            "loss": np.float64(0.5),
            "rng": {"torch": torch.get_rng_state()},
            outer: {inner: stored} if inner else stored,
        },
        tmp_path / "checkpoint.pt",
    )
    found = compare_weights(tmp_path / "plain.pth", tmp_path / "checkpoint.pt")
    assert (found.verdict, found.n_parameters, found.under) == ("identical", 8, ("", key))


def test_which_of_several_networks_is_meant_is_not_guessed(tmp_path):
    torch = pytest.importorskip("torch")
    one = {"w": torch.ones(2)}
    torch.save({"teacher": one, "student": one, "epoch": 3}, tmp_path / "both.pt")
    with pytest.raises(BadInput, match=r"several networks, under teacher, student: save the one"):
        compare_weights(tmp_path / "both.pt", tmp_path / "both.pt")


def test_code_in_a_file_of_weights_is_not_run(tmp_path):
    torch = pytest.importorskip("torch")

    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "sprung",))

    torch.save({"w": Trap()}, tmp_path / "model.pth")
    with pytest.raises(BadInput, match=r"model\.pth is no weights file"):
        compare_weights(tmp_path / "model.pth", tmp_path / "model.pth")
    assert not (tmp_path / "sprung").exists()


def test_what_cannot_be_read_is_refused(files, tmp_path):
    a, b = files
    for content in (b"", b"PK\x03\x04" * 50, b.read_bytes()[:-1]):
        b.write_bytes(content)
        with pytest.raises(
            BadInput, match=r"b is no weights file that can be read .*do that again"
        ):
            similarity([a, b])
    eight = saved_raw(tmp_path / "eight", "F8_E4M3", b"\x00\x01")
    with pytest.raises(BadInput, match=r"eight holds w as F8_E4M3, and F64, F32, .* store"):
        similarity([a, eight])


# -- many networks ---------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [1e-20, 1e18])
def test_every_two_networks_as_if_alone(tmp_path, scale):
    rows = np.float32(scale) * np.random.default_rng(0).normal(size=(5, 40)).astype(np.float32)
    rows[3], rows[4] = rows[0], 1e-3 * rows[0]
    rows[2] = rows[0] + np.float32(1e-6) * rows[1]  # close, and yet with a distance of its own
    paths = [
        saved(tmp_path / str(i), e__blocks__10__w=row[:25].reshape(5, 5), e__blocks__2__w=row[25:])
        for i, row in enumerate(rows)
    ]
    table = similarity(paths)
    assert table.layers == ("e.blocks.2", "e.blocks.10")
    for i, a in enumerate(paths):
        for j, b in enumerate(paths):
            alone = compare_weights(a, b)
            assert table.equal[i, j] == alone.equal
            assert table.max_abs[i, j] == alone.max_abs
            for name in ("l2", "relative_l2"):
                expected = pytest.approx(getattr(alone, name), rel=1e-12, nan_ok=True)
                assert getattr(table, name)[i, j] == expected
            assert table.cosine[i, j] == pytest.approx(alone.cosine, abs=1e-12, nan_ok=True)
            in_layers = [compare_weights(a, b, prefix=name).relative_l2 for name in table.layers]
            assert table.layer_relative_l2[:, i, j].tolist() == pytest.approx(in_layers, rel=1e-12)


def test_what_is_no_number_and_what_is_another_network(files, tmp_path):
    a, b = files
    other = saved(tmp_path / "other", w=float32(1))
    infinite = saved(tmp_path / "inf", encoder__w=float32(3, np.inf), out__bias=float32(np.nan))
    same = saved(tmp_path / "same", encoder__w=float32(4, np.inf), out__bias=float32(np.nan))
    table = similarity([a, other, b, infinite, same])
    known = [[True, False, True, False, False], [False, True, False, False, False]]
    assert np.isfinite(table.l2)[:2].tolist() == known
    assert table.l2[3, 4] == table.max_abs[3, 4] == 1  # equal bits are no difference
    new_nan = compare_weights(a, infinite)
    assert (np.isnan(new_nan.l2), new_nan.max_abs_name) == (True, "out.bias")
    assert table.relative_l2[0, 2] != table.relative_l2[2, 0]
    assert similarity([a]).l2.tolist() == [[0]]


def test_statistics_of_a_network_and_its_layers(tmp_path):
    """Beside NumPy's over whole arrays; far from zero nothing cancels."""
    drawn = np.random.default_rng(0).normal(1e4, 1e-2, size=(3, 10)).astype(np.float32)
    layers = {
        "e.blocks.2": [drawn[0], -drawn[1]],
        "e.blocks.10": [drawn[2]],
        "none": [drawn[0][:0]],
    }
    names = {"e__blocks__2__w": drawn[0], "e__blocks__2__bias": -drawn[1]}
    path = saved(tmp_path / "w", **names, e__blocks__10__w=drawn[2], none=drawn[0][:0])
    found = weight_statistics(path)
    assert list(found) == ["all", *layers]
    layers["all"] = [drawn[0], -drawn[1], drawn[2]]
    for layer, parts in layers.items():
        x = np.concatenate(parts).astype(float)
        n, *actual = astuple(found[layer])
        norms = [np.linalg.norm(x, order) for order in (1, 2)]
        about = [x.mean(), x.std(), *norms, np.abs(x).max()] if len(x) else [0] * 5
        assert (n, actual) == (len(x), pytest.approx(about, rel=1e-9))
    named_all = weight_statistics(saved(tmp_path / "all", all=float32(1, 2, 3), w=float32(4, 5)))
    assert [(name, each.parameters) for name, each in named_all.items()] == [
        *(("(all)", 5), ("all", 3), ("w", 2)),
    ]
    infinite = saved(tmp_path / "inf", w=float32(1, np.inf), v=float32(3, 4))
    assert astuple(weight_statistics(infinite)["v"]) == (2, 3.5, 0.5, 7, 5, 4)
    assert np.isnan(weight_statistics(infinite)["all"].std)


# -- histograms ------------------------------------------------------------------------------


def test_distributions_of_weights(tmp_path):
    a = saved(tmp_path / "a", e__0__weight=float32(-2, -1, 0, 1, np.nan), out=float32(0, 0))
    b = saved(tmp_path / "b", e__0__weight=float32(0.1, 0.1, 0.2, 0.7))
    found = distributions({"a": a, "b": b}, bins=5)
    counts, edges = found["a"]["e.0"]
    assert counts.tolist() == [1, 1, 1, 1, 0]  # NaN is in none
    assert edges.tolist() == pytest.approx([-2, -1.2, -0.4, 0.4, 1.2, 2])
    assert found["a"]["out"][1].tolist() == pytest.approx([-1, -0.6, -0.2, 0.2, 0.6, 1])
    assert found["b"].keys() == {"e.0"}
    assert found["b"]["e.0"][0].tolist() == [0, 0, 3, 1, 0]  # over the intervals of both


def test_distributions_of_differences(tmp_path):
    """b - a = (0, 1, 1.5, -2, 0.25, -0.25), then out = (0, nan)."""
    a = saved(tmp_path / "a", enc__w=float32(1, 1, 1, 1, 1, 1), out=float32(5, 5))
    b = saved(tmp_path / "b", enc__w=float32(1, 2, 2.5, -1, 1.25, 0.75), out=float32(5, np.nan))
    found = difference_distributions([a, b, a])
    assert found.layers == ("enc.w", "out")
    assert found.edges.tolist() == [-4, -2, -1, -0.5, -0.25, 0.25, 0.5, 1, 2, 4]
    assert found.counts[0].tolist() == [[1, 0, 0, 1, 1, 1, 0, 2, 0], [0, 0, 0, 0, 1, 0, 0, 0, 0]]
    assert found.n_zero.tolist() == [[1, 1], [6, 2]]
    assert found.n_undefined.tolist() == [[0, 1], [0, 0]]
    equal = difference_distributions([a, a])
    assert (equal.edges.tolist(), equal.n_zero.sum()) == ([-1, 1], 8)
    with pytest.raises(BadInput, match=r"other holds different tensors than .*a, by name or shape"):
        difference_distributions([a, saved(tmp_path / "other", w=float32(1))])


def test_two_tensors_that_a_wrapper_would_name_alike_are_both_compared(tmp_path):
    torch = pytest.importorskip("torch")
    for name, value in (("a", 1.0), ("b", 2.0)):
        wrapped = {"w": torch.zeros(3), "module.w": torch.full((3,), value)}
        torch.save(wrapped, tmp_path / f"{name}.pth")
    found = compare_weights(tmp_path / "a.pth", tmp_path / "b.pth")
    assert (found.n_tensors, found.n_differing) == (2, 3)


def test_threads_change_no_bit_of_a_similarity(tmp_path, monkeypatch):
    """Pieces are added in their order, whichever is ready first."""
    draws = np.random.default_rng(0)
    paths = [
        saved(tmp_path / name, w=draws.standard_normal(5000).astype(np.float32)) for name in "abc"
    ]
    monkeypatch.setattr("cellrepro.comparison.weight_similarity._BLOCK", 100)
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    expected = similarity(paths)
    monkeypatch.setattr("os.cpu_count", lambda: 4)
    found = similarity(paths)
    assert len({*found.l2.ravel().tolist()}) == 4
    np.testing.assert_array_equal(found.l2, expected.l2, strict=True)
    np.testing.assert_array_equal(found.cosine, expected.cosine, strict=True)
