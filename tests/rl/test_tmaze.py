"""The T-Maze against the tables of appendix D, and the Gymnasium environment against the batched mazes."""

import itertools
import math
import re

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from multistable.rl.environment import ID, TMazeEnv
from multistable.rl.tmaze import ACTIONS, OBSERVATIONS, TMaze

MOVES = {"right": (1, 0), "up": (0, 1), "left": (-1, 0), "down": (0, -1)}


class AppendixD:
    """The appendix, literally: sets and cases, one state at a time."""

    def __init__(self, L):
        self.L = L
        self.C = {(x, 0) for x in range(L + 1)} | {(L, 1), (L, -1)}
        self.S = set(itertools.product(("Up", "Down"), self.C))
        self.F = {(m, c) for m, c in self.S if c in {(L, 1), (L, -1)}}

    def f(self, s, a):
        m, c = s
        there = (c[0] + a[0], c[1] + a[1])
        return (m, there) if s not in self.F and there in self.C else (m, c)

    def R(self, s, s_next):
        if s in self.F:
            return 0.0
        if s_next not in self.F:
            return -0.1 if s == s_next else 0.0
        m, c = s_next
        return 4.0 if c == {"Up": (self.L, 1), "Down": (self.L, -1)}[m] else -0.1

    def O(self, s):  # noqa: E743
        m, (x, _) = s
        if x == 0:
            return {"Up": "up", "Down": "down"}[m]
        return "corridor" if x in range(1, self.L) else "junction"


def encode(maze, s):
    m, (x, y) = s
    return maze.state(*(torch.tensor(v) for v in (("Up", "Down").index(m), x, y)))


@pytest.mark.parametrize("L", [1, 4])
def test_every_transition_is_that_of_appendix_d(L):
    maze, paper = TMaze(L, dtype=torch.float64), AppendixD(L)
    assert len({int(encode(maze, s)) for s in paper.S}) == 2 * (L + 3)
    for s, (index, name) in itertools.product(paper.S, enumerate(ACTIONS)):
        outcome = maze.step(encode(maze, s), torch.tensor(index))
        s_next = paper.f(s, MOVES[name])
        assert int(outcome.state) == int(encode(maze, s_next)), (s, name)
        assert float(outcome.reward) == paper.R(s, s_next), (s, name)
        assert bool(outcome.terminated) == (s_next in paper.F)
        assert bool(outcome.ended) == (s_next in paper.F)
        seen = OBSERVATIONS.index(paper.O(s_next))
        assert int(maze.observe(outcome.state)) == seen
        assert outcome.observation.tolist() == np.eye(4)[seen].tolist()


def test_initial_states_are_the_two_layouts_alike():
    maze = TMaze(3)
    state, observation = maze.reset(torch.linspace(0, 1, 1001, dtype=torch.float64)[:-1])
    assert {int(s) for s in state} == {int(encode(maze, (m, (0, 0)))) for m in ("Up", "Down")}
    assert observation.sum(dim=0).tolist() == [500, 500, 0, 0]
    assert [OBSERVATIONS[i] for i in maze.observe(maze.reset(torch.tensor(maze.starts))[0])] == ["up", "down"]


def test_exploration_policy_horizon_and_discount():
    maze = TMaze(20)
    assert dict(zip(ACTIONS, maze.exploration, strict=True)) == {
        "right": 1 / 2,
        "up": 1 / 6,
        "left": 1 / 6,
        "down": 1 / 6,
    }
    assert maze.discount == 0.98
    assert [TMaze(L).horizon for L in range(1, 300)] == [3 * L for L in range(1, 300)]


@pytest.mark.parametrize("L", [1, 4])
def test_the_optimal_policy_has_return_4_in_L_plus_1_steps(L):
    maze = TMaze(L)
    assert (maze.optimal_return, maze.optimal_length) == (4.0, L + 1)
    state, _ = maze.reset(torch.tensor([[0.1, 0.9], [0.6, 0.2]]))
    rewards, ends, memory = [], [], None
    for _ in range(L + 1):
        action, memory = maze.optimal_policy(maze.observe(state), memory)
        state, _, reward, terminated, _ = maze.step(state, action)
        rewards.append(reward)
        ends.append(terminated)
    assert torch.equal(torch.stack(rewards).sum(dim=0), torch.full((2, 2), 4.0))
    assert not torch.stack(ends[:-1]).any()
    assert ends[-1].all()
    assert maze.is_optimal(maze.optimal_policy)


