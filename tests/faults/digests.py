"""Faults of digests and of the comparison bit by bit."""

from faults.by_name import breaks


@breaks(
    "samebits.tensor_digests:_header",
    "Two tensors of equal bytes and different shapes have different digests.",
    tests=["tests/samebits/digests/test_digests.py::test_shape_dtype_sign_and_payload_count"],
)
def the_shape_is_forgotten(header):
    return lambda dtype, shape: header(dtype, ())


@breaks(
    "samebits.tensor_digests:_STEPS",
    "On a GPU, too, a digest sees two values swapped.",
    tests=[
        "tests/samebits/digests/test_digests.py::test_any_bit_counts_and_the_order_and_no_layout"
    ],
)
def lanes_forget_the_order(steps):
    return (0, 0, 0)


@breaks(
    "samebits.bit_equality:same_bits",
    "An operation that gives 0 once and -0 the next time is reported as flipping.",
    tests=["tests/samebits/digests/test_digests.py::test_bits_and_differences"],
)
def values_are_compared_instead_of_bits(same_bits):
    import torch

    def same_values(a, b):
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.shape == b.shape:
            return bool((a == b).all())
        return same_bits(a, b)

    return same_values


@breaks(
    "samebits.digests:array_digest",
    "Masks that differ in one pixel, or in their dtype, have different digests.",
    tests=["tests/samebits/digests/test_digests.py::test_known_answers_of_sha256"],
)
def an_array_is_digested_as_bytes_alone(array_digest):
    import hashlib

    return lambda array: hashlib.sha256(array.tobytes()).hexdigest()
