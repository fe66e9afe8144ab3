"""What is global, and must be as before after every call."""

import random

import numpy as np
import torch


def global_state():
    """Everything global that a call could disturb."""
    backends = torch.backends
    return {
        "torch random": torch.get_rng_state().tolist(),
        "numpy random": [getattr(part, "tolist", lambda part=part: part)() for part in np.random.get_state()],  # noqa: NPY002
        "python random": random.getstate(),
        "cudnn": (backends.cudnn.enabled, backends.cudnn.benchmark, backends.cudnn.deterministic),
        "precision": (
            torch.get_float32_matmul_precision(),
            backends.cuda.matmul.fp32_precision,
            backends.mkldnn.matmul.fp32_precision,
            backends.cudnn.rnn.fp32_precision,
        ),
        "defaults": (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()),
        "determinism": torch.are_deterministic_algorithms_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
    }
