"""``multistable train``: its options. What it does is in ``runs``."""

from pathlib import Path
from typing import Annotated

import typer

from multistable.cli.errors import Debug, reporting
from multistable.cli.minutes import STOP

# Nothing of these is wrapped: typer makes one line of lines that no empty one separates.
EXAMPLES = """[bold]Examples[/bold]

A minute on a CPU: a short sequence to remember, with and without warmup.

  [cyan]multistable train copy --T 20 --hidden 64 --epochs 3 --training-sequences 4000 --vaa-every 3[/cyan]

The paper's benchmark at T = 50, for every cell and version and five seeds. Run again, it goes on where it was.

  [cyan]multistable train copy --T 50 --cell all --version all --seeds 5[/cyan]

What would be done, and what is done already.

  [cyan]multistable train denoising --T 200 --N 100 --cell gru --cell lstm --dry-run[/cyan]

Images, from files in a folder. Without --data they are downloaded.

  [cyan]multistable train plmnist --N 72 --cell gru --version all --data mnist[/cyan]

Agents that have to remember where the treasure is: two minutes on a CPU.

  [cyan]multistable train tmaze --L 10 --cell gru --layers 1 --hidden 64 --episodes 200[/cyan]"""

TASK, NETWORK, TRAINING, MEASURE, OUTPUT = "Task", "Network", "Training", "Warmup and measure", "Output"


