"""Faults of portable arithmetic."""

from faults.by_name import breaks


@breaks(
    "samebits.arithmetic.kernels.products:bits_of_factors",
    "No order of additions changes a bit of a portable product.",
    tests=["tests/samebits/arithmetic/test_products.py::test_equal_to_fractions"],
)
def factors_have_bits_too_many(bits_of_factors):
    def too_many(length):
        bits = bits_of_factors(length)
        return bits._replace(left=bits.left + 4, right=bits.right + 4)

    return too_many


@breaks(
    "samebits.arithmetic.kernels.sliced_products:doubts",
    "No number of a product is lost beside a larger one of its row.",
    tests=[
        "tests/samebits/arithmetic/test_products.py::test_the_error_is_bounded_whatever_the_numbers"
    ],
)
def one_slice_is_always_enough(doubts):
    return lambda rows, columns, bits: None


@breaks(
    "samebits.arithmetic.kernels.products:_not_finite",
    "Infinities and NaN stand where they stand in PyTorch's products.",
    tests=["tests/samebits/arithmetic/test_products.py::test_not_finite_as_in_pytorch"],
)
def products_are_always_finite(not_finite):
    return lambda left, right: not_finite(left, right).nan_to_num(0.0, 0.0, 0.0)


@breaks(
    "samebits.arithmetic.kernels.sums:_summed_along",
    "A portable sum adds in an order that its length alone decides.",
    tests=["tests/samebits/arithmetic/test_layers.py::test_sums_add_in_halves"],
)
def sums_are_pytorchs(summed_along):
    return lambda numbers, axis: numbers.sum(axis, keepdim=True)


@breaks(
    "samebits.arithmetic.kernels.indexing:added_at",
    "Numbers that are added at one position have one sum, in whatever order they arrive.",
    tests=[
        "tests/samebits/arithmetic/test_indexing.py::test_order_does_not_matter_and_every_place_keeps_its_precision"
    ],
)
def scattered_sums_follow_the_order(added_at):
    return lambda target, positions, values: target.index_add(0, positions, values)


@breaks(
    "samebits.arithmetic.kernels.indexing:_refuse_if_ambiguous",
    "Several numbers written into one position are refused, as threads decide which of them stays.",
    tests=[
        "tests/samebits/arithmetic/test_portable_mode.py::test_what_has_no_right_form_is_refused_by_name"
    ],
)
def the_last_thread_wins(refuse_if_ambiguous):
    return lambda read_back, written: None


@breaks(
    "samebits.arithmetic.portable_mode:PortableArithmetic.without_form",
    "An operation without portable form is refused by name and line, not carried out in silence.",
    tests=[
        "tests/samebits/arithmetic/test_portable_mode.py"
        "::test_an_operation_without_portable_form_is_refused_by_name_and_line"
    ],
)
def unknown_operations_pass(without_form):
    return lambda self, call, reason: call.run()


@breaks(
    "samebits.arithmetic.operation_forms:_is_single",
    "A factor and a sum in one operation are rounded twice, on every machine.",
    tests=[
        "tests/samebits/arithmetic/test_portable_mode.py::test_a_factor_and_a_sum_are_two_roundings"
    ],
)
def factors_stay_fused(is_single):
    return lambda name, call, tensors: True


@breaks(
    "samebits.arithmetic.proof:CLAIMS",
    "A device whose float64 products are not exact is refused before anything is computed.",
    tests=[
        "tests/samebits/arithmetic/test_portable_mode.py::test_a_library_that_rounds_otherwise_is_refused"
    ],
)
def a_rounding_library_is_proved(claims):
    return claims[1:]


@breaks(
    "samebits.arithmetic.kernels.optimizers:bias_correction",
    "AdamW's corrections are exact before they are rounded.",
    tests=[
        "tests/samebits/arithmetic/test_optimizers.py::test_corrections_are_exact_before_they_are_rounded"
    ],
)
def corrections_are_rounded_twice(bias_correction):
    from samebits.scalars import power

    return lambda beta, step: 1.0 - power(beta, step - 1) * beta


@breaks(
    "samebits.scalars:_rounded",
    "Sine, cosine and powers of a Python number are correctly rounded.",
    tests=["tests/samebits/arithmetic/test_scalars.py::test_function_is_correctly_rounded"],
)
def functions_are_rounded_down(rounded):
    def rounded_down(whole, scale):
        n_surplus = max(0, whole.bit_length() - 53)
        return rounded(whole >> n_surplus << n_surplus, scale)

    return rounded_down
