"""The list of nondeterministic operations: well-formed, found again, and as new as PyTorch."""

import platform
import re
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cellrepro.determinism import alerts, known_operations
from cellrepro.determinism.alerts import (
    Documented,
    Installed,
    alert_in,
    in_documentation,
    in_library,
)
from cellrepro.determinism.known_operations import (
    Entry,
    base_name,
    entries,
    for_operation,
    lookup,
    taken_from,
    unknown_alerts,
)
from cellrepro.errors import BadInput, NotPossibleHere

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "list_alerts.py"

ON_LINUX = sys.platform == "linux" and platform.machine() == "x86_64"
linux_only = pytest.mark.skipif(not ON_LINUX, reason="libraries are read on Linux for x86-64 only")

ERROR = "{} does not have a deterministic implementation, but you set 'torch.use_determinist"


@pytest.fixture(scope="module")
def found():
    """What the installed PyTorch holds, read once: half a gigabyte a library."""
    return alerts.installed()


# -- as new as the installed PyTorch -------------------------------------------------------


def test_knows_every_alert_of_the_installed_pytorch(found):
    missing = unknown_alerts(found)
    if found.torch < taken_from()["torch"]:  # an older page lists some operations otherwise
        missing = [name for name in missing if name in found.alerts]
    assert not missing, (
        f"PyTorch {found.torch} knows {missing}, and the data does not: add an entry for each to "
        f"{known_operations.__name__.replace('.', '/')}'s nondeterministic.yaml; "
        "`python scripts/list_alerts.py` prints the form"
    )


@linux_only
def test_every_call_of_the_alert_was_read(found):
    """What cannot be read could be a new alert; then the reader has to learn it first."""
    assert found.not_read == ()


@linux_only
def test_the_reading_found_what_is_known_to_be_there(found):
    """Not an empty scan: one alert that fires on a CPU, and of every CUDA kernel file one."""
    assert found.alerts["put_"] == ("libtorch_cpu.so",)
    assert len(found.documented) > 40
    if any("libtorch_cuda.so" in files for files in found.alerts.values()):
        assert len(found.alerts) > 35
        assert {"upsample_linear1d_backward_out_cuda", "Flash Attention"} <= found.alerts.keys()
        assert "libtorch_cuda.so" in found.alerts["max_unpooling2d_forward_out"]
        # one call of the binary loads the text through a register that was set far ahead
        assert {"grid_sampler_2d_backward_cuda", "index_reduce_cuda"} <= found.alerts.keys()


def test_what_is_new_is_told_by_name():
    new = Installed(
        torch="9.9",
        alerts={"put_": ("libtorch_cpu.so",), "brand_new_cuda": ("libtorch_cuda.so",)},
        documented=(
            Documented("torch.nn.AvgPool3d", "error", frozenset({"cuda"})),
            Documented("torch.nn.AvgPool3d", "switched", frozenset({"cuda"})),
            Documented("torch.histc", "error", frozenset({"cpu", "cuda"})),
            Documented("torch.nn.MaxUnpool1d", "error", frozenset()),
            Documented("torch.nn.BrandNew", "error", frozenset()),
        ),
        not_read=(),
    )
    assert unknown_alerts(new) == [
        "brand_new_cuda",
        "torch.nn.AvgPool3d (switched, cuda)",
        "torch.histc (error, cpu, cuda)",
        "torch.nn.BrandNew (error)",
    ]


def test_without_an_argument_it_reads_the_installed_pytorch(monkeypatch):
    nothing = Installed(torch="9.9", alerts={"news": ("x",)}, documented=(), not_read=())
    monkeypatch.setattr(known_operations, "installed", lambda: nothing)
    assert unknown_alerts() == ["news"]


# -- the data ------------------------------------------------------------------------------


def test_alerts_are_unique():
    named = [entry.alert for entry in entries() if entry.alert]
    assert len(named) > 60
    assert len(named) == len(set(named))


def test_no_entry_twice():
    assert len(entries()) == len(set(entries()))


