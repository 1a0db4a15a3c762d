"""Certificates hold on random problems, against optima that SciPy finds on dense twins."""

import pytest

from certificates.chains import TargetProblem
from certificates.checks import check, draw
from certificates.hunt import hunt
from certificates.segments import SegmentProblem

N_PROBLEMS, N_SEGMENTS, N_TARGETS, N_SLICES, SLICE = 8, 3, 4, 40, 500
FOUND = {
    2351: "landmarks of two kernels grow",
    2839: "a centred label kernel has weights that change no score",
    2892: "float32 predictions round more than the fit",
    3023: "a sequence has no weight by its class",
    3901: "float32 rounding hides the small eigenvalues of the Hessian",
    4592: "only an empty sequence has weight",
    4850: "conjugate gradients find weights that change no score",
    5590: "labels are missing where nothing counts",
    8289: "rounding of weights moves the gradient, and the twin finds its optimum with difficulty",
    9905: "every input that counts is zero",
    10126: "sequences that count would be empty",
    13203: "float32 landmarks are close",
    13798: "every input of the fit before is zero",
    3656: "float32 marginals above 1 have large weights",
    7338: "no feature occurs in a sequence that counts",
    12835: "kernel values of 1e8 and scores of 1e4 round the Hessian",
}
"""Seeds of problems that broke a promise, of the library or of these checks, with what is special about them.

The last three take longest.
"""


@pytest.mark.parametrize("seed", range(N_PROBLEMS))
def test_a_certificate_holds(seed, tmp_path):
    problem = draw(seed)
    print(problem)
    check(problem, tmp_path)


@pytest.mark.parametrize("seed", range(N_SEGMENTS))
def test_a_certificate_of_segments_holds(seed, tmp_path):
    problem = SegmentProblem(seed)
    print(problem)
    check(problem, tmp_path)


@pytest.mark.parametrize("seed", range(N_TARGETS))
def test_a_certificate_of_soft_labels_or_weights_of_tokens_holds(seed, tmp_path):
    problem = TargetProblem(seed)
    print(problem)
    check(problem, tmp_path)


@pytest.mark.few(len(FOUND) - 3)
@pytest.mark.parametrize("seed", FOUND, ids=lambda seed: FOUND[seed])
def test_a_certificate_that_was_broken_holds(seed, tmp_path):
    problem = draw(seed, plain=True)
    print(problem)
    check(problem, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("slice_number", range(N_SLICES))
def test_no_certificate_of_a_slice_is_broken(slice_number):
    first = N_PROBLEMS + SLICE * slice_number
    tally, broken = hunt(range(first, first + SLICE))
    print(*(f"{kind} {status} {count}" for (kind, status), count in sorted(tally.items())), sep="\n")
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_no_certificate_of_many_soft_labels_or_weights_of_tokens_is_broken():
    tally, broken = hunt(range(N_TARGETS, N_TARGETS + SLICE), draw=TargetProblem)
    print(*(f"{kind} {status} {count}" for (kind, status), count in sorted(tally.items())), sep="\n")
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_no_certificate_of_many_segmentations_is_broken():
    tally, broken = hunt(range(N_SEGMENTS, N_SEGMENTS + SLICE), draw=SegmentProblem)
    print(*(f"{kind} {status} {count}" for (kind, status), count in sorted(tally.items())), sep="\n")
    assert not broken, "\n".join(broken)
