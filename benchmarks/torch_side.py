"""torchdiffeq's rk4, with the batch as one state, as it is usually run.

Its rk4 is the 3/8 rule rather than the classical method: four evaluations a step as well. Without a `step_size` it
steps from sample to sample and interpolates nothing, which is the least work that it can do here.
"""

import numpy as np
import torch
from torchdiffeq import odeint

from benchmarks.work import RATE, STATES, WIDTH, Task, Work


def rk4(work: Work, threads: int) -> Task:
    """One training step, through all operations of the solver (its adjoint method takes longer)."""
    torch.set_num_threads(threads)
    dtype = torch.float32 if work.x0.dtype == np.float32 else torch.float64
    network = torch.nn.Sequential(
        torch.nn.Linear(STATES, WIDTH),
        torch.nn.Tanh(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.Tanh(),
        torch.nn.Linear(WIDTH, STATES),
    ).to(dtype)
    given = [torch.from_numpy(array) for layer in work.weights for array in layer]
    with torch.no_grad():
        for parameter, array in zip(network.parameters(), given, strict=True):
            parameter.copy_(array)
    x0, ts, target = (torch.from_numpy(array) for array in (work.x0, work.ts, work.target))
    optimiser = torch.optim.Adam(network.parameters(), lr=RATE)

    def step() -> float:
        optimiser.zero_grad()
        xs = odeint(lambda t, x: network(x), x0, ts, method="rk4")
        assert isinstance(xs, torch.Tensor)
        loss = torch.mean((xs[1:].transpose(0, 1) - target) ** 2)
        loss.backward()
        optimiser.step()
        return loss.item()

    loss = step()
    gradient = torch.cat([p.grad.reshape(-1) for p in network.parameters() if p.grad is not None]).numpy().copy()
    return Task(step, None, loss, gradient, "the 3/8 rule")
