"""Who runs programs: all particles at once, one by one, or one at a given trace."""
