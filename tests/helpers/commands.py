"""Commands as tests give them."""

from typer.testing import CliRunner

from multistable.cli import app

# Small, and in float64: the compiled loop of float32 takes seconds to load.
SMALL = (
    "train copy --T 5 --hidden 4 --batch-size 8 --training-sequences 40 --testing-sequences 10 --set dtype=float64 "
    "--set vaa_batch_size=4 --set vaa_batches=2 --set stabilisation=20 --set warmup_steps=4 --set warmup_batch_size=8"
)


def call(line, *more, **options):
    """Run ``multistable`` with the words of a line as its arguments, and with more arguments."""
    return CliRunner().invoke(app, [*line.split(), *map(str, more)], **options)
