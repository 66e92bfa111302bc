"""What makes programs fast, and changes no result."""
