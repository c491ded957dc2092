"""The experiments of `twinfold bench`, one per file: the studies of the paper, its conjectures and its open questions.

Each file defines an `Experiment`: the jobs it needs, and an `analyse` function that turns their results into sentences,
tables and figures. `registry` lists them by name.
"""
