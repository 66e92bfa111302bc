"""Tests of steelyard.estimates."""
