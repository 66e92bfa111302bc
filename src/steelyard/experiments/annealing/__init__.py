"""Annealed variational inference: the paper's first experiment, Table 1."""
