"""The replay buffer against one that keeps every transition with its whole history, as Algorithm 4 writes it."""

from collections import deque

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from multistable.rl.replay import Episodes, Histories, Replay

FEATURES = 2


def random_episodes(lengths, horizon, seed):
    """One episode of each agent; what lies beyond its length is NaN, so that any use of it shows."""
    draw = torch.Generator().manual_seed(seed)
    agents = len(lengths)
    inputs = torch.randn(horizon + 1, agents, FEATURES, generator=draw)
    actions = torch.randint(4, (horizon, agents), generator=draw)
    rewards = torch.randn(horizon, agents, generator=draw)
    for agent, length in enumerate(lengths):
        inputs[length + 1 :, agent] = torch.nan
        rewards[length:, agent] = torch.nan
    terminated = torch.rand(agents, generator=draw) < 0.5
    return Episodes(inputs, actions, rewards, torch.tensor(lengths), terminated)


def add_plainly(buffers, episodes, agents):
    """Each transition with copies of eta_{0:t} and eta_{0:t+1}; the deque drops the oldest."""
    for agent, buffer in enumerate(buffers):
        length = int(episodes.lengths[agent])
        for t in range(length if agents[agent] else 0):
            terminal = bool(episodes.terminated[agent]) and t == length - 1
            buffer.append((
                episodes.inputs[: t + 1, agent].clone(),
                int(episodes.actions[t, agent]),
                float(episodes.rewards[t, agent]),
                episodes.inputs[: t + 2, agent].clone(),
                terminal,
            ))  # fmt: skip


def draws_of_all(size):
    """Draws that lead to the oldest transition, the next, and so on."""
    return (torch.arange(size, dtype=torch.float64) + 0.5) / size


@given(
    capacity=st.integers(1, 12),
    horizon=st.integers(1, 5),
    data=st.data(),
)
def test_it_holds_what_a_buffer_of_whole_histories_holds(capacity, horizon, data):
    agents = data.draw(st.integers(1, 3))
    replay = Replay(capacity, horizon, agents, FEATURES)
    plain = [deque(maxlen=capacity) for _ in range(agents)]
    for seed in range(data.draw(st.integers(1, 12))):
        lengths = data.draw(st.lists(st.integers(1, horizon), min_size=agents, max_size=agents))
        chosen = data.draw(st.lists(st.booleans(), min_size=agents, max_size=agents)) if seed else [True] * agents
        episodes = random_episodes(lengths, horizon, seed)
        replay.append(episodes, torch.tensor(chosen))
        add_plainly(plain, episodes, chosen)

    assert replay.sizes.tolist() == [len(buffer) for buffer in plain]
    for agent, buffer in enumerate(plain):
        size = len(buffer)
        slots = replay.sample(draws_of_all(size).expand(agents, size))
        longest = int(replay.lengths(slots).max())
        each = torch.arange(size).expand(agents, size)
        batch = replay.transitions(slots, slots, each, longest + 1)
        assert batch.inputs.shape == (longest + 1, agents, size, FEATURES)
        histories = replay.histories(agent)
        assert len(histories) == size
        for row, (eta, action, reward, eta_next, terminal) in enumerate(buffer):
            t = len(eta) - 1
            assert int(batch.times[agent, row]) == t
            assert torch.equal(batch.inputs[: t + 2, agent, row], eta_next)
            assert torch.equal(batch.inputs[t + 2 :, agent, row], torch.zeros(longest - t - 1, FEATURES))
            assert int(batch.actions[agent, row]) == action
            assert float(batch.rewards[agent, row]) == reward
            assert bool(batch.terminal[agent, row]) == terminal
            assert torch.equal(histories[row], eta)


@given(horizon=st.integers(1, 5), data=st.data())
def test_stored_names_every_transition_and_the_last_of_every_episode(horizon, data):
    agents, capacity = 2, 9
    replay = Replay(capacity, horizon, agents, FEATURES)
    numbers = [deque(maxlen=capacity) for _ in range(agents)]
    for number in range(data.draw(st.integers(1, 10))):
        lengths = data.draw(st.lists(st.integers(1, horizon), min_size=agents, max_size=agents))
        replay.append(random_episodes(lengths, horizon, number))
        for agent, length in enumerate(lengths):
            numbers[agent].extend((number, t, t == length - 1) for t in range(length))

    stored = replay.stored()
    longest = max(map(len, numbers))
    assert stored.slots.shape == stored.episodes.shape == (agents, longest)
    for agent, kept in enumerate(numbers):
        size = len(kept)
        slots = replay.sample(draws_of_all(size).expand(agents, size))[agent]
        assert torch.equal(stored.slots[agent, :size], slots)
        assert (stored.slots[agent, size:] == slots[-1]).all()
        first = kept[0][0]
        assert stored.episodes[agent, :size].tolist() == [number - first for number, _, _ in kept]
        ends = [int(slot) for slot, (_, _, last) in zip(slots, kept, strict=True) if last]
        assert stored.last[agent, : len(ends)].tolist() == ends


