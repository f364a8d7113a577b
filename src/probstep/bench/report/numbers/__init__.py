"""What the records say, as numbers: pure functions, no drawing and no text."""
