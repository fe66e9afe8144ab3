"""The demo: a classic, a warmed-up and a double-layer GRU learn to remember, and a page shows what happened."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save

from multistable.dynamics.measure import lyapunov
from multistable.experiments import demo_page
from multistable.experiments.experiment import Result
from multistable.experiments.settling import settling
from multistable.files import write_atomically
from multistable.tasks import CopyFirstInput
from multistable.training import Callback, Model, RunConfig, RunFolder, load, train
from multistable.training.seeds import generator
from multistable.training.store import DamagedRunError

SEED = 3
"""Of the seeds of ``benchmarks/demo_seeds.py``, the one with the clearest picture of the state space."""

PAGE = "demo.html"

STATES = 100
"""How many states the pictures of the state space follow."""


def configs(seed: int = SEED) -> list[RunConfig]:
    """The runs of the demo: smaller in everything than the paper's, so that two minutes on two cores are enough."""
    return [
        RunConfig(
            CopyFirstInput(T=50),
            "gru",
            version,
            hidden_size=128,
            seed=seed,
            epochs=8,
            learning_rate=2e-3,
            training_sequences=3000,
            testing_sequences=2000,
            vaa_every=4,
            warmup_batch_size=128,
        )
        for version in ("classic", "warmup", "double")
    ]


def demo(
    out: Path | str,
    *,
    runs: Sequence[RunConfig] | None = None,
    callbacks: Sequence[Callback] = (),
    states: int = STATES,
) -> Path:
    """Train the three networks on the CPU and write a page about them.

    A demo that was interrupted goes on from there, and finished networks are not trained again.

    Args:
        out: the folder of the page and the runs.
        runs: the runs to train, one of each version; by default :func:`configs`.
        callbacks: are told of the progress.
        states: how many states the pictures of the state space follow.

    Returns:
        The path of the page.
    """
    runs = configs() if runs is None else list(runs)
    out = Path(out)
    with one_thread():
        train(runs, out, device="cpu", callbacks=[AfterWarmup(out), *callbacks])
        folders = {config.version: RunFolder.of(config, out) for config in runs}
        spaces = state_spaces(folders["warmup"], states)
    results = {version: Result.of(folder) for version, folder in folders.items()}
    return demo_page.write(out / PAGE, results, spaces, SEED)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one core.

    A second core would gain little, since the networks are small, and cost much where the cores are not idle. It would
    also divide sums differently, which changes their last digits and so the course of a training.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class AfterWarmup(Callback):
    """Keeps the weights after a warmup, before training changes them."""

    def __init__(self, out: Path) -> None:
        self._out = out

    def on_start(self, configs: Sequence[RunConfig], epoch: int, steps: int) -> None:
        self._keep(configs)

    def on_epoch(self, configs: Sequence[RunConfig], metrics: Sequence[dict[str, object]]) -> None:
        self._keep(configs)

    def _keep(self, configs: Sequence[RunConfig]) -> None:
        """Keep the checkpoint before training. It is there until the second epoch, so no interruption loses it."""
        for folder in (RunFolder.of(config, self._out) for config in configs if config.kind.warmed):
            if 0 in folder.checkpoints() and not _after_warmup(folder).exists():
                tensors = folder.checkpoint(0).tensors
                prefix = "weights."
                weights = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
                write_atomically(_after_warmup(folder), save(weights))


def _after_warmup(folder: RunFolder) -> Path:
    return folder.path / "after-warmup.safetensors"


def state_spaces(folder: RunFolder, n: int = STATES) -> demo_page.StateSpaces:
    """Where n states of a warmed-up network settle: before its warmup, after it, and after training."""
    config = folder.config()
    if not _after_warmup(folder).exists():
        raise DamagedRunError(
            f"{_after_warmup(folder)} is missing, there is nothing to draw: delete {folder.path} and start again"
        )
    warmed = Model.of(config)
    warmed.load_state_dict(load_file(_after_warmup(folder)))
    data = config.task.testing(n, generator=generator(config.seed, "pictures"), dtype=getattr(torch, config.dtype))

    def looked_at(model: Model) -> demo_page.StateSpace:
        # The same draws for each: the sequences are left at the same time steps, and the constant input is the same.
        draws = generator(config.seed, "pictures", "settling")
        sizes: dict[str, Any] = {"stabilisation": config.stabilisation, "generator": draws}
        settled = settling(model.rnn, data.inputs, eps=config.eps, **sizes)
        return demo_page.StateSpace(settled, lyapunov(model.rnn, data.inputs, batches=3, **sizes).lifetime)

    return demo_page.StateSpaces(
        first_inputs=data.targets[:, 0].tolist(),
        before=looked_at(Model.of(config)),
        warmed=looked_at(warmed),
        trained=looked_at(load(folder.path)),
    )
