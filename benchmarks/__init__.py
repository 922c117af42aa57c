"""Benchmarks: dpsketch beside its peers, in one run, as ratios."""
