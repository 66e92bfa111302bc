"""Tests of steelyard.compiler."""
