"""The report: reads records and nothing else, makes one page and its figures."""

from probstep.bench.report.build import Report as Report
from probstep.bench.report.build import make_report as make_report
