"""The list of nondeterministic operations: complete for each release, and found again."""

import re
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cellrepro.determinism.known_operations import (
    alert_in,
    base_name,
    entries,
    for_operation,
    lookup,
    may_race,
    releases,
)
from cellrepro.determinism.modes import mode_in_force
from cellrepro.errors import BadInput

ERROR = "{} does not have a deterministic implementation, but you set 'torch.use_determinist"

INSTALLED = releases().get(torch.__version__.partition("+")[0])


# -- the data ------------------------------------------------------------------------------


@pytest.mark.parametrize("version", releases())
def test_all_that_a_release_alerts_on_or_documents_has_an_entry(version):
    release = releases()[version]
    assert len(release["alerts"]) > 40
    assert all(release[name] for name in ("read", "source"))
    assert set(release["alerts"]) <= {entry.alert for entry in entries()}
    on_page = {*release["error"], *release["switched"]}
    assert on_page <= {name for entry in entries() for name in entry.documented}


@pytest.mark.skipif(INSTALLED is None, reason="not a PyTorch that was read")
def test_the_list_of_the_installed_release_is_that_of_its_page():
    """Every line of the page that the installed PyTorch brings is in the list."""
    page = torch.use_deterministic_algorithms.__doc__.split("In addition")[0]
    _, switched, errors = re.split(r"normally-nondeterministic operations will", page)
    for text, names in ((switched, INSTALLED["switched"]), (errors, INSTALLED["error"])):
        lines = re.findall(r"^ +\* +:\w+:`([^`]+)`", text, re.MULTILINE)
        assert len(lines) > 15
        assert set(lines) <= set(names)
    held = {(name, kind) for kind in ("error", "switched") for name in INSTALLED[kind]}
    assert held <= {(name, entry.kind) for entry in entries() for name in entry.documented}


def test_entries_are_whole():
    named = [entry.alert for entry in entries() if entry.alert]
    assert len(named) == len(set(named)) > 60
    for entry in entries():
        assert {*entry.devices} <= {"cpu", "cuda", "mps"}
        assert entry.phase in ("forward", "backward", "both")
        assert all((entry.devices, entry.reason, entry.remedy, entry.source))
        assert (entry.kind == "unlisted") >= (not entry.ops)
        assert not (entry.kind == "unlisted" and (entry.alert or entry.documented))
        assert entry.kind != "error" or entry.alert or entry.documented


@pytest.mark.skipif(INSTALLED is None, reason="not a PyTorch that was read")
def test_operations_exist():
    names = torch._C._dispatch_get_all_op_names()
    there = {base_name(name) for name in names if name.startswith("aten::")}
    assert {op for entry in entries() for op in entry.ops} <= there


