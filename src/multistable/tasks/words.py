"""Two classifications that look alike: texts of words from a few topics, by their first word or by all of them.

Our own, in the manner of text classification by order and by bags of words.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from multistable.arguments import positive_integer
from multistable.arguments import share as probability
from multistable.setting import TASK, documented, setting, unchanged
from multistable.tasks.base import Data
from multistable.tasks.generated import Classes, one_hot


@dataclass(frozen=True)
class Words(Classes):
    """Texts of T words, each one-hot; word w is of the topic w % topics. The class is a topic, asked for at the end."""

    topics: int = setting(4, "Topics.", positive_integer, TASK)
    words: int = setting(5, "Words of each topic.", positive_integer, TASK)

    answers = 1

    @property
    def input_size(self) -> int:  # type: ignore[override]
        return self.topics * self.words

    @property
    def output_size(self) -> int:  # type: ignore[override]
        return self.topics

    def _texts(self, n: int, generator: torch.Generator) -> Tensor:
        """Words ``(T, n)``, all equally likely."""
        return torch.randint(self.input_size, (self.T, n), generator=generator, device=generator.device)


@documented
@dataclass(frozen=True)
class FirstWord(Words):
    """The topic of the first word of a text; all words are equally likely."""

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, topics * words)``, targets ``(n, 1)``."""
        texts = self._texts(n, generator)
        return Data(one_hot(texts, self.input_size), (texts[:1] % self.topics).T.contiguous())


@documented
@dataclass(frozen=True)
class WordCounts(Words):
    """The topic of most words of a text; of topics with equally many the one that comes first in the text.

    A share of the words, at random places, is from one topic, drawn for each text; all others are equally likely.
    """

    share: float = setting(0.15, "Share of words that are drawn from one topic.", unchanged(probability), TASK)

    def draw(self, n: int, generator: torch.Generator) -> Data:
        """Inputs ``(T, n, topics * words)``, targets ``(n, 1)``."""
        texts, device = self._texts(n, generator), generator.device
        topic = torch.randint(self.topics, (1, n), generator=generator, device=device)
        chosen = torch.rand(texts.shape, generator=generator, device=device) < self.share
        texts = torch.where(chosen, texts - texts % self.topics + topic, texts)
        of_topic = one_hot(texts % self.topics, self.topics)
        # The sum of counts and of what is smaller than 1, and larger for topics that come earlier.
        earliest = 1 - of_topic.argmax(0) / self.T
        most = (of_topic.sum(0) + torch.where(of_topic.any(0), earliest, 0.0) / 2).argmax(-1, keepdim=True)
        return Data(one_hot(texts, self.input_size), most)
