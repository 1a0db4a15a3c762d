"""Certificates hold on random problems, against optima that SciPy finds on dense twins."""

import pytest

from certificates.checks import check, draw
from certificates.hunt import hunt

N_PROBLEMS, N_SLICES, SLICE = 300, 40, 500


@pytest.mark.parametrize("seed", range(N_PROBLEMS))
def test_a_certificate_holds(seed, tmp_path):
    problem = draw(seed)
    print(problem)
    check(problem, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("slice_number", range(N_SLICES))
def test_no_certificate_of_a_slice_is_broken(slice_number):
    first = N_PROBLEMS + SLICE * slice_number
    tally, broken = hunt(range(first, first + SLICE))
    print(*(f"{kind} {status} {count}" for (kind, status), count in sorted(tally.items())), sep="\n")
    assert not broken, "\n".join(broken)
