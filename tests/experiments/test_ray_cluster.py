"""Connecting to Ray: starts that fail, and interruptions that must not come in the middle of them."""

import signal

import pytest

from multistable.experiments.runners import make_runner
from multistable.experiments.runners.cluster import ATTEMPTS, ClusterError, HeldBack

ray = pytest.importorskip("ray")


class Init:
    """In place of ``ray.init``: does one thing at each call, or raises it."""

    def __init__(self, *course):
        self.course = list(course)

    def __call__(self, **settings):
        happens = self.course.pop(0)
        if isinstance(happens, Exception):
            raise happens
        happens()


@pytest.fixture
def ended(monkeypatch):
    """What becomes of clusters: an entry for each that was ended."""
    calls = []
    monkeypatch.setattr(ray, "shutdown", lambda: calls.append("ended"))
    monkeypatch.setattr(ray, "cluster_resources", dict)
    return calls


def nothing():
    pass


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def test_a_cluster_that_does_not_come_up_is_started_again(monkeypatch, ended):
    monkeypatch.setattr(ray, "init", Init(Exception("The current node timed out during startup"), nothing))
    with make_runner("ray", "cpu") as runner:
        assert runner.device == "cpu"
        assert ended == ["ended"]
    assert ended == ["ended"] * 2


def test_one_that_never_comes_up_is_given_up(monkeypatch, ended):
    monkeypatch.setattr(ray, "init", Init(*[Exception("timed out")] * ATTEMPTS))
    expected = f"Ray could not start a cluster on this machine in {ATTEMPTS} attempts: timed out"
    with pytest.raises(ClusterError, match=expected), make_runner("ray", "cpu"):
        pass
    assert ended == ["ended"] * ATTEMPTS


def test_a_cluster_of_others_is_asked_once(monkeypatch, ended):
    monkeypatch.setattr(ray, "init", Init(ConnectionError("nobody answers")))
    expected = "Ray could not connect to 127.0.0.1:1: nobody answers"
    with pytest.raises(ClusterError, match=expected), make_runner("ray", "cpu", "127.0.0.1:1"):
        pass


def test_a_connection_of_the_user_is_left_alone(monkeypatch, ended):
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    with pytest.raises(ClusterError, match="connected to a Ray cluster already"), make_runner("ray", "cpu"):
        pass
    assert ended == []


def test_an_interruption_waits_until_the_cluster_has_come_up_and_ends_it(monkeypatch, ended):
    came = []
    monkeypatch.setattr(ray, "init", Init(lambda: (ctrl_c(), came.append("up"))))
    with pytest.raises(KeyboardInterrupt), make_runner("ray", "cpu"):
        pytest.fail("it has been entered")
    assert (came, ended) == (["up"], ["ended"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interruption_while_the_cluster_ends_waits_until_it_has(monkeypatch, ended):
    monkeypatch.setattr(ray, "init", Init(nothing))
    monkeypatch.setattr(ray, "shutdown", lambda: (ctrl_c(), ended.append("ended")))
    with pytest.raises(KeyboardInterrupt), make_runner("ray", "cpu"):
        pass
    assert ended == ["ended"]


def test_sigterm_in_the_handler_of_ray_is_an_interruption(monkeypatch, ended):
    def terminated():
        raise SystemExit(15)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(ray, "init", Init(terminated))
    with pytest.raises(KeyboardInterrupt), make_runner("ray", "cpu"):
        pass
    assert ended == ["ended"]
    assert signal.getsignal(signal.SIGTERM) is before


def test_the_second_interruption_does_not_wait():
    with HeldBack() as held:
        ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            ctrl_c()
        held.check()


def test_what_waits_is_passed_on_once():
    with HeldBack() as held:
        held.check()
        ctrl_c()
        with pytest.raises(KeyboardInterrupt):
            held.check()
        held.check()


def test_what_is_ignored_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with HeldBack() as held:
            ctrl_c()
            held.check()
    finally:
        signal.signal(signal.SIGINT, before)
