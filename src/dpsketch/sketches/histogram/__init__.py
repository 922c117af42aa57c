"""Histograms: how often each key occurs, counted exactly and published by name."""
