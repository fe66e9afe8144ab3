"""The demo: what it trains, keeps and writes, and that its sentences follow from the numbers."""

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
import torch
from safetensors.torch import load_file

from multistable.experiments import demo as demo_module
from multistable.experiments import demo_page
from multistable.experiments.demo import configs, demo
from multistable.experiments.experiment import Result
from multistable.experiments.settling import Settling
from multistable.training import Callback, Model, RunFolder
from tiny_demo import tiny_configs


class Watcher(Callback):
    """Counts what is begun, and may interrupt after an epoch."""

    def __init__(self, interrupt_after: int | None = None) -> None:
        self.begun: list[str] = []
        self.interrupt_after = interrupt_after

    def on_start(self, configs, epoch, steps):
        self.begun += [config.version for config in configs]

    def on_epoch(self, configs, metrics):
        if metrics[0]["epoch"] == self.interrupt_after:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """The folder of a finished demo."""
    folder = tmp_path_factory.mktemp("demo")
    demo(folder, runs=tiny_configs(), states=12)
    return folder


@pytest.fixture(scope="module")
def text(out):
    return (out / "demo.html").read_text()


class Page(HTMLParser):
    """Reads a page: the tags, the ids and the text of its table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "td":
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def test_the_page_needs_nothing_beside_it(text):
    page = Page(text)
    links = [value for _, a in page.tags for name, value in a.items() if name in ("src", "href", "xlink:href")]
    assert links
    assert all(link.startswith(("#", "data:")) for link in links)
    assert not re.search(r"@import|url\((?!#)", text)
    assert not any(tag == "script" for tag, _ in page.tags)


def test_no_two_elements_share_an_id_and_every_reference_has_its_element(text):
    ids = [a["id"] for _, a in Page(text).tags if "id" in a]
    referred = set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'xlink:href="#([^"]+)"', text))
    assert len(ids) == len(set(ids))
    assert referred
    assert referred <= set(ids)


def test_the_page_shows_every_picture_and_says_what_each_is(text):
    pictures = [a for tag, a in Page(text).tags if tag == "svg"]
    assert len(pictures) == 7
    assert all(a["role"] == "img" and a["aria-label"] for a in pictures)


def test_the_table_has_the_numbers_of_the_runs(out, text):
    cells = [cell.strip() for cell in Page(text).cells]
    for config in tiny_configs():
        found = RunFolder.of(config, out).summary()["results"]
        assert f"{found['test_loss']:.3g}" in cells
        assert f"{found['initial_vaa']:.2f}" in cells


def test_a_finished_demo_is_not_trained_again_and_writes_the_same_page(out, text):
    watcher = Watcher()
    page = demo(out, runs=tiny_configs(), states=12, callbacks=[watcher])
    assert watcher.begun == []
    assert page.read_text() == text


def test_the_demo_computes_in_one_thread_and_leaves_the_number_as_it_was(tmp_path):
    seen = []

    class Threads(Callback):
        def on_start(self, configs, epoch, steps):
            seen.append(torch.get_num_threads())
            raise KeyboardInterrupt

    torch.set_num_threads(2)
    try:
        with pytest.raises(KeyboardInterrupt):
            demo(tmp_path, runs=tiny_configs(), callbacks=[Threads()])
        assert seen == [1]
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_interrupted_demo_ends_as_an_undisturbed_one(out, text, tmp_path, epoch):
    with pytest.raises(KeyboardInterrupt):
        demo(tmp_path, runs=tiny_configs(), states=12, callbacks=[Watcher(interrupt_after=epoch)])
    for kept in tmp_path.glob("*/after-warmup.safetensors"):
        kept.unlink()  # as if the process had been killed before it was written
    page = demo(tmp_path, runs=tiny_configs(), states=12)
    without_time = [re.sub(r"in \d+ seconds", "", one) for one in (page.read_text(), text)]
    assert without_time[0] == without_time[1]


def test_the_weights_after_the_warmup_are_kept_although_training_changes_them(out):
    config = tiny_configs()[1]
    folder = RunFolder.of(config, out)
    kept = load_file(folder.path / "after-warmup.safetensors")
    initial, trained = Model.of(config).state_dict(), folder.weights()
    assert kept.keys() == initial.keys() == trained.keys()
    recurrent = [name for name in kept if name.startswith("rnn.")]
    assert any(not torch.equal(kept[name], initial[name]) for name in recurrent)
    assert any(not torch.equal(kept[name], trained[name]) for name in recurrent)
    assert torch.equal(kept["readout.weight"], initial["readout.weight"])  # which no warmup changes


def test_a_demo_without_the_weights_after_the_warmup_says_what_to_do(out, tmp_path):
    from multistable.training import train

    config = tiny_configs()[1]
    train(config, tmp_path, device="cpu")
    with pytest.raises(RuntimeError, match="delete"):
        demo_module.state_spaces(RunFolder.of(config, tmp_path), 4)


def spaces_with(before: int, warmed: int, trained: int, order: float, lifetime=3000.0, n: int = 20):
    """States that end at so many points, along a line in the order of the first input or not."""
    first = torch.linspace(-1, 1, n)

    def settled(points: int, along: torch.Tensor, lifetime: float) -> demo_page.StateSpace:
        ends = torch.stack([along, 0.1 * along.square()], dim=-1)
        ends[points:] = ends[points - 1]
        return demo_page.StateSpace(Settling(torch.tensor([0, 1000]), torch.stack([ends + 1, ends])), lifetime)

    mixed = first[torch.randperm(n, generator=torch.Generator().manual_seed(0))]
    ends = [
        settled(before, mixed, 3.64),
        settled(warmed, mixed, lifetime),
        settled(trained, first if order else mixed, 5000),
    ]
    return demo_page.StateSpaces(first.tolist(), *ends)


def results_with(losses: dict[str, float], outcome: str) -> dict[str, Result]:
    course = {"outcome": outcome, "vaa": 0.5, "vaa_star": [[0.1]] * 5 + [[0.9]] * 10}
    return {
        config.version: Result(
            config, [], {"test_loss": losses[config.version]}, {}, course if config.kind.warmed else None
        )
        for config in configs()
    }


def test_the_sentences_say_what_the_numbers_say():
    good = demo_page.story(
        results_with({"classic": 0.99, "warmup": 0.001, "double": 0.2}, "multistable"), spaces_with(1, 18, 20, 1.0)
    )
    states, memory, learning, warmup = good
    assert "one constant input for 1,000 steps" in states
    assert "Before the warmup all its 20 states end at one point: whatever was read is forgotten." in states
    # The last of 18 different points has three of the 20 states: VAA does not count it as three.
    assert "After the warmup its 20 states end at 18 different points." in states
    assert "After training its 20 states end apart from each other." in states
    assert "in the order" in states
    assert memory.startswith(
        "After the warmup a small difference between two states lasts 3,000 steps, more than the 50 "
    )
    assert "a continuum" in memory
    assert "rather than separate attractors" in memory
    assert "classic network ends at a test loss of 0.99 and remembers nothing" in learning
    assert "warmed-up network ends at a test loss of 0.001 and remembers;" in learning
    assert "double-layer network ends at a test loss of 0.2 and remembers in part." in learning
    assert warmup.count("was 0.10 at its lowest and 0.90 in the last ten steps, for a target of 0.95.") == 2


def test_the_sentences_do_not_hide_a_failure():
    bad = demo_page.story(
        results_with({"classic": 0.01, "warmup": 1.2, "double": None}, "drifting"), spaces_with(3, 1, 1, 0.0)
    )
    states, memory, learning, warmup = bad
    assert "Before the warmup its 20 states end at 3 different points" in states
    assert "After the warmup all its 20 states end at one point" in states
    assert "in the order" not in states
    assert "continuum" not in memory
    assert "classic network ends at a test loss of 0.01 and remembers;" in learning
    assert "warmed-up network ends at a test loss of 1.2 and remembers nothing" in learning
    assert "double-layer network ends at a test loss of infinity and diverged" in learning
    assert warmup.count("not for ever") == 2
    results = results_with({"classic": 1.0, "warmup": 1.0, "double": 1.0}, "multistable")
    results["warmup"] = replace(results["warmup"], warmup={"outcome": "diverged", "reason": "a loss of infinity"})
    assert "warmup of the warmed-up network diverged" in demo_page.story(results, spaces_with(1, 1, 1, 0.0))[-1]


def test_states_that_soon_return_are_not_called_a_continuum():
    results = results_with({"classic": 1.0, "warmup": 1.0, "double": 1.0}, "multistable")
    memory = demo_page.story(results, spaces_with(1, 20, 20, 0.0, lifetime=14.0))[1]
    assert memory == "After the warmup a small difference between two states lasts 14 steps; the sequences have 50."


@pytest.mark.parametrize(
    ("lifetime", "said"), [(math.inf, "for ever"), (3659.3, "3,700 steps"), (3.64, "3.6 steps"), (0.0, "0 steps")]
)
def test_a_lifetime_is_told_to_two_digits(lifetime, said):
    assert demo_page.lasts(lifetime) == said


def test_one_vaa_is_told_of_each_network(out, text):
    """The table, the curve and the terminal have that of the run; the pictures of states tell points."""
    for config in tiny_configs():
        folder = RunFolder.of(config, out)
        found = {row["epoch"]: row["vaa"] for row in folder.metrics() if row.get("vaa") is not None}
        summary = folder.summary()["results"]
        assert (found[0], found[config.epochs]) == (summary["initial_vaa"], summary["final_vaa"])
    assert "attractors</figcaption>" not in text
    assert "true VAA" not in text


def test_the_recorded_seeds_are_of_the_present_settings_and_show_the_contrast():
    recorded = demo_page.other_seeds(configs()[1])
    assert recorded is not None, "the settings have changed: python benchmarks/demo_seeds.py"
    assert len(recorded["seeds"]) >= 5
    assert demo_page.other_seeds(replace(configs()[1], epochs=3)) is None
    here = recorded["seeds"].index(demo_module.SEED)
    assert recorded["test_loss"]["classic"][here] > 0.9
    assert recorded["test_loss"]["warmup"][here] < 0.05


def test_the_other_seeds_are_summed_up_in_words():
    recorded = {"test_loss": {"classic": [1.0, 0.9], "warmup": [0.01, 0.2], "double": [0.04, 0.001]}}
    words = demo_page.seeds_in_words(recorded)
    assert words.startswith("0 of the 2 classic networks, 1 of the 2 warmed up networks and 2 of the 2 double layer")
