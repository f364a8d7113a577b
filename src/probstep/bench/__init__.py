"""The bench: problems, methods, plans, runs, records and reports (extra `bench`)."""