@given(data=st.data())
def test_passes_are_the_longest_histories_of_each_episode_in_a_batch(data):
    agents, capacity, horizon = 2, 15, 6
    replay = Replay(capacity, horizon, agents, FEATURES)
    for number in range(data.draw(st.integers(3, 9))):
        lengths = data.draw(st.lists(st.integers(1, horizon), min_size=agents, max_size=agents))
        replay.append(random_episodes(lengths, horizon, number))
    draws = data.draw(st.lists(st.floats(0, 1, exclude_max=True), min_size=2 * 8, max_size=2 * 8))
    slots = replay.sample(torch.tensor(draws, dtype=torch.float64).view(agents, 8))
    passes = replay.passes(slots)
    batched = replay.passes(slots.expand(3, agents, 8))
    assert all(torch.equal(field[2], own) for field, own in zip(batched, passes, strict=True))

    own_lengths = replay.lengths(slots)
    for agent in range(agents):
        longest = {}
        for slot, length in zip(slots[agent].tolist(), own_lengths[agent].tolist(), strict=True):
            begin = (slot - length) % replay.inputs.shape[1]
            longest[begin] = max(longest.get(begin, 0), length)
        expected = sorted(longest.values(), reverse=True)
        assert passes.lengths[agent].tolist() == expected + [0] * (8 - len(expected))
        for row, length in enumerate(expected):
            assert int(replay.lengths(passes.slots)[agent, row]) == length
    own, whole = replay.prefixes(slots, horizon), replay.prefixes(passes.slots, horizon)
    for agent, column in np.ndindex(agents, 8):
        row, length = int(passes.rows[agent, column]), int(own_lengths[agent, column])
        assert int(passes.lengths[agent, row]) >= length
        assert torch.equal(whole[:length, agent, row], own[:length, agent, column])


def test_next_values_stay_with_their_transitions():
    replay = Replay(5, 3, 1, FEATURES)
    for number in range(4):
        values = torch.tensor([[10.0 * number], [10.0 * number + 1], [torch.nan]])
        replay.append(random_episodes([2], 3, number), next_values=values)
    slots = replay.sample(draws_of_all(5).expand(1, 5))
    assert replay.transitions(slots, slots, slots, 2).next_values.tolist() == [[11.0, 20.0, 21.0, 30.0, 31.0]]


def test_sampling_is_uniform_over_what_is_stored():
    replay = Replay(7, 4, 2, FEATURES)
    for number, lengths in enumerate([[4, 1], [4, 1], [3, 1]]):
        replay.append(random_episodes(lengths, 4, number))
    draws = torch.rand(2, 70_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for agent, size in enumerate([7, 3]):
        slots, counts = replay.sample(draws)[agent].unique(return_counts=True)
        assert len(slots) == size
        expected = 70_000 / size
        # A chi-squared statistic of size - 1 degrees of freedom: above 30 with probability below 1e-4.
        assert float(((counts - expected) ** 2 / expected).sum()) < 30


def test_the_largest_draw_leads_to_the_newest():
    size = 3
    replay = Replay(size, 1, 1, FEATURES)
    for number in range(2 * size):
        replay.append(random_episodes([1], 1, number))
    nearly_one = torch.tensor([[1 - 2.0**-53]], dtype=torch.float64)
    newest = replay.prefixes(replay.sample(nearly_one), 1)
    assert torch.equal(newest[0, 0, 0], random_episodes([1], 1, 2 * size - 1).inputs[0, 0])


def test_memory_grows_with_the_transitions_not_with_their_square():
    def elements(capacity):
        return sum(tensor.numel() for tensor in Replay(capacity, 10, 1, FEATURES).tensors().values())

    per_transition = (elements(4000) - elements(2000)) / 2000
    assert per_transition == (elements(2000) - elements(1000)) / 1000
    assert per_transition < 2 * FEATURES + 10


@pytest.mark.parametrize("name", ["capacity", "horizon"])
def test_sizes_that_are_no_positive_integers_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be a positive integer, got 0"):
        Replay(**{"capacity": 5, "horizon": 5, "agents": 1, "features": 1, name: 0})


def test_histories_of_all_agents_are_those_of_each_as_they_are_now():
    replay, numbers = Replay(9, 4, 2, FEATURES), torch.arange(9).expand(2, -1)
    histories = None
    for seed in range(8):
        replay.append(random_episodes([4, 3], 4, seed))
        if seed < 3:
            continue
        histories = histories or Histories(replay)
        assert len(histories) == 9
        inputs, lengths = histories.select(numbers)
        for agent in range(2):
            for number, history in enumerate(replay.histories(agent)):
                assert torch.equal(inputs[: lengths[agent, number], agent, number], history)
    assert torch.equal(histories.lengths_of(numbers), lengths)