@pytest.mark.parametrize("entry", entries(), ids=lambda e: e.alert or "-".join(e.ops) or e.kind)
def test_texts_are_sentences_with_a_source(entry):
    for text in (entry.reason, entry.remedy):
        assert re.fullmatch(r"(?:[A-Zt]|cuDNN).*\.", text, re.DOTALL), text
        assert "  " not in text
        assert "\n" not in text
    assert re.search(r"\d", entry.version)
    assert entry.devices == tuple(sorted(set(entry.devices)))
    assert entry.ops == tuple(dict.fromkeys(base_name(op) for op in entry.ops))
    assert entry.ops or entry.kind == "unlisted"


def test_operations_exist():
    """In the PyTorch the list was taken from, or a newer one that still has them."""
    import torch

    if torch.__version__.split("+")[0] != taken_from()["torch"]:
        pytest.skip(f"the list was taken from PyTorch {taken_from()['torch']}")
    names = torch._C._dispatch_get_all_op_names()
    there = {base_name(name) for name in names if name.startswith("aten::")}
    assert {op for entry in entries() for op in entry.ops} <= there


def test_names_of_the_page_exist(found):
    if found.torch.split("+")[0] != taken_from()["torch"]:
        pytest.skip(f"the list was taken from PyTorch {taken_from()['torch']}")
    on_page = {(line.name, line.kind) for line in found.documented}
    assert {(name, entry.kind) for entry in entries() for name in entry.documented} <= on_page


def test_says_where_the_list_comes_from():
    assert taken_from().keys() == {"torch", "command", "how", "checked"}
    assert taken_from()["command"] == "python scripts/list_alerts.py"


GOOD = {
    "alert": "x_cuda",
    "ops": ("x",),
    "devices": ("cuda",),
    "phase": "both",
    "kind": "error",
    "reason": "Because.",
    "remedy": "Wait.",
    "source": "a page",
    "version": "1",
}


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"devices": ()}, "devices"),
        ({"devices": ("gpu",)}, "devices"),
        ({"phase": "sideways"}, "phase"),
        ({"kind": "rare"}, "kind"),
        ({"reason": " "}, "reason"),
        ({"source": ""}, "source"),
        ({"comment": "none"}, "comment"),
        ({"kind": "unlisted"}, "unlisted entry has neither"),
        ({"kind": "unlisted", "alert": None, "documented": ("a",)}, "unlisted entry has neither"),
        ({"alert": None}, "an error has an alert"),
    ],
)
def test_refuses_a_malformed_entry(change, match):
    assert Entry(**GOOD).kind == "error"
    with pytest.raises(ValidationError, match=match):
        Entry(**{**GOOD, **change})


# -- looking up ----------------------------------------------------------------------------


def put():
    import torch

    torch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))


def unpool(dimensions):
    import torch

    pixels = torch.ones(1, 1, *[2] * dimensions)
    index = torch.arange(pixels.numel()).reshape(pixels.shape)
    getattr(torch.nn.functional, f"max_unpool{dimensions}d")(pixels, index, 2)


