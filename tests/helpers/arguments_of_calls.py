"""Good and bad arguments for public functions, by the names of arguments.

An argument is written as Python in the words of :data:`WORDS`, so that every call that is found can be repeated as it
is printed. Each is known to be good or bad beforehand; of some, answer and refusal are both right.
"""

from collections import UserDict
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader

import multistable as ms
from networks import Leak, Leaky, LeakyStep, WithReadout


def own(**weights):
    """A network with other weights."""
    network = nn.GRU(2, 4)
    with torch.no_grad():
        for name, value in weights.items():
            getattr(network, name).fill_(value)
    return network


def frozen():
    return nn.GRU(2, 4).requires_grad_(False)


def sequences(*lengths, features=2):
    return [torch.randn(length, features) for length in lengths]


def twins():
    return ms.Ensemble([ms.RNN("gru", 2, 4) for _ in range(2)])


WORDS = {
    **{"ms": ms, "torch": torch, "nn": nn, "np": np, "Fraction": Fraction, "UserDict": UserDict},
    **{"pack_sequence": pack_sequence, "DataLoader": DataLoader, "inf": float("inf"), "nan": float("nan")},
    **{"Leak": Leak, "Leaky": Leaky, "LeakyStep": LeakyStep, "WithReadout": WithReadout},
    **{"own": own, "frozen": frozen, "sequences": sequences, "twins": twins},
}


@dataclass(frozen=True)
class Argument:
    """An argument as Python, and whether it is good; ``None`` where it may be accepted or refused."""

    text: str
    good: bool | None


@dataclass(frozen=True)
class Choices:
    """Arguments that are listed, good ones and the others, and strategies for these and for numbers beside them."""

    listed: tuple[list[Argument], list[Argument]]
    good: st.SearchStrategy[Argument]
    odd: st.SearchStrategy[Argument]


def choices(good, bad, either="", good_number=None, bad_number=None):
    """Choices among texts, which semicolons divide, and where numbers are wanted among numbers."""

    def listed(some, kind):
        return [Argument(text.strip(), kind) for text in some.split(";") if text.strip()]

    def among(known, number, kind):
        numbers = st.nothing() if number is None else number.map(lambda value: Argument(repr(value), kind))
        return st.sampled_from(known) | numbers

    both = listed(good, True), listed(bad, False) + listed(either, None)
    return Choices(both, among(both[0], good_number, True), among(both[1], bad_number, False))


def sizes(*good, or_none=False):
    """Numbers of something: as small as the bounded time of a call wants it, so ``None`` is never taken for good."""
    return choices(
        f"{'; '.join(map(str, good))}; np.int64({good[-1]}); torch.tensor({good[-1]})",
        f"{'' if or_none else 'None'}; True; '3'; nan; inf; [3]; torch.ones(2); 2.5; {{}}; object(); 3j",
        "2.0; np.array([2]); torch.tensor([2]); Fraction(2); np.float32(2)",
        bad_number=st.integers(max_value=0) | st.integers(min_value=2**63),
    )


