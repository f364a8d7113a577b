"""How a picture is drawn: axes, shapes in pixels, and the two ways to write them."""
