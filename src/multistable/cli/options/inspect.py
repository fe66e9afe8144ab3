"""The options of ``multistable inspect``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import reporting
from multistable.cli.shared_options import Debug


def command(
    file: Annotated[Path, typer.Argument(help="A state_dict (safetensors, or pt), or the folder of a run.")],
    data: Annotated[
        Path | None, typer.Option(help="Sequences (time, n, features): npy, npz or safetensors; random without it.")
    ] = None,
    batch_first: Annotated[bool, typer.Option(help="The sequences are (n, time, features).")] = False,
    part: Annotated[str | None, typer.Option(help="The network inside the model, where there are several.")] = None,
    stabilisation: Annotated[int, typer.Option(help="The steps after which states are called settled.")] = 10_000,
    out: Annotated[Path, typer.Option(help="The page that is written.")] = Path("inspect.html"),
    debug: Debug = False,
) -> None:
    """Look at a network of your own: what it can hold, for how long, under which inputs, how robustly.

    Takes a torch.nn RNN, GRU or LSTM out of a checkpoint, and writes one HTML page with words and pictures.
    """
    with reporting(debug):
        from multistable.cli.bodies import inspect

        inspect.run(file, data, batch_first, part, stabilisation, out)
