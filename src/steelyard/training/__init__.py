"""Training: gradient steps in compiled chunks, with progress, checkpoints and a history."""
