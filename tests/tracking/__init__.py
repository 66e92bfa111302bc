"""The paper's second experiment."""
