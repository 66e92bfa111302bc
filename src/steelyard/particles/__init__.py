"""Arrays only: log weights, and which particle takes which ancestor."""
