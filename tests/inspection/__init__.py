"""Tests of steelyard.inspection."""
