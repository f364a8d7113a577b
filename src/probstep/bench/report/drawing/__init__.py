"""How a figure is drawn: axes, colours, a layout, and the two ways to write it."""
