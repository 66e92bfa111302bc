"""The evidence of models whose evidence is known."""
