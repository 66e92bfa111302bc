"""Unsupervised tracking of several objects with amortized population Gibbs: the paper's second experiment."""