def train(
    task: Annotated[
        str,
        typer.Argument(help="copy, denoising, psmnist, plmnist or tmaze; 'multistable list tasks' tells of them."),
    ],
    T: Annotated[
        int | None, typer.Option("--T", help="Time steps of a sequence (copy, denoising).", rich_help_panel=TASK)
    ] = None,
    N: Annotated[
        int | None,
        typer.Option(
            "--N", help="Time steps at the end without anything to learn (denoising, plmnist).", rich_help_panel=TASK
        ),
    ] = None,
    L: Annotated[int | None, typer.Option("--L", help="Length of the corridor (tmaze).", rich_help_panel=TASK)] = None,
    cue: Annotated[
        bool | None,
        typer.Option(
            "--cue/--no-cue",
            help="Tell the network when to answer (denoising).",
            show_default="cue",
            rich_help_panel=TASK,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the four MNIST files (psmnist, plmnist).",
            show_default="MULTISTABLE_DATA, or a download",
            rich_help_panel=TASK,
        ),
    ] = None,
    cell: Annotated[
        list[str],
        typer.Option(
            help="lstm, chrono, gru, mgu, brc, nbrc, or all. May be given several times.", rich_help_panel=NETWORK
        ),
    ] = ["gru"],  # noqa: B006 (typer's way to have several)
    version: Annotated[
        list[str],
        typer.Option(
            help="classic, warmup, double (layers of two halves, one of them warmed up), double-classic, auxiliary "
            "(pretrained to reconstruct its input), or all. May be given several times.",
            rich_help_panel=NETWORK,
        ),
    ] = ["classic", "warmup"],  # noqa: B006
    hidden: Annotated[
        int | None,
        typer.Option(
            "--hidden",
            "--hidden-size",
            help="Units of a layer.",
            show_default="the paper's: 128 for copy, else 256",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    layers: Annotated[
        int | None,
        typer.Option(
            "--layers",
            "--num-layers",
            help="Recurrent layers.",
            show_default="the paper's: 1 for copy, else 2",
            rich_help_panel=NETWORK,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="How many seeds: 0, 1, 2 and so on.", show_default="1", rich_help_panel=TRAINING),
    ] = None,
    seed: Annotated[
        list[int] | None, typer.Option(help="This seed. May be given several times.", rich_help_panel=TRAINING)
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            help="Passes over the training set, after any pretraining.", show_default="50", rich_help_panel=TRAINING
        ),
    ] = None,
    episodes: Annotated[
        int | None, typer.Option(help="Episodes of an agent (tmaze).", show_default="2000", rich_help_panel=TRAINING)
    ] = None,
    evaluate_every: Annotated[
        int | None,
        typer.Option(
            help="Episodes between two evaluations of the greedy policy (tmaze).",
            show_default="20",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Sequences, or transitions of an agent, of a gradient step.",
            show_default="32",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Of Adam.", show_default="0.001", rich_help_panel=TRAINING)
    ] = None,
    max_norm: Annotated[
        float | None,
        typer.Option(
            help="The largest norm of an agent's gradient, longer ones are shortened to it (tmaze).",
            show_default="no limit",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    training_sequences: Annotated[
        int | None,
        typer.Option(
            help="Size of the learning set, of which 20% is for validation.",
            show_default="the task's own",
            rich_help_panel=TRAINING,
        ),
    ] = None,
    testing_sequences: Annotated[
        int | None,
        typer.Option(help="Size of the test set.", show_default="the task's own", rich_help_panel=TRAINING),
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="Of matrix products on a GPU: ieee or tf32.", show_default="ieee", rich_help_panel=TRAINING),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            help="cpu, cuda or cuda:1 and so on.", show_default="a GPU if there is one", rich_help_panel=TRAINING
        ),
    ] = None,
    together: Annotated[
        int,
        typer.Option(min=1, help="The most runs trained at once, as one ensemble.", rich_help_panel=TRAINING),
    ] = 32,
    minutes: Annotated[float | None, typer.Option(min=0, help=STOP, rich_help_panel=TRAINING)] = None,
    vaa_every: Annotated[
        int | None,
        typer.Option(
            help="Measure VAA before training and after every so many epochs, of agents episodes; 0 for never.",
            show_default="1, of agents 100",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    warmup_algorithm: Annotated[
        str | None,
        typer.Option(
            help="paper (Algorithm 3) or reliable (until the network is multistable).",
            show_default="paper",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    k: Annotated[
        float | None,
        typer.Option(
            "--k",
            "--target",
            help="The VAA* that warmup brings each layer to, or the VAA that reliable brings the network to.",
            show_default="0.95",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Any other setting of the run or the task, for instance warmup_steps=50. May be given several times.",
            rich_help_panel=MEASURE,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where each run has its folder.", rich_help_panel=OUTPUT)] = Path("runs"),
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Also write for TensorBoard.", rich_help_panel=OUTPUT)
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="List the runs, what is done of each and how long the rest may take; do nothing.",
            rich_help_panel=OUTPUT,
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Train networks on one of the paper's benchmarks, and compare them.

    Every combination of cell, version and seed is a run with a folder of its own.

    A finished run is not run again; an interrupted one goes on where it was when the same command is given again.
    """
    kept = f"Interrupted. What is done is kept in {out}: the same command goes on from there."
    with reporting(debug, "Interrupted; nothing was begun." if dry_run else kept):
        from multistable.cli import runs

        configs = runs.combinations(
            task=task,
            task_settings={"T": T, "N": N, "L": L, "cue": cue},
            data=data,
            cells=cell,
            versions=version,
            seeds=runs.chosen_seeds(seeds, seed),
            settings={
                "hidden_size": hidden,
                "num_layers": layers,
                "epochs": epochs,
                "episodes": episodes,
                "evaluate_every": evaluate_every,
                "batch_size": batch_size,
                "learning_rate": learning_rate,
                "max_norm": max_norm,
                "training_sequences": training_sequences,
                "testing_sequences": testing_sequences,
                "precision": precision,
                "vaa_every": vaa_every,
                "warmup_algorithm": warmup_algorithm,
                "target": k,
            },
            others=set_ or [],
        )
        # A plan is no work: it can be made for the GPU of another machine.
        place = runs.chosen_device(device, here=not dry_run)
        if dry_run:
            runs.list_runs(configs, out, together, place)
        else:
            runs.train_runs(configs, out, place, together, tensorboard, minutes)
