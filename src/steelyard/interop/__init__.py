"""Programs of other libraries as programs here, and the other way round."""
