"""Tests of steelyard.arrays."""
