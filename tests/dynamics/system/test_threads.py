"""Threads that overlap: each call gets what it gets alone, and global state is as before once the last has ended."""

import copy
import random
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multistable as ms
from generators import generator
from global_state import global_state
from multistable.dynamics.system import reading
from multistable.dynamics.system.contexts import ieee_float32, tf32
from multistable.dynamics.system.flags import CUDNN
from networks import FEATURES, Leaky


class Meeting:
    """The first call begins, the second begins, the first ends, the second goes on and ends."""

    def __init__(self):
        self.first_is_in, self.second_is_in, self.first_is_done = (threading.Event() for _ in range(3))
        self.seen = []

    def at(self, network):
        """To be called by a network at each of its steps."""
        if threading.current_thread().name == "first":
            self.first_is_in.set()
            assert self.second_is_in.wait(60)
        else:
            self.second_is_in.set()
            assert self.first_is_done.wait(60)
            backends = torch.backends
            precision = (backends.cuda.matmul.fp32_precision, backends.mkldnn.matmul.fp32_precision)
            self.seen.append((*precision, network.training))

    def hold(self, first, second):
        """Run both functions so, and return their results."""
        results = {}

        def run(name, function):
            results[name] = function()

        threads = [
            threading.Thread(target=run, args=pair, name=pair[0]) for pair in (("first", first), ("second", second))
        ]
        threads[0].start()
        assert self.first_is_in.wait(60)
        threads[1].start()
        threads[0].join(60)
        self.first_is_done.set()
        threads[1].join(60)
        return results["first"], results["second"]


class Guest(Leaky):
    """A network that takes part in a meeting."""

    meeting = None

    def forward(self, x, state=None):
        if self.meeting is not None:
            self.meeting.at(self)
        return super().forward(x, state)


@pytest.fixture
def medium_precision():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("shared", [False, True], ids=["two networks", "one network"])
def test_two_measures_that_overlap(medium_precision, shared):
    networks = [Guest(FEATURES, 4) for _ in range(2)]
    if shared:
        networks[1] = networks[0]
    x = torch.randn(6, 9, FEATURES, generator=generator())

    def measured(network):
        return ms.measure(network, x, batches=2, batch_size=4, stabilisation=20, generator=generator())

    alone, before = [measured(network) for network in networks], global_state()
    meeting = Guest.meeting = Meeting()
    try:
        together = meeting.hold(*[lambda network=network: measured(network) for network in networks])
    finally:
        Guest.meeting = None
    assert list(together) == alone
    assert global_state() == before
    assert all(module.training for network in networks for module in network.modules())
    assert set(meeting.seen) == {("ieee", "ieee", False)}


def test_many_measures_at_once_give_what_they_give_alone():
    x = torch.randn(20, 40, FEATURES, generator=generator())
    kinds = (nn.GRU, nn.LSTM, Leaky, ms.MGU, lambda *sizes: ms.RNN("brc", *sizes, double=True))
    networks = [kind(FEATURES, 4) for kind in kinds] * 2

    def measured(network):
        return ms.measure(network, x, batches=2, stabilisation=60, generator=generator())

    before = global_state()
    with ThreadPoolExecutor(4) as threads:
        together = list(threads.map(measured, networks))
    assert together == [measured(network) for network in networks]
    assert global_state() == before


@pytest.mark.filterwarnings("ignore::multistable.WarmupWarning")
def test_warmups_at_once_give_what_they_give_alone():
    x = torch.randn(12, 20, FEATURES, generator=generator())
    networks = [kind(FEATURES, 4) for kind in (nn.GRU, Leaky, nn.LSTM)]

    def warmed(network):
        network = copy.deepcopy(network)
        ms.warmup(network, x, steps=3, batch_size=8, max_stabilisation=10, generator=generator())
        return [p.tolist() for p in network.parameters()]

    before = global_state()
    with ThreadPoolExecutor(3) as threads:
        together = list(threads.map(warmed, networks))
    assert together == [warmed(network) for network in networks]
    assert global_state() == before


def test_reading_shuffled_loaders_in_two_threads(monkeypatch):
    """The second reader waits for the first; each reads in the order in which it reads alone."""
    second_tries, lock = threading.Event(), threading.RLock()

    class Watched:
        def __enter__(self):
            if threading.current_thread().name == "second":
                second_tries.set()
            lock.acquire()

        def __exit__(self, *_):
            lock.release()

    class Data(TensorDataset):
        def __getitem__(self, index):
            if threading.current_thread().name == "first":
                first_is_in.set()
                assert second_tries.wait(60)
            random.random()
            np.random.rand()  # noqa: NPY002
            return super().__getitem__(index)[0] + torch.rand(())

    first_is_in = threading.Event()
    monkeypatch.setattr(reading, "_one_reader", Watched())
    loaders = [DataLoader(Data(torch.zeros(6, 4, FEATURES)), batch_size=2, shuffle=True) for _ in range(2)]
    rnn, results = nn.GRU(FEATURES, 4, batch_first=True), {}

    def read(name, loader):
        results[name] = ms.reachable_states(rnn, loader, generator=generator())

    before = global_state()
    read("alone", loaders[0])
    first = threading.Thread(target=read, args=("first", loaders[0]), name="first")
    second = threading.Thread(target=read, args=("second", loaders[1]), name="second")
    first.start()
    assert first_is_in.wait(60)
    second.start()
    first.join(60)
    second.join(60)
    assert global_state() == before
    assert torch.equal(results["first"], results["alone"])
    assert torch.equal(results["second"], results["alone"])


def precision():
    return torch.backends.cuda.matmul.fp32_precision


def test_where_threads_need_different_precisions_the_strictest_holds():
    """Training in TF32 in one thread, a measure in another; each line says which thread does what."""
    before = precision()
    with ThreadPoolExecutor(1) as training, ThreadPoolExecutor(1) as measuring:
        contexts = {thread: ExitStack() for thread in (training, measuring)}

        def enter(thread, context):
            thread.submit(contexts[thread].enter_context, context()).result()

        def leave(thread):
            thread.submit(contexts[thread].close).result()

        enter(training, tf32)
        assert precision() == "tf32"
        enter(measuring, ieee_float32)
        assert precision() == "ieee"
        leave(measuring)
        assert precision() == "tf32"
        enter(measuring, ieee_float32)
        leave(training)
        assert precision() == "ieee"
        enter(training, ieee_float32)
        enter(training, tf32)
        leave(measuring)
        assert precision() == "tf32"
        leave(training)
    assert precision() == before


def test_a_flag_that_the_user_sets_meanwhile_stays():
    before = precision()
    try:
        with tf32():
            torch.backends.cuda.matmul.fp32_precision = "ieee"
        assert precision() == "ieee"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def test_cudnn_is_off_until_the_last_thread_has_ended():
    assert torch.backends.cudnn.enabled
    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as other:
        held = {thread: CUDNN.held(False) for thread in (one, other)}
        for thread in (one, other):
            thread.submit(held[thread].__enter__).result()
        one.submit(held[one].__exit__, None, None, None).result()
        assert not torch.backends.cudnn.enabled
        other.submit(held[other].__exit__, None, None, None).result()
    assert torch.backends.cudnn.enabled
