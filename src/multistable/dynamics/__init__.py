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
verified (``warmup/verification.py``), and what settled states do:

| question | file |
|---|---|
| at rest, on a cycle, or still moving? | ``measure/fixed_points_and_cycles.py`` |
| at which attractor, also under other inputs? | ``measure/named_attractors.py``, ``measure/labels.py`` |
| the same along a path, or over networks | ``measure/course_of_attractors.py`` |
| what do they remember, and what does it survive? | ``measure/memory.py`` |
| where are all fixed points? | ``measure/search_fixed_points.py``, by the search in ``measure/newton.py`` |
| with which derivatives? | ``system/step.py``, from the weights in ``system/derivatives.py`` |
| how fast do differences shrink? | ``measure/lyapunov_exponents.py`` |
| pictures of all these | ``measure/plots.py`` |
"""
