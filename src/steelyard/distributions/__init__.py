"""What is asked of distributions: draws, densities, supports, coordinates, and bijections of other libraries."""
