"""The laboratory of twinfold: the experiments behind `results/`, which use the public interface of the library only.

- `systems`: benchmark systems and their reference solutions
- `bench`: the machinery of the comparison (models, jobs, queue, store, tables, figures, demonstration)
- `experiments`: the experiments of `twinfold bench`
- `numerics`: parts of the experiment `numerics`
- `battery`: protocols of the battery experiment
- `fleet`: parts of the experiment `fleet`
- `nasa`: NASA's battery measurements
- `cli`: the commands that this package adds to `twinfold`
"""
