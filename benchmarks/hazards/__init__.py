"""About a hundred unusual trainings, and ordinary ones, that a rule for the rate must survive.

    python -m benchmarks.hazards run --ways ours,plain --half tuning --out runs/hazards.jsonl
    python -m benchmarks.hazards summary --records runs/hazards.jsonl
    python -m benchmarks.hazards trace batch-1-adam ours

The files, from the bottom up: `hazard` (what a row and a training are), `data` and `nets`, the rows
(`changing`, `batches`, `flat`, `objectives`, `models`, `practice`, and `ordinary`), `table` (all
rows), `ways` (how a row can be trained), `training` (one run), `records`, `runner`, `summary`.
"""
