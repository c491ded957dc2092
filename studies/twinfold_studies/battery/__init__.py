"""Case Study 1, the battery: its protocols, models and scores.

Data: `cells`, and `fleet`, a synthetic one for machines without NASA's files. Models: `models`, and their `scores`.
Protocols: `paper`, `calibrate`, `conditions`, `transfer`, `efficiency`, `ageing` (with `lives`, `capacity`,
`monitoring` and `ageing_figures`), `life` (with `remaining`). Figures and timing: `showcase`, `figures`, `speed`.
"""
