"""Digests: known answers, and what they do and do not see."""

import hashlib

import numpy as np
import pytest

from cellrepro.store.digests import array_digest, file_digest, value_digest

SHA256_OF_ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2


def test_file_digest_is_sha256(tmp_path):
    path = tmp_path / "abc"
    path.write_bytes(b"abc")
    assert file_digest(path) == SHA256_OF_ABC
    path.write_bytes(b"")
    assert file_digest(path) == hashlib.sha256().hexdigest()


def test_array_digest_is_what_it_says():
    array = np.array([[1, 2], [3, 4]], "<u2")
    content = b"<u2(2, 2)" + bytes([1, 0, 2, 0, 3, 0, 4, 0])
    assert array_digest(array) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "same",
    [
        lambda a: a.copy(order="F"),
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a.astype(a.dtype.newbyteorder(">")),
        lambda a: a.T.copy().T,
    ],
    ids=["column order", "strided", "big-endian", "transposed twice"],
)
def test_layout_does_not_matter(same):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert array_digest(same(array)) == array_digest(array)


@pytest.mark.parametrize(
    "other",
    [
        lambda a: a.T,
        lambda a: a.ravel(),
        lambda a: a.astype(np.int64),
        lambda a: a.astype(np.uint32),
        lambda a: a.view(np.float32),
        lambda a: a[::-1],
        lambda a: a ^ 1,
        lambda a: a[None],
    ],
    ids=[
        "transposed",
        "flat",
        "wider",
        "unsigned",
        "float",
        "reversed",
        "one bit",
        "one more axis",
    ],
)
def test_anything_else_does(other):
    array = np.arange(6, dtype=np.int32).reshape(2, 3)
    assert array_digest(other(array)) != array_digest(array)


def test_the_sign_of_zero_and_the_bits_of_nan_count():
    assert array_digest(np.array([0.0])) != array_digest(np.array([-0.0]))
    quiet = np.array([0x7FC00000], np.uint32).view(np.float32)
    other = np.array([0x7FC00001], np.uint32).view(np.float32)
    assert array_digest(quiet) != array_digest(other)


def test_value_digest_ignores_only_the_order_of_keys():
    value = {"a": [1, 2], "b": {"c": None, "d": "é"}}
    assert value_digest(value) == value_digest({"b": {"d": "é", "c": None}, "a": [1, 2]})
    for other in (
        {"a": [2, 1], "b": {"c": None, "d": "é"}},
        {"a": [1, 2], "b": {"c": None, "d": "e"}},
        {"a": [1, 2.0], "b": {"c": None, "d": "é"}},
        {"a": [1, "2"], "b": {"c": None, "d": "é"}},
        {"a": [1, 2], "b": {"d": "é"}},
    ):
        assert value_digest(value) != value_digest(other)


def test_value_digest_known_answer():
    assert value_digest({"b": 1, "a": None}) == hashlib.sha256(b'{"a":null,"b":1}').hexdigest()


@pytest.mark.parametrize("value", [float("nan"), float("inf")], ids=str)
def test_value_digest_refuses_what_json_lacks(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        value_digest({"a": value})
