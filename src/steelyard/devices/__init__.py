"""Particles over several devices: how they are laid out, and what is sent where."""
