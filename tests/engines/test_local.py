import contextlib
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from kernelcrf.engines.local import LocalEngine
from trials import interruption
from trials.blas import blas_threads


@pytest.mark.parametrize("n_jobs", [1, 2, 5, -1])
def test_results_come_in_the_order_of_the_items(n_jobs):
    items = list(range(37))
    costs = np.random.default_rng(0).random(37)
    assert LocalEngine(n_jobs).map(lambda k: k * k, items, costs) == [k * k for k in items]
    assert LocalEngine(n_jobs).map(lambda k: k, []) == []


def test_costly_items_start_first():
    started = []
    barrier = threading.Barrier(2)

    def work(k):
        started.append(k)
        if len(started) <= 2:
            barrier.wait(timeout=10)

    LocalEngine(2).map(work, [0, 1, 2, 3], costs=[1.0, 9.0, 2.0, 8.0])
    assert set(started[:2]) == {1, 3}


@pytest.mark.usefixtures("two_threads_of_blas")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_keeps_to_one_thread_inside_and_gets_its_threads_back(n_jobs):
    before = blas_threads()
    assert set(before) == {2}
    inside = LocalEngine(n_jobs).map(lambda _: blas_threads(), range(3))
    assert inside == [[1] * len(before)] * 3
    assert blas_threads() == before


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_a_task_is_the_callers_error(n_jobs):
    def fail(k):
        if k == 3:
            raise RuntimeError("task 3")
        return k

    with pytest.raises(RuntimeError, match="task 3"):
        LocalEngine(n_jobs).map(fail, range(8))


def test_maps_of_few_and_of_many_items_share_their_threads():
    code = (
        "import threading\n"
        "from kernelcrf.engines.local import LocalEngine\n"
        "for count in (2, 3, 9):\n"
        "    LocalEngine(4).map(lambda k: k, range(count))\n"
        "print(threading.active_count())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 4


def test_a_map_inside_a_map_runs_in_its_own_thread():
    def outer(k):
        inside = LocalEngine(2).map(lambda _: threading.get_ident(), range(3))
        return set(inside) == {threading.get_ident()}, k

    assert LocalEngine(2).map(outer, range(4)) == [(True, k) for k in range(4)]


def test_maps_from_many_threads_share_the_pool_and_all_finish():
    results = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: LocalEngine(2).map(lambda k: k + n, range(50))}))
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [k + n for k in range(50)] for n in range(8)}


@pytest.mark.skipif(sys.platform != "linux", reason="fork is missing on Windows, unsafe on macOS")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_maps_with_threads_of_its_own():
    LocalEngine(2).map(lambda k: k, range(4))
    pid = os.fork()
    if pid == 0:
        os._exit(0 if LocalEngine(2).map(lambda k: k * k, range(4)) == [0, 1, 4, 9] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


@pytest.mark.parametrize("n_jobs", [0, -2])
def test_a_wrong_number_of_jobs_is_named(n_jobs):
    with pytest.raises(ValueError, match=f"n_jobs={n_jobs}.*expected"):
        LocalEngine(n_jobs)


@pytest.mark.parametrize("count", [1, 5, 64, 65, 1000])
def test_a_sum_has_the_same_bits_whatever_the_threads(count):
    values = np.random.default_rng(count).normal(size=count)
    totals = []
    for n_jobs in (1, 2, 5):
        total, kept = LocalEngine(n_jobs).reduce(lambda k: (values[k], k), range(count), list(values**2))
        assert kept == list(range(count))
        totals.append(total)
    assert totals[0] == totals[1] == totals[2]
    assert totals[0] == pytest.approx(values.sum())


def test_a_sum_of_nothing_is_refused():
    with pytest.raises(ValueError, match="items is empty"):
        LocalEngine(1).reduce(lambda k: (k, k), [])


@pytest.mark.usefixtures("two_threads_of_blas")
def test_limits_of_many_threads_are_taken_back():
    """Maps that overlap, the first to begin ending first: BLAS has its threads again after the last."""
    before, barrier = blas_threads(), threading.Barrier(2)
    seen = []

    def first():
        LocalEngine().map(lambda _: (barrier.wait(10), barrier.wait(10)), [0])
        seen.append(blas_threads())
        barrier.wait(10)

    def second():
        barrier.wait(10)
        LocalEngine().map(lambda _: (barrier.wait(10), barrier.wait(10)), [0])

    threads = [threading.Thread(target=work) for work in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [[1] * len(before)]
    assert blas_threads() == [2] * len(before)


def test_settings_of_numpy_hold_in_all_threads():
    with np.errstate(over="ignore"):
        found = LocalEngine(4).map(lambda _: np.geterr()["over"], range(40))
    assert set(found) == {"ignore"}


@pytest.mark.usefixtures("two_threads_of_blas")
def test_interrupted_at_every_line_the_engine_is_idle_again():
    """Even in the last lines of a map, which put things back."""
    threads = blas_threads()
    assert set(threads) == {2}
    with interruption.At(None, KeyboardInterrupt, "engines/local.py") as counted:
        LocalEngine(2).map(lambda k: k, range(3))
    assert counted.lines > 20
    for k in range(1, counted.lines + 1):
        with contextlib.suppress(KeyboardInterrupt), interruption.At(k, KeyboardInterrupt, "engines/local.py"):
            LocalEngine(2).map(lambda k: k, range(3))
        assert interruption.idle(), k
        assert blas_threads() == threads, k
        assert LocalEngine(2).map(lambda k: k, range(3)) == [0, 1, 2]
