"""Trainers and loggers: each file is a leaf behind an extra of its own."""
