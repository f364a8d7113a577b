import pytest

from probstep.bench.plans import add_source, read_source

from .bench_cases import TINY


@pytest.fixture(scope="session")
def tiny():
    """The tiny problems are in the tables; this is how workers get them."""
    source = read_source(TINY)
    add_source(source)
    return source
