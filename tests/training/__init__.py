"""Tests of steelyard.training."""
