"""What docs/reference/reproduce.md says of the experiments is so."""

import re

from multistable.experiments.paper import experiments
from multistable.experiments.reproduce import plan
from multistable.experiments.scales import SCALES
from paths import ROOT

PAGE = (ROOT / "docs" / "reference" / "reproduce.md").read_text()


def test_the_table_has_every_experiment_and_its_runs(tmp_path):
    rows = re.findall(r"^\| `([\w-]+)` \| ([\d,]+) / ([\d,]+) / ([\d,]+) \|", PAGE, re.MULTILINE)
    told = {name: [int(count.replace(",", "")) for count in counts] for name, *counts in rows}
    known = {name: [made] for name, made in experiments().items()} | {"all": list(experiments().values())}
    assert told == {
        name: [plan(wanted, scale, tmp_path).runs for scale in SCALES.values()] for name, wanted in known.items()
    }


def test_the_experiment_that_is_shown_can_be_declared(tmp_path):
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    declared = {}
    exec(block, declared)
    (made,) = declared["EXPERIMENTS"]
    assert made.name not in experiments()
    assert made.order not in {known.order for known in experiments().values()}
    assert plan([made], SCALES["paper"], tmp_path).runs == 4 * SCALES["paper"].seeds
