"""Runs whose networks are prepared by other methods than a warmup, and runs of double layers of two cells."""

import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

import multistable as ms
from multistable.cli import app
from multistable.rl import AgentConfig, Maze
from multistable.training import RunConfig, train
from multistable.training.data import TrainingSequences, division, sets
from multistable.training.model import Model
from multistable.training.seeds import generator
from own_cells import LeakyCell
from small_agents import small_agent
from small_runs import small

STILL = {"learning_rate": 1e-30, "epochs": 1, "vaa_every": 0}
"""A training that changes nothing."""
ONE = torch.device("cpu")


def weights_after(folder) -> dict[str, torch.Tensor]:
    return {name.removeprefix("rnn."): w for name, w in folder.weights().items() if name.startswith("rnn.")}


def sequences_of(config: RunConfig) -> TrainingSequences:
    learning = sets([config], "train", ONE)
    return TrainingSequences.of(learning, division([config], learning.size, ONE).training)


@pytest.mark.parametrize("method", ["chrono", "orthogonal", "uniform-gates"])
def test_a_run_is_prepared_as_its_network_would_be(method, tmp_path):
    configs = [
        small(version=version, seed=seed, warmup_algorithm=method, **STILL)
        for seed, version in ((0, "warmup"), (1, "classic"), (2, "warmup"))
    ]
    folders = train(configs, tmp_path, device="cpu")
    for config, folder in zip(configs, folders, strict=True):
        alone = ms.Ensemble([Model.of(config).rnn])
        if config.kind.warmed:
            draw = [generator(config.seed, "warmup")]
            ms.prepare(alone, sequences_of(config), method=method, generator=draw)
        (member,) = alone.unstack()
        for name, weight in weights_after(folder).items():
            assert_close(weight, member.get_parameter(name).detach(), rtol=1e-4, atol=1e-6)
        outcome = folder.summary()["results"]["warmup"]
        assert outcome == ("prepared" if config.kind.warmed else None)
    course = folders[0].warmup()
    assert (course["outcome"], course["reason"], course["together"]) == ("prepared", f"by {method}", 2)
    assert course["seconds"] >= 0
    shown = CliRunner().invoke(app, ["show", str(folders[0].path)]).output
    assert f"Warmup: prepared, by {method}" in shown


def test_a_method_names_a_run_and_settings_of_warmups_do_not():
    runs = [small(version="warmup", warmup_algorithm=method) for method in ("paper", "chrono", "orthogonal")]
    assert len({run.name for run in runs}) == 3
    changed = small(version="warmup", warmup_algorithm="chrono", warmup_steps=9, target=0.01, warmup_batch_size=30)
    assert changed.name == runs[1].name
    assert small(warmup_algorithm="chrono").name == small().name
    assert RunConfig.from_dict(runs[1].to_dict()) == runs[1]


def test_a_method_that_does_not_fit_the_cell_is_refused_before_any_work():
    with pytest.raises(ValueError, match=r"method 'identity' is for cells with .* no gate .*got GRU"):
        small(version="warmup", warmup_algorithm="identity")
    small(version="classic", warmup_algorithm="identity")
    elman = "multistable.cells.elman:Elman"
    small(cell=elman, version="warmup", warmup_algorithm="identity", cell_options={"nonlinearity": "relu"})
    with pytest.raises(ValueError, match=r"method 'chrono' is for cells .*got Elman"):
        small_agent(cell=elman, version="double", warmup_algorithm="chrono")


def test_what_networks_remember_before_training_is_recorded_once(tmp_path):
    folders = train([small(memory_before=True, seed=seed) for seed in (0, 1)], tmp_path, device="cpu")
    for folder in folders:
        first, *others = folder.metrics("epoch")
        assert first["lifetime"] > 0
        # A GRU has one attractor: none of the four states of a batch can be told from the others.
        assert first["recalled"] == pytest.approx(1 / 4)
        assert not any("lifetime" in row or "recalled" in row for row in others)


def test_an_agent_is_prepared_on_its_histories(tmp_path):
    config = small_agent(version="warmup", warmup_algorithm="orthogonal", learning_rate=1e-30)
    (folder,) = train(config, tmp_path, device="cpu")
    matrices = weights_after(folder)["layers.0.cell.recurrent_weight"].chunk(3, dim=-1)
    for matrix in matrices:
        assert_close(matrix @ matrix.T, torch.eye(len(matrix)).to(matrix), rtol=0, atol=1e-12)
    assert folder.summary()["results"]["warmup"] == "prepared"


@pytest.mark.parametrize("pair", ["gru+lstm", "nbrc+gru", "lstm+mgu"])
def test_a_run_of_two_cells_warms_up_the_first_alone(pair, tmp_path):
    configs = [small(cell=pair, version=version, **STILL) for version in ("double", "double-classic")]
    folders = train(configs, tmp_path, device="cpu")
    network = Model.of(configs[0]).rnn
    first, second = (ms.CELLS[name] for name in pair.split("+"))
    assert isinstance(network.layers[0].warmed, first)
    assert isinstance(network.layers[0].transient, second)
    for folder, warmed in zip(folders, (True, False), strict=True):
        after = weights_after(folder)
        assert folder.config().cell == pair
        for name, weight in network.named_parameters():
            same = torch.allclose(after[name], weight.detach(), rtol=0, atol=1e-7)
            assert same != (warmed and ".warmed." in name), name


def test_a_pair_is_for_double_layers():
    with pytest.raises(ValueError, match="version must be one of double, double-classic where cell is a pair"):
        small(cell="gru+lstm", version="warmup")
    with pytest.raises(ValueError, match=r"cell must be one of .*got 'grru'"):
        small(cell="gru+grru", version="double")
    with pytest.raises(TypeError, match="the cell 'gru' takes no argument 't_max'"):
        small(cell="chrono+gru", version="double", cell_options={"t_max": 9})
    assert small(cell=("gru", ms.LSTM), version="double") == small(cell="gru+lstm", version="double")
    assert AgentConfig(Maze(3), "nbrc+gru", "double").cell == "nbrc+gru"


def test_another_process_finds_a_pair_of_which_one_has_a_name_of_its_own(monkeypatch):
    monkeypatch.setitem(ms.CELLS, "leaky", LeakyCell)
    config = small(cell="gru+leaky", version="double")
    stored = config.stored()
    monkeypatch.delitem(ms.CELLS, "leaky")
    with pytest.raises(ValueError, match="cell must be one of"):
        RunConfig.from_dict(config.to_dict())
    assert RunConfig.from_dict(stored).name == config.name
    monkeypatch.delitem(ms.CELLS, "leaky")


def test_the_command_line_takes_pairs_and_methods(tmp_path):
    sizes = "--T 6 --hidden 8 --epochs 1 --training-sequences 50 --testing-sequences 20 --vaa-every 0"
    asked = f"train copy {sizes} --cell gru+lstm --version double --prepare orthogonal --device cpu --out {tmp_path}"
    done = CliRunner().invoke(app, asked.split())
    assert done.exit_code == 0, done.output
    (folder,) = tmp_path.glob("copy-gru+lstm-double-0-*")
    assert (folder / "summary.json").exists()
