"""Where the work is done: in this process, in local processes, on a Ray cluster.

A backend is one function. It asks for jobs, has workers do them, and passes on what they say; it
knows neither runs nor records. A worker only computes: whoever reads the events does the writing.
"""

from probstep.bench.runs.backends import processes, ray, serial
from probstep.bench.runs.backends.event import Backend as Backend
from probstep.bench.runs.backends.event import Event as Event
from probstep.bench.runs.backends.event import Workers as Workers

BACKENDS: dict[str, Backend] = {
    "serial": serial.do_jobs,
    "processes": processes.do_jobs,
    "ray": ray.do_jobs,
}
