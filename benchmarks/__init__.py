"""Figures, as ratios within one run. See README.md beside this file."""
