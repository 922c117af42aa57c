"""Histograms: which keys there are and how often each occurs, with their names published."""
