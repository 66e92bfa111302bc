"""Tests of steelyard.engines."""
