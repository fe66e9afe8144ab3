"""How far back the targets reach: what a reader finds out who sees the last w steps before each answer alone.

The reader is no recurrent network, so that it does not share the difficulty in question. It sees all steps of its
window at once: it attends to some by what they hold and by how long ago they were, and takes their mean, the first and
the last, and a product with weights for each lag. One reader is trained for all windows, which are drawn anew for
each sequence.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from multistable.dynamics.advise.material import Answers
from multistable.dynamics.system.reading import global_randomness_kept

STEPS, BATCH, RATE, DECAY = 400, 64, 3e-3, 1e-2
LOOKS = 4
"""How often the reader is compared with held-out sequences; its best look counts."""
HELD, MOST_HELD, FEWEST = 0.25, 1024, 64
"""The share of sequences that are held out, the most of them, and the fewest with which a reader is trained at all."""
ANSWERS = 4
"""The answers of a sequence that a step of the training takes, of targets at every step."""
WIDTH, HEADS, BEHIND = 32, 4, 128
EXACT, OCTAVE, FIRST = 16, 4, 8
"""Lags up to EXACT and the FIRST steps of a sequence are told apart; longer lags by OCTAVE for each doubling."""
MOST_WEIGHTED = 4096
"""Windows with more numbers have no weights for each lag: there would be more weights than sequences to find them."""
CLEAR = 3.0
"""A difference is clear beyond so many standard errors."""
MATTERS, LOST = 0.05, 0.05
"""The share of the loss of guessing that a reader must gain to have found something; and of what the best reader gains,
what a shorter window must lack to be too short."""


@dataclass(frozen=True)
class Window:
    """What was found out about windows.

    Attributes:
        lengths: the windows, in steps; the last is the whole sequence.
        scores: for each the share of the loss of guessing that a reader of so many steps saves, on held-out sequences:
            0 is no better than guessing, 1 is perfect. A longer window is never taken for worse.
        errors: the standard errors of ``scores``.
        nearest: the shortest window that is clearly better than guessing; None if none is.
        needed: the shortest window that is not clearly worse than the whole sequence; None if none is better than
            guessing.
    """

    lengths: list[int]
    scores: list[float]
    errors: list[float]
    nearest: int | None
    needed: int | None

    @classmethod
    def of(cls, lengths: list[int], losses: Tensor, guessing: Tensor) -> "Window":
        """From the losses ``(windows, n)`` of held-out sequences, and those ``(n,)`` of guessing."""
        best = [int(losses[: index + 1].mean(dim=1).argmin()) for index in range(len(lengths))]
        losses = torch.where(losses[best].mean(dim=1, keepdim=True) < guessing.mean(), losses[best], guessing)
        scale, root = float(guessing.mean()), math.sqrt(losses.shape[1])
        gained, lacking = (guessing - losses) / scale, (losses - losses[-1]) / scale
        scores, lacks = gained.mean(dim=1).tolist(), lacking.mean(dim=1).tolist()
        errors, doubts = ((shares.std(dim=1) / root).tolist() for shares in (gained, lacking))
        better = [score > max(MATTERS, CLEAR * error) for score, error in zip(scores, errors, strict=True)]
        if not better[-1]:
            return cls(lengths, scores, errors, None, None)
        worse = [lack > max(LOST * scores[-1], CLEAR * doubt) for lack, doubt in zip(lacks, doubts, strict=True)]
        return cls(lengths, scores, errors, lengths[better.index(True)], lengths[worse.index(False)])


def window(u: Tensor, lengths: Tensor, answers: Answers, generator: torch.Generator) -> Window | None:
    """Train the reader, and compare its windows; None if there are too few sequences.

    Args:
        u: what is read, ``(n, T, features)``, zero after the end of each sequence.
        lengths: ``(n,)``.
        answers: the targets.
        generator: where all is drawn from, on the CPU.
    """
    having = answers.given if answers.every_step else answers.given.unsqueeze(-1)
    rows = having.any(dim=1).nonzero().squeeze(-1)
    rows = rows[torch.randperm(len(rows), generator=generator)]
    held = min(MOST_HELD, int(HELD * len(rows)))
    if held < FEWEST or u.shape[1] < 2:
        return None
    if answers.every_step:
        places = torch.multinomial(having[rows].float(), ANSWERS, replacement=True, generator=generator)
        values = answers.values[rows].gather(1, places if answers.classes else _wide(places, answers.values.shape[-1]))
    else:
        places, values = (lengths[rows.to(lengths.device)] - 1).unsqueeze(-1), answers.values[rows].unsqueeze(1)
    u, places, values = u[rows.to(u.device)], places.to(u.device), values.to(u.device)
    u = _normed(u, lengths[rows.to(lengths.device)])
    if not answers.classes:
        spread, mean = torch.std_mean(values[held:], dim=(0, 1))
        if not (spread > 0).any():
            return None
        values = ((values - mean) / spread.clamp_min(1e-12))[..., spread > 0]
    longest = u.shape[1]
    windows = [w for w in (2**power for power in range(1, 1 + int(math.log2(longest)))) if w < longest] + [longest]
    with global_randomness_kept():
        reader = _Reader(u.shape[-1], longest, values.shape[-1] if not answers.classes else answers.classes, generator)
    losses = _trained(reader.to(u.device), (u, places, values), held, windows, generator)
    return Window.of(windows, losses, _guessing(values, held, answers.classes).cpu())


def _trained(
    reader: "_Reader", data: tuple[Tensor, Tensor, Tensor], held: int, windows: list[int], generator: torch.Generator
) -> Tensor:
    """Train the reader on all sequences but the ``held`` first, and return the losses ``(windows, held)`` of these."""
    u, places, values = data
    adjust = torch.optim.AdamW(reader.parameters(), lr=RATE, weight_decay=DECAY)
    rate = torch.optim.lr_scheduler.LambdaLR(adjust, lambda step: min(1.0, (step + 1) / 20) * (1 - 0.9 * step / STEPS))
    # The whole sequence is drawn more often than each shorter window.
    drawn = torch.tensor(windows + [windows[-1]] * (len(windows) // 2), device="cpu")
    best = torch.empty(0)
    for step in range(1, STEPS + 1):
        rows = held + torch.randint(len(u) - held, (BATCH,), generator=generator)
        seen = drawn[torch.randint(len(drawn), (BATCH,), generator=generator)].to(u.device)
        rows = rows.to(u.device)
        loss = _losses(reader(u[rows], places[rows], seen), values[rows]).mean()
        adjust.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        adjust.step()
        rate.step()
        if step % (STEPS // LOOKS) == 0:
            with torch.no_grad():
                found = torch.stack([_each_loss(reader, u[:held], places[:held], values[:held], w) for w in windows])
            # One look for all windows, so that choosing it favours none.
            best = found if not len(best) or found.mean() < best.mean() else best
    return best.double().cpu()


def _each_loss(reader: "_Reader", u: Tensor, places: Tensor, values: Tensor, seen: int) -> Tensor:
    """The loss of each sequence ``(n,)`` with a window of so many steps."""
    parts = zip(u.split(256), places.split(256), values.split(256), strict=True)
    return torch.cat([_losses(reader(x, p, p.new_full((len(x),), seen)), y).mean(dim=1) for x, p, y in parts])


def _losses(outputs: Tensor, values: Tensor) -> Tensor:
    """The loss of each answer, ``(n, r)``, for outputs ``(n, r, k)``."""
    if values.is_floating_point():
        return (outputs - values).square().mean(dim=-1)
    return functional.cross_entropy(outputs.movedim(-1, 1), values, reduction="none")


def _guessing(values: Tensor, held: int, classes: int) -> Tensor:
    """The losses ``(held,)`` of the best answer that does not look at the sequence."""
    if not classes:
        guess = values[held:].mean(dim=(0, 1)).expand(*values[:held].shape)
        return _losses(guess, values[:held]).double().mean(dim=1)
    counts = torch.bincount(values[held:].flatten(), minlength=classes).double() + 1e-3
    return _losses(counts.log().expand(*values[:held].shape, -1), values[:held]).mean(dim=1)


def _wide(places: Tensor, features: int) -> Tensor:
    return places.unsqueeze(-1).expand(-1, -1, features)


def _normed(u: Tensor, lengths: Tensor) -> Tensor:
    """Each feature with mean 0 and spread 1 over all steps before the end, zero after it."""
    inside = (torch.arange(u.shape[1], device=u.device) < lengths.unsqueeze(-1)).unsqueeze(-1)
    count = inside.sum()
    mean = u.sum(dim=(0, 1)) / count
    u = (u - mean) * inside
    return u / (u.square().sum(dim=(0, 1)) / count).sqrt().clamp_min(1e-6)


class _Reader(nn.Module):
    """What answers from a window; see the module."""

    def __init__(self, features: int, longest: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        lags = EXACT + OCTAVE * math.ceil(math.log2(max(longest, 2)))
        self.step = nn.Sequential(nn.Linear(2 * features, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.by_lag, self.by_place = nn.Embedding(lags, HEADS), nn.Embedding(FIRST + 1, HEADS)
        weighted = longest * features <= MOST_WEIGHTED
        self.weighted = nn.Linear(longest * features, 2 * WIDTH) if weighted else None
        self.answer = nn.Sequential(
            nn.Linear((4 + 2 * weighted) * WIDTH, BEHIND), nn.GELU(), nn.Linear(BEHIND, outputs)
        )
        for weights in self.parameters():  # drawn from the generator: the global one is the user's
            bound = 1 / math.sqrt(weights.shape[-1])
            nn.init.uniform_(weights, -bound, bound, generator=generator)
        for table in (self.by_lag, self.by_place):
            nn.init.zeros_(table.weight)

    def forward(self, u: Tensor, places: Tensor, seen: Tensor) -> Tensor:
        """The answers ``(n, r, k)`` at steps ``places (n, r)`` of ``u (n, T, features)``, from ``seen (n,)`` steps."""
        time = torch.arange(u.shape[1], device=u.device)
        before = functional.pad(u, (0, 0, 1, 0))[:, :-1]
        each = self.step(torch.cat([u, before], dim=-1))
        lag = places.unsqueeze(-1) - time  # (n, r, T)
        shown = (lag >= 0) & (lag < seen.view(-1, 1, 1))
        # What is known of a step tells of the one before it too, which must then be within the window.
        pairs = shown & ((lag + 1 < seen.view(-1, 1, 1)) | (time == 0))
        last = each.gather(1, _wide(places, WIDTH))
        query, key, value = (
            made(x).unflatten(-1, (HEADS, -1)) for made, x in ((self.query, last), (self.key, each), (self.value, each))
        )
        match = torch.einsum("nrhd,nthd->nrth", query, key) / math.sqrt(WIDTH / HEADS)
        match = match + self.by_lag(self._bucket(lag)) + self.by_place(time.clamp(max=FIRST))
        attention = match.masked_fill(~pairs.unsqueeze(-1), -torch.inf).softmax(dim=2)
        found = torch.einsum("nrth,nthd->nrhd", attention, value).flatten(-2)
        mean = torch.einsum("nrt,ntd->nrd", pairs.to(u.dtype), each) / (3 * math.sqrt(u.shape[1]))
        first = each[:, :1] * pairs[..., :1]
        known = [found, mean, last, first]
        if self.weighted is not None:
            back = (places.unsqueeze(-1) - time).clamp_min(0)  # lag 0, 1, ...
            by_lag = u.unsqueeze(1).expand(-1, places.shape[1], -1, -1)
            by_lag = by_lag.gather(2, back.unsqueeze(-1).expand(-1, -1, -1, u.shape[-1]))
            inside = (time <= places.unsqueeze(-1)) & (time < seen.view(-1, 1, 1))
            known.append(functional.gelu(self.weighted((by_lag * inside.unsqueeze(-1)).flatten(-2))))
        return self.answer(torch.cat(known, dim=-1))

    def _bucket(self, lag: Tensor) -> Tensor:
        long = EXACT + (OCTAVE * torch.log2(lag.clamp_min(EXACT) / EXACT)).long()
        return torch.where(lag < EXACT, lag, long).clamp(0, self.by_lag.num_embeddings - 1)
