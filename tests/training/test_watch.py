"""The watch of a training loop of one's own; the callbacks of other packages are tested with these."""

import importlib
import sys
from types import SimpleNamespace

import pytest

import multistable as ms
from models import Classifier, Translator, numbers, seeded, tokens
from multistable.integrations import Watch

SHORT = {"algorithm": "paper", "steps": 1, "batch_size": 8, "max_stabilisation": 3}
SMALL = {"batches": 2, "stabilisation": 50}


def test_it_warms_up_and_measures_every_few_epochs():
    model, logged = seeded(Classifier), []
    with pytest.warns(ms.WarmupWarning):
        watch = Watch(model, tokens(), every=2, warmup=SHORT, measure=SMALL, log=lambda *values: logged.append(values))
    assert logged == [({"vaa": watch.history.vaa}, 0)]
    found = [watch(epoch) for epoch in (1, 2, 3)]
    assert found[0] == {"vaa": watch.history.vaa}
    assert found[1] == found[2] == {"vaa": ms.measure(model, tokens(), **SMALL).vaa}
    assert logged[1:] == [(found[1], 2)]


def test_of_several_parts_each_is_logged_where_it_is_wanted():
    scalars, run = [], []
    writer = SimpleNamespace(add_scalar=lambda *values: scalars.append(values))
    for log in (writer, SimpleNamespace(log=run.append)):
        watch = Watch(seeded(Translator), numbers(5, 40, 4), every=1, warmup=False, measure=SMALL, log=log)
        values = watch(3)
    assert watch.history is None
    assert list(values) == ["vaa/encoder", "vaa/decoder"]
    assert scalars == [(name, value, 3) for name, value in values.items()]
    assert run == [{**values, "epoch": 3}]


def test_what_cannot_be_logged_to_is_an_error_before_any_work():
    with pytest.raises(TypeError, match=r"log must be a SummaryWriter, a run of W&B, a function .* or None, got int"):
        Watch(Classifier(), tokens(), log=3)
    with pytest.raises(ValueError, match="every must be a positive integer, got 0"):
        Watch(Classifier(), tokens(), every=0)


def stood_in(monkeypatch, package, **names):
    """The callback of a package, with a stand-in for the package."""
    module = f"multistable.integrations.{package}"
    monkeypatch.setitem(sys.modules, package, SimpleNamespace(**names))
    monkeypatch.delitem(sys.modules, module, raising=False)
    callback = importlib.import_module(module).Multistability
    monkeypatch.delitem(sys.modules, module)
    return callback


KEEP = {"target": 1.0, "every": 2, "stabilisation": 3, "eps": 0.3}


def test_the_callback_for_lightning_adds_the_gradient_and_keeps_the_state(monkeypatch):
    made = stood_in(monkeypatch, "lightning", Callback=object)
    model = seeded(Classifier)
    trainer = SimpleNamespace(world_size=1, train_dataloader=[tokens()])
    callback = made(warmup=False, keep=KEEP)
    callback.on_train_start(trainer, model)
    added = []
    for _ in range(4):
        model.zero_grad()
        callback.on_before_optimizer_step(trainer, model, None)
        added.append(model.rnn.weight_hh_l0.grad is not None)
    assert added == [False, True, False, True]
    again = made(warmup=False, keep=KEEP)
    again.load_state_dict(callback.state_dict())
    again.on_train_start(trainer, model)
    assert again.keep.state_dict() == callback.keep.state_dict()
    with pytest.raises(RuntimeError, match="keep works in one process"):
        callback.on_train_start(SimpleNamespace(world_size=2), model)


def test_the_callback_for_transformers_adds_the_gradient(monkeypatch):
    made = stood_in(monkeypatch, "transformers", TrainerCallback=object, Trainer=SimpleNamespace)
    model = seeded(Classifier)
    callback = made(SimpleNamespace(), warmup=False, keep=KEEP | {"every": 1})
    callback.on_pre_optimizer_step(None, None, None)
    loop = {"model": model, "train_dataloader": [tokens()]}
    callback.on_train_begin(SimpleNamespace(world_size=1), SimpleNamespace(global_step=0), None, **loop)
    callback.on_pre_optimizer_step(None, None, None)
    assert model.rnn.weight_hh_l0.grad.any()
