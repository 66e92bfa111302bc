"""Markov kernels, tempering and transport."""
