"""The words of ``docs/claims.md``: what was found on each claim, with its pictures and pages, and how to read it."""

from dataclasses import dataclass

from multistable.experiments.claims import FAILS, HOLDS, OPEN, UNDECIDED


@dataclass(frozen=True)
class About:
    """What stands on the page beside the numbers of a claim.

    Attributes:
        verdict: at the paper's scale, or at the scale small if there are no runs at the paper's; ``found`` is true of
            this verdict alone.
        found: a sentence.
        pictures: what they show, and their files in ``docs/results``.
        records: the page with more, and what it is called.
    """

    verdict: str
    found: str
    pictures: tuple[tuple[str, str], ...] = ()
    records: tuple[tuple[str, str], ...] = ()


COPY_LONG = (("Test loss, T = 300", "copy_300_test_loss"), ("Test loss, T = 600", "copy_600_test_loss"))
DENOISING = (("Test loss, N = 5", "denoising_5_test_loss"), ("Test loss, N = 100", "denoising_100_test_loss"))
ON_COPY = (("copy, T = 50", "copy_50"), ("T = 300 and 600", "copy_long"))
ON_DENOISING = (("denoising", "denoising"),)

ABOUT = {
    "C1": About(
        HOLDS,
        "Untrained LSTMs, GRUs and MGUs reach one attractor, all of them; BRCs and NBRCs reach many.",
        (("Loss and VAA of classic networks, T = 50", "copy_50_classic"),),
        (*ON_COPY, *ON_DENOISING),
    ),
    "C2": About(
        UNDECIDED,
        "NBRC and chrono learn at every length, and BRC at none. Classic LSTMs, GRUs and MGUs stay near 1 with T = 300 "
        "and 600; with T = 50 some of them learn.",
        (("Test loss, T = 50", "copy_50_test_loss"), COPY_LONG[0]),
        ON_COPY,
    ),
    "C3": About(
        HOLDS,
        "In no network does the loss fall before it has more than one attractor. BRCs and NBRCs, which have many from "
        "the start, could not fail.",
        (("Loss and VAA of classic networks, T = 50", "copy_50_classic"),),
        ON_COPY[:1],
    ),
    "C4": About(
        FAILS,
        "Chrono ends lower than NBRC with both N, and with N = 5 so does GRU.",
        DENOISING,
        ON_DENOISING,
    ),
    "C5": About(
        UNDECIDED,
        "BRCs and NBRCs have a high VAA from the start. LSTMs end near one attractor, but some are far from it on the "
        "way.",
        (("Loss and VAA of classic networks, N = 100", "denoising_100_classic"),),
        ON_DENOISING,
    ),
    "C6": About(
        HOLDS,
        "The loss of no GRU falls before its VAA leaves 1/n; in most both happen in the same epoch, so which comes "
        "first is not seen.",
        (("Loss and VAA of classic networks, N = 5", "denoising_5_classic"),),
        ON_DENOISING,
    ),
    "C7": About(
        HOLDS,
        "An agent's return first takes memory when its VAA has risen, and VAA stays high from then on. The return "
        "itself goes up and down, and no agent is optimal at an evaluation.",
        (("Return and VAA, mean of three agents", "tmaze_200_return_vaa"), ("Each agent", "tmaze_200_each")),
        (("T-Maze", "tmaze"),),
    ),
    "C8": About(
        HOLDS,
        "Both layers of a GRU end the warmup at the target, and the network reaches as many attractors as states were "
        "tried.",
        (("VAA* of both layers during the warmup, and VAA at its end", "warmup_course_vaa_star"),),
        ON_DENOISING,
    ),
    "C9": About(
        FAILS,
        "Warmed-up GRUs and MGUs learn at every length, where classic ones fail; of the warmed-up LSTMs some do not "
        "learn T = 300 and 600.",
        COPY_LONG,
        ON_COPY,
    ),
    "C10": About(
        FAILS,
        "Chrono is clearly better without a warmup on denoising with N = 5 alone, and with one on copy with T = 50; "
        "elsewhere the two are alike.",
        (("Test loss on copy, T = 50", "copy_50_test_loss"), ("Test loss on denoising, N = 5", DENOISING[0][1])),
        (*ON_COPY, *ON_DENOISING),
    ),
    "C11": About(
        UNDECIDED,
        "With N = 100 every cell needs its warmup, and with N = 5 LSTMs do; GRUs and MGUs learn N = 5 either way.",
        DENOISING,
        ON_DENOISING,
    ),
    "C12": About(
        FAILS,
        "In the maze of length 100 warmed-up LSTMs and GRUs, BRCs and NBRCs are optimal long before any classic agent. "
        "In that of length 20 all agents get there, and a warmup slows down MGUs. L = 200 has runs of classic GRUs "
        "alone.",
        (("Episodes until optimal", "tmaze_first_optimal"), ("Return", "tmaze_return")),
        (("T-Maze", "tmaze"),),
    ),
    "C13": About(
        HOLDS,
        "Small networks that are trained for ten epochs get worse by a warmup. The paper's scale has not been run.",
        (("Test accuracy", "sequential_mnist_small_test_accuracy"),),
        (("small runs", "small"),),
    ),
    "C14": About(
        HOLDS,
        "Small networks that are trained for ten epochs are better without a warmup. The paper's scale has not been "
        "run.",
        (("Test accuracy", "line_mnist_small_test_accuracy"),),
        (("small runs", "small"),),
    ),
    "C15": About(
        FAILS,
        "Double layers learn most of what classic ones do not, but double LSTMs fail at denoising with N = 100, and "
        "some networks of each cell fail on long copies. MNIST has not been run.",
        (DENOISING[1], COPY_LONG[0]),
        (*ON_COPY, *ON_DENOISING),
    ),
    "C16": About(
        FAILS,
        "Small double layers beat classic ones by far, and warmed-up ones not at all. The paper's scale has not been "
        "run.",
        (("Test accuracy", "line_mnist_small_test_accuracy"),),
        (("small runs", "small"),),
    ),
    "C17": About(
        HOLDS,
        "Double GRUs and MGUs learn within a few epochs, sooner than warmed-up ones.",
        (("Validation loss of each cell, N = 100", "denoising_100_curves"),),
        ON_DENOISING,
    ),
    "C18": About(
        UNDECIDED,
        "Without a warmup double layers are about as good as classic ones: few cases differ clearly, and in both "
        "directions.",
        (("Test loss on copy, T = 50", "copy_50_test_loss"), DENOISING[1]),
        (*ON_COPY, *ON_DENOISING),
    ),
    "C19": About(OPEN, "The search over hyperparameters has not been run."),
    "C20": About(
        FAILS,
        "Sequences of the small scale are so short that some networks learn them with one attractor, which says "
        "nothing of longer ones. The paper's scale has not been run.",
        (
            ("Small networks of one layer", "other_settings_vaa_small_layers1"),
            ("Of two layers", "other_settings_vaa_small_layers2"),
        ),
        (("small runs", "small"),),
    ),
    "C21": About(
        UNDECIDED,
        "Small warmed-up and double GRUs are clearly better than classic ones in most settings, and clearly worse in "
        "none. The paper's scale has not been run.",
        (
            ("Small networks of one layer", "other_settings_warmup_small_layers1"),
            ("Of two layers", "other_settings_warmup_small_layers2"),
        ),
        (("small runs", "small"),),
    ),
    "C22": About(
        UNDECIDED,
        "The mean error is lower with the highest k for every cell and length, but five networks of a kind are too few "
        "to say so of each.",
        (("Test loss by k", "impact_k_test_loss"),),
        (("the target k", "impact_k"),),
    ),
    "C23": About(
        OPEN,
        "VAA rises in every case that was run, and GRUs learn denoising with N = 5. Longer copies, N = 100 and MNIST "
        "are missing.",
        (("Pretraining on copy, T = 50", "auxiliary_copy_50_pretraining"),),
        (("auxiliary losses", "auxiliary"),),
    ),
    "C24": About(
        HOLDS,
        "A warmup takes 200 times fewer gradient steps than the pretraining, and a fraction of its seconds, in the two "
        "settings of seven that were run.",
        (("Seconds and steps before training on copy, T = 50", "auxiliary_copy_50_cost"),),
        (("auxiliary losses", "auxiliary"),),
    ),
    "Q1": About(
        FAILS,
        "Small LSTMs and GRUs learn to copy as well after a warmup on random sequences, MGUs do not; at denoising the "
        "small scale gives no answer. The paper's scale has not been run.",
        (("Test loss", "random_warmup_small_test_loss"),),
        (("two questions", "questions"),),
    ),
    "Q2": About(
        FAILS,
        "Classic networks before training are at rest. The states of warmed-up networks, and of networks that have "
        "learned, still move.",
        (("Shares of settled states, small networks", "attractors_small_shares"),),
        (("two questions", "questions"),),
    ),
}