@pytest.mark.parametrize(
    ("call", "alert"),
    [
        (put, "put_"),
        (lambda: unpool(1), "max_unpooling2d_forward_out"),
        (lambda: unpool(2), "max_unpooling2d_forward_out"),
        (lambda: unpool(3), "max_unpooling3d_forward_out"),
    ],
    ids=["put_", "max_unpool1d", "max_unpool2d", "max_unpool3d"],
)
def test_finds_real_warnings_and_errors(call, alert):
    from cellrepro.determinism.modes import mode_in_force

    with mode_in_force("warn"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call()
    (warning,) = caught
    assert lookup(str(warning.message)).alert == alert
    with mode_in_force("strict"), pytest.raises(RuntimeError) as error:
        call()
    assert lookup(str(error.value)).alert == alert
    assert "cpu" in lookup(alert).devices


def test_what_pytorch_switches_in_silence_is_known():
    """The backward of take and of an index: no warning on a CPU, and an entry all the same."""
    import torch

    from cellrepro.determinism.modes import mode_in_force

    x = torch.zeros(3, requires_grad=True)
    twice = torch.tensor([0, 0])
    with mode_in_force("warn"), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.take(x, twice).sum().backward()
        x[twice].sum().backward()
    assert x.grad.tolist() == [4, 0, 0]
    entry = for_operation("aten._index_put_impl_.default", "cpu")
    assert (entry.kind, entry.alert) == ("switched", None)
    assert for_operation("take", "cpu").kind == "switched"


@pytest.mark.parametrize("entry", [e for e in entries() if e.alert], ids=lambda e: e.alert)
def test_finds_every_alert_by_name_and_by_message(entry):
    assert lookup(entry.alert) is entry
    if entry.alert not in {"CuBLAS", "Flash Attention", "Memory Efficient attention"}:
        assert lookup(ERROR.format(entry.alert)) is entry


@pytest.mark.parametrize(
    ("message", "alert"),
    [
        (ERROR.format("median CUDA with indices output"), "median CUDA with indices output"),
        ("\n " + ERROR.format("put_"), "put_"),
        ("Flash Attention defaults to a non-deterministic algorithm. To expl", "Flash Attention"),
        (
            "Deterministic behavior was enabled with either ..., but this operation is not "
            "deterministic because it uses CuBLAS and you have CUDA >= 10.2. To enable",
            "CuBLAS",
        ),
        ("put_ went wrong", None),
        ("", None),
        (" does not have a deterministic implementation", None),
    ],
)
def test_the_alert_in_a_message(message, alert):
    assert alert_in(message) == alert
    entry = lookup(message)
    assert (entry and entry.alert) == alert


@pytest.mark.parametrize(
    "before",
    [
        "",
        "/home/me/lab/my model.py:12: UserWarning: ",
        "2026-11-22 07:32:11,123 WARNING py.warnings ",
        "[W1122 07:32:11.123456789 Context.cpp:91] Warning: ",
        "Traceback (most recent call last):\n  File 'a.py', line 3, in <module>\nRuntimeError: ",
        "  0%|          | 0/12 [00:00<?, ?it/s]a.py:3: UserWarning: ",
    ],
    ids=["bare", "Python", "logging", "C++", "traceback", "progress"],
)
@pytest.mark.parametrize("width", [None, 80, 37], ids=["one line", "80", "37"])
@pytest.mark.parametrize(
    "alert", ["put_", "median CUDA with indices output", "upsample_linear1d_backward_out_cuda"]
)
def test_a_warning_is_recognised_as_it_is_pasted(before, width, alert):
    """Time, file and category before it, the rest of the message behind, wrapped by a terminal."""
    text = before + ERROR.format(alert) + " (Triggered internally at ../aten/Context.cpp:91.)\n  x"
    if width is not None:
        text = "\n".join(text[i : i + width] for i in range(0, len(text), width))
    assert lookup(text).alert == alert
    assert alert_in(text) is not None


def test_the_end_of_another_name_is_not_the_name():
    """``put_`` is known; an operation that ends with it is another."""
    assert lookup(ERROR.format("a.py:3: UserWarning: my_put_")) is None
    assert alert_in(ERROR.format("a.py:3: UserWarning: my_put_")) == "my_put_"


@pytest.mark.parametrize("text", ["", "  ", "put", "put_ went wrong", ERROR.format("unheard_of")])
def test_an_unknown_alert_is_no_entry(text):
    assert lookup(text) is None


@given(
    stem=st.sampled_from(sorted({op for entry in entries() for op in entry.ops})),
    prefix=st.sampled_from(["", "aten.", "aten::", "torch.ops.aten."]),
    marks=st.sampled_from(
        [
            *(("", ""), ("", "_"), ("_", ""), ("_", "_impl_"), ("_", "_impl")),
            *(("_unsafe_", ""), ("", "_out_cuda"), ("", "_cpu")),
        ]
    ),
    overload=st.sampled_from(["", ".default", ".out", ".Tensor_out", ".grad_input"]),
)
def test_every_spelling_of_an_operation_is_one(stem, prefix, marks, overload):
    assert base_name(prefix + marks[0] + stem + marks[1] + overload) == stem
    assert base_name(stem) == stem


def test_an_operation_of_another_namespace_is_another():
    assert base_name("lab::index_put") == base_name("lab.index_put.default") == "lab.index_put"
    assert for_operation("lab.index_put.default", "cpu") is None


@pytest.mark.parametrize("op", ["", " ", "_", "aten.", "aten::", ".default", None, 3], ids=repr)
def test_refuses_what_names_no_operation(op):
    with pytest.raises(BadInput, match=r"not the name of an operation; expected one such as"):
        base_name(op)
    with pytest.raises(BadInput, match="not the name of an operation"):
        for_operation(op, "cpu")


@pytest.mark.parametrize("device", ["gpu", "", "CUDA", "cpucuda", None, "xpu"], ids=repr)
def test_refuses_another_device(device):
    with pytest.raises(BadInput, match="expected one of cpu, cuda, mps"):
        for_operation("index_put", device)


@pytest.mark.parametrize(
    ("op", "device", "expected"),
    [
        (
            "aten.upsample_linear1d_backward.default",
            "cuda:0",
            "upsample_linear1d_backward_out_cuda",
        ),
        ("aten.upsample_linear1d_backward.default", "cpu", "nothing"),
        ("aten.index_put.default", "mps", "index_put_with_accumulate_mps"),
        ("aten.index_put.default", "cuda", None),
        ("put_", "cpu", "put_"),
        # the switch comes first in the file; an error goes before it
        ("aten.scatter_reduce.two", "cuda", "scatter_reduce_cuda_kernel"),
        ("aten.histc.default", "cuda", "_histc_cuda with floating point input"),  # newest first
        ("aten.kthvalue.default", "cuda", "kthvalue CUDA"),  # though only an old version alerts
        ("aten.bmm.default", "cuda", "CuBLAS"),
        ("aten.add.Tensor", "cuda", "nothing"),
    ],
)
def test_for_operation(op, device, expected):
    entry = for_operation(op, device)
    assert (entry.alert if entry else "nothing") == expected
    assert entry is None or (base_name(op) in entry.ops and device.split(":")[0] in entry.devices)


# -- reading PyTorch's page ----------------------------------------------------------------

PAGE = """Sets whether ...

    The following normally-nondeterministic operations will act
    deterministically when ``mode=True``:

        * :func:`torch.one` when called on a CPU or CUDA tensor and
          :func:`torch.other` is not, on an MPS tensor
        * :func:`torch.two` with ``accumulate=True`` as :func:`torch.eight` has it

    The following normally-nondeterministic operations will throw a
    :class:`RuntimeError` when ``mode=True``:

        * :class:`torch.nn.Three`, :func:`torch.four`, and :func:`torch.five`
          when attempting to differentiate a CUDA tensor:

          - ``linear``

    In addition, :func:`torch.six` on a CPU
        * :func:`torch.seven` is of another list
"""


def test_reads_the_page():
    assert in_documentation(PAGE) == (
        Documented("torch.one", "switched", frozenset({"cpu", "cuda", "mps"})),
        Documented("torch.two", "switched", frozenset()),
        Documented("torch.nn.Three", "error", frozenset({"cuda"})),
        Documented("torch.four", "error", frozenset({"cuda"})),
        Documented("torch.five", "error", frozenset({"cuda"})),
    )


@pytest.mark.parametrize(
    "text",
    [None, "", PAGE.replace("will throw", "throw"), PAGE.replace("* :func:`torch.t", "- :f")[:400]],
    ids=["no docstrings", "empty", "other words", "no items"],
)
def test_a_page_that_has_changed_is_not_an_empty_list(text):
    with pytest.raises(NotPossibleHere, match=r"has no list of operations.*adapt.*alerts\.py"):
        in_documentation(text)


# -- reading a library ---------------------------------------------------------------------

SOURCE = """
struct view { unsigned long n; const char *text; };
void _ZN2at7Context21alertNotDeterministicERKSt17basic_string_viewIcSt11char_traitsIcEE(
    const struct view *);
#define alert _ZN2at7Context21alertNotDeterministicERKSt17basic_string_viewIcSt11char_traitsIcEE
void other(const struct view *);
int work(int);

void plain(void) { struct view v = {9, "planted_a"}; alert(&v); }
void second(int k) {
    struct view w = {8, "harmless"}; other(&w);
    struct view v = {14, "planted b CUDA"}; alert(&v);
    for (int i = 0; i < k; i++) work(i);
}
void ahead(int k) {
    struct view v = {10, "planted_c_"};
    for (int i = 0; i < k; i++) { other(&v); work(i); alert(&v); }
}
void part(void) { struct view v = {4, "partial"}; alert(&v); }
void computed(const char *text, unsigned long n) { struct view v = {n, text}; alert(&v); }
const char *warning(void) {
    return "Planted Attention defaults to a non-deterministic algorithm. ";
}
"""


@pytest.fixture(scope="module")
def compile_library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not ON_LINUX or not compiler:
        pytest.skip("needs a C compiler on Linux for x86-64")
    folder = tmp_path_factory.mktemp("library")

    def build(*flags, source=SOURCE):
        path = folder / f"lib{len(list(folder.iterdir()))}.so"
        subprocess.run(
            [compiler, "-shared", "-fPIC", *flags, "-x", "c", "-", "-o", str(path)],
            input=source,
            text=True,
            check=True,
        )
        return path

    return build


@pytest.mark.parametrize(
    "flags",
    [
        ["-O1"],
        ["-O1", "-fno-plt"],
        ["-O1", "-fcf-protection=full"],
        ["-O1", "-Wl,-z,now"],
        ["-O0"],
    ],
    ids=" ".join,
)
def test_reads_planted_alerts(compile_library, flags):
    names, n_unread = in_library(compile_library(*flags))
    assert names >= {"planted_a", "planted b CUDA", "Planted Attention"}
    assert names <= {"planted_a", "planted b CUDA", "planted_c_", "Planted Attention"}
    # neither `computed` nor `part` hands over a whole literal
    assert n_unread == 2 + ("planted_c_" not in names)


def test_a_library_that_defines_the_alert_itself(compile_library):
    own = "const void *got;\nvoid alert(const struct view *v) { got = v; }\n"
    source = SOURCE + own + "void other(const struct view *v) { got = v; }\n"
    names, _ = in_library(compile_library("-O1", "-fno-inline", "-Wl,-Bsymbolic", source=source))
    assert names >= {"planted_a", "planted b CUDA"}


@pytest.mark.parametrize("chunk", [1, 7, 64, 100])
@pytest.mark.parametrize("flags", [["-O1"], ["-O1", "-fno-plt"]], ids=" ".join)
def test_reads_in_pieces(compile_library, monkeypatch, flags, chunk):
    """A call that lies across two pieces is found, and once."""
    library = compile_library(*flags)
    whole = alerts._Library(alerts.np.memmap(library, alerts.np.uint8, "r")).calls()
    monkeypatch.setattr(alerts, "_CHUNK", chunk)
    pieces = alerts._Library(alerts.np.memmap(library, alerts.np.uint8, "r")).calls()
    assert len(whole) == 5
    assert pieces == whole


def test_a_library_without_the_alert(compile_library):
    names, n_unread = in_library(compile_library("-O1", source="int f(int x) { return x + 1; }"))
    assert (names, n_unread) == (frozenset(), 0)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "cannot be read as an ELF file"),
        (b"MZ" + bytes(100), "is not an ELF file"),
        (b"\x7fELF\2\1" + bytes(12) + b"\xb7\0" + bytes(44), "for machine 183; only x86-64"),
        (b"\x7fELF\1\1" + bytes(12) + b"\x3e\0" + bytes(44), "only x86-64"),
        (b"\x7fELF\2\1" + bytes(12) + b"\x3e\0" + b"\xff" * 44, "cannot be read as an ELF file"),
    ],
    ids=["empty", "another format", "another machine", "32 bits", "damaged"],
)
def test_says_why_a_file_is_not_read(tmp_path, content, match):
    path = tmp_path / "lib.so"
    path.write_bytes(content)
    with pytest.raises(NotPossibleHere, match=match) as error:
        in_library(path)
    assert str(path) in str(error.value)


