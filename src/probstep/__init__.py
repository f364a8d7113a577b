"""Wrap any torch optimizer, start from any learning rate, train once."""