POSITIVE = choices(
    "1; np.float32(0.1); Fraction(1, 10)",
    "0; nan; inf; None; 'small'; True; [0.1]; 1j; 10**400; {}; torch.ones(2)",
    "torch.tensor(0.1); np.array([0.1]); 5e-324; 1e300",
    good_number=st.floats(1e-6, 10),
    bad_number=st.floats(max_value=0),
)
TRUTH = choices("True; False; np.bool_(True)", "'no'; 0.5; None; []; 2; nan; torch.ones(2)", "0; 1; torch.tensor(True)")
GENERATOR = choices(
    "None; torch.Generator().manual_seed(3)",
    "42; 'seed'; [42]; np.random.default_rng(0); [torch.Generator() for _ in range(3)]; torch.Generator",
    "[torch.Generator()]; (torch.Generator(), torch.Generator()); []",
)
NO_NETWORKS = "None; 3; 'gru'; nn.GRU; ms.RNN; nn.Linear(2, 4); nn.Identity(); []; {}; object()"
RNN = choices(
    """
    nn.GRU(2, 4); nn.LSTM(2, 3, 2); nn.RNN(2, 4); nn.RNN(2, 4, nonlinearity='relu'); nn.GRU(2, 4).double();
    nn.GRU(2, 4, batch_first=True); nn.LSTM(2, 4, bias=False); nn.GRU(2, 4, 2, dropout=0.5); nn.GRU(2, 4).eval();
    nn.GRUCell(2, 4); nn.LSTMCell(2, 4); nn.RNNCell(2, 4); ms.MGU(2, 4); Leak(2, 4); own(weight_hh_l0=3);
    ms.RNN('lstm', 2, 4, 2); ms.RNN('brc', 2, 4, double=True); ms.RNN('nbrc', 2, 3, batch_first=True); twins();
    ms.RNN(('gru', 'lstm'), 2, 4, double=True); ms.RNN('chrono', 2, 4, t_max=9);
    Leaky(2, 4); LeakyStep(2, 4); WithReadout(2, 4)
    """,
    NO_NETWORKS,
    """
    nn.GRU(2, 4).bfloat16(); nn.GRU(2, 4).half(); nn.LSTM(2, 4, proj_size=2); nn.GRU(2, 4, bidirectional=True);
    own(bias_hh_l0=nan); own(weight_hh_l0=1e20); frozen(); nn.GRU(2, 4).to('meta'); nn.GRU(3, 4)
    """,
)
GOOD_SEQUENCES = """
    torch.randn(5, 6, 2); torch.randn(5, 6, 2).double(); torch.randn(5, 6, 2).requires_grad_(); torch.zeros(6, 6, 2);
    torch.randn(2, 6, 5).transpose(0, 2); torch.zeros(1, 1, 2).expand(5, 6, 2); [torch.randn(5, 6, 2)] * 2;
    sequences(3, 5, 1, 6, 2, 3); tuple(sequences(3, 5, 1, 6, 2, 3)); [s.numpy() for s in sequences(3, 5, 1, 4)];
    np.random.default_rng(0).random((5, 6, 2)); np.asfortranarray(np.ones((5, 6, 2)))[::-1];
    pack_sequence(sequences(3, 5, 2), enforce_sorted=False); DataLoader(torch.randn(8, 5, 2), batch_size=4);
    iter([torch.randn(5, 6, 2)]); (torch.randn(5, 6, 2) for _ in range(2))
    """
BAD_SEQUENCES = """
    3; 'text'; b'ab'; []; (); {}; set(); iter([]); range(5); object(); lambda: 3; nan; [None] * 6; [[]]; [1, 2];
    torch.full((5, 6, 2), nan); torch.full((5, 6, 2), -inf); torch.randn(5, 6, 3); torch.randn(5, 6, 0);
    torch.zeros(0, 6, 2); torch.zeros(5, 0, 2); torch.randn(5, 2); torch.tensor(3.0); torch.randn(2, 3, 4, 5, 2);
    sequences(3, 0, 2); [*sequences(3), *sequences(3, features=3)]; ['a', 'b']; [sequences(3)[0], None];
    np.full((5, 6, 2), 'a'); np.full((5, 6, 2), None); np.array(nan); {'x': torch.randn(5, 6, 2)};
    torch.randn(5, 6, 2, dtype=torch.complex64); np.ones((5, 6, 2), complex)
    """
ODD_SEQUENCES = """
    torch.ones(5, 6, 2, dtype=torch.int64); torch.rand(5, 6, 2) > 0.5; torch.randn(5, 6, 2).half(); sequences(3);
    torch.full((5, 6, 2), 1e300, dtype=torch.float64); torch.randn(5, 6, 2).to_sparse(); torch.randn(5, 2, 6, 2);
    torch.randn(5, 6, 2).to('meta'); (torch.randn(5, 6, 2), torch.tensor([5] * 6)); [(None,)]; UserDict();
    [[torch.randn(5, 6, 2), torch.zeros(6)]]; [(torch.randn(5, 6, 2), torch.zeros(6))]
    """
