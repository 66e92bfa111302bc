"""Tests of steelyard.particles."""
