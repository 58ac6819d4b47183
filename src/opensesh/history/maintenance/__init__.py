"""Checks, repairs and disk usage of stores."""