# -- alerts --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dimensions", "alert"),
    [(1, "max_unpooling2d_forward_out"), (3, "max_unpooling3d_forward_out"), (0, "put_")],
)
def test_finds_real_warnings_and_errors(dimensions, alert):
    def call():
        pixels = torch.ones(1, 1, *[2] * dimensions)
        if dimensions == 0:
            return torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))
        index = torch.arange(pixels.numel()).reshape(pixels.shape)
        return getattr(torch.nn.functional, f"max_unpool{dimensions}d")(pixels, index, 2)

    with mode_in_force("warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (warning,) = caught
    assert lookup(str(warning.message)).alert == alert
    with mode_in_force("strict"), pytest.raises(RuntimeError) as error:
        call()
    assert lookup(str(error.value)).alert == alert_in(str(error.value)) == alert
    assert "cpu" in lookup(alert).devices


def test_finds_every_alert_by_name_and_by_message():
    for entry in entries():
        if entry.alert:
            assert lookup(entry.alert) is lookup(ERROR.format(entry.alert)) is entry


@pytest.mark.parametrize(
    ("message", "alert"),
    [
        ("Flash Attention defaults to a non-deterministic algorithm. To expl", "Flash Attention"),
        ("this operation is not deterministic because it uses CuBLAS and you have CUDA", "CuBLAS"),
        (ERROR.format("a.py:3: UserWarning: my_put_"), "my_put_"),
        ("put_ went wrong", None),
        (" does not have a deterministic implementation", None),
        ("", None),
    ],
)
def test_the_alert_in_a_message(message, alert):
    """Also one that nobody knows; the end of another name is not the name."""
    assert alert_in(message) == alert
    entry = lookup(message)
    assert (entry and entry.alert) == (None if alert == "my_put_" else alert)


@pytest.mark.parametrize(
    "before",
    [
        "/home/me/lab/my model.py:12: UserWarning: ",
        "2026-11-22 07:32:11,123 WARNING py.warnings ",
        "Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\nRuntimeError: ",
    ],
)
@pytest.mark.parametrize("width", [1000, 37])
@pytest.mark.parametrize("alert", ["put_", "median CUDA with indices output"])
def test_a_warning_is_recognised_as_it_is_pasted(before, width, alert):
    """Time, file and category before it, the rest of the message behind, wrapped by a terminal."""
    text = before + ERROR.format(alert) + " (Triggered internally at ../aten/Context.cpp:91.)\n  x"
    text = "\n".join(text[i : i + width] for i in range(0, len(text), width))
    assert lookup(text).alert == alert_in(text) == alert


# -- operations ----------------------------------------------------------------------------


@given(
    stem=st.sampled_from(sorted({op for entry in entries() for op in entry.ops})),
    prefix=st.sampled_from(["", "aten.", "aten::", "torch.ops.aten."]),
    marks=st.sampled_from(
        [("", ""), ("", "_"), ("_", "_impl_"), ("_unsafe_", ""), ("", "_out_cuda"), ("", "_cpu")]
    ),
    overload=st.sampled_from(["", ".default", ".Tensor_out"]),
)
def test_every_spelling_of_an_operation_is_one(stem, prefix, marks, overload):
    assert base_name(prefix + marks[0] + stem + marks[1] + overload) == stem


def test_an_operation_of_another_namespace_is_another():
    assert base_name("lab::index_put") == base_name("lab.index_put.default") == "lab.index_put"
    assert for_operation("lab.index_put.default", "cpu") is None


@pytest.mark.parametrize("op", ["", " ", "_", "aten.", ".default"], ids=repr)
def test_refuses_what_names_no_operation(op):
    with pytest.raises(BadInput, match=r"not the name of an operation; expected one such as"):
        base_name(op)


@pytest.mark.parametrize(
    ("op", "device", "expected"),
    [
        ("aten.upsample_linear1d_backward", "cuda:0", "upsample_linear1d_backward_out_cuda"),
        ("aten.upsample_linear1d_backward.default", "cpu", "nothing"),
        ("aten.index_put.default", "mps", "index_put_with_accumulate_mps"),
        ("aten._index_put_impl_.default", "cpu", None),
        # the switch comes first in the file; an error goes before it
        ("aten.scatter_reduce.two", "cuda", "scatter_reduce_cuda_kernel"),
        ("aten.histc.default", "cuda", "_histc_cuda with floating point input"),  # newest first
        ("aten.add.Tensor", "cuda", "nothing"),
    ],
)
def test_for_operation(op, device, expected):
    entry = for_operation(op, device)
    assert (entry.alert if entry else "nothing") == expected


@pytest.mark.parametrize(
    ("mode", "device", "threads", "more", "races"),
    [
        ("fast", "cpu", 2, {}, "mode fast"),
        ("warn", "cpu", None, {}, "mode warn"),
        ("fast", "cpu", 1, {}, None),
        ("fast", "cuda:1", 1, {}, "mode fast"),
        ("strict", "cuda", 2, {}, None),
        ("strict", "cpu", 2, {"loose": "index_put"}, "index_put was left loose"),
    ],
)
def test_what_may_race(mode, device, threads, more, races):
    found = may_race(mode, device=device, threads=threads, **more)
    assert found is None if races is None else found.startswith(races)
