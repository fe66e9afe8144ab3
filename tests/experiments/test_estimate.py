"""What is said beforehand of the time and memory that runs take."""

import re
from dataclasses import replace
from functools import partial

import pytest
import torch

from multistable.cells import CELLS
from multistable.experiments.archive import read_results
from multistable.experiments.estimate import LEAST_SHARE, gpu_share, memory, seconds
from multistable.rl import AgentConfig, Maze, PassiveMaze
from multistable.tasks import CopyFirstInput, Denoising
from multistable.training import RunConfig
from multistable.training.trainer import groups
from paths import ROOT

RESULTS = ROOT / "docs" / "results"


def some(count, task, cell, **settings):
    return [RunConfig(task, cell, seed=seed, **settings) for seed in range(count)]


def ten(cell, **settings):
    return some(10, Denoising(200, 5), cell, hidden_size=256, num_layers=2, **settings)


def gradient_step(configs, device="cuda"):
    """Seconds, as they are foretold."""
    short, long = ([replace(run, epochs=epochs, vaa_every=0) for run in configs] for epochs in (1, 2))
    steps = 40_000 * (1 - short[0].validation) / short[0].batch_size
    return (seconds(long, device) - seconds(short, device)) / steps


def time_step(networks, cell, device="cuda", **settings):
    shorter, longer = (some(networks, CopyFirstInput(T), cell, **settings) for T in (100, 101))
    return gradient_step(longer, device) - gradient_step(shorter, device)


def measure(configs, device="cuda"):
    twice, once = ([replace(run, epochs=2, vaa_every=every) for run in configs] for every in (1, 2))
    return seconds(twice, device) - seconds(once, device)


def warming(configs):
    classic = [replace(run, version="classic") for run in configs]
    return seconds(configs, "cuda") - seconds(classic, "cuda")


def of_epochs():
    rows = re.findall(r"^(\w+) +([\d.]+) +[\d.]+ +[\d.]+ +([\d.]+)$", (RESULTS / "epoch.txt").read_text(), re.M)
    for cell, milliseconds, vaa in rows:
        runs = ten(cell=cell, precision="tf32")
        yield f"step-{cell}", float(milliseconds) / 1000, partial(gradient_step, runs)
        yield f"vaa-{cell}", float(vaa), partial(measure, runs)


def of_measures():
    rows = re.findall(r"^(\w+) +[\d.]+ +([\d.]+) +[\d.]+ +[\d.]+ to ", (RESULTS / "measure.txt").read_text(), re.M)
    for cell, tf32x3 in rows:
        yield f"measure-{cell}", float(tf32x3), partial(measure, ten(cell=cell))


def of_dynamics():
    one = some(1, Denoising(200, 5), "gru", version="warmup", hidden_size=256, num_layers=2)
    states = replace(one[0], vaa_batches=1, vaa_batch_size=200)
    # The last line of each kind: the measure is that of a network that was warmed up.
    found = dict(re.findall(r"^(\w+), .* ([\d.]+) s ", (RESULTS / "dynamics.txt").read_text(), re.M))
    yield "one-warmup", float(found["warmup"]), partial(warming, one)
    yield "one-measure", float(found["measure"]), partial(measure, [states])


def of_steps():
    text = (RESULTS / "training_step.txt").read_text()
    networks, hidden, time = map(int, re.search(r"(\d+) networks of (\d+), T = (\d+)", text).groups())
    for cell, recorded in re.findall(r"^(\w+) .*% +([\d.]+) +\d+%$", text, re.M):
        runs = some(networks, CopyFirstInput(time), cell, hidden_size=hidden)
        yield f"recorded-{cell}", float(recorded) / 1000, partial(gradient_step, runs)


