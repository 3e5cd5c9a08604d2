"""Faults of the comparison of two results."""

from faults.by_name import breaks


@breaks(
    "cellrepro.comparison.object_matching:matches",
    "Two objects with an IoU of exactly one half are each other's match at IoU 0.5.",
    tests=["tests/comparison/test_mask_comparison.py"],
)
def one_half_is_no_match(matches):
    return lambda table, threshold: matches(table, threshold + 1e-9)


@breaks(
    "cellrepro.comparison.object_matching:overlap",
    "What is lost is what the first result alone has, and what is gained the second.",
    tests=["tests/comparison/test_object_changes.py"],
)
def sides_are_exchanged(overlap):
    return lambda a, b: overlap(b, a)
