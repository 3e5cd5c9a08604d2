"""The list of nondeterministic operations: complete for each release, and found again."""

import re

import pytest
import torch

from samebits.known_operations import base_name, entries, for_operation, releases
from samebits.modes import may_race
from samebits.torch_alerts import alert_in, lookup

ERROR = "{} does not have a deterministic implementation, but you set 'torch.use_determinist"

INSTALLED = releases().get(torch.__version__.partition("+")[0])


@pytest.mark.parametrize("version", releases())
def test_all_that_a_release_alerts_on_or_documents_has_an_entry(version):
    release = releases()[version]
    assert len(release["alerts"]) > 40
    assert set(release["alerts"]) <= {entry.alert for entry in entries()}
    on_page = {*release["error"], *release["switched"]}
    assert on_page <= {name for entry in entries() for name in entry.documented}


@pytest.mark.skipif(INSTALLED is None, reason="not a PyTorch that was read")
def test_the_list_of_the_installed_release_is_that_of_its_page():
    page = torch.use_deterministic_algorithms.__doc__.split("In addition")[0]
    _, *parts = re.split(r"normally-nondeterministic operations will", page)
    held = {(name, entry.kind) for entry in entries() for name in entry.documented}
    for kind, text in zip(("switched", "error"), parts, strict=True):
        lines = re.findall(r"^ +\* +:\w+:`([^`]+)`", text, re.MULTILINE)
        assert len(lines) > 15
        assert set(lines) <= set(INSTALLED[kind])
        assert {(name, kind) for name in INSTALLED[kind]} <= held


def test_entries_are_whole_and_found_by_name_and_by_message():
    named = [entry.alert for entry in entries() if entry.alert]
    assert len(named) == len(set(named)) > 60
    for entry in entries():
        assert {*entry.devices} <= {"cpu", "cuda", "mps"}
        assert entry.phase in ("forward", "backward", "both")
        assert all((entry.devices, entry.reason, entry.remedy, entry.source))
        assert (entry.kind == "unlisted") >= (not entry.ops)
        if entry.alert:
            assert lookup(entry.alert) is lookup(ERROR.format(entry.alert)) is entry


@pytest.mark.parametrize(
    ("message", "alert"),
    [
        ("Flash Attention defaults to a non-deterministic algorithm. To expl", "Flash Attention"),
        ("this operation is not deterministic because it uses CuBLAS and you have CUDA", "CuBLAS"),
        (ERROR.format("a.py:3: UserWarning: my_put_"), "my_put_"),
        (" does not have a deterministic implementation", None),
    ],
)
def test_the_alert_in_a_message(message, alert):
    """Also one that nobody knows; the end of another name is not the name."""
    assert alert_in(message) == alert
    entry = lookup(message)
    assert (entry and entry.alert) == (None if alert == "my_put_" else alert)


def test_a_warning_is_recognised_as_it_is_pasted():
    """File and category before it, the rest of the message behind, wrapped by a terminal."""
    alert = "median CUDA with indices output"
    text = f"/home/me/my model.py:12: UserWarning: {ERROR.format(alert)} (Triggered internally)\n x"
    text = "\n".join(text[i : i + 37] for i in range(0, len(text), 37))
    assert lookup(text).alert == alert_in(text) == alert


def test_every_spelling_of_an_operation_is_one_and_another_namespace_is_another():
    for name in (
        *("upsample_linear1d", "aten.upsample_linear1d.default", "aten::upsample_linear1d_"),
        *("torch.ops.aten._upsample_linear1d_impl_", "_unsafe_upsample_linear1d.Tensor_out"),
        *("upsample_linear1d_out_cuda", "aten.upsample_linear1d_cpu"),
    ):
        assert base_name(name) == "upsample_linear1d"
    assert base_name("lab::index_put") == base_name("lab.index_put.default") == "lab.index_put"
    assert for_operation("lab.index_put.default", "cpu") is None


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
        ("fast", "cpu", 1, {}, None),
        ("strict", "cuda", 2, {}, None),
        ("strict", "cpu", 2, {"loose": "index_put"}, "index_put was left loose"),
    ],
)
def test_what_may_race(mode, device, threads, more, races):
    found = may_race(mode, device=device, threads=threads, **more)
    assert found is None if races is None else found.startswith(races)
