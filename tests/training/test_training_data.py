"""The data of a training: sets that runs share or have of their own, their parts, and what is drawn from seeds."""

import numpy as np
import torch

from multistable.tasks import PermutedSequentialMNIST
from multistable.training.data import TrainingSequences, division, sets
from multistable.training.seeds import generator
from small_runs import small

CPU = torch.device("cpu")


def test_runs_of_one_seed_share_a_set_and_others_have_their_own():
    configs = [small(seed=seed, version=version) for seed in (0, 1) for version in ("classic", "warmup")]
    learning = sets(configs, "train", CPU)
    assert learning.inputs.shape == (6, 2, 50, 1)
    rows = torch.arange(50).expand(4, -1)
    inputs, targets = learning.take(rows)
    assert inputs.shape == (6, 4, 50, 1)
    assert torch.equal(inputs[:, 0], inputs[:, 1])
    assert not torch.equal(inputs[:, 0], inputs[:, 2])
    assert torch.equal(targets, inputs[0])
    alone = sets(configs[2:3], "train", CPU).take(rows[:1])
    assert torch.equal(alone.inputs[:, 0], inputs[:, 2])


def test_the_test_set_is_not_the_learning_set():
    config = small(testing_sequences=50)
    assert not torch.equal(sets([config], "train", CPU).inputs, sets([config], "test", CPU).inputs)


def test_a_set_that_draws_nothing_is_kept_once(monkeypatch):
    loads = []

    def fixed(split, data):
        loads.append(split)
        return np.zeros((30, 28, 28), np.uint8), np.arange(30, dtype=np.uint8) % 10

    monkeypatch.setattr("multistable.tasks.mnist.load", fixed)
    configs = [small(task=PermutedSequentialMNIST(), seed=seed, training_sequences=None) for seed in range(3)]
    learning = sets(configs, "train", CPU)
    assert learning.inputs.shape[1] == 1
    assert loads == ["train"]
    assert learning.take(torch.tensor([[0], [5], [9]])).targets.flatten().tolist() == [0, 5, 9]


def test_the_parts_make_up_the_set():
    configs = [small(seed=seed, selection=0.1) for seed in (0, 1)]
    parts = division(configs, 50, CPU)
    assert [part.shape for part in parts] == [(2, 35), (2, 10), (2, 5)]
    for run in range(2):
        assert sorted(row for part in parts for row in part[run].tolist()) == list(range(50))
    assert not torch.equal(parts.training[0], parts.training[1])


def test_every_purpose_and_seed_has_its_own_numbers():
    draws = {
        tuple(torch.rand(3, generator=generator(seed, *purpose)).tolist())
        for seed in (0, 1)
        for purpose in [("weights",), ("order", 1), ("order", 2)]
    }
    assert len(draws) == 6
    assert torch.equal(torch.rand(3, generator=generator(0, "a")), torch.rand(3, generator=generator(0, "a")))


def test_runs_can_divide_one_learning_set_in_different_ways():
    configs = [small(seed=seed, data_seed=7) for seed in (0, 1)]
    learning = sets(configs, "train", CPU)
    assert learning.inputs.shape[1] == 1
    assert torch.equal(learning.inputs, sets([small(seed=7)], "train", CPU).inputs)
    parts = division(configs, 50, CPU)
    assert not torch.equal(parts.training[0], parts.training[1])


def test_random_sequences_are_those_of_the_seed_alone(tmp_path):
    configs = [
        small(version="warmup", warmup_sequences="random", seed=seed, target=k) for seed in (0, 1) for k in (0.9, 0.5)
    ]
    drawn, _ = TrainingSequences.random(configs, 40, CPU).select(torch.arange(40).expand(4, -1))
    assert drawn.shape == (6, 4, 40, 1)
    assert torch.equal(drawn[:, 0], drawn[:, 1])
    assert not torch.equal(drawn[:, 0], drawn[:, 2])
    alone, _ = TrainingSequences.random(configs[2:3], 40, CPU).select(torch.arange(40).expand(1, -1))
    assert torch.equal(alone[:, 0], drawn[:, 2])