TOLD = {HOLDS: "hold", FAILS: "do not hold", UNDECIDED: "are undecided", OPEN: "have not enough runs"}
"""The verdicts, as they are said of several claims."""

INTRODUCTION = """# What holds of the paper

This page has a verdict on each claim of the paper, and on two questions that it leaves open, with the numbers, a
picture, and the reason where a claim does not hold. It is made from the [stored results](results/README.md) by
`python docs/figures/claims.py`.
"""

HOW = """## How to read it

- **Numbers** are mean ± standard deviation over runs that differ in their seed. *Standard errors* say how far two
  means, or a mean and a limit, are apart, in units of the standard error of their difference.
- **Cannot be told apart** are means that are fewer than two standard errors apart: chance may have put them in this
  order, so they neither confirm a claim nor refute it.
- **Holds**: all comparisons are clearly as claimed. **Does not hold**: one is clearly not. **Undecided**: none is
  clearly not, and some cannot be told apart. **Not enough runs**: nothing stands against the claim, but runs are
  missing. [The rules in full](reference/reproduce.md#verdicts).
- **Why** says what is known of the cause; *open* where nothing is.
- **The authors' code** was measured by us, with their data, initial weights, warmup and training, in the settings that
  are named.

These commands give the verdicts again, with every comparison:

```sh
R=docs/results
{paper}
{small}
```

They use {paper_runs} runs at the paper's scale and {small_runs} at the scale small, which has short sequences and small
networks.
"""

