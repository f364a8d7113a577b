"""One step, as values that flow one way.

    arrival -> Batch -> adapt (Algorithm 1) or unprobed -> Outcome

`adapt.adapt` is the paper's Algorithm 1 in one function. docs/architecture.md shows the way of one step.
"""
