"""How a figure of the report is drawn: what it says, its colours, and where all of it goes."""
