"""The parts of the experiment `numerics`: each shows one thing that a good solver can do and a projection must keep."""