def of_time_steps():
    rows = re.findall(r"^(\w+) +(\d+) +(\d+) \| +[\d.]+ +([\d.]+) \|", (RESULTS / "engine.txt").read_text(), re.M)
    for cell, units, members, microseconds in rows:
        hidden, networks = int(units), int(members)
        if hidden >= 128:  # What 64 units take is not in proportion: one LSTM 1.7 microseconds, eight 12.
            foretold = partial(time_step, networks, cell, hidden_size=hidden)
            yield f"{networks}-{cell}-{hidden}", float(microseconds) / 1e6, foretold


def of_copy():
    results = {result.config.name: result for result in read_results(RESULTS / "copy_50.json")}
    for runs in groups([result.config for result in results.values()], 10):
        record = results[runs[0].name].record
        assert record["together"] == len(runs)
        yield f"copy-{runs[0].cell}-{runs[0].version}", record["seconds"], partial(seconds, runs, "cuda")


def of_cpu_scans():
    """Of a time step: forward and backward, and in a measure of 1,000 of them."""
    text = (RESULTS / "cpu_scan.txt").read_text()
    both, settling = (
        text.partition("forward and backward, with")[2].split("targets:")[0],
        text.rpartition("constant")[2],
    )
    row = re.compile(r"^\| (\w+) \| (\d+) \| (\d+) \|(?: [\d.]+ \|){3} ([\d.]+) ", re.M)
    for cell, batch, hidden, microseconds in row.findall(both):
        sizes = {"batch_size": int(batch), "hidden_size": int(hidden)}
        yield f"cpu-{cell}-{batch}-{hidden}", float(microseconds) / 1e6, partial(time_step, 1, cell, "cpu", **sizes)
    for cell, states, hidden, microseconds in row.findall(settling):
        sizes = {"vaa_batches": 1, "vaa_batch_size": int(states), "hidden_size": int(hidden), "stabilisation": 1000}
        runs = some(1, CopyFirstInput(50), cell, **sizes)
        yield f"cpu-measure-{cell}", float(microseconds) / 1e3, partial(measure, runs, "cpu")


SOURCES = {of_epochs: 12, of_measures: 2, of_dynamics: 2, of_steps: 6, of_time_steps: 75, of_copy: 12, of_cpu_scans: 25}
"""What was measured on an H200 or a CPU, its seconds and what foretells them; and how many there are of each."""


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.__name__)
def test_what_was_measured_is_foretold_within_a_factor_of_two(source):
    ratios = {name: foretold() / measured for name, measured, foretold in source()}
    assert len(ratios) == SOURCES[source]
    assert {name: ratio for name, ratio in ratios.items() if not 0.5 < ratio < 2} == {}


@pytest.mark.parametrize(("length", "device", "measured"), [(200, "cuda", 0.21), (20, "cpu", 2.29)])
def test_an_episode_takes_what_was_measured_within_a_factor_of_two(length, device, measured):
    """Three agents in float32: what docs/guide/agents.md tells of them."""
    short, long = (
        [AgentConfig(Maze(length), "gru", seed=seed, episodes=episodes, vaa_every=0) for seed in range(3)]
        for episodes in (1, 2)
    )
    assert 0.5 < (seconds(long, device) - seconds(short, device)) / measured < 2


@pytest.mark.parametrize(("cell", "units", "measured"), [("gru", 32, 0.47), ("gru", 64, 0.97), ("lstm", 64, 1.44)])
def test_an_update_of_ppo_takes_what_was_measured_within_a_factor_of_two(cell, units, measured):
    """Ten agents on a CPU that play 64 episodes of a passive T-Maze, L = 100: docs/results/agents_elsewhere.md."""
    settings = {"num_layers": 1, "algorithm": "ppo", "copies": 64, "evaluate_every": 64, "vaa_every": 0}
    short, long = (
        [AgentConfig(PassiveMaze(100), cell, seed=s, hidden_size=units, episodes=n, **settings) for s in range(10)]
        for n in (64, 128)
    )
    assert 0.5 < (seconds(long, "cpu") - seconds(short, "cpu")) / measured < 2


