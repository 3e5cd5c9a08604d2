"""What is started in a block of portable arithmetic, or given to a pool there, is part of it."""

import asyncio
import multiprocessing
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import pool

import pytest
import torch
from torch import nn

from samebits.arithmetic.portable_mode import NotPortable, PortableArithmetic

pytestmark = pytest.mark.usefixtures("one_thread", "generators_free")


def transformed():
    """It has no portable form: refused in a block, computed outside of it."""
    return torch.fft.fft(torch.ones(3)).real


def transformed_as(_):
    return transformed()


class Transforms(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return transformed()


def in_thread(function):
    found = []

    def run():
        try:
            found.append(function())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]


@pytest.fixture
def older():
    """Pools whose threads were started before the block."""
    with ThreadPoolExecutor(1) as executor, pool.ThreadPool(1) as threads:
        executor.submit(int).result()
        threads.apply(int)
        yield executor, threads


REFUSALS = (NotPortable, RuntimeError)
"""A DataLoader makes a RuntimeError of what a worker has raised, with the text of it."""

WAYS = {
    "thread": lambda older: in_thread(transformed),
    "pool": lambda older: ThreadPoolExecutor(1).submit(transformed).result(),
    "older pool": lambda older: older[0].submit(transformed).result(),
    "map": lambda older: list(older[0].map(transformed_as, [1])),
    "older pool of multiprocessing": lambda older: older[1].apply(transformed),
    "its map": lambda older: older[1].map(transformed_as, [1]),
    "its imap": lambda older: list(older[1].imap(transformed_as, [1])),
    "worker of a DataLoader": lambda older: list(
        torch.utils.data.DataLoader(Transforms(), num_workers=1, multiprocessing_context="fork")
    ),
}


@pytest.mark.filterwarnings("ignore:.*fork")
@pytest.mark.parametrize("way", sorted(WAYS))
def test_a_function_given_to_another_thread_is_refused_as_here(older, way):
    with pytest.raises(REFUSALS, match=r"_fft_r2c.* has no portable form"), PortableArithmetic():
        WAYS[way](older)


def test_workers_that_are_older_than_the_block_are_refused():
    loader = torch.utils.data.DataLoader(
        range(4), num_workers=1, persistent_workers=True, multiprocessing_context="fork"
    )
    list(loader)
    with pytest.raises(NotPortable, match="workers that were started before"), PortableArithmetic():
        list(loader)


def test_a_coroutine_given_to_an_older_loop_is_refused_as_here():
    async def computing():
        return transformed()

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        with pytest.raises(NotPortable, match="_fft"), PortableArithmetic():
            asyncio.run_coroutine_threadsafe(computing(), loop).result(10)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.mark.slow
def test_so_is_one_given_to_a_process_of_its_own():
    spawning = multiprocessing.get_context("spawn")
    with PortableArithmetic():
        executor = ProcessPoolExecutor(1, mp_context=spawning)
        with executor, pytest.raises(NotPortable, match="_fft"):
            executor.submit(transformed).result()
        loader = torch.utils.data.DataLoader(
            Transforms(), num_workers=1, multiprocessing_context="spawn"
        )
        with pytest.raises(REFUSALS, match="_fft"):
            list(loader)


def test_a_backward_pass_that_another_thread_starts_is_portable():
    weight = torch.ones(100, 3, requires_grad=True)
    with PortableArithmetic():
        here = torch.autograd.grad(weight.exp().mean(), weight)[0]
        loss = weight.exp().mean()
        there = in_thread(lambda: torch.autograd.grad(loss, weight)[0])
    assert torch.equal(here, there)


def test_a_network_in_a_thread_outside_of_the_block_is_refused():
    begin = threading.Event()
    network = nn.Linear(3, 3)
    found = []

    def run():
        begin.wait()
        try:
            found.append(network(torch.ones(1, 3)))
        except NotPortable as refusal:
            found.append(refusal)

    thread = threading.Thread(target=run)
    thread.start()
    with PortableArithmetic():
        begin.set()
        thread.join()
    assert isinstance(found[0], NotPortable)
    assert "started before the block" in found[0].reason
    assert "test_threads_of_block.py" in found[0].site.source


def test_after_the_block_all_is_as_before():
    """Also in a thread that goes on."""
    before = (threading.Thread.start, ThreadPoolExecutor.submit, vars(pool.ThreadPool).copy())
    with PortableArithmetic():
        lasting = ThreadPoolExecutor(1)
        lasting.submit(int).result()
        with PortableArithmetic():
            assert threading.Thread.start is not before[0]
    assert (threading.Thread.start, ThreadPoolExecutor.submit) == before[:2]
    assert vars(pool.ThreadPool) == before[2]
    with lasting:
        assert lasting.submit(transformed).result().tolist() == [3.0, 0.0, 0.0]
