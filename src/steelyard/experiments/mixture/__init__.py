"""The deep generative mixture of the paper (Program 1), small enough to be exact."""
