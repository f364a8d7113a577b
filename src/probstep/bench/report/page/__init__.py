"""The page: its tables, its sentences, its HTML, its script and style."""
