"""Pictures of a run: found in an optimizer or a checkpoint, laid out, written as PNG or as a page."""
