"""Tests of steelyard."""
