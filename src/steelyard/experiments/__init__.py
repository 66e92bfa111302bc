"""The experiments: each a model, a command that runs it, and figures. They use public names only."""
