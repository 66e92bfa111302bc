"""Tests of steelyard.distributions."""