def test_memory_of_ppo_grows_with_the_rows_of_its_gradient_steps():
    def of(**changes):
        settings = {"algorithm": "ppo", "copies": 640, "minibatches": 1, "evaluate_every": 640, "vaa_every": 0}
        return memory(10 * [AgentConfig(PassiveMaze(100), "gru", episodes=640, **settings | changes)])

    assert of() > 1.5 * of(minibatches=4)
    assert of(capacity=10**6, batch_size=10**4) == of()


@pytest.mark.parametrize("version", ["classic", "warmup"])
def test_tf32_changes_the_time_of_training_on_a_gpu_alone(version):
    ieee, tf32 = (ten(version=version, cell="gru", precision=name) for name in ("ieee", "tf32"))
    assert seconds(tf32, "cuda") < seconds(ieee, "cuda")
    assert seconds(tf32, "cpu") == seconds(ieee, "cpu")


def test_tf32_changes_nothing_for_few_rows():
    tf32, ieee = (some(10, CopyFirstInput(50), "gru", precision=name) for name in ("tf32", "ieee"))
    assert seconds(tf32, "cuda") == seconds(ieee, "cuda")
    assert seconds(2 * tf32, "cuda") < seconds(2 * ieee, "cuda")


def test_what_is_done_takes_no_time_again():
    runs = ten(version="warmup", cell="gru")
    half = runs[0].duration // 2
    epochs = seconds(runs, "cuda", half) - seconds(runs, "cuda", runs[0].duration)
    assert seconds(runs, "cuda") > 2 * epochs > seconds(ten(version="classic", cell="gru"), "cuda") * 0.9


def test_the_warmup_takes_the_same_in_tf32():
    tf32, ieee = (warming(ten(version="warmup", cell="gru", precision=name)) for name in ("tf32", "ieee"))
    assert tf32 == pytest.approx(ieee)


@pytest.mark.parametrize(("every", "measures"), [(10, 11), (30, 5), (200, 2)])
def test_vaa_on_the_way_of_a_warmup_takes_its_measures(every, measures):
    """Before, after every so many of 100 steps, and at the end."""
    runs = ten(version="warmup", cell="gru")
    recording = [replace(run, warmup_vaa_every=every) for run in runs]
    assert warming(recording) - warming(runs) == pytest.approx(measures * measure(runs))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_cell_of_more_matrices_takes_longer(device, monkeypatch):
    monkeypatch.setitem(CELLS, "mine", CELLS["mgu"])
    order = [seconds(ten(cell=name), device) for name in ("brc", "nbrc", "gru", "lstm")]
    assert order == sorted(set(order))
    assert seconds(ten(cell="chrono"), device) == order[-1]
    assert seconds(ten(cell="mine"), device) == seconds(ten(cell="mgu"), device) == order[1]


class Scalar(CELLS["brc"]):
    """One more number, and no matrix."""

    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.more = torch.nn.Parameter(torch.zeros(()))


class Picky(CELLS["gru"]):
    """Of no size but its own."""

    def __init__(self, input_size, hidden_size, **options):
        if hidden_size != 256:
            raise ValueError("256 units, or none")
        super().__init__(input_size, hidden_size, **options)


@pytest.mark.parametrize(("mine", "like"), [(Scalar, "brc"), (Picky, "gru")])
def test_a_cell_of_the_users_own_takes_what_its_matrices_take(monkeypatch, mine, like):
    monkeypatch.setitem(CELLS, "mine", mine)
    assert seconds(ten(cell="mine"), "cuda") == seconds(ten(cell=like), "cuda")


def test_what_is_foretold_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    seconds(ten(cell="gru"), "cuda")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_group_has_the_share_of_a_gpu_that_its_memory_asks_for(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    copy = [RunConfig(CopyFirstInput(50), "gru", seed=seed) for seed in range(5)]
    long = [RunConfig(CopyFirstInput(600), "lstm", "warmup", hidden_size=512, seed=seed) for seed in range(32)]
    assert gpu_share(copy[:1]) == LEAST_SHARE
    assert memory(copy[:1]) < memory(copy) < memory(long)
    assert gpu_share(long) == 1.0
