"""Numbers of NumPy are as good as Python's own: the same runs, the same names, the same networks."""

import json
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pytest
import torch

import multistable as ms
from multistable.rl import DRQN, AgentConfig, Maze, Settings, TMaze, input_size
from multistable.rl.evaluation import watch
from multistable.tasks import TASKS, CopyFirstInput, Denoising, PermutedLineSequentialMNIST
from multistable.training import RunConfig, RunFolder, train
from small_agents import small_agent
from small_runs import small

KINDS = {int: (np.int64, np.int32, np.array, torch.tensor), float: (np.float64, np.array), bool: (np.bool_,)}
# Sizes of a byte, as of an array of small numbers: products with them would be too large for a byte.
BYTE = np.uint8


def in_numpy(config, kind):
    """The settings of a run of which NumPy has a kind, in that."""
    values = {name: getattr(config, name) for name in config.to_dict()}
    return {name: kind(value) for name, value in values.items() if kind in KINDS.get(type(value), ())}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        *((small(version="warmup", data_seed=3), kind) for kind in dict.fromkeys(chain(*KINDS.values()))),
        (small(version="auxiliary", stretch_length=2), np.array),
        (small_agent(version="warmup", max_norm=1.0), np.array),
    ],
)
def test_a_run_is_the_one_with_pythons_own_numbers(config, kind):
    settings = in_numpy(config, kind)
    assert settings
    same = replace(config, **settings)
    assert same == config
    assert same.name == config.name
    assert repr(same) == repr(config)
    assert json.dumps(same.to_dict()) == json.dumps(config.to_dict())
    assert type(config).from_dict(json.loads(json.dumps(same.to_dict()))) == config


def test_numbers_of_single_precision_are_the_doubles_they_are():
    config = small(learning_rate=np.float32(0.1), target=np.float16(0.5))
    assert config.name == small(learning_rate=float(np.float32(0.1)), target=0.5).name


def test_options_of_a_cell_are_written_as_the_others():
    config = small(cell="chrono", cell_options={"t_max": np.int64(80)})
    assert config.name == small(cell="chrono", cell_options={"t_max": 80}).name


@pytest.mark.parametrize("value", [np.int64(0), np.float64(8), np.bool_(True), np.array([8])])
def test_what_is_no_positive_integer_is_refused_as_ever(value):
    with pytest.raises(ValueError, match="hidden_size must be a positive integer"):
        small(hidden_size=value)


@pytest.mark.parametrize("value", [True, np.bool_(True), np.array(True), torch.tensor(True)])
def test_whether_something_is_so_is_no_size(value):
    with pytest.raises(ValueError, match="hidden_size must be a positive integer, got"):
        ms.RNN("gru", 1, value)
    with pytest.raises(ValueError, match="T must be a positive integer, got"):
        CopyFirstInput(value)


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [(CopyFirstInput, (5,)), (Denoising, (20, 5)), (PermutedLineSequentialMNIST, (3,)), (Maze, (4,))],
)
def test_a_task_is_the_one_with_pythons_own_numbers(kind, arguments):
    task = kind(*map(BYTE, arguments))
    assert repr(task) == repr(kind(*arguments))
    made = AgentConfig if kind is Maze else RunConfig
    assert made(task, "gru").name == made(kind(*arguments), "gru").name


def test_a_task_of_ones_own_need_not_know_of_it(monkeypatch):
    @dataclass(frozen=True)
    class Louder(CopyFirstInput):
        times: float = 1.0
        each: tuple[float, ...] = ()

    monkeypatch.setitem(TASKS, "louder", Louder)
    halves = (np.float32(0.5), np.array(0.5), 0.5)
    names = {RunConfig(Louder(5, half, (half, 1.0)), "gru").name for half in halves}
    assert len(names) == 1


def test_a_run_is_trained_and_read_again(tmp_path):
    plain, given = small(), small(hidden_size=np.int64(8), epochs=np.int64(2), seed=np.int64(0), eps=np.float32(1e-4))
    train(given, tmp_path, together=np.uint8(4))
    folder = RunFolder.of(given, tmp_path)
    assert folder.config() == given
    assert folder.config().hidden_size == plain.hidden_size
    assert folder.finished


