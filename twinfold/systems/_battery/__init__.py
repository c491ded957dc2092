"""The electrochemical cell of the paper's Case Study 1: parameters, equations, and the twin made of them."""
