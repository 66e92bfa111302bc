"""Tests of steelyard.language."""
