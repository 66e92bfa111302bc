"""What users write: programs, and the expressions over them."""
