"""Files of torch.save are read as PyTorch reads them, and no code in them runs."""

import io
import itertools
import pickle
import random
import struct
import time
import tracemalloc
import zipfile
from collections import Counter, OrderedDict
from pathlib import Path

import numpy as np
import pytest
import torch

import cellrepro
from cellrepro.comparison.torch_archives import Namespace, content_of
from cellrepro.comparison.weight_reading import open_file, open_weights
from cellrepro.comparison.weight_tensors import Tensor
from cellrepro.pickles import PickledArray
from hostile_files import torch_zip
from samebits.errors import BadInput

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32),
    *(torch.int16, torch.int8, torch.uint8, torch.bool, torch.uint16, torch.uint32, torch.uint64),
)


def network():
    """Real numbers of three widths, integers, and tensors that show numbers of others."""
    numbers = torch.arange(24, dtype=torch.float32)
    whole = numbers.reshape(2, 3, 4) / 7
    return OrderedDict(
        {
            "downsample.down.0.weight": whole,
            "half": numbers.to(torch.bfloat16),
            "part": numbers[5:11],
            "transposed": whole.transpose(0, 2),
            "with gaps": numbers[3:20:5],
            "repeated": torch.ones(1, 3).expand(4, 3),
            "norm.num_batches_tracked": torch.tensor(9),
            "empty": torch.zeros(0, 3),
            "diam_mean": torch.nn.Parameter(torch.tensor([30.0])),
        }
    )


def as_torch(value):
    """What PyTorch reads in the place of what is read here."""
    if isinstance(value, PickledArray):
        return value.content
    if isinstance(value, Namespace):
        return value.attributes
    if isinstance(value, dict):
        return {name: as_torch(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(as_torch(item) for item in value)
    return value


def assert_same(actual, expected):
    if isinstance(expected, torch.Tensor):
        code = str(expected.dtype).removeprefix("torch.")
        for word, letters in {"bfloat": "BF", "float": "F", "uint": "U", "int": "I"}.items():
            code = code.replace(word, letters)
        assert (actual.dtype, actual.shape) == (code.upper(), tuple(expected.shape))
        width = expected.element_size()
        bits = expected.detach().reshape(-1).view(getattr(torch, f"int{8 * width}")).numpy()
        bits = bits.view(f"<u{width}")
        for start, stop in ((0, len(bits) + 9), (1, 3), (len(bits), len(bits) + 1)):
            np.testing.assert_array_equal(actual.read(start, stop), bits[start:stop])
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        for name in expected:
            assert_same(actual[name], expected[name])
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    else:
        wanted = bytes(expected) if isinstance(expected, bytearray) else expected
        np.testing.assert_equal(actual, wanted)


@pytest.mark.parametrize("zipped", [True, False], ids=["archive", "before 1.6"])
@pytest.mark.usefixtures("generators_free")
def test_a_checkpoint_is_read_as_pytorch_reads_it(tmp_path, zipped):
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=3e-4)
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [2, 2, 5])
    held = {
        "model": network(),
        "types": [torch.arange(5).to(dtype) for dtype in DTYPES],
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "loss": [np.float64(0.5), float("nan"), -0.0, 1e300, np.float32(3)],
        "plain": (1, -3, 2**40, 2**100, True, None, "ü", b"\x00\xff", (), {3: {"a": [[]]}}),
        "made": [Counter(a=2), {1, 2}, torch.Size([2, 3]), complex(1, 2), bytearray(b"ab")],
        "device": str(torch.device("cuda:0")),
    }
    if not zipped:  # which cannot write these
        held["types"] = held["types"][:10]
    path = tmp_path / "checkpoint.pt"
    torch.save(held, path, _use_new_zipfile_serialization=zipped)
    from numpy._core.multiarray import scalar

    numbers = [type(np.dtype(name)) for name in ("f8", "f4")]
    with torch.serialization.safe_globals([scalar, np.dtype, *numbers]):
        expected = torch.load(path, weights_only=True)
    assert_same(as_torch(content_of(path)), expected)


