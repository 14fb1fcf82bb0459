"""The thin edges: each translates types and errors of one outside thing, and nothing else."""
