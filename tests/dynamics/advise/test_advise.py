"""``ms.advise`` on tasks whose answer is known, and what it leaves as it was."""

import copy

import matplotlib.figure
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import multistable as ms
from generators import generator
from global_state import global_state
from models import TOKENS, Classifier
from multistable.dynamics.advise import trial, windows

T, N, WORDS, CLASSES = 24, 1000, 6, 3


def texts():
    """Words ``(T, n)`` by chance, and as vectors ``(T, n, WORDS)``."""
    words = torch.randint(WORDS, (T, N), generator=generator())
    return words, nn.functional.one_hot(words, WORDS).float()


def network(seed=1):
    return ms.RNN("gru", WORDS, 16, generator=generator(seed))


@pytest.fixture(scope="module", autouse=True)
def shorter():
    """The reader is trained for half as long, which is enough for so short sequences."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(windows, "STEPS", 200)
        yield


@pytest.fixture
def as_if_warmed(monkeypatch):
    """Copies are trained without the warmup before, which takes most of the time."""
    monkeypatch.setattr(trial, "_warmed", lambda *given: "")


@pytest.fixture(scope="module")
def of_first_word(shorter):
    words, u = texts()
    return ms.advise(network(), u, targets=words[0] % CLASSES, steps=300, lr=5e-3, generator=generator(2))


@pytest.fixture(scope="module")
def of_last_word(shorter):
    words, u = texts()
    return ms.advise(network(), u, targets=words[-1] % CLASSES, steps=0, generator=generator(2))


def test_a_warmup_is_advised_where_the_first_word_counts(of_first_word):
    assert of_first_word.warmup in ("whole", "double")
    assert of_first_word.window.nearest == of_first_word.window.needed == T
    assert of_first_word.trial.saved["none"] < 0.1 < 0.5 < max(of_first_word.trial.saved.values())
    assert of_first_word.vaa == pytest.approx(1 / 32)
    assert of_first_word.lifetime < T / 4
    assert of_first_word.length == T


def test_no_warmup_is_advised_where_the_last_word_counts(of_last_word):
    assert of_last_word.warmup == "none"
    assert of_last_word.window.needed == 2
    assert "one of the last 2 as much" in " ".join(of_last_word.reasons)
    assert "No copies were trained: steps=0." in of_last_word.reasons


def test_it_cannot_tell_where_targets_are_chance(as_if_warmed):
    targets = torch.randint(CLASSES, (N,), generator=generator(5))
    states = global_state()
    advice = ms.advise(network(), texts()[1], targets=targets, steps=20, generator=generator(2))
    assert global_state() == states
    assert advice.warmup is None
    assert advice.window.needed is None
    assert advice.trial.best is None
    assert str(advice).startswith("Advice: cannot tell.\n- ")
    assert "does not answer better than by guessing" in " ".join(advice.reasons)


def test_without_targets_it_says_what_it_cannot_know():
    advice = ms.advise(network(), texts()[1], generator=generator(2))
    assert advice.warmup is None
    assert advice.window is advice.trial is None
    assert "How far back the targets reach is not known: no targets were given." in advice.reasons
    assert advice.vaa == pytest.approx(1 / 32)


def test_a_network_with_attractors_needs_no_warmup():
    signs = nn.RNN(WORDS, 8)  # each unit keeps the sign that the first steps gave it
    with torch.no_grad():
        signs.weight_hh_l0.copy_(2 * torch.eye(8))
        signs.weight_ih_l0.copy_(0.1 * torch.randn(8, WORDS, generator=generator(1)))
        signs.bias_ih_l0.zero_()
        signs.bias_hh_l0.zero_()
    advice = ms.advise(signs, texts()[1], generator=generator(2))
    assert advice.vaa > 0.5
    assert advice.warmup == "none"


def test_the_pictures(of_first_word):
    figure = of_first_word.plot()
    assert isinstance(figure, matplotlib.figure.Figure)
    left, right = figure.axes
    names = ["as it is", "warmed up", "double and warmed up", "guessing"]
    assert [line.get_label() for line in right.get_lines()] == names
    assert left.get_xscale() == "log"


def loader():
    tokens = torch.randint(TOKENS, (40, 7), generator=generator(3))
    return DataLoader(TensorDataset(tokens, tokens[:, -1] % 2), batch_size=4, shuffle=True)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Classifier()


def advised(model, batches, **options):
    return ms.advise(model, batches, steps=3, generator=generator(4), **options)


def test_a_model_and_all_around_it_are_as_before(model, as_if_warmed):
    model.rnn.weight_hh_l0.grad = torch.ones_like(model.rnn.weight_hh_l0)
    model.norm.eval()
    before = copy.deepcopy(model.state_dict())
    modes = [module.training for module in model.modules()]
    states = global_state()
    advice = advised(model, loader())
    assert advice.trial is not None
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(model.rnn.weight_hh_l0.grad, torch.ones_like(model.rnn.weight_hh_l0))
    assert model.readout.weight.grad is None
    assert global_state() == states


def test_the_same_generator_gives_the_same_advice(model, as_if_warmed):
    batches = list(loader())
    first, second = (advised(model, batches) for _ in range(2))
    assert first == second
    assert first.trial.losses != ms.advise(model, batches, steps=3, generator=generator(5)).trial.losses


def test_a_double_copy_is_not_made_of_a_layer_of_five_units(model, as_if_warmed):
    advice = advised(model, loader())
    assert set(advice.trial.losses) == {"none", "whole"}
    assert "hidden_size of rnn must be even" in advice.trial.missing["double"]
    assert any("No copy was double and warmed up" in reason for reason in advice.reasons)


def test_a_loss_of_the_users_own(model, as_if_warmed):
    seen = []

    def loss(output, target):
        seen.append((output.shape, target.shape))
        return nn.functional.cross_entropy(output, target, label_smoothing=0.1)

    assert advised(model, loader(), loss=loss).trial is not None
    assert set(seen) == {((4, 2), (4,))}


def test_the_time_may_be_up():
    advice = ms.advise(
        network(), texts()[1], targets=texts()[0][0] % CLASSES, steps=10**6, minutes=1e-6, generator=generator(2)
    )
    assert advice.trial is None
    assert "No copies were trained: the time was up" in " ".join(advice.reasons)


@pytest.mark.parametrize(
    ("error", "message", "given"),
    [
        (TypeError, "rnn must be a single network or a model, got an Ensemble", {"rnn": ms.Ensemble([network()])}),
        (ValueError, "targets must be one for each of 1000 sequences, got shape \\(3,\\)", {"targets": torch.zeros(3)}),
        (ValueError, "targets must be an entry of each batch", {"targets": "answer"}),
        (TypeError, "targets must be a tensor, targets\\(batch\\)", {"targets": object()}),
        (TypeError, "loss must be called as loss\\(output, target\\)", {"loss": 3}),
        (ValueError, "steps must be 0 or a positive integer", {"steps": -1}),
        (ValueError, "lr must be a positive number", {"lr": 0}),
        (ValueError, "minutes must be a positive number", {"minutes": 0}),
    ],
)
def test_refusals(error, message, given):
    with pytest.raises(error, match=message):
        ms.advise(**{"rnn": network(), "sequences": texts()[1]} | given)
