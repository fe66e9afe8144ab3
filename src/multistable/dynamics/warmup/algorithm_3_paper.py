"""Algorithm 3 of the paper, to the letter."""

import torch
from torch import Tensor

from multistable.dynamics.measure.vaa_and_vaa_star import proxy
from multistable.dynamics.system.system import System
from multistable.dynamics.system.whole_states import States, at_time, flat
from multistable.dynamics.warmup.gradient_steps import Warming, check_finite, descend, gradients_of
from multistable.dynamics.warmup.history import WarmupStep


def paper_warmup(warming: Warming) -> None:
    """S gradient steps that move the layers' VAA* towards the target, in place."""
    for step in range(1, int(warming.limit.max()) + 1):
        system = warming.system.with_present_weights()
        states = warming.states(system)
        period = warming.draws.integer(min(warming.max_stabilisation, 1 + warming.increment * step))
        values = _layer_values(warming, system, states, period)
        loss = ((values - warming.goal.target.to(values)) ** 2).mean(dim=0)
        gradients = gradients_of(loss, warming)
        check_finite(loss, gradients, warming, step)
        descend(gradients, warming)
        warming.record(WarmupStep(step, values.detach().cpu(), loss.detach().cpu(), period))
        if warming.time_is_up():
            break


def _layer_values(warming: Warming, system: System, states: States, period: Tensor) -> Tensor:
    """v_i = VAA*(f^i, X, u) of each layer by itself, with a new u for each: ``(layers, ...)``."""
    values = []
    for index, (layer, state) in enumerate(zip(system.layers, states, strict=True)):
        u = system.constant_input(index, warming.draws)
        n = state[0][0].shape[-2]
        u = u.expand(int(period.max()), *system.leading, n, u.shape[-1])
        _, over_time = layer.warmable(u, layer.warmable_state(state))
        end = (period.to(system.device) - 1).unsqueeze(-1).expand(*system.leading, n)
        values.append(proxy(flat(at_time([over_time], end)), warming.eps))
    return torch.stack(values)
