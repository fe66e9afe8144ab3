"""Every kind of network that the measures take, small and in float64, with a plain way to run it step by step."""

import math

import torch
from torch import nn

import multistable as ms


class Leaky(nn.Module):
    """A leaky tanh network of the user's own that takes whole sequences; its state is (n, hidden)."""

    def __init__(self, input_size, hidden_size, batch_first=False, leak=0.5):
        super().__init__()
        self.input = nn.Linear(input_size, hidden_size)
        self.recurrent = nn.Linear(hidden_size, hidden_size, bias=False)
        self.dropout = nn.Dropout(0.5)
        self.hidden_size, self.batch_first, self.leak = hidden_size, batch_first, leak

    def step(self, u, h):
        return (1 - self.leak) * h + self.leak * torch.tanh(self.input(u) + self.dropout(self.recurrent(h)))

    def forward(self, x, state=None):
        x = x.transpose(0, 1) if self.batch_first else x
        h = x.new_zeros(x.shape[1], self.hidden_size) if state is None else state
        outputs = []
        for u in x:
            h = self.step(u, h)
            outputs.append(h)
        output = torch.stack(outputs)
        return (output.transpose(0, 1) if self.batch_first else output), h


class LeakyStep(Leaky):
    """The same network, called with single steps (n, features)."""

    def forward(self, u, state=None):
        h = u.new_zeros(*u.shape[:-1], self.hidden_size) if state is None else state
        h = self.step(u, h)
        return h, h


class WithReadout(nn.Module):
    """A torch.nn.LSTM and a readout, called as (input, state) -> (prediction, state); its state is a pair (1, n, H)."""

    def __init__(self, input_size, hidden_size):
        super().__init__()
        self.rnn = nn.LSTM(input_size, hidden_size)
        self.readout = nn.Linear(hidden_size, 1)

    def forward(self, x, state=None):
        h, state = self.rnn(x, state)
        return self.readout(h), state


class Leak(ms.Cell):
    """A cell of the user's own."""

    from multistable.cells.base import Hidden as State

    def __init__(self, input_size, hidden_size, generator=None, **factory):
        super().__init__(input_size, hidden_size)
        self.input_weight = nn.Parameter(torch.randn(input_size, hidden_size, generator=generator, **factory))
        self.bias = nn.Parameter(torch.zeros(hidden_size, **factory))

    def step(self, projected, state):
        return self.State(0.5 * state.h + 0.5 * torch.tanh(projected))


def at_rest_and_restless(generator):
    """Two LSTMs: one whose states settle, and one whose large weights keep them moving."""
    members = [ms.RNN("lstm", 1, 24, generator=generator(seed)) for seed in (0, 1)]
    with torch.no_grad():
        for parameter in members[1].parameters():
            parameter.mul_(20)
    return members


FEATURES = 2

KINDS = {
    "torch.nn.RNN": lambda: nn.RNN(FEATURES, 5),
    "torch.nn.RNN relu": lambda: nn.RNN(FEATURES, 5, nonlinearity="relu"),
    "torch.nn.GRU": lambda: nn.GRU(FEATURES, 5),
    "torch.nn.LSTM": lambda: nn.LSTM(FEATURES, 5),
    "stacked torch.nn.GRU": lambda: nn.GRU(FEATURES, 5, 3, dropout=0.5),
    "batch-first torch.nn.LSTM without bias": lambda: nn.LSTM(FEATURES, 4, 2, batch_first=True, bias=False),
    "torch.nn.RNNCell": lambda: nn.RNNCell(FEATURES, 5),
    "torch.nn.GRUCell": lambda: nn.GRUCell(FEATURES, 5),
    "torch.nn.LSTMCell": lambda: nn.LSTMCell(FEATURES, 5),
    "ms.Cell": lambda: ms.GRU(FEATURES, 5),
    "the user's ms.Cell": lambda: Leak(FEATURES, 5),
    "module of sequences": lambda: Leaky(FEATURES, 5),
    "batch-first module of sequences": lambda: Leaky(FEATURES, 5, batch_first=True),
    "module of steps": lambda: LeakyStep(FEATURES, 5),
    "module with readout": lambda: WithReadout(FEATURES, 5),
    **{f"ms.RNN {cell}": lambda cell=cell: ms.RNN(cell, FEATURES, 6, 2) for cell in ms.CELLS},
    **{f"double ms.RNN {cell}": lambda cell=cell: ms.RNN(cell, FEATURES, 6, 2, double=True) for cell in ms.CELLS},
    "mixed double ms.RNN": lambda: ms.RNN(("gru", "lstm"), FEATURES, 6, double=True, batch_first=True),
}

# One kind for each way in which a network is taken; the cells of ``ms.RNN`` differ in their equations alone.
FORMS = [kind for kind in KINDS if "ms.RNN " not in kind] + ["ms.RNN lstm", "ms.RNN brc", "double ms.RNN gru"]
FEW_FORMS = ["stacked torch.nn.GRU", "torch.nn.LSTMCell", "the user's ms.Cell", "module of steps", "double ms.RNN gru"]


def make(kind, seed=0):
    """A network of this kind in float64, in training mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return KINDS[kind]().double()


def in_layout(rnn, x):
    """Inputs (time, n, features) in the layout of this network."""
    return x.transpose(0, 1) if getattr(rnn, "batch_first", False) else x


def state_after(rnn, u):
    """The whole state, a vector, after one sequence (time, features), through the network's own forward alone."""
    state = None
    rnn.eval()
    for u_t in u:
        if isinstance(rnn, nn.RNNCellBase):
            state = rnn(u_t.unsqueeze(0), state)
        elif isinstance(rnn, ms.Cell | LeakyStep):
            _, state = rnn(u_t.unsqueeze(0), state)
        else:
            _, state = rnn(in_layout(rnn, u_t.reshape(1, 1, -1)), state)
    rnn.train()
    fields = (state,) if isinstance(state, torch.Tensor) else tuple(state)
    if isinstance(rnn, nn.RNNBase) or (isinstance(rnn, ms.RNN) and not isinstance(rnn.layers[0], ms.Double)):
        return torch.cat([field[layer, 0] for layer in range(len(fields[0])) for field in fields])
    if isinstance(rnn, ms.RNN):
        return torch.cat([x[0] for layer in rnn.unpack_state(state) for cell in layer for x in cell])
    return torch.cat([field.reshape(-1) for field in fields])


def remembering(units=12):
    """A BRC of units that see one input each and remember its sign."""
    rnn = ms.RNN("brc", units, units)
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
        rnn.layers[0].cell.input_weight[:, 2 * units :] = 1e-3 * torch.eye(units)
        rnn.layers[0].cell.bias[units : 2 * units] = math.atanh(0.8)
    return rnn


def remembering_signs(units=2):
    """A ``torch.nn.RNN`` of units that each remember the sign of their input: 2^units attractors, 3^units points."""
    rnn = nn.RNN(units, units, bias=False)
    with torch.no_grad():
        rnn.weight_ih_l0.copy_(torch.eye(units))
        rnn.weight_hh_l0.copy_(2 * torch.eye(units))
    return rnn
