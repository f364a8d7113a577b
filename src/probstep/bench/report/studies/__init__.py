"""Pages of the documentation that records make: one study a module."""
