"""Rivals of ProbStep, re-implemented: one paper, one file."""