def fixed(*actions):
    """A policy that does not look."""

    def policy(observations, memory):
        step = 0 if memory is None else memory
        return torch.full_like(observations, ACTIONS.index(actions[min(step, len(actions) - 1)])), step + 1

    return policy


def test_only_the_optimal_policy_is_optimal():
    maze = TMaze(3)

    def late(observations, memory):
        action, inner = maze.optimal_policy(observations, memory)
        return torch.full_like(action, ACTIONS.index("left")) if memory is None else action, inner

    def right_in_one_layout(observations, memory):
        action, memory = maze.optimal_policy(observations, memory)
        return torch.where(action == ACTIONS.index("down"), ACTIONS.index("up"), action), memory

    without_looking = fixed("right"), fixed("right", "right", "right", "up")
    assert not any(maze.is_optimal(policy) for policy in (late, right_in_one_layout, *without_looking))


def test_optimal_needs_the_fewest_steps_and_the_treasure_in_both_layouts():
    maze = TMaze(3)
    returns = torch.tensor([[4.0, 4.0], [4.0, -0.1], [4.0, 3.9]])
    lengths = torch.tensor([[4, 4], [4, 4], [4, 5]])
    assert maze.optimal(returns, lengths).tolist() == [True, False, False]
    assert maze.optimal(torch.full((1, 2), 4.0), torch.tensor([[4, 6]])).tolist() == [False]


def test_a_length_that_is_no_positive_integer_is_refused():
    with pytest.raises(ValueError, match="length must be a positive integer"):
        TMaze(2.5)


def test_the_environment_passes_gymnasiums_checks():
    for mode in (None, "ansi", "rgb_array"):
        check_env(gymnasium.make(ID, length=3, render_mode=mode, disable_env_checker=True).unwrapped)


def test_an_id_with_the_module_registers_it():
    env = gymnasium.make("multistable.rl.environment:multistable/TMaze-v0", length=7)
    assert env.unwrapped.maze.length == 7
    assert env.spec.id == "multistable/TMaze-v0"


@given(
    L=st.integers(1, 6),
    layouts=st.lists(st.sampled_from(["up", "down"]), min_size=1, max_size=4),
    data=st.data(),
)
def test_batched_mazes_and_environments_agree_on_any_actions(L, layouts, data):
    """Actions biased to the right, so that the junction is reached; also beyond the end, where states stay."""
    choice = st.sampled_from([0, 0, 0, 0, 1, 2, 3])
    actions = data.draw(st.lists(st.lists(choice, min_size=len(layouts), max_size=len(layouts)), max_size=30))
    maze = TMaze(L, dtype=torch.float64)
    environments = [TMazeEnv(L, horizon=math.inf) for _ in layouts]
    first = [env.reset(options={"layout": layout})[0] for env, layout in zip(environments, layouts, strict=True)]
    state, observation = maze.reset(torch.tensor([{"up": 0.25, "down": 0.75}[layout] for layout in layouts]))
    assert observation.argmax(dim=-1).tolist() == first
    for step in actions:
        state, observation, reward, terminated, ended = maze.step(state, torch.tensor(step))
        results = [env.step(np.int64(a)) for env, a in zip(environments, step, strict=True)]
        assert observation.argmax(dim=-1).tolist() == [r[0] for r in results]
        assert reward.tolist() == [r[1] for r in results]
        assert terminated.tolist() == ended.tolist() == [r[2] for r in results]
        assert not any(r[3] for r in results)


def test_an_episode_is_truncated_at_the_horizon_and_that_is_no_end_of_the_maze():
    env = TMazeEnv(2)
    env.reset(seed=0)
    results = [env.step(np.int64(ACTIONS.index("left"))) for _ in range(6)]
    assert [r[3] for r in results] == [False] * 5 + [True]
    assert not any(r[2] for r in results)
    env = TMazeEnv(2, horizon=3)
    env.reset(options={"layout": "up"})
    last = [env.step(np.int64(a)) for a in (0, 0, 1)][-1]
    assert last == (OBSERVATIONS.index("junction"), 4.0, True, False, {})


