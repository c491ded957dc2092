"""Parts of the experiment `numerics`; each has a function `analyse(store, quick, log)`.

`orbit` (projected adaptive solver), `stiff` (with `kinetics` and `large_steps`), `adaptive` (adaptive projection),
`algebraic` (implicit algebraic equations), `index` (with `friction_law` and `pendulum_peers`), `large` (many
constraints), `memory` (long horizons), `degenerate` (degenerate constraints and bounds).
"""
