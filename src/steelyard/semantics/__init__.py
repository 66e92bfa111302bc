"""What programs mean: the rules of evaluation, and the engines that run them."""
