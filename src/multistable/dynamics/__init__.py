"""A network as a dynamical system: what it is, how many attractors it reaches, and how it gets more of them."""
