"""What programs mean: the rules of evaluation, their side conditions, and what they ask of an engine."""