def test_agents_learn_the_same(tmp_path):
    trained = []
    for integer, real in ((int, float), (BYTE, np.float64)):
        settings = Settings(*map(integer, (40, 3, 2)), real(0.25), real(1e-3), integer(5), max_norm=real(1.0))
        pomdp = TMaze(integer(3))
        networks = [ms.RNN("gru", input_size(pomdp), 6, generator=torch.Generator().manual_seed(0))]
        agents = DRQN(pomdp, networks, seeds=[integer(0)], settings=settings)
        trained.append([each.returns for each in watch(agents, integer(4), evaluate_every=integer(2))])
    assert trained[0] == trained[1]


@pytest.mark.parametrize("kind", [BYTE, np.array, torch.tensor])
def test_settings_of_agents_are_those_with_pythons_own_numbers(kind):
    plain = Settings(40, 3, 2, batch_size=5, max_norm=2.0)
    given = Settings(*map(kind, (40, 3, 2)), batch_size=kind(5), max_norm=np.array(2.0))
    assert repr(given) == repr(plain)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_a_cell_with_sizes_of_numpy(cell):
    made = [ms.CELLS[cell](kind(3), kind(4), generator=torch.Generator().manual_seed(0)) for kind in (int, np.int64)]
    assert json.dumps([made[1].input_size, made[1].hidden_size]) == "[3, 4]"
    for expected, found in zip(*(one.state_dict().values() for one in made), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.parametrize("double", [False, True])
def test_a_network_with_sizes_of_a_byte(double):
    made = [
        ms.RNN("lstm", *map(kind, (100, 200, 2)), double=double, generator=torch.Generator().manual_seed(0))
        for kind in (int, BYTE)
    ]
    assert json.dumps([made[1].input_size, made[1].hidden_size, made[1].num_layers]) == "[100, 200, 2]"
    x = torch.randn(4, 2, 100, generator=torch.Generator().manual_seed(1))
    assert torch.equal(made[0](x)[0], made[1](x)[0])


@pytest.mark.parametrize("kind", [BYTE, np.array])
@pytest.mark.parametrize(
    ("function", "further"),
    [(ms.attractors, {"longest": 200}), (ms.lyapunov, {"steps": 200})],
    ids=["attractors", "lyapunov"],
)
def test_what_is_found_of_settled_states_is_the_same(function, further, kind):
    rnn = ms.RNN("gru", 1, 4, generator=torch.Generator().manual_seed(0))
    sequences = torch.randn(10, 40, 1, generator=torch.Generator().manual_seed(1))
    sizes = {"batches": 20, "batch_size": 20, "stabilisation": 200} | further
    found = [function(rnn, sequences, **{name: k(size) for name, size in sizes.items()}) for k in (int, kind)]
    assert repr(found[0]) == repr(found[1])


@pytest.mark.parametrize("kind", [BYTE, np.int64, np.array])
def test_a_measure_is_the_same(kind):
    rnn = ms.RNN("gru", 1, 4, generator=torch.Generator().manual_seed(0))
    sequences = torch.randn(10, 40, 1, generator=torch.Generator().manual_seed(1))
    sizes = {"batches": 20, "batch_size": 20, "stabilisation": 30}
    found = [
        ms.measure(rnn, sequences, **{name: k(size) for name, size in sizes.items()}, eps=eps)
        for k, eps in ((int, 0.25), (kind, np.float32(0.25)))
    ]
    assert repr(found[0]) == repr(found[1])
    assert json.dumps(found[1].steps) == "30"


def test_a_warmup_is_the_same():
    sequences = torch.randn(10, 40, 1, generator=torch.Generator().manual_seed(1))
    sizes = {"steps": 3, "batch_size": 20, "max_stabilisation": 250, "increment": 100}
    warmed = []
    for kind in (int, BYTE, np.array):
        rnn = ms.RNN("gru", 1, 4, generator=torch.Generator().manual_seed(0))
        with pytest.warns(ms.WarmupWarning):
            ms.warmup(rnn, sequences, algorithm="paper", **{name: kind(size) for name, size in sizes.items()})
        warmed.append(list(rnn.parameters()))
    for others in warmed[1:]:
        assert all(torch.equal(a, b) for a, b in zip(others, warmed[0], strict=True))


def test_a_truth_value_of_numpy_is_pythons_own_in_a_task():
    assert Denoising(30, 10, cue=np.False_) == Denoising(30, 10, cue=False)
    assert Denoising(30, 10, cue=np.False_).cue is False