def test_what_pytorch_reads_only_when_it_runs_code(tmp_path):
    """Arrays of NumPy, paths and arguments of a command, as trainings of one's own keep them."""
    import argparse

    array = np.asfortranarray(np.arange(6, dtype=np.int16).reshape(2, 3))
    held = {
        "numpy": np.random.RandomState(3).get_state(),
        "array": array,
        "dates": np.array(["a", "bc"]),
        "args": argparse.Namespace(lr=0.1, folder=Path("a", "b")),
        "type": torch.float16,
    }
    torch.save(held, tmp_path / "own.pt", pickle_protocol=4)
    found = as_torch(content_of(tmp_path / "own.pt"))
    kind, words, *rest = found["numpy"]
    assert [kind, *rest] == [held["numpy"][0], *held["numpy"][2:]]
    np.testing.assert_array_equal(words, held["numpy"][1], strict=True)
    assert found["args"] == {"lr": 0.1, "folder": str(Path("a", "b"))}
    assert str(found["type"]) == "torch.float16"
    sorted_into_parts = open_file(tmp_path / "own.pt")
    assert sorted_into_parts.values["values"]["dates"] == ("a", "bc")
    tensor = sorted_into_parts.tensors["tensors"]["array"]
    assert (tensor.dtype, tensor.shape) == ("I16", (2, 3))
    assert tensor.read(1, 4).tolist() == [1, 2, 3]


def test_a_large_tensor_is_read_in_pieces(tmp_path):
    torch.save({"w": torch.arange(2**21).reshape(2**10, 2**11).T}, tmp_path / "large")
    tracemalloc.start()
    tensor = content_of(tmp_path / "large")["w"]
    assert tensor.read(2**20, 2**20 + 3).tolist() == [2**10, 2**11 + 2**10, 2**12 + 2**10]
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


# -- what may do harm ------------------------------------------------------------------------


class Trap:
    def __reduce__(self):
        return print, ("executed",)


def archive(path, content, *, parts=(), method=zipfile.ZIP_STORED):
    """A file as torch.save writes it, around a pickle of one's own."""
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("weights/data.pkl", content)
        for name, part in parts:
            file.writestr(f"weights/{name}", part)
    return path


def test_code_is_refused_and_not_executed(tmp_path, capsys):
    archived = archive(tmp_path / "archived", pickle.dumps({"a": Trap()}, 2))
    torch.save({"w": Trap()}, tmp_path / "pickled", _use_new_zipfile_serialization=False)
    for path in (archived, tmp_path / "pickled"):
        with pytest.raises(BadInput) as refused:
            open_weights(path)
        assert capsys.readouterr().out == ""
        assert "it holds __builtin__.print, which is no tensor" in str(refused.value)


def test_a_whole_network_is_told_to_be_saved_as_tensors(tmp_path):
    torch.save(torch.nn.Sequential(torch.nn.ReLU()), tmp_path / "whole.pt")
    with pytest.raises(BadInput, match=r"container\.Sequential, .*network\.state_dict\(\)"):
        open_weights(tmp_path / "whole.pt")


def test_pytorchs_own_loader_meets_no_file_that_is_refused_here(small_data, tmp_path, no_child):
    """A network to start from is looked at before any process, and so any unpickling, begins."""
    path = archive(tmp_path / "trap.pth", pickle.dumps({"W2": Trap()}, 2))
    for function in (cellrepro.train, cellrepro.segment):
        with pytest.raises(BadInput, match=r"trap\.pth .*it holds __builtin__\.print"):
            function(small_data, model=path, store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def tensor_pickle(shape=(2,), strides=(1,), offset=0, n=2, n_tensors=1):
    """A network of tensors over four bytes each of n numbers."""

    class Shown:
        def __init__(self, index):
            self.index = index

        def __reduce__(self):
            from torch._utils import _rebuild_tensor_v2

            return _rebuild_tensor_v2, (Numbers(), offset, shape, strides, False, OrderedDict())

    class Numbers:
        pass

    class Pickler(pickle._Pickler):
        def persistent_id(self, value):
            if isinstance(value, Numbers):
                return ("storage", torch.FloatStorage, "0", "cpu", n)
            return None

    buffer = io.BytesIO()
    Pickler(buffer, 2).dump({f"w{i}": Shown(i) for i in range(n_tensors)})
    return buffer.getvalue()


EIGHT = [("data/0", bytes(8))]


def deep(n):
    return b"\x80\x02" + b"]" * n + b"a" * (n - 1) + b"."


def doubled(n):
    """Tuples of two, each holding the one before twice."""
    return b"K\x01q\x00" + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(n))


