"""Checks of proper weighting, for steelyard's own tests and for yours."""

from steelyard.testing.checks import assert_properly_weighted as assert_properly_weighted
from steelyard.testing.checks import check_evidence as check_evidence
from steelyard.testing.enumeration import enumerate as enumerate
