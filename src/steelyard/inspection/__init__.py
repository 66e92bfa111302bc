"""What people look at: trees of programs, remarks, dependencies, and evaluations in print."""

from steelyard.inspection import display as display
from steelyard.inspection import html as html
