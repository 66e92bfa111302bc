"""Arrays only: weights, resampling, randomness, and maps from addresses to arrays."""
