"""Tests of steelyard.testing."""
