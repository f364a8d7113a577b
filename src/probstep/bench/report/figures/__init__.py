"""What each figure shows: cells in, panels of lines or tiles out."""
