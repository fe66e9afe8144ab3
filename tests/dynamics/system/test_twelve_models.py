"""The table of twelve shapes of model: each line is run as it stands, with models of that shape."""

import copy
import re

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import models
import multistable as ms
from models import FEATURES, TIME, N, numbers, tokens
from paths import ROOT

PAGE = ROOT / "README.md"
ROWS = re.findall(r"^\| (.*) \| `(ms\.warmup.*)` \|$", PAGE.read_text(), flags=re.MULTILINE)
X = numbers(TIME, N, FEATURES)
LENGTHS = torch.arange(N) % TIME + 1


def parametrised(name):
    model = models.Classifier()
    getattr(parametrizations, name)(model.rnn, "weight_hh_l1")
    return model


TEXT = [(tokens()[:20], torch.zeros(20)), (tokens()[20:], torch.zeros(20))]
TRANSLATED = [(X, X)]

# In the order of the table: models of that shape, their batches, and how many parts they have.
SHAPES = [
    ([models.Classifier], TEXT, 1),
    ([models.Pictures], [numbers(TIME, N, 1, 4, 4)], 1),
    ([models.Packed], [(X.transpose(0, 1), LENGTHS, torch.zeros(N))], 1),
    ([models.OfDict], [{"x": X.transpose(0, 1), "labels": torch.zeros(N)}], 1),
    ([lambda: models.Classifier(bidirectional=True)], TEXT, 4),
    ([models.Translator], TRANSLATED, 2),
    ([models.Translator], TRANSLATED, 1),
    ([models.ByStep], [X], 1),
    ([models.Twice], [X], 1),
    (
        [lambda: models.Classifier(proj_size=3)]
        + [lambda name=name: parametrised(name) for name in ("weight_norm", "spectral_norm", "orthogonal")],
        TEXT,
        1,
    ),
    (
        [lambda: torch.compile(models.Classifier(), backend="eager"), lambda: nn.DataParallel(models.Classifier())],
        TEXT,
        1,
    ),
    ([models.WithOwn], [X], 1),
]
CASES = [(row, make) for row, (makes, *_) in enumerate(SHAPES) for make in makes]


def test_the_table_has_twelve_rows():
    assert len(ROWS) == len(SHAPES) == 12


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("row", "make"), CASES, ids=[f"{row + 1}" for row, _ in CASES])
def test_each_takes_one_line(row, make, monkeypatch):
    """It warms up each part and changes nothing else, and the model goes on to run."""
    (_, line), (_, batches, count) = ROWS[row], SHAPES[row]
    short = {"algorithm": "paper", "steps": 1, "batch_size": 8, "max_stabilisation": 3}
    monkeypatch.setattr(ms, "warmup", lambda *args, f=ms.warmup, **options: f(*args, **options, **short))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = make()
    before = copy.deepcopy(model.state_dict())
    with pytest.warns(ms.WarmupWarning):
        found = eval(line, {"ms": ms, "model": model, "loader": batches})
    histories = list(found.values()) if isinstance(found, dict) else [found]
    assert len(histories) == count
    assert all(len(history) == 1 for history in histories)
    changed = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    parts = r"\b(rnn|encoder|decoder|cell|memory)\."
    assert changed
    assert all(re.search(parts, name) for name in changed)
