"""Blocks of several threads or tasks that overlap: the last one gives all back, in every order."""

import contextvars
import inspect
import itertools
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest
import torch

import samebits
from samebits.arithmetic import portable_mode
from samebits.arithmetic.threads_of_block import block_of_this_thread
from samebits.errors import NotPossibleHere, SamebitsError
from samebits.generator_digests import generator_digests
from samebits.modes import mode_in_force, switches

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")

GIVEN = {"seed": 3, "mode": "strict", "device": "cpu"}
IN_ANOTHER_PROCESS = ("contention",)
"""Blocks that change nothing of this one."""


def public_blocks():
    """Every public name that makes a block, with what it has to be given."""
    for name in samebits.__all__:
        made = getattr(samebits, name)
        is_block = inspect.isgeneratorfunction(inspect.unwrap(made)) or hasattr(made, "__exit__")
        if is_block and name not in IN_ANOTHER_PROCESS:
            parameters = inspect.signature(made).parameters.values()
            needed = {p.name: GIVEN[p.name] for p in parameters if p.default is p.empty}
            yield name, lambda made=made, needed=needed: made(**needed)


def felt():
    """What a block has changed for the thread that it is in."""
    return switches(), {
        "modes": torch._C._len_torch_dispatch_stack(),
        "scripted": torch._C._get_graph_executor_optimize(),
        "libraries": torch._C._get_mkldnn_enabled(),
        "attention": torch.backends.cuda.flash_sdp_enabled(),
        "encoder": torch.backends.mha.get_fastpath_enabled(),
        "hooks": len(torch.nn.modules.module._global_forward_hooks),
        "block": block_of_this_thread() is not None,
    }


REFUSED = ("OperationLedger", "seeded")
"""Blocks of which there is one at a time: both would see, or move, the same generators."""
PACKAGES = ("numpy", "torch", "threading", "concurrent", "multiprocessing", "asyncio", "samebits")


def names_of_process():
    """What stands under the names of modules and their classes, and in generators."""
    found = {**generator_digests()}
    for home, module in [*sys.modules.items()]:
        if home.partition(".")[0] not in PACKAGES:
            continue
        for name, value in [*vars(module).items()]:
            if isinstance(value, type) and value.__module__ == home:
                own = {(home, name, attribute): each for attribute, each in vars(value).items()}
            else:
                own = {(home, name): value}
            for place, each in own.items():
                if inspect.isroutine(each) or isinstance(each, bool):
                    found[place] = id(each)
    return found


@contextmanager
def runners():
    """A task of this thread, another thread, and a second task."""
    with ThreadPoolExecutor(1) as other:
        other.submit(int).result()  # its thread is older than every block
        yield (
            contextvars.copy_context().run,
            lambda *called: other.submit(*called).result(),
            contextvars.copy_context().run,
        )


def overlapped(makers, order, run):
    """Begin blocks in turn and end them in an order; what the last one felt, and how many began."""
    begun = {}
    for place, make in enumerate(makers):
        block = make()
        with suppress(SamebitsError):
            run[place](block.__enter__)
            begun[place] = block
    found = None
    for place in order:
        if place in begun:
            found = run[place](felt)
            run[place](begun[place].__exit__, None, None, None)
    return found, len(begun)


def test_of_blocks_that_overlap_the_last_gives_all_back(monkeypatch):
    monkeypatch.setattr(portable_mode, "prove", lambda device: None)
    blocks = dict(public_blocks())
    assert {"portable", "seeded", "mode_in_force", "perturbed"} <= blocks.keys()
    with warnings.catch_warnings(), runners() as run:
        warnings.simplefilter("ignore")
        for make in blocks.values():  # what they import
            overlapped([make], [0], run)
        before, names_before = felt(), names_of_process()
        for name, make in blocks.items():
            alone = [overlapped([make], [0], [runner])[0] for runner in run]
            for order in itertools.permutations(range(3)):
                last, n_begun = overlapped([make] * 3, order, run)
                assert n_begun == (1 if name in REFUSED else 3), name
                assert last == alone[order[-1] if n_begun == 3 else 0], (name, order)
                assert felt() == before, (name, order)
        for pair in itertools.combinations(blocks.items(), 2):
            overlapped([make for _, make in pair], (0, 1), run)
            assert felt() == before, [name for name, _ in pair]
        names = names_of_process()
    assert [name for name, value in names_before.items() if names.get(name) != value] == []


def test_a_block_is_refused_that_would_set_switches_of_another_threads():
    with mode_in_force("strict") as outer:
        with ThreadPoolExecutor(1) as other:
            refused = other.submit(mode_in_force("fast").__enter__)
            with pytest.raises(NotPossibleHere, match=r"another thread .* same mode"):
                refused.result()
        assert switches() == outer
        with mode_in_force("fast"):  # within: as ever
            assert switches() != outer
