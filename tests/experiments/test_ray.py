"""Experiments on a Ray cluster: the same results as in this process, whatever becomes of the workers."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from interruption import interrupted
from multistable.cli import app
from multistable.experiments.experiment import Experiment, finished
from multistable.experiments.paper import experiments
from multistable.experiments.reproduce import Deadline, OutOfTimeError, plan, reproduce
from multistable.experiments.runners import make_runner
from multistable.experiments.scales import SMOKE, Scale
from multistable.extras import how_to_install
from multistable.tasks import PermutedSequentialMNIST
from multistable.training import Callback, RunFolder
from paths import HELPERS
from small_runs import small

TWO_SEEDS = Scale("as it is", "nothing is changed", seeds=2)
EPOCHS = 100
"""So many that a node is lost long before the last."""

ENDLESS = 100 * EPOCHS
"""So many that no machine, however busy the others on it are, reaches the last."""

# A node that is lost refuses to answer and is noticed after three checks; one that is busy has time to answer. And
# workers have a fair share of a machine that is busy.
PATIENT = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 10_000,
    "health_check_failure_threshold": 3,
    "worker_niceness": 0,
}


def experiment(**settings):
    """Two groups of four runs."""
    runs = [
        small(cell=cell, version=version, **settings) for cell in ("gru", "mgu") for version in ("classic", "warmup")
    ]
    return Experiment("two", 1, (), "Two groups", tuple(runs), (), ())


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each, on the loopback alone; the second is there to be lost."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args={**node, "_system_config": PATIENT})
    second = made.add_node(**node)
    # Else the driver looks for the cluster at an address that others can reach.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ray._private.ray_constants.ENABLE_RAY_CLUSTER", False)
        yield made, second
        made.shutdown()


class LosesANode(Callback):
    """Kills a node in the middle of what it trains; remembers at which epochs each group began."""

    def __init__(self, cluster, node, out):
        self.cluster, self.node, self.out = cluster, node, out
        self.starts = {}
        self.lost = None

    def on_start(self, configs, epoch, steps):
        self.starts.setdefault(configs[0].cell, []).append(epoch)

    def on_epoch(self, configs, metrics):
        folder = RunFolder.of(configs[0], self.out).path
        if self.lost is None and metrics[0]["epoch"] >= 2 and works_on(self.node, folder):
            self.lost = configs[0].cell
            self.cluster.remove_node(self.node, allow_graceful=False)


def works_on(node, folder):
    """Whether a worker of the node has the lock of a run."""
    raylet = node.all_processes["raylet"][0].process.pid
    for process in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            files = {entry.readlink() for entry in (process / "fd").iterdir()} if parent == raylet else set()
        except OSError:  # It has just ended.
            continue
        if folder / ".lock" in files:
            return True
    return False


def outcomes(configs, out):
    """Everything that was recorded but how long it took."""
    told = {}
    for result in finished(configs, out):
        warmup = None if result.warmup is None else untimed(result.warmup)
        weights = (RunFolder.of(result.config, out).path / "weights.safetensors").read_bytes()
        told[result.config.name] = ([untimed(row) for row in result.metrics], result.results, warmup, weights)
    return told


def untimed(row):
    return {name: value for name, value in row.items() if "seconds" not in name}


# In a process of its own, as a worker is: what earlier tests have left in this one can change the last digits.
WITHOUT_RAY = """
import sys
sys.path[:0] = sys.argv[2:]
from test_ray import EPOCHS, TWO_SEEDS, experiment
from multistable.experiments.reproduce import plan, reproduce
import torch
torch.set_num_threads(1)
reproduce(plan([experiment(epochs=EPOCHS, vaa_every=0)], TWO_SEEDS, sys.argv[1]), sys.argv[1])
"""


def test_a_lost_node_changes_no_digit(cluster, tmp_path):
    nodes, second = cluster
    wanted = experiment(epochs=EPOCHS, vaa_every=0)
    configs = wanted.at(TWO_SEEDS)
    subprocess.run([sys.executable, "-c", WITHOUT_RAY, tmp_path / "here", HELPERS, Path(__file__).parent], check=True)

    out = tmp_path / "ray"
    watching = LosesANode(nodes, second, out)
    with make_runner("ray", "cpu", nodes.address) as runner:
        assert reproduce(plan([wanted], TWO_SEEDS, out), out, runner=runner, callbacks=[watching]) == []

    first, again = watching.starts.pop(watching.lost)
    assert first == 0
    assert 2 <= again < EPOCHS
    assert list(watching.starts.values()) == [[0]]
    assert len(configs) == 8
    assert outcomes(configs, out) == outcomes(configs, tmp_path / "here")


class CtrlC(Callback):
    """Interrupts this process, once, when an epoch of a group has ended."""

    pressed = False

    def on_epoch(self, configs, metrics):
        if metrics[0]["epoch"] == 1 and not self.pressed:
            self.pressed = True
            signal.raise_signal(signal.SIGINT)


def test_an_interruption_ends_every_group_at_once(cluster, tmp_path):
    wanted = experiment(epochs=ENDLESS, vaa_every=0)
    todo = plan([wanted], TWO_SEEDS, tmp_path)
    with make_runner("ray", "cpu", cluster[0].address) as runner:
        with pytest.raises(KeyboardInterrupt):
            reproduce(todo, tmp_path, runner=runner, callbacks=[CtrlC()])
        assert all(free(config, tmp_path) for group in todo.groups for config in group)
    assert plan([wanted], TWO_SEEDS, tmp_path).left == 8
    reached = [max(RunFolder.of(config, tmp_path).checkpoints(), default=-1) for config in wanted.at(TWO_SEEDS)]
    assert max(reached) >= 1


def free(config, out, patience=0.0):
    """Nobody claims the run, or not for longer than so many seconds."""
    with RunFolder.of(config, out).claimed(patience):
        return True


def test_what_cannot_run_does_not_stop_the_others(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv("MULTISTABLE_DATA", str(tmp_path / "nowhere"))
    runs = (small(task=PermutedSequentialMNIST()), small())
    wanted = Experiment("images", 1, (), "With and without images", runs, (), ())
    with make_runner("ray", "cpu", cluster[0].address) as runner:
        problems = reproduce(plan([wanted], TWO_SEEDS, tmp_path), tmp_path, runner=runner)
    assert len(problems) == 1
    assert "nowhere" in problems[0]
    assert len(finished(wanted.at(TWO_SEEDS), tmp_path)) == 2


def test_the_minutes_given_end_every_group_and_what_could_not_run_is_known(cluster, tmp_path, monkeypatch):
    """Each group ends at the end of its epoch."""
    monkeypatch.setenv("MULTISTABLE_DATA", str(tmp_path / "nowhere"))
    runs = (small(task=PermutedSequentialMNIST()), small(epochs=ENDLESS, vaa_every=0))
    todo = plan([Experiment("images", 1, (), "With and without images", runs, (), ())], TWO_SEEDS, tmp_path)
    ended = []
    with make_runner("ray", "cpu", cluster[0].address) as runner:
        result = runner._result
        monkeypatch.setattr(runner, "_result", lambda *task: ended.append(result(*task)) or ended[-1])
        with pytest.raises(OutOfTimeError) as over:
            reproduce(todo, tmp_path, runner=runner, callbacks=[Deadline(1, lambda: 61.0 * len(ended))])
        assert all(free(config, tmp_path) for group in todo.groups for config in group)
    assert len(over.value.problems) == 1
    assert "nowhere" in over.value.problems[0]
    left = [RunFolder.of(config, tmp_path) for config in TWO_SEEDS.of(runs[1:])]
    assert all(max(folder.checkpoints()) >= 0 for folder in left)
    assert not any(folder.finished for folder in left)


def test_gpus_that_the_cluster_does_not_have_are_refused(cluster):
    with (
        pytest.raises(ValueError, match="the Ray cluster has no GPU, got 'cuda'"),
        make_runner("ray", "cuda", cluster[0].address),
    ):
        pass


def test_runners_that_are_not_there_or_do_not_fit_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="--runner must be one of local, ray, got 'slurm'"):
        make_runner("slurm")
    with pytest.raises(ValueError, match="--ray-address is for --runner ray alone"):
        make_runner("local", address="127.0.0.1:6379")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = CliRunner().invoke(app, ["reproduce", "copy", "--runner", "ray", "--dry-run"])
    assert result.exit_code == 1
    assert f"--runner ray needs the package ray: {how_to_install('ray')}" in result.stderr


def test_an_interrupted_command_ends_its_cluster_and_keeps_what_is_done(tmp_path):
    pytest.importorskip("ray")
    command = ["reproduce", "copy-curves", "--scale", "smoke", "--device", "cpu", "--runner", "ray", "--out", tmp_path]
    code, errors = interrupted(*command, at="epoch 0/2")
    assert code == 130, errors
    # Ray may complain of workers that were still loading libraries, and so ended with the cluster.
    assert f"Interrupted. What is done is kept in {tmp_path}: the same command goes on from there.\n" in errors
    assert "Traceback" not in errors
    todo = plan([experiments()["copy-curves"]], SMOKE, tmp_path)
    assert todo.left > 0
    assert all(free(config, tmp_path, patience=60) for group in todo.groups for config in group)
