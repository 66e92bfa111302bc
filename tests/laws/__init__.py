"""The laws of the language: proper weighting by exact enumeration, and equations between programs."""
