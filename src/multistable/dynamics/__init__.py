"""A network as a dynamical system: what it is, how many attractors it reaches, and how it gets more of them.

Where each part of the paper is:

| in the paper | file |
|---|---|
| x_t = f(x_{t-1}, u_t), layer by layer | ``system/system.py`` |
| VAA (eq. practical_vaa) and VAA* (eq. vaa_star) | ``measure/vaa_and_vaa_star.py`` |
| f^M(x, u), the stabilisation period | ``measure/stabilisation.py`` |
| Algorithm 1, the measure of VAA | ``measure/algorithm_1_measure.py`` |
| Algorithm 2, reachable states | ``measure/algorithm_2_reachable_states.py`` |
| Algorithm 3, the warmup | ``warmup/algorithm_3_paper.py`` |

Not in the paper: the default warmup (``warmup/default.py``), a wanted VAA (``warmup/wanted_vaa.py``), how both are
verified (``warmup/verification.py``), and what settled states do (``measure/fixed_points_and_cycles.py`` and
``measure/lyapunov_exponents.py``).
"""
