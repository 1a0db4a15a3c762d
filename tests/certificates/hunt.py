"""Check many random problems and print a tally.

`python tests/certificates/hunt.py 300 1000` checks the problems of the seeds 300 to 999; -v tells of each find at once,
--segments draws problems of SegmentCRF, and --targets those of soft labels and weights of tokens.
"""

import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from certificates.chains import TargetProblem
from certificates.checks import check, draw
from certificates.segments import SegmentProblem


def hunt(seeds, *, loud=False, draw=draw):
    """Return how the fits ended, and a line for each problem that broke a promise.

    draw : a function that makes the problem of a seed.
    """
    tally, broken = Counter(), []
    for seed in seeds:
        problem = draw(seed)
        with tempfile.TemporaryDirectory() as folder:
            try:
                tally[type(problem).__name__, check(problem, Path(folder))] += 1
            except Exception as error:  # noqa: BLE001, RUF100 -- a hunt tells of everything and goes on
                tally[type(problem).__name__, "BROKEN"] += 1
                broken.append(f"{problem}\n    {type(error).__name__}: {str(error).strip()[:400]}")
                if loud:
                    traceback.print_exc()
                    print(broken[-1], flush=True)
    return tally, broken


if __name__ == "__main__":
    low, high = int(sys.argv[1]), int(sys.argv[2])
    start = time.perf_counter()
    kinds = {"--segments": SegmentProblem, "--targets": TargetProblem}
    drawn = next((kind for option, kind in kinds.items() if option in sys.argv), draw)
    tally, broken = hunt(range(low, high), loud="-v" in sys.argv, draw=drawn)
    for (kind, status), count in sorted(tally.items()):
        print(f"{kind:20} {status:12} {count}")
    print(f"{high - low} problems, {len(broken)} broken, {time.perf_counter() - start:.0f} s")
    print(*broken, sep="\n")
    sys.exit(bool(broken))