def test_says_that_there_is_no_file(tmp_path):
    with pytest.raises(NotPossibleHere, match=r"none\.so cannot be read"):
        in_library(tmp_path / "none.so")


def test_half_a_library_is_refused(compile_library, tmp_path):
    whole = compile_library("-O1").read_bytes()
    for part in (10, 63, 64, len(whole) // 2, len(whole) - 1):
        path = tmp_path / "part.so"
        path.write_bytes(whole[:part])
        with pytest.raises(NotPossibleHere, match=r"not read|cannot be read"):
            in_library(path)


def test_a_damaged_table_is_refused(compile_library, tmp_path):
    """A section that claims to reach beyond the end of the file."""
    content = bytearray(compile_library("-O1").read_bytes())
    start = int.from_bytes(content[40:48], "little")
    for at in range(start, len(content), 64):
        if int.from_bytes(content[at + 4 : at + 8], "little") == 1:  # code and data
            content[at + 32 : at + 40] = (1 << 40).to_bytes(8, "little")
    path = tmp_path / "damaged.so"
    path.write_bytes(content)
    with pytest.raises(NotPossibleHere, match=r"cannot be read.*ends before byte"):
        in_library(path)


# -- all of it together --------------------------------------------------------------------


def install(monkeypatch, folder, libraries):
    """A PyTorch whose ``lib`` holds other files."""
    import torch

    (folder / "lib").mkdir()
    for name, content in libraries.items():
        (folder / "lib" / name).write_bytes(content)
    monkeypatch.setattr(torch, "__file__", str(folder / "__init__.py"))


def test_a_library_of_another_format_leaves_the_page(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, {"libtorch_cpu.so": b"another format".ljust(100)})
    found = alerts.installed()
    assert not found.alerts
    assert found.documented
    (line,) = found.not_read
    assert re.search(r"libtorch_cpu\.so is not read: it is not an ELF file \(Linux\)", line)


def test_no_library_leaves_the_page(monkeypatch, tmp_path):
    install(monkeypatch, tmp_path, {})
    found = alerts.installed()
    assert found.documented
    assert found.not_read == (
        f"{tmp_path / 'lib'} holds none of libtorch_cpu.so, libtorch_cuda.so: no alerts were read",
    )


def test_a_planted_alert_is_read_and_missing(monkeypatch, tmp_path, compile_library):
    library = compile_library("-O1").read_bytes()
    install(monkeypatch, tmp_path, {"libtorch_cpu.so": library, "libtorch_cuda.so": library})
    found = alerts.installed()
    assert found.alerts["planted_a"] == ("libtorch_cpu.so", "libtorch_cuda.so")
    assert len(found.not_read) == 2
    assert "raises alerts in 2 more places" in found.not_read[0]
    assert "planted_a" in unknown_alerts(found)


def run_script(*arguments):
    command = [sys.executable, str(SCRIPT), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@linux_only
def test_the_script_prints_what_is_missing(compile_library):
    done = run_script(compile_library("-O1"))
    assert done.returncode == 1
    assert "MISSING   planted_a" in done.stdout
    assert "missing: planted b CUDA" in done.stdout
    assert "- alerts: [planted_a]" in done.stdout
    assert "not read: 2 calls in" in done.stdout


@linux_only
def test_nothing_missing_of_nothing_is_no_good_news(compile_library):
    done = run_script(compile_library("-O1", source="int f(int x) { return x + 1; }"))
    assert done.returncode == 3
    assert "incomplete: that nothing is missing" in done.stdout


def test_the_script_refuses_other_files(tmp_path):
    path = tmp_path / "lib.so"
    path.write_bytes(b"MZ".ljust(100))
    done = run_script(path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "is not an ELF file" in done.stderr
    assert "Traceback" not in done.stderr