READINGS = """## Other readings of the paper

The authors' code differs from the paper's text in the batch of the warmup (n = 32 by default), in the bias vectors of
LSTM and GRU (two, as PyTorch has them) and in precision (on a GPU PyTorch trains in TF32). **None of the three makes
C9 hold**, so the experiments keep to the text: n = 200, one bias vector, and float32 unless `--precision tf32` is
given. This is how many warmed-up LSTMs learn copy first input with T = 300, that is end below 0.01 after ten epochs:

| | |
|---|---|
{ways}

Both sides of a row have the same networks in all combinations of the other two. [The
combinations](results/attractors_lost.md#the-batch-of-the-warmup-the-biases-and-the-precision-of-training) say how
certain this is: two bias vectors are perhaps worse, the rest is chance. Any run can be made in another reading:

```sh
multistable train copy --T 300 --cell lstm --cell gru --version classic --version warmup --seeds 5 \\
    --set warmup_batch_size=32 --set 'cell_options={{"recurrent_bias": true}}'
```

**T-Maze as their command line has it** is an experiment of its own: two layers of 32 units, the previous reward as an
input, n = 32, and T_max = 3 L for chrono, for all ten kinds of agent at L = 20, 100 and 200. {mazes}

```sh
multistable reproduce tmaze-32 --scale paper
python docs/figures/results.py tmaze_32 --runs runs && python docs/figures/claims.py
```
"""