def filled_again(n):
    """Arrays that are all made of the same megabyte, in the other order of bytes."""
    text = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nq\x00"
    text += b"cnumpy\ndtype\nX\x02\x00\x00\x00f8\x85R(K\x03X\x01\x00\x00\x00>NNNtbq\x01"
    text += b"B" + struct.pack("<L", 2**20) + bytes(2**20) + b"q\x02](cnumpy\nndarray\nq\x03"
    one = b"h\x00h\x03\x85R(K\x01J" + struct.pack("<L", 2**17) + b"\x85h\x01K\x00h\x02tb"
    return text + one * n + b"e."


def in_many_places(n):
    """A list of 260,000 numbers, n times."""
    return b"\x80\x02](" + b"K\x01" * 2**18 + b"eq\x00](" + b"h\x00" * n + b"e."


HOSTILE = {
    "as a key": (b"\x80\x02}" + doubled(40) + b"K\x01s.", [], "a key that is neither number"),
    "deep": (deep(2**20), [], "nested deeper, or more"),
    "long": (b"\x80\x02" + b"N0" * 9 + b".", [], "0x30 stands at byte 3"),
    "many steps": (b"\x80\x02" + b"]" * (2**22 + 9) + b".", [], "more than 4194304 steps"),
    "cut": (b"\x80\x02}q\x00(X\xff\xff\xff\x7fab", [], "ends too soon"),
    "empty": (b"", [], "ends too soon"),
    "taken from nothing": (b"\x80\x02}s.", [], "is damaged before byte 4"),
    "closed": (b"\x80\x02t.", [], "is damaged before byte 3"),
    "memo": (b"\x80\x02j\xff\xff\xff\xff.", [], "Memo value not found"),
    "huge memo": (b"\x80\x02}r\xff\xff\xff\x7f.", [], "holds no state_dict"),
    "a called text": (b"\x80\x02X\x01\x00\x00\x00a)R.", [], "calls what is no function"),
    "a changed list": (b"\x80\x02]}b.", [], "changes what is finished"),
    "an odd dictionary": (b"\x80\x02}(K\x01u.", [], "is damaged before byte"),
    "a type without end": (
        b"\x80\x02cnumpy\ndtype\n" + doubled(60) + b"\x85R.",
        [],
        "an array of type a tuple",
    ),
    "filled again": (filled_again(300), [], "copies one value again and again"),
    "in many places": (in_many_places(9999), [], "nested deeper, or more"),
    "a long name": (
        b"\x80\x02}X" + struct.pack("<L", 2**20) + b"a" * 2**20 + b"](" + b"]" * 2**18 + b"es.",
        [],
        "nested deeper, or more",
    ),
    "a generator without end": (
        b"\x80\x02(K\x03(" + b"K\x01" * 625 + b"t" + doubled(60) + b"t.",
        [],
        "nested deeper, or more",
    ),
    "other identity": (b"\x80\x02X\x01\x00\x00\x00aQ.", [], "something else than numbers"),
    "long name": (b"\x80\x02c" + b"a" * 999, [], "longer than 200 letters"),
    "copied": (
        b"\x80\x02c_codecs\nencode\nq\x00X\x00\x00\x10\x00"
        + b"a" * 2**20
        + b"q\x01\x85q\x02]("
        + b"h\x00h\x02R" * 999
        + b"e.",
        [],
        "bytes in it are written|copies one value again and again",
    ),
    "negative size": (tensor_pickle(shape=(-1,)), EIGHT, "the size -1 along an axis"),
    "a size of 2**70": (tensor_pickle(shape=(2**70,)), EIGHT, "along an axis"),
    "a truth as size": (tensor_pickle(shape=(True,)), EIGHT, "the size True"),
    "outside": (tensor_pickle(shape=(3,)), EIGHT, r"\(3,\) in it reaches beyond its 8 bytes"),
    "strides outside": (tensor_pickle(strides=(9,)), EIGHT, "reaches beyond"),
    "offset outside": (tensor_pickle(offset=2**40), EIGHT, "reaches beyond"),
    "negative stride": (tensor_pickle(strides=(-1,)), EIGHT, "the size -1"),
    "too few strides": (tensor_pickle(strides=()), EIGHT, "another number of strides"),
    "endless": (tensor_pickle((2**40,), (0,)), EIGHT, "the same numbers again and again"),
    "often": (
        tensor_pickle((2**20,), (0,), n_tensors=99),
        EIGHT,
        "the same numbers again and again",
    ),
    "short part": (tensor_pickle(), [("data/0", bytes(7))], "take 8 bytes, and 7 are there"),
    "no part": (tensor_pickle(), [], "numbers '0' are missing"),
    "huge part": (tensor_pickle(n=2**60), EIGHT, "and 8 are there"),
    "highest byte first": (tensor_pickle(), [*EIGHT, ("byteorder", "big")], "the highest byte"),
    "two contents": (tensor_pickle(), [("a/data.pkl", b"")], "did not write"),
}


