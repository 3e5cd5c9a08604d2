"""The machine's name, and its numeric class: the same wherever the bits are the same."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from cellrepro.process import machine_here
from cellrepro.profiles.profiles import Profile
from cellrepro.store import hardware, machine_identity, numeric_class
from cellrepro.store.numeric_class import PROBES, Numbers, differing_probes, measure_numeric_class
from cellrepro.store.peak_memory import forget_peak_memory, peak_memory
from samebits.digests import array_digest
from samebits.errors import BadInput
from samebits.modes import mode_in_force
from stores import some_machine

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _one_thread(one_thread):
    """Where the number makes no difference to what is tested."""


def test_a_machine_is_told_apart_by_what_can_change_bits(monkeypatch):
    monkeypatch.setenv(machine_identity.MACHINE_VARIABLE, "bench-3")
    here = machine_identity.machine(CPU, "0a1b2c")
    assert here.name.startswith("bench-3-")
    assert (here.identity, here.numeric_class, here.cuda) == ("bench-3", "0a1b2c", None)
    assert here.versions["torch"] == torch.__version__.partition("+")[0]
    assert "cellrepro" not in here.versions
    changed = here.model_copy(update={"versions": here.versions | {"torch": "3.0"}})
    elsewhere = here.model_copy(update={"identity": "x"})
    of_other_class = machine_identity.machine(CPU, "ff")
    assert len({each.name for each in (here, elsewhere, of_other_class, changed)}) == 4
    assert machine_identity.is_here(here)
    assert not any(machine_identity.is_here(other) for other in (elsewhere, changed))


def test_without_a_name_it_is_made_from_the_processor(monkeypatch):
    monkeypatch.delenv(machine_identity.MACHINE_VARIABLE, raising=False)
    here = machine_identity.machine(CPU, "0a")
    assert hardware.host()["processor"] == here.device
    assert machine_identity.is_here(here)
    monkeypatch.setenv(machine_identity.MACHINE_VARIABLE, "../x")
    with pytest.raises(BadInput, match=r"CELLREPRO_MACHINE is .*; expected up to 64 letters"):
        machine_identity.machine(CPU, "0a")


def test_the_inputs_are_the_same_on_every_machine():
    values = Numbers(CPU, "float32")(64, 1000).numpy()
    pinned = "33345de3d09e6c4b6f64facd0e6a71a82043c02c3cefd9aa260d288329e434c6"
    assert array_digest(values) == pinned


def test_a_class_repeats_whatever_is_set_around_it_and_one_flipped_bit_makes_another(monkeypatch):
    """Mode, autocast and gradients are none of its business."""
    here = measure_numeric_class()
    autocast = torch.autocast("cpu", dtype=torch.bfloat16)
    with mode_in_force("strict", device="cpu"), torch.inference_mode(), autocast:
        assert measure_numeric_class() == here

    def nudged(numbers):
        total, *others = PROBES["sum"](numbers)
        return torch.nextafter(total, torch.full_like(total, 1e9)), *others

    monkeypatch.setattr(numeric_class, "PROBES", {**PROBES, "sum": nudged})
    flipped = measure_numeric_class()
    assert differing_probes(here["probes"], flipped["probes"]) == ["sum/bfloat16", "sum/float32"]
    assert flipped["name"] != here["name"]


_SCRIPT = """\
import json, sys
from cellrepro.profiles.profiles import Profile
from cellrepro.store.numeric_class import measure_numeric_class
Profile.model_validate_json(sys.argv[1]).enter()
print(json.dumps(measure_numeric_class()["probes"]))
"""


def child_probes(**fields):
    """The probes of a new process, started with a profile's variables."""
    profile = Profile(name="a child's", **fields)
    command = [sys.executable, "-c", _SCRIPT, profile.model_dump_json()]
    return json.loads(subprocess.check_output(command, env=profile.child_environment()))


def test_what_changes_bits_changes_the_class():
    two = child_probes(threads=2)
    assert "sum/float32" in differing_probes(
        two, measure_numeric_class()["probes"]
    )  # of one thread
    if "avx512f" in hardware.host()["instructions"]:  # something that can be taken away
        limited = child_probes(threads=2, environment={"ONEDNN_MAX_CPU_ISA": "AVX2"})
        assert {"conv/float32", "conv/bfloat16"} <= set(differing_probes(two, limited))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process begin anew")
def test_the_peak_of_memory_begins_anew():
    held = torch.ones(2**26)  # 256 MiB
    with_it = peak_memory()["process"]
    del held
    forget_peak_memory()
    assert peak_memory()["process"] < with_it - 2**27


_PEAK = "from cellrepro.store.peak_memory import peak_memory; print(peak_memory()['process'])"


@pytest.mark.skipif(sys.platform == "win32", reason="no process there begins as a copy of another")
def test_the_peak_of_memory_is_not_that_of_a_larger_process_which_started_it():
    """A notebook's kernel may be larger than the worker it starts."""
    command = [sys.executable, "-c", _PEAK]
    alone = int(subprocess.check_output(command))
    held = torch.ones(alone, dtype=torch.uint8)  # and this process is there besides
    started = int(subprocess.check_output(command))
    assert started < alone + held.nbytes // 4


@pytest.mark.parametrize(
    ("number", "address"),
    [
        (0x3CA9F4000001, "3ca9f4000001"),
        (0x0242AC110002, ""),  # of a container
        (0x013CA9F40001, ""),  # drawn by Python
    ],
)
def test_a_network_address_that_may_be_another_tomorrow_tells_no_machine(number, address):
    assert machine_identity.lasting_address(number) == address


def test_a_machine_is_looked_at_once(tmp_path, monkeypatch):
    """Another process takes the answer from the cache; a torn one is looked for again."""
    monkeypatch.setenv("CELLREPRO_CACHE", str(tmp_path))
    looks = []

    def looked(question, children):
        looks.append(question)
        return some_machine("here")

    monkeypatch.setattr(machine_here, "_looked", looked)
    ask = machine_here._answered  # as another process does: without this one's memory
    question = machine_here._Question("{}", None, False, None, None)
    assert [ask(question).label for _ in range(2)] == ["here", "here"]
    assert len(looks) == 1
    ask(replace(question, gpu="GPU-1"))
    assert len(looks) == 2, "another question"
    for file in tmp_path.glob("machines/*.json"):
        file.write_text("{")
    ask(question)
    assert len(looks) == 3
