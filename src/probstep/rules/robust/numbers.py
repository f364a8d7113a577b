"""The numbers of RobustRule beside its settings: every constant of its parts is made of these.

They are few on purpose. Each stands for one idea wherever it occurs, so that none can be fitted to
one training alone. What guards against overflow, and what ends a loop, is not among them.
"""

DOUBLE = 2.0  # the most by which one number moves anything: it may be wrong
TENTH = 0.1  # so small a part of something is little
HUNDREDTH = 0.01  # so small a part does no harm, and cannot be told from none
QUARTER = 0.25  # what is clearly less than the whole, but not little
TWENTIETH = 0.05  # between little and harmless: what fades within twenty steps, or begins to count
HALF_AGAIN = 1.5  # what is clearly more than the whole, but not twice as much
FEW = 3  # of something in a row, or of errors: no accident
RARE = 5  # of something in a row, or of deviations: what noise hardly ever does
LEAST_WEIGHT = 0.3  # of a probe, for what changes all the time; the root of the allowed doubt
NOISE = 0.4  # of what there is to gain, which noise may cost; 0.4 to 0.9 at the best fixed rates
HEAD_START = 30.0  # steps that are added to time: a training is taken to last at least so long
SETTLED = 1000  # steps, after which training has settled: forward passes are counted anew
