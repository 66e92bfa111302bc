"""What JAX lacks, and knows nothing of particles: wide integers, and loops inside of `shard_map`."""
