"""The electrochemical battery cell of the paper's Case Study 1: parameters, equations, and the twin built from them."""
