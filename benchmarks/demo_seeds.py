"""The demo's runs with several seeds, which say how typical its seed is; recorded where the demo's page reads them.

Run: python benchmarks/demo_seeds.py (about 7 minutes of one core; finished runs are not trained again)
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multistable.experiments import demo, demo_page
from multistable.training import Callback, RunConfig, RunFolder, train

SEEDS = range(5)


class Print(Callback):
    """A line for each run that is finished."""

    def on_end(self, configs: Sequence[RunConfig], summaries: Sequence[dict[str, Any]]) -> None:
        for config, summary in zip(configs, summaries, strict=True):
            print(f"seed {config.seed}, {config.version}: {summary['results']}")


def main(out: Path = Path("runs/demo_seeds")) -> None:
    """Train the runs that are not finished, and write the record."""
    configs = {seed: demo.configs(seed) for seed in SEEDS}
    for seed in SEEDS:
        with demo.one_thread():
            train(configs[seed], out, device="cpu", callbacks=[Print()])
    summaries = {
        config.version: [RunFolder.of(configs[seed][index], out).summary() for seed in SEEDS]
        for index, config in enumerate(configs[0])
    }
    record = {
        "key": demo_page.key_of(configs[0][0]),
        "seeds": list(SEEDS),
        "test_loss": {name: [s["results"]["test_loss"] for s in runs] for name, runs in summaries.items()},
        "initial_vaa": {name: [s["results"]["initial_vaa"] for s in runs] for name, runs in summaries.items()},
        "final_vaa": {name: [s["results"]["final_vaa"] for s in runs] for name, runs in summaries.items()},
    }
    path = Path(demo_page.__file__).with_name(demo_page.SEEDS)
    path.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