def test_layouts_follow_the_seed():
    env = TMazeEnv(3)
    drawn = [int(env.reset(seed=seed)[0]) for seed in range(40)]
    assert drawn == [int(env.reset(seed=seed)[0]) for seed in range(40)]
    assert set(drawn) == {0, 1}


def test_text_shows_agent_treasure_and_trap():
    env = TMazeEnv(3, render_mode="ansi")
    env.reset(options={"layout": "up"})
    assert env.render() == "   $\n@...\n   x\n"
    env.step(np.int64(0))
    assert env.render() == "   $\n.@..\n   x\n"
    env.reset(options={"layout": "down"})
    for action in (0, 0, 0, ACTIONS.index("up")):
        env.step(np.int64(action))
    assert env.render() == "   @\n....\n   $\n"


def test_picture_shows_the_agent_where_it_is():
    env = TMazeEnv(3, render_mode="rgb_array")
    env.reset(options={"layout": "up"})
    centres = lambda picture: picture[8::16, 8::16]  # noqa: E731
    before = env.render()
    env.step(np.int64(0))
    after = env.render()
    assert before.shape == (48, 64, 3)
    assert before.dtype == np.uint8
    changed = (centres(before) != centres(after)).any(axis=-1)
    assert np.argwhere(changed).tolist() == [[1, 0], [1, 1]]
    env.reset(options={"layout": "down"})
    corners = lambda picture: picture[::16, ::16]  # noqa: E731
    assert np.array_equal(corners(env.render())[[0, 2], -1], corners(before)[[2, 0], -1])


def test_bad_arguments_of_the_environment_are_refused():
    with pytest.raises(ValueError, match="render_mode must be None, 'ansi' or 'rgb_array', got 'human'"):
        TMazeEnv(3, render_mode="human")
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        TMazeEnv(3, horizon=0)
    env = TMazeEnv(3)
    with pytest.raises(gymnasium.error.ResetNeeded):
        env.step(np.int64(0))
    with pytest.raises(ValueError, match=r"options\['layout'\] must be 'up' or 'down', got 'left'"):
        env.reset(options={"layout": "left"})
    env.reset()
    with pytest.raises(ValueError, match=r"action must be one of 0, ..., 3 \(right, up, left, down\)"):
        env.step(np.int64(4))


@pytest.mark.parametrize(("action", "got"), [
    (torch.tensor([0, 9]), "9"),
    (torch.tensor([0, -1]), "-1"),
    (torch.tensor([0.5, 1.0]), "torch.float32"),
    (torch.tensor([True, False]), "torch.bool"),
    ("right", "'right'"),
])  # fmt: skip
def test_an_action_that_there_is_not_is_refused(action, got):
    maze = TMaze(3)
    state, _ = maze.reset(torch.tensor(maze.starts))
    before = state.clone()
    with pytest.raises(
        ValueError, match=rf"action must be integers of 0 to 3 \(right, up, left, down\), got {re.escape(got)}$"
    ):
        maze.step(state, action)
    assert torch.equal(state, before)


@pytest.mark.parametrize("kind", [np.uint8, np.uint64])
def test_integers_of_every_size_are_actions_and_no_mask(kind):
    maze = TMaze(3)
    state, _ = maze.reset(torch.tensor(maze.starts))
    expected = maze.step(state, torch.tensor([0, 1]))
    actions = np.array([0, 1], dtype=kind)
    for action in (actions, torch.from_numpy(actions)):
        assert all(torch.equal(a, b) for a, b in zip(maze.step(state, action), expected, strict=True))


def test_a_state_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="state must be as reset and step return it, one for each action"):
        TMaze(3).step(torch.tensor([99]), torch.tensor([0]))


def test_an_action_that_the_environment_has_not_leaves_it_where_it_was():
    env = TMazeEnv(3, render_mode="ansi")
    env.reset(options={"layout": "up"})
    env.step(np.int64(0))
    before = env.render()
    with pytest.raises(ValueError, match=r"action must be one of 0, ..., 3 .*, got .*-1"):
        env.step(np.int64(-1))
    assert env.render() == before
