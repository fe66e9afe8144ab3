"""Environments of POPGym, and the example of recurrent PPO, with the real packages: ``make test-integrations``."""

import runpy
import warnings

import numpy as np
import pytest
import torch

import multistable as ms
from multistable.rl import PPO, PPOSettings, collect, input_size
from multistable.rl.cards import RepeatFirst, RepeatPrevious
from multistable.rl.gym_agent import GymPOMDP
from paths import ROOT

pytestmark = [
    pytest.mark.filterwarnings("default"),
    pytest.mark.filterwarnings("ignore::multistable.WarmupWarning"),
]
QUICK = {"algorithm": "paper", "steps": 2, "batch_size": 8, "max_stabilisation": 5}


@pytest.fixture(autouse=True)
def popgym():
    return pytest.importorskip("popgym")


@pytest.mark.parametrize(("name", "back"), [("RepeatFirstEasy", None), ("RepeatPreviousEasy", 3)])
def test_who_repeats_the_card_has_a_return_of_1(name, back):
    """Each card is named at once: the first one always, or the one of some steps ago."""
    pomdp = GymPOMDP(f"popgym-{name}-v0", horizon=51)
    state, observation = pomdp.reset(torch.rand(3, dtype=torch.float64))
    cards, total, steps = [observation.argmax(dim=-1)], torch.zeros(3), 0
    for t in range(51):
        action = cards[0 if back is None else max(t - back, 0)]
        state, observation, reward, _, ended = pomdp.step(state, action)
        cards.append(observation.argmax(dim=-1))
        total, steps = total + reward, steps + 1
        assert bool(ended.all()) == (t == 50)
    assert torch.allclose(total, torch.ones(3))


@pytest.mark.parametrize(
    ("name", "ours"), [("RepeatFirstEasy", RepeatFirst()), ("RepeatPreviousEasy", RepeatPrevious())]
)
def test_our_batched_cards_are_those_of_the_package(name, ours):
    """With the deck that the package has shuffled, dealt from its end, and the same actions."""
    import gymnasium

    env, actions = gymnasium.make(f"popgym-{name}-v0").unwrapped, np.random.default_rng(0)
    for seed in range(5):
        seen, _ = env.reset(seed=seed)
        suits = torch.as_tensor(env.deck.suits_idx[env.deck.idx[::-1]].copy())
        state, over = torch.cat([torch.ones(1, dtype=torch.long), suits]), False
        assert seen == suits[0]
        while not over:
            action = int(actions.integers(4))
            seen, reward, over, cut, _ = env.step(action)
            state, observation, ours_reward, terminated, ended = ours.step(state, torch.tensor(action))
            assert (observation.argmax(), bool(terminated), bool(ended), cut) == (seen, over, over, False)
            assert ours_reward.item() == pytest.approx(reward)


def test_ppo_plays_and_is_warmed_up():
    pomdp = GymPOMDP("popgym-RepeatFirstEasy-v0", horizon=51, dtype=torch.float64)
    settings = PPOSettings(copies=4, passes=1, minibatches=2, action_input=False)
    network = ms.RNN("gru", input_size(pomdp, action_input=False), 4, dtype=torch.float64)
    agents = PPO(pomdp, network, seeds=[0], settings=settings, warm=True)
    agents.warm_up(**QUICK)
    agents.prepared = True
    (update,) = agents.train(4)
    assert update.lengths.item() == 51
    assert len(agents.warmups[0]) == 2


def test_a_warmup_in_one_line():
    import gymnasium

    rnn = torch.nn.GRU(4, 3)
    env = gymnasium.make("popgym-RepeatPreviousEasy-v0")
    with warnings.catch_warnings(action="ignore", category=UserWarning):  # of Gymnasium's own checks
        assert len(ms.warmup(rnn, collect(env, steps=510), **QUICK)) == 2


def test_the_example():
    agents = runpy.run_path(str(ROOT / "examples" / "recurrent_ppo.py"))["main"](episodes=8, copies=4, hidden_size=4)
    assert agents.episode == 8
    assert agents.warmups[0] is None
    assert agents.warmups[1] is not None
