"""Tests of steelyard.semantics."""
