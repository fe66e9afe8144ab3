"""What ``multistable inspect`` does."""

from pathlib import Path

import typer

from multistable.experiments import inspection
from multistable.experiments.checkpoints import network_of, sequences_of
from multistable.training import RunFolder


def run(file: Path, data: Path | None, batch_first: bool, part: str | None, stabilisation: int, out: Path) -> None:
    """Print the answers, and write the page."""
    rnn = network_of(file, part)
    sequences = None if data is None else sequences_of(data, batch_first)
    found = inspection.inspection(rnn, sequences, stabilisation=stabilisation)
    for question, answer in found.answers:
        typer.echo(f"{question}\n  {answer}")
    records = RunFolder(file).attractors() if file.is_dir() else []
    page = inspection.write(found, out, file.name, records)
    typer.echo(f"With pictures: {page.resolve().as_uri()}")
