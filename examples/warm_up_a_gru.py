"""Measure a torch.nn.GRU, warm it up, measure it again.

Run: python examples/warm_up_a_gru.py
"""

import torch

import multistable as ms


def main() -> None:
    """One attractor before, one for nearly every state after."""
    torch.manual_seed(2)
    rnn = torch.nn.GRU(1, 128)
    sequences = torch.randn(50, 1000, 1)  # (time, n, features): 1,000 sequences of the copy-first-input task

    before = ms.measure(rnn, sequences)
    print(f"VAA before: {before.vaa:.3f}, so {32 * before.vaa:.0f} attractor for 32 states")

    def report(step: ms.WarmupStep) -> None:
        if step.step % 10 == 0:
            print(f"  step {step.step:3d}: VAA* = {step.vaa_star.item():.3f}")

    history = ms.warmup(rnn, sequences, on_step=report)
    after = ms.measure(rnn, sequences)
    print(f"VAA after:  {after.vaa:.3f}, so {32 * after.vaa:.0f} attractors for 32 states ({history.outcome})")


if __name__ == "__main__":
    main()