@pytest.mark.parametrize(("content", "parts", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_pickles(tmp_path, content, parts, message):
    path = archive(tmp_path / "hostile.pth", content, parts=parts)
    started = time.process_time()
    with pytest.raises(BadInput, match=rf"hostile\.pth is no weights file.*({message})"):
        open_weights(path)
    assert time.process_time() - started < 20


def test_names_that_collide_take_no_time(tmp_path):
    """Tuples of numbers whose digests are equal, as 1 and 2**61 have one."""
    numbers = [b"G" + struct.pack(">d", 2.0**power) for power in (0, 61, 122, 183)]
    keys = itertools.islice(itertools.product(numbers, repeat=8), 20_000)
    entries = b"".join(b"(" + b"".join(key) + b"tN" for key in keys)
    path = tmp_path / "a.pth"
    path.write_bytes(torch_zip(b"\x80\x02}(" + entries + b"u."))
    begun = time.process_time()
    content_of(path)
    assert time.process_time() - begun < 10


def test_hostile_archives(tmp_path):
    """Compressed, with sizes that lie, twice the same name, cut, and with a flipped bit."""
    good = tensor_pickle()
    bomb = archive(tmp_path / "bomb", good, parts=EIGHT, method=zipfile.ZIP_DEFLATED)
    with pytest.raises(BadInput, match=r"data\.pkl is compressed or encrypted in it"):
        open_weights(bomb)
    with pytest.warns(UserWarning, match="Duplicate"):
        twice = archive(tmp_path / "twice", good, parts=[*EIGHT, *EIGHT])
    with pytest.raises(BadInput, match="two of its parts have one name"):
        open_weights(twice)
    whole = archive(tmp_path / "whole", good, parts=EIGHT).read_bytes()
    assert isinstance(open_weights(tmp_path / "whole")["w0"], Tensor)
    directory = whole.index(b"PK\x01\x02")
    end = whole.index(b"PK\x05\x06")
    lies = {
        "larger": (directory + 20, struct.pack("<2L", 2**31, 2**31)),
        "elsewhere": (directory + 42, struct.pack("<L", 2**31)),
        "directory elsewhere": (end + 16, struct.pack("<L", 2**31)),
        "many": (end + 10, struct.pack("<H", 2**16 - 1)),
        "long": (end + 12, struct.pack("<L", 2**31)),
        "flipped": (whole.index(b"weights/data.pkl") + 16 + 9, b"\xff"),
    }
    for name, (at, written) in lies.items():
        path = tmp_path / name
        path.write_bytes(whole[:at] + written + whole[at + len(written) :])
        with pytest.raises(BadInput, match="no weights file"):
            open_weights(path)
    path.write_bytes(b"PK\x03\x04" + bytes(96) + whole)
    with pytest.raises(BadInput, match="its first part is not where its list says"):
        open_weights(path)
    path.write_bytes(b"PK\x03\x04" + bytes(2**25) + whole[end:])
    with path.open("r+b") as file:
        file.seek(-10, 2)
        file.write(struct.pack("<2L", 2**25, 4))
    with pytest.raises(BadInput, match="its list of parts has more than"):
        open_weights(path)
    for n in range(0, len(whole), 7):
        path.write_bytes(whole[:n])
        with pytest.raises(BadInput, match="no weights file"):
            open_weights(path)


@pytest.mark.usefixtures("generators_free")
def test_a_whole_network_that_was_pickled_is_named(tmp_path):
    torch.save(torch.nn.Linear(2, 2), tmp_path / "whole.pt")
    with pytest.raises(BadInput, match=r"holds torch\.nn\.modules\.linear\.Linear"):
        open_weights(tmp_path / "whole.pt")
