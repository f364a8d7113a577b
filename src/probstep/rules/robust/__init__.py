"""RobustRule: any initial rate, any momentum, few probes. Scalars in, a factor for the scale out.

`rule` has the settings. `losses` is what the loss of every step changes, `probes` what a probe changes,
and `due` says which steps are probed. They compose parts, each a small state and the functions that
change it; `limits` says what the parts together allow:

- `search` finds the order of magnitude of the rate on the first batch;
- `belief` averages what probes say about slope and curvature, and knows how sure that is;
- `bound` limits the scale by what the losses of all steps say is left to gain;
- `alarm` asks for a probe when a loss is surprisingly high, and sees that the loss has a new level;
- `setback` remembers the scale before steps had to be shortened, and when it may come back;
- `budget` is the account of forward passes.

Symbols of docs/algorithm.md; e = c * scale is the rate of a step (c: the schedule's multiplier), and
phi/e, |v|/e are slope and length of the step at rate 1. The *bend* of a step is 2 - r: curvature over
slope along it. It is proportional to the rate, and 1 where the step ends at the minimum along it.
"""
