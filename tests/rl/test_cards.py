"""Cards to be named again, against their rules written for one deck at a time."""

import pytest
import torch

from multistable.rl.cards import CARDS, RepeatFirst, RepeatPrevious

DRAWS = torch.rand(40, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
KINDS = [(RepeatFirst, None), (RepeatPrevious, 4), (lambda **options: RepeatPrevious(1, **options), 1)]
"""And how far back the card to name is; ``None`` for the first of all."""


def definition(suits, actions, back):
    """What is seen after each action, and what it gains: the card to name is the first, or one of the last."""
    seen, rewards, hand = [], [], [suits[0]]
    for step, action in enumerate(actions, start=1):
        card = hand[0] if back is None else hand[-back] if len(hand) >= back else None
        worth = 1 / (CARDS - 1 if back is None else CARDS - back)
        rewards.append(0.0 if card is None else worth if action == card else -worth)
        hand.append(suits[step])
        seen.append(suits[step])
    return seen, rewards


@pytest.mark.parametrize(("made", "back"), KINDS)
def test_an_episode_is_as_defined(made, back):
    pomdp = made(dtype=torch.float64)
    state, observation = pomdp.reset(DRAWS[:3])
    decks, first = state[:, 1:].tolist(), observation.argmax(dim=-1)
    actions = torch.randint(4, (CARDS - 1, 3), generator=torch.Generator().manual_seed(1))
    expected = [definition(deck, own, back) for deck, own in zip(decks, actions.T.tolist(), strict=True)]
    assert first.tolist() == [deck[0] for deck in decks]
    for t, action in enumerate(actions):
        state, observation, reward, terminated, ended = pomdp.step(state, action)
        assert observation.argmax(dim=-1).tolist() == [seen[t] for seen, _ in expected]
        assert torch.equal(observation.sum(dim=-1), torch.ones(3, dtype=torch.float64))
        assert reward.tolist() == pytest.approx([rewards[t] for _, rewards in expected], abs=1e-12)
        assert terminated.tolist() == ended.tolist() == [t == CARDS - 2] * 3
    assert not pomdp.step(state, actions[0]).reward.any()
    assert torch.equal(pomdp.step(state, actions[0]).state, state)


def test_decks_are_shuffled_and_whole():
    state, _ = RepeatFirst().reset(DRAWS)
    decks = state[:, 1:]
    assert torch.equal(state[:, 0], torch.ones(40, dtype=torch.long))
    assert all((decks == suit).sum(dim=-1).eq(13).all() for suit in range(4))
    assert len({tuple(deck) for deck in decks.tolist()}) == 40
    assert torch.equal(decks, RepeatFirst().reset(DRAWS)[0][:, 1:])


def test_each_suit_is_as_likely_at_each_place():
    """Of 4,000 decks: within four standard deviations of a share of 1/4. By chance, one such test in 80 would fail."""
    decks = RepeatFirst().reset(torch.rand(4000, generator=torch.Generator().manual_seed(2)).double())[0][:, 1:]
    shares = torch.stack([(decks == suit).double().mean(dim=0) for suit in range(4)])
    assert (shares - 0.25).abs().max() < 4 * (0.25 * 0.75 / 4000) ** 0.5


@pytest.mark.parametrize(("made", "back"), KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_only_who_names_every_card_right_is_optimal(made, back, dtype):
    pomdp = made(dtype=dtype)
    for mistakes, optimal in ((0, True), (1, False)):
        state, _ = pomdp.reset(DRAWS[:2])
        decks, returns = state[:, 1:], torch.zeros(2, dtype=dtype)
        for t in range(CARDS - 1):
            named = decks[:, 0 if back is None else max(t + 1 - back, 0)]
            action = (named + (t >= CARDS - 1 - mistakes)) % 4
            state, _, reward, *_ = pomdp.step(state, action)
            returns += reward
        assert bool(pomdp.optimal(returns, torch.full((2,), CARDS - 1))) is optimal
        assert bool((returns > 0.999).all()) is optimal


def test_a_deck_has_the_card_to_name():
    with pytest.raises(ValueError, match="back must be less than 52, the cards of a deck, got 52"):
        RepeatPrevious(52)
    with pytest.raises(ValueError, match="back must be a positive integer, got 0"):
        RepeatPrevious(0)
    with pytest.raises(ValueError, match=r"action must be .* 0 to 3 \(spades, diamonds, clubs, hearts\), got 4"):
        RepeatFirst().step(RepeatFirst().reset(DRAWS[:1])[0], torch.tensor([4]))
