"""Cards to be named again, as in POPGym: batched, so that agents play thousands of decks at once."""

from abc import abstractmethod

import torch
from torch import Tensor

from multistable.arguments import positive_integer
from multistable.rl.numbers import uniforms
from multistable.rl.pomdp import POMDP, Outcome

SUITS = ("spades", "diamonds", "clubs", "hearts")
CARDS = 52


class Cards(POMDP):
    """A shuffled deck of 52 cards, of which one is dealt at each step until none is left.

    The suit of the card just dealt is seen, and an action names a suit. Naming the right one is rewarded, and naming
    another one punished by as much, so that returns are from -1 to 1. The environments are those of POPGym (Morad,
    Kortvelesy, Bettini, Liwicki and Prorok, 2023, *POPGym: Benchmarking Partially Observable Reinforcement Learning*),
    version 1.0.7, at their level easy.

    A state ``(..., 53)`` is the number of cards dealt, and the suits of all cards in the order in which they are.

    Args:
        device: where all is computed.
        dtype: of observations and rewards.
    """

    actions = observation_size = len(SUITS)
    exploration = (1 / len(SUITS),) * len(SUITS)
    horizon = CARDS - 1
    discount = 0.99
    recordable = True
    action_names = SUITS

    def __init__(self, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32) -> None:
        self.device = torch.empty(0, device=device).device
        self.dtype = dtype
        self._one_hot = torch.eye(len(SUITS), device=self.device, dtype=dtype)

    @abstractmethod
    def wanted(self, dealt: Tensor) -> Tensor:
        """The place in the deck ``(...)`` of the card to name when so many are dealt; negative where there is none."""

    @property
    @abstractmethod
    def rewarded(self) -> int:
        """In how many steps of an episode there is a card to name."""

    def reset(self, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Shuffled decks ``(..., 53)``, and the suit of the first card of each, one-hot."""
        suits = uniforms(draws.to(self.device), CARDS).argsort(dim=-1) % len(SUITS)
        state = torch.cat([torch.ones_like(suits[..., :1]), suits], dim=-1)
        return state, self._one_hot[suits[..., 0]]

    def step(self, state: Tensor, action: Tensor) -> Outcome:
        """Name a suit for each deck, ``(...)``, and deal its next card; after the last one nothing happens."""
        action, dealt, suits = self.checked(action), state[..., 0], state[..., 1:]
        place = self.wanted(dealt)
        named = suits.gather(-1, place.clamp(min=0).unsqueeze(-1)).squeeze(-1)
        rewards = ((action == named).to(self.dtype) * 2 - 1) / self.rewarded
        rewards = rewards.masked_fill((place < 0) | (dealt == CARDS), 0)
        after = (dealt + 1).clamp(max=CARDS)
        seen = suits.gather(-1, after.unsqueeze(-1) - 1).squeeze(-1)
        over = after == CARDS
        return Outcome(torch.cat([after.unsqueeze(-1), suits], dim=-1), self._one_hot[seen], rewards, over, over)

    def optimal(self, returns: Tensor, lengths: Tensor) -> Tensor:
        """Whether policies named every card right: one mistake in an episode costs two rewards."""
        return (returns > 1 - 1 / self.rewarded).all(dim=-1)


class RepeatFirst(Cards):
    """Name the suit of the first card at every step."""

    rewarded = CARDS - 1

    def wanted(self, dealt: Tensor) -> Tensor:
        return torch.zeros_like(dealt)


class RepeatPrevious(Cards):
    """Name the suit of a card counted back from the one just dealt, which is the first: POPGym has the fourth.

    Args:
        back: which one; at first, while there are fewer cards, nothing is rewarded.
        device: where all is computed.
        dtype: of observations and rewards.
    """

    def __init__(
        self, back: int = 4, *, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        super().__init__(device=device, dtype=dtype)
        self.back = positive_integer("back", back)
        if self.back >= CARDS:
            raise ValueError(f"back must be less than {CARDS}, the cards of a deck, got {back}")

    @property
    def rewarded(self) -> int:
        return CARDS - self.back

    def wanted(self, dealt: Tensor) -> Tensor:
        return dealt - self.back
