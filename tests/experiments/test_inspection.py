"""Networks and sequences from files, and what is said about networks of which it is known."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from typer.testing import CliRunner

from multistable.cli import app
from multistable.experiments.checkpoints import network_of, sequences_of
from multistable.experiments.inspection import inspection
from networks import remembering_signs

QUESTIONS = [
    "How many things can it hold?",
    "For how long?",
    "Under which inputs?",
    "How robustly?",
    "What lies between?",
]


def said(rnn, **options):
    return dict(inspection(rnn, None, stabilisation=300, **options).answers)


def test_a_network_of_two_signs_holds_four_things():
    answers = said(remembering_signs())
    assert list(answers) == QUESTIONS
    assert answers[QUESTIONS[0]] == "4 different things while its input is zero."
    assert "after 1 step." in answers[QUESTIONS[1]]
    assert answers[QUESTIONS[2]].startswith("Under 10 random inputs that do not change it has 1 to ")
    assert "100% from 5%" in answers[QUESTIONS[3]]
    assert answers[QUESTIONS[4]] == "Beside 4 stable fixed points, 4 saddles and 1 repellor were found."


def test_a_network_that_forgets_is_told():
    torch.manual_seed(0)
    answers = said(nn.GRU(1, 8))
    assert "It forgets." in answers[QUESTIONS[0]]
    assert answers[QUESTIONS[1]].startswith("It fades: small differences are a third")
    assert answers[QUESTIONS[3]].startswith("There are no two attractors")
    assert answers[QUESTIONS[4]] == "Beside 1 stable fixed point, no saddles were found."


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("bias", [True, False])
def test_a_network_is_found_in_a_checkpoint_of_a_model(kind, bias, tmp_path):
    torch.manual_seed(0)
    model = nn.ModuleDict({"encoder": kind(3, 5, 2, bias=bias), "readout": nn.Linear(5, 1)})
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    torch.save({"state_dict": model.state_dict()}, tmp_path / "model.pt")
    for name in ("model.safetensors", "model.pt"):
        found = network_of(tmp_path / name)
        assert type(found) is kind
        x = torch.randn(4, 2, 3)
        assert torch.equal(found(x)[0], model["encoder"](x)[0])


def test_of_several_networks_one_is_chosen(tmp_path):
    model = nn.ModuleDict({"a": nn.GRU(1, 2), "b": nn.LSTM(1, 3)})
    torch.save(model.state_dict(), tmp_path / "model.pt")
    assert isinstance(network_of(tmp_path / "model.pt", "b"), nn.LSTM)
    with pytest.raises(ValueError, match=r"--part must choose one; found: 'a', 'b'"):
        network_of(tmp_path / "model.pt")
    with pytest.raises(ValueError, match=r"--part must choose one; found: 'a', 'b', got --part c$"):
        network_of(tmp_path / "model.pt", "c")


def test_what_is_no_network_of_this_kind_is_refused(tmp_path):
    torch.save(nn.GRU(1, 2, bidirectional=True).state_dict(), tmp_path / "both.pt")
    torch.save(nn.Linear(1, 2).state_dict(), tmp_path / "linear.pt")
    torch.save(nn.GRU(1, 2), tmp_path / "whole.pt")
    for name in ("text.pt", "text.safetensors"):
        (tmp_path / name).write_text("no weights")
    for name, message in (
        ("both.pt", "bidirectional"),
        ("linear.pt", "found: none"),
        ("whole.pt", r"^[^\n]* must be a state_dict, as .* write it, and it cannot be read[^\n]*$"),
        ("text.pt", "must be a state_dict"),
        ("text.safetensors", "must be a state_dict"),
        ("none.pt", "does not exist"),
    ):
        with pytest.raises(ValueError, match=message):
            network_of(tmp_path / name)


def test_sequences_are_read_from_each_kind_of_file(tmp_path):
    x = torch.randn(6, 4, 2)
    np.save(tmp_path / "x.npy", x.numpy())
    np.savez(tmp_path / "x.npz", x=x.numpy(), y=np.zeros(4))
    save_file({"x": x}, tmp_path / "x.safetensors")
    for name in ("x.npy", "x.npz", "x.safetensors"):
        assert torch.equal(sequences_of(tmp_path / name), x)
        assert torch.equal(sequences_of(tmp_path / name, batch_first=True), x.transpose(0, 1))
    np.save(tmp_path / "flat.npy", np.zeros((3, 4)))
    with pytest.raises(ValueError, match=r"one array of three dimensions, .* got array \(3, 4\)"):
        sequences_of(tmp_path / "flat.npy")
    for name in ("text.npy", "text.npz", "text.txt", "text.safetensors"):
        (tmp_path / name).write_text("no numbers")
        with pytest.raises(
            ValueError, match=rf"{name} must be a file of NumPy \(.npy, .npz\) or safetensors with numbers"
        ):
            sequences_of(tmp_path / name)


def test_the_command_prints_the_answers_and_writes_a_page(tmp_path):
    rnn = remembering_signs(1)
    torch.save(rnn.state_dict(), tmp_path / "signs.pt")
    np.save(tmp_path / "x.npy", torch.randn(9, 40, 1).numpy())
    page = tmp_path / "page.html"
    options = ["--data", str(tmp_path / "x.npy"), "--stabilisation", "200", "--out", str(page)]
    done = CliRunner().invoke(app, ["inspect", str(tmp_path / "signs.pt"), *options])
    assert done.exit_code == 0, done.output
    assert "2 different things while its input is zero." in done.stdout
    text = page.read_text()
    assert all(question in text for question in QUESTIONS)
    assert text.count("<svg") == 6
    assert "What signs.pt remembers" in text
    assert "random numbers" not in text
    other = CliRunner().invoke(app, ["inspect", str(tmp_path / "missing.pt")])
    assert other.exit_code != 0
    assert "does not exist" in " ".join(other.output.split())