SEQUENCES = choices(GOOD_SEQUENCES, f"None; {BAD_SEQUENCES}", ODD_SEQUENCES)
SEQUENCES_OR_STATES = choices(GOOD_SEQUENCES, BAD_SEQUENCES, f"None; {ODD_SEQUENCES}")
STATES = choices(
    """
    torch.randn(4, 3); torch.randn(2, 4, 3); torch.zeros(4, 3); torch.randn(4, 3).requires_grad_(); torch.randn(1, 3);
    torch.randn(4, 3).double(); torch.randn(3, 4).T; torch.randn(0, 4, 3)
    """,
    """
    None; 3; 'x'; [[0.0]]; torch.randn(4); torch.zeros(0, 3); torch.full((4, 3), nan); nn.GRU(2, 4); np.ones((4, 3));
    torch.ones(4, 3, dtype=torch.int64); torch.randn(4, 3, dtype=torch.complex64)
    """,
    "torch.randn(4, 3).half(); torch.randn(4, 3).bfloat16(); torch.randn(4, 0); torch.randn(4, 3).to_sparse()",
)
# Whole states of the first networks: of others, with states of another size, they are refused.
STATES_TO_START_FROM = choices(
    "None",
    """
    3; 'x'; object(); {}; torch.zeros(4); torch.zeros(0, 4); torch.full((3, 4), nan); np.full((3, 4), 'a');
    torch.zeros(3, 4, dtype=torch.complex64); torch.zeros(2, 3, 4, 5); torch.zeros(3, 4).to('meta'); [[1], [1, 2]]
    """,
    """
    torch.randn(5, 4); torch.randn(1, 4); np.zeros((3, 4)); [[0.1, 0.2, 0.3, 0.4]] * 3; torch.randn(5, 3);
    torch.full((3, 4), 1e300, dtype=torch.float64); torch.randn(2, 5, 4); torch.zeros(3, 4).to_sparse()
    """,
)
INPUTS = choices(
    "'normal'; 'zero'; 'data'",
    """
    'other'; None; object(); {}; b'zero'; [[None]]; torch.zeros(3); torch.zeros(0, 2); torch.zeros(2, 2, 2);
    torch.tensor([nan, 0.0]); torch.zeros(2, dtype=torch.complex64); [[0.1, 0.2], [0.3]]; np.array(['a', 'b']); 3j
    """,
    """
    torch.zeros(2); torch.randn(1, 2); [0.5, -0.5]; np.zeros(2); torch.zeros(4, 2); 0.5; True; 'sequences';
    torch.full((2,), 1e300, dtype=torch.float64); torch.zeros(2).to('meta'); torch.zeros(2).to_sparse()
    """,
)
CELLS = choices(
    "ms.GRU(2, 4); ms.LSTM(2, 4); ms.BRC(2, 4); Leak(2, 4); ms.MGU(2, 4, device='cpu')",
    "None; 3; 'gru'; ms.GRU; nn.GRU(2, 4); ms.RNN('gru', 2, 4); []",
    "ms.GRU(3, 4); ms.GRU(2, 4, dtype=torch.float64)",
)

