"""The callbacks keep attractors by the gradient of ``ms.Keep``, with the real packages: ``make test-integrations``."""

import runpy

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import multistable as ms
from paths import ROOT

# A target that no network reaches: the term is always on.
KEEP = {"target": 1.0, "every": 1, "stabilisation": 5}
pytestmark = pytest.mark.filterwarnings("default")


def example(name):
    return runpy.run_path(str(ROOT / "examples" / f"{name}.py"))


def fitted(names, epochs, tmp_path, checkpoint=None, **options):
    import lightning

    callback = names["Multistability"](every=10, warmup=False, **options)
    numbers = torch.randn(40, 6, 1, generator=torch.Generator().manual_seed(0))
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        logger=False,
        enable_progress_bar=False,
        default_root_dir=tmp_path,
        callbacks=[callback],
    )
    torch.manual_seed(0)
    module = names["Recall"](4)
    trainer.fit(module, DataLoader(TensorDataset(numbers, numbers[:, 0]), batch_size=10), ckpt_path=checkpoint)
    return callback, module, trainer


def test_lightning_keeps_attractors_and_goes_on_from_a_checkpoint(tmp_path):
    names = example("train_with_lightning")
    _, plain, _ = fitted(names, 2, tmp_path)
    whole, kept, _ = fitted(names, 2, tmp_path, keep=KEEP)
    assert whole.keep.calls == 8
    assert whole.keep.on
    assert not torch.equal(plain.rnn.weight_hh_l0, kept.rnn.weight_hh_l0)
    _, _, trainer = fitted(names, 1, tmp_path, keep=KEEP)
    trainer.save_checkpoint(tmp_path / "one.ckpt")
    resumed, again, _ = fitted(names, 2, tmp_path, tmp_path / "one.ckpt", keep=KEEP)
    assert resumed.keep.state_dict() == whole.keep.state_dict()
    assert torch.equal(again.rnn.weight_hh_l0, kept.rnn.weight_hh_l0)


def test_transformers_keeps_attractors(tmp_path):
    from transformers import Trainer, TrainingArguments

    names = example("train_with_transformers")
    found = []
    for keep in (False, KEEP):
        arguments = TrainingArguments(
            output_dir=str(tmp_path), max_steps=3, use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no"
        )
        torch.manual_seed(0)
        trainer = Trainer(model=names["Classifier"](4), args=arguments, train_dataset=names["FirstToken"](40))
        callback = names["Multistability"](trainer, warmup=False, measure={"batches": 1}, keep=keep)
        trainer.add_callback(callback)
        trainer.train()
        found.append((callback.keep, trainer.model.rnn.weight_hh_l0.detach().clone()))
    assert found[0][0] is None
    assert isinstance(found[1][0], ms.Keep)
    assert found[1][0].calls == 3
    assert not torch.equal(found[0][1], found[1][1])
