"""Tests of steelyard.devices."""
