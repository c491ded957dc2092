"""Numbers published in the paper, for comparison. Its data and settings are not public, so they are not the same."""

# MAE and DTW of Case Study 2.
CS2 = {
    "mass_spring": {"phrpinn_fast": (1.10e-2, 0.573), "pnode_fast": (5.54e-3, 0.602), "pinn": (8.77e-3, 0.960)},
    "lotka_volterra": {"phrpinn_fast": (6.87e-2, 1.38), "pnode_fast": (6.89e-3, 0.776), "pinn": (9.45e-3, 1.03)},
    "two_body": {"phrpinn_fast": (2.39e-1, 38.5), "pnode_fast": (2.22e-1, 32.1), "pinn": (2.94e-1, 30.0)},
    "nonlinear_spring": {"phrpinn_fast": (9.69e-2, 16.5), "pnode_fast": (3.34e-1, 57.7), "pinn": (1.18, 186.0)},
    "robot_arm": {"phrpinn_fast": (2.10e-3, 0.311), "pnode_fast": (5.17e-3, 0.764), "pinn": (1.63e-1, 18.9)},
    "rigid_body": {
        "phrpinn_fast": (1.86e-2, 0.828),
        "pnode_fast": (2.80e-2, 1.39),
        "pinn": (4.29e-2, 3.31),
        "hrpinn": (2.41e-2, None),
        "hrpinn_soft": (9.01e-2, None),
    },
}
# A tenth of the paper's best MAE: the target of PHRPINN robust under the protocol `best`.
TARGETS = {
    "mass_spring": 5e-4,
    "lotka_volterra": 6e-4,
    "two_body": 2e-2,
    "nonlinear_spring": 9e-3,
    "robot_arm": 2e-4,
    "rigid_body": 1e-3,
}
# Mean final training loss over 50 runs: PHRPINN, PNODE, PINN.
CONJECTURE1 = {
    "mass_spring": (1.23e-5, 3.07e-5, 5.49e-4),
    "lotka_volterra": (3.56e-3, 2.10e-2, 2.61e-1),
    "two_body": (9.55e-3, 5.62e-2, 4.48e-2),
    "nonlinear_spring": (None, None, 2.78e-2),
    "robot_arm": (5.64e-3, 1.03e-1, 1.48e-1),
    "rigid_body": (7.14e-5, 1.78e-4, 1.33e-2),
}


def paper_mae(system: str, model: str) -> float | None:
    """The MAE that the paper reports; None if it reports none (mostly for robust variants)."""
    numbers = CS2.get(system, {}).get(model)
    return None if numbers is None else numbers[0]
