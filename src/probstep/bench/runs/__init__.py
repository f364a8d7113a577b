"""Runs made and recorded: the training loop, who does the work, and who writes it down."""