STRATEGIES = {
    "rnn": RNN,
    "advise.rnn": choices(
        """
        nn.GRU(2, 4); nn.LSTM(2, 4, 2).eval(); nn.GRU(2, 3, batch_first=True).double(); nn.GRUCell(2, 4); Leak(2, 4);
        ms.RNN('lstm', 2, 4, 2); ms.RNN('brc', 2, 4, double=True); Leaky(2, 4); nn.GRU(2, 4, bidirectional=True)
        """,
        f"{NO_NETWORKS}; twins()",
        "nn.GRU(2, 4).bfloat16(); own(bias_hh_l0=nan); own(weight_hh_l0=1e20); frozen(); nn.GRU(2, 4).to('meta')",
    ),
    # Whether a module is recurrent is seen by calling it, with inputs of a size that ``backends`` does not know.
    "backends.rnn": choices(
        "nn.GRU(2, 4); ms.RNN('lstm', 2, 4, 2); twins(); Leaky(2, 4)", "None; 3; 'gru'; nn.GRU; []", "nn.Linear(2, 4)"
    ),
    "sequences": SEQUENCES,
    **{f"{name}.sequences": SEQUENCES_OR_STATES for name in ("measure", "attractors", "lyapunov", "robustness")},
    "continuation.sequences": SEQUENCES_OR_STATES,
    "states": STATES_TO_START_FROM,
    **{f"{function}.states": STATES for function in ("vaa", "vaa_star")},
    "inputs": INPUTS,
    "exponents": sizes(1, 2, 3, or_none=True),
    "continuation.rnn": choices(
        "nn.GRU(2, 4); [nn.GRU(2, 4), nn.GRU(2, 4)]; ms.RNN('lstm', 2, 2); (Leak(2, 4),)",
        f"{NO_NETWORKS}; [None]; twins(); [twins()]; [nn.Linear(2, 4)]",
        "[nn.GRU(2, 4), nn.GRU(2, 3)]; nn.ModuleList([nn.GRU(2, 4)]); nn.GRU(2, 4).to('meta'); own(bias_hh_l0=nan)",
    ),
    "continuation.inputs": choices(
        "'zero'; torch.zeros(2); [0.5, -0.5]",
        "'other'; 'normal'; 'data'; None; object(); {}; torch.zeros(3); torch.zeros(0, 2); torch.tensor([nan, 0.0])",
        "torch.randn(2, 2); torch.zeros(2, 2, 2)",
    ),
    # In place of states, and refused beside them.
    "fixed_points.sequences": choices("None", BAD_SEQUENCES, f"{GOOD_SEQUENCES}; {ODD_SEQUENCES}"),
    "fixed_points.states": choices(
        "torch.randn(5, 4); torch.zeros(1, 4); np.zeros((3, 4)); [[0.1, 0.2, 0.3, 0.4]] * 3",
        """
        3; 'x'; object(); {}; torch.zeros(4); torch.zeros(0, 4); torch.full((3, 4), nan); torch.randn(5, 9);
        torch.zeros(3, 4, dtype=torch.complex64); torch.zeros(2, 3, 4, 5); torch.zeros(3, 4).to('meta')
        """,
        "None; torch.full((3, 4), 1e300, dtype=torch.float64); torch.randn(2, 5, 4); torch.zeros(3, 4).to_sparse()",
    ),
    "fixed_points.rnn": choices(
        """
        nn.GRU(2, 4); nn.RNN(2, 4); nn.GRU(2, 4, batch_first=True).double(); ms.RNN('lstm', 2, 2); nn.GRUCell(2, 4);
        ms.RNN('brc', 2, 4, double=True); Leak(2, 4); Leaky(2, 4); LeakyStep(2, 4); twins(); own(weight_hh_l0=3)
        """,
        NO_NETWORKS,
        """
        nn.GRU(2, 4).half(); nn.GRU(2, 3); nn.GRU(2, 4).to('meta'); own(bias_hh_l0=nan);
        nn.GRU(2, 2, bidirectional=True)
        """,
    ),
    "u": choices(
        "torch.zeros(2); torch.randn(1, 2); [0.5, -0.5]; np.zeros(2)",
        "'other'; 'normal'; None; object(); {}; torch.zeros(3); torch.zeros(2, 2); torch.tensor([nan, 0.0]); 3j",
        "'zero'; torch.zeros(1, 1, 2); torch.zeros(2).to('meta')",
    ),
    "slow": POSITIVE,
    "rounds": choices("0; 1; np.int64(2)", "-1; None; True; '3'; nan; [3]; 2.5; object()"),
    "iterations": sizes(1, 2, 30),
    **{name: sizes(1, 2, 3) for name in ("batches", "batch_size", "max_stabilisation", "increment", "steps")},
    **{name: sizes(1, 2, 30) for name in ("stabilisation", "longest")},
    **{name: sizes(1, 2, 3, 6) for name in ("input_size", "hidden_size", "num_layers")},
    "RNN.hidden_size": sizes(2, 4, 6),  # of double layers too
    "measure.batch_size": sizes(2, 3),  # the VAA of a single state is always 1
    "Keep.batch_size": sizes(2, 3),
    "warmup.batch_size": sizes(2, 3, or_none=True),
    "advise.steps": choices("0; 1; np.int64(2)", "-1; None; True; '3'; nan; inf; [3]; 2.5; {}; object(); 3j", "2.0"),
    "targets": choices(
        "None; torch.arange(6) % 2; torch.randn(6); [0, 1, 0, 1, 0, 1]; lambda batch: torch.zeros(6); np.ones(6)",
        "object(); 'labels'; {}; torch.zeros(5); nan; torch.tensor(3.0); 0.5; torch.zeros(6, dtype=torch.complex64)",
        "0; 1; torch.full((6,), nan); torch.zeros(6).to_sparse(); lambda batch: None",
    ),
    "loss": choices(
        "None; nn.functional.mse_loss; lambda output, target: output.sum()", "3; 'mse'; []; {}; torch.zeros(1)"
    ),
    "warmup.steps": sizes(1, 2, 3, or_none=True),
    **dict.fromkeys(("eps", "lr", "tolerance", "weight"), POSITIVE),
    "every": sizes(1, 2, 3),
    **dict.fromkeys(("double", "batch_first", "recurrent_bias", "bias", "bidirectional"), TRUTH),
    "robust": choices(
        "False",
        "None; 0; -0.1; nan; inf; '0.2'; [0.2]; {}; torch.ones(2)",
        "True; 0.1; np.float32(0.5); torch.tensor(0.1)",  # with algorithm="fast" and without a wanted VAA
    ),
    "noise": POSITIVE,
    "progress": choices("True; False; None", "'no'; 0.5; []; 2; nan; torch.ones(2)", "0; 1; torch.tensor(True)"),
    "dropout": choices(
        "0; 0.0; np.float32(0.5)", "-1; 2; nan; '0.5'; True; None; [0.5]; 1j; torch.ones(2)", "torch.tensor(0.5)"
    ),
    "part": choices("None", "3; 'nothing'; b''; []; nan"),
    "forward": choices("None", "3; 'forward'; []; {}", "lambda model, batch: None"),
    "minutes": choices(
        "None; 1; np.float32(0.5)", "0; -1; nan; inf; '1'; True; [1]; 1j; {}; torch.ones(2)", "torch.tensor(1.0)"
    ),
    "doubled.model": choices(
        """
        nn.LSTM(2, 4); nn.Sequential(nn.Linear(2, 2), nn.GRU(2, 4, 2, dropout=0.5)); nn.RNN(2, 4, bidirectional=True);
        ms.RNN('gru', 2, 4)
        """,
        f"""
        {NO_NETWORKS}; nn.GRU(2, 3); nn.LSTM(2, 4, proj_size=2); nn.GRUCell(2, 4); ms.RNN('chrono', 2, 4);
        ms.RNN('gru', 2, 4, double=True)
        """,
        "nn.GRU(2, 4).half(); nn.GRU(2, 4).to('meta')",
    ),
    "recurrent_parts.model": choices(
        "nn.GRU(2, 4, bidirectional=True); nn.Sequential(nn.Linear(2, 2), nn.LSTM(2, 4)); nn.Linear(2, 4); twins()",
        "None; 3; 'gru'; nn.GRU; []; {}; object()",
    ),
    "generator": GENERATOR,
    "device": choices("None; 'cpu'; torch.device('cpu')", "'gpu'; 2.5; []; ''; nan", "'meta'; 0; 'cuda:99'"),
    "dtype": choices(
        "None; torch.float32; torch.float64",
        "'float32'; 3; torch.int64; torch.bool; torch.complex64; np.float32; float",
        "torch.bfloat16; torch.float16",
    ),
    "target": choices(
        "0.95; 1; np.float64(0.9); torch.tensor(0.95)",
        "nan; 'high'; None; [[0.5]]; True; []; 1j; 10**400; torch.rand(4, 5); {}",
        "[0.95, 0.99]; (1,); 0; 1e-3",
        good_number=st.floats(0.5, 1),
        bad_number=st.floats(max_value=0, exclude_max=True) | st.floats(min_value=1, exclude_min=True),
    ),
    "algorithm": choices("'fast'; 'reliable'; 'paper'", "'other'; None; 3; ['paper']; b'paper'; {}"),
    "method": choices(
        "'warmup'; 'paper'; 'flossing'",
        "'other'; None; 3; ['paper']; b'paper'; {}",
        "'none'; 'chrono'; 'orthogonal'; 'identity'; 'uniform-gates'",
    ),
    "prepare.options": choices("{'steps': 1}; {'steps': np.int64(2)}", "{'nothing': 3}; {'steps': 0, 'nothing': 3}"),
    "optimiser": choices(
        "torch.optim.Adam; torch.optim.SGD; torch.optim.RMSprop; lambda p, lr: torch.optim.AdamW(p, lr)",
        "'adam'; None; 3; torch.optim.Adam([torch.zeros(1)]); len; lambda: 3; lambda p, lr: None; dict",
        "torch.optim.LBFGS",
    ),
    "on_step": choices("None; lambda step: None", "3; 'print'; []"),
    "cell": choices(
        "'gru'; 'lstm'; 'chrono'; 'mgu'; 'brc'; 'nbrc'; ms.LSTM; Leak; ['gru']",
        "'rnn'; ''; None; 3; nn.GRU; ms.GRU(2, 4); []; b'gru'; 'math:pi'; 'math:nothing'; {}",
        "('gru', 'lstm'); lambda i, h, **more: nn.GRU(i, h); lambda i, h, **more: ms.GRU(i, 5); ms.Cell",
    ),
    **dict.fromkeys(("check.cell", "warmed", "transient"), CELLS),
    "t_max": choices(
        "600; 2.5; np.float32(9); 2**31",
        "2; -1; nan; None; '9'; True; [9]; inf; 1j",
        "torch.tensor(9.0); 1e300; 10**400",
    ),
    "members": choices(
        """
        [ms.RNN('gru', 2, 4)]; [ms.RNN('lstm', 2, 4) for _ in range(3)]; (ms.RNN('gru', 2, 4, 2),) * 2;
        twins().unstack()
        """,
        """
        []; None; 3; 'ab'; [nn.GRU(2, 4)]; [ms.RNN('gru', 2, 4), ms.RNN('gru', 2, 5)]; ms.RNN('gru', 2, 4); twins();
        [None]; [ms.RNN]; [ms.GRU(2, 4)]; [ms.RNN('gru', 2, 4), ms.RNN('gru', 2, 4).double()]; {}
        """,
    ),
    "module": choices(
        """
        nn.GRU(2, 4); nn.LSTM(2, 4, 2); nn.RNN(2, 4, nonlinearity='relu'); nn.LSTM(2, 4, bias=False);
        nn.GRU(2, 4, batch_first=True).double(); nn.GRU(2, 4, 2, dropout=0.5).eval(); nn.GRU(2, 4, bidirectional=True)
        """,
        f"""
        {NO_NETWORKS}; nn.GRUCell(2, 4);
        ms.RNN('gru', 2, 4); nn.LSTM(2, 4, proj_size=2)
        """,
        "nn.GRU(2, 4).half(); nn.GRU(2, 4).to('meta')",
    ),
    "network": choices(
        "ms.RNN('gru', 2, 4); ms.RNN('lstm', 2, 4, 2); ms.RNN('chrono', 2, 4); ms.from_torch(nn.RNN(2, 4))",
        f"{NO_NETWORKS}; nn.GRU(2, 4); ms.RNN('brc', 2, 4); ms.RNN('gru', 2, 4, double=True); twins()",
        "ms.RNN('gru', 2, 4).half()",
    ),
    "precompile.network": choices(
        "ms.RNN('gru', 2, 4); ms.RNN('lstm', 2, 4, 2).eval(); twins(); ms.RNN('brc', 2, 4).requires_grad_(False)",
        f"{NO_NETWORKS}; nn.GRU(2, 4)",
        "ms.RNN('gru', 2, 4).half(); ms.RNN('gru', 3, 4)",
    ),
    "x": choices(
        "torch.randn(5, 6, 2); torch.randn(5, 1, 2).requires_grad_()",
        "None; 3; 'x'; []; {}; object(); np.ones((5, 6, 2)); torch.randn(5, 6, 7); torch.tensor(3.0)",
        """
        pack_sequence(sequences(3, 5, 2), enforce_sorted=False); torch.randn(5, 2); torch.randn(5, 2, 6, 2);
        torch.ones(5, 6, 2, dtype=torch.int64); torch.randn(5, 6, 2).double()
        """,
    ),
    "backend": choices("None; 'auto'; 'reference'; 'fused'", "'gpu'; 3; ['auto']; 'triton'; {}; True"),
    "precision": choices("None; 'ieee'; 'tf32'; 'tf32x3'", "'high'; 3; ['ieee']; {}; torch.float32"),
    "factory": choices(
        "{}; {'generator': torch.Generator()}; {'device': 'cpu'}; {'dtype': torch.float64}; {'device': None}",
        """
        {'nothing': 3}; {'generator': 42}; {'device': 'gpu'}; {'device': []}; {'dtype': 'float32'};
        {'dtype': torch.int64}; {'dtype': torch.complex64}; {'generator': [torch.Generator()]}
        """,
        "{'device': 'meta'}; {'dtype': torch.float16}; {'device': 'cuda:99'}",
    ),
    "options": choices("{}", "{'nothing': 3}", "{'t_max': 9}; {'recurrent_bias': True}"),
}
"""The arguments by name; ``function.name`` where a function has its own."""
