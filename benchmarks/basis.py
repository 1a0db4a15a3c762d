"""What the pivot rules leave and cost, on the letters data: quality, speed and memory of a basis.

    KERNELCRF_DATA=... python benchmarks/basis.py              all but memory; about four minutes
    python benchmarks/basis.py --memory                        1,000,000 x 64 float32 inputs, n = 500

Prints tables for docs/basis.md and writes docs/figures/basis.png and basis.json. The optimum is the sum of the
trailing eigenvalues of the whole kernel matrix, which only a benchmark forms.
"""

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import scipy
import scipy.linalg
import sklearn
from scipy.linalg import blas
from scipy.optimize import minimize
from threadpoolctl import threadpool_info

import kernelcrf
from kernelcrf.basis.choice import choose_basis
from kernelcrf.basis.distinct import distinct
from kernelcrf.basis.features import make_features
from kernelcrf.basis.pivots import Random
from kernelcrf.engines.local import LocalEngine
from kernelcrf.kernels.inputs import InputKernel

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
SIZES = (250, 500, 1000, 2000)
RULES = ("greedy", "random", "uniform", "kmeans", "lloyd")
ENGINE = LocalEngine(-1)
RBF = InputKernel("rbf", gamma=0.03)


def letters(count=10_000):
    folder = os.environ.get("KERNELCRF_DATA")
    if not folder:
        sys.exit("KERNELCRF_DATA is not set: expected the folder that holds letters_ocr/letters.npz")
    packed = np.load(Path(folder) / "letters_ocr" / "letters.npz")["pixels_packed"]
    return distinct(np.unpackbits(packed, axis=1).astype(np.float64)).inputs[:count]


def environment():
    threads = max(library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas")
    return {
        "kernelcrf": kernelcrf.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "python": platform.python_version(),
        "threads": ENGINE.n_threads,
        "blas threads": threads,
    }


def seconds(function):
    start = time.perf_counter()
    result = function()
    return time.perf_counter() - start, result


def quality(X, sizes, optimum):
    """Residual of each rule over the optimum, and its time: means over three seeds (one for kmeans)."""
    rows = []
    print(f"\nresidual / optimum (seconds)   U = {len(X)}, rbf gamma = 0.03, float64")
    print("n      optimum/trace " + "".join(f"{rule:>16}" for rule in RULES))
    for n in sizes:
        cells = []
        for rule in RULES:
            seeds = range(1) if rule in ("kmeans", "greedy") else range(3)
            runs = [
                seconds(lambda n=n, rule=rule, s=s: choose_basis(RBF, X, n, rule, random_state=s, engine=ENGINE))
                for s in seeds
            ]
            took = float(np.median([t for t, _ in runs]))
            left = float(np.mean([basis.residual.sum() for _, basis in runs]))
            rows.append({"n": n, "rule": rule, "seconds": took, "residual": left / len(X), "ratio": left / optimum[n]})
            cells.append(f"{left / optimum[n]:.2f}x ({took:5.2f} s)")
        print(f"{n:<6} {optimum[n] / len(X):<13.4f} " + "".join(f"{cell:>16}" for cell in cells), flush=True)
    return rows


def one_at_a_time(X, n, rng):
    """Randomly pivoted Cholesky by the book: a column, a product with a vector, an update."""
    F, d, squares = np.zeros((len(X), n), order="F"), np.ones(len(X)), np.einsum("ij,ij->i", X, X)
    for k in range(n):
        i = rng.choice(len(X), p=d / d.sum())
        column = np.exp(-RBF.gamma * (squares + squares[i] - 2 * (X @ X[i]))) - F[:, :k] @ F[i, :k]
        F[:, k] = column / np.sqrt(column[i])
        d = np.maximum(d - F[:, k] ** 2, 0.0)
        d[i] = 0.0
    return d.sum()


def speed(X, n=1000, repeats=5):
    """Accelerated pivots, pivots one at a time, and the BLAS work that no rule avoids, in turns; best of each."""
    rng = np.random.default_rng(0)
    B = X[rng.choice(len(X), n, replace=False)]
    R = np.asfortranarray(np.linalg.cholesky(RBF.gram(B)))
    times = {"accelerated": [], "gram": [], "triangular": [], "one at a time": []}
    for repeat in range(repeats):
        t, _ = seconds(lambda s=repeat: choose_basis(RBF, X, n, Random(), random_state=s, engine=ENGINE))
        times["accelerated"].append(t)
        t, G = seconds(lambda: RBF.gram(X, B))
        times["gram"].append(t)
        t, _ = seconds(lambda G=G: blas.dtrmm(1.0, R, G.T, lower=1, overwrite_b=1))
        times["triangular"].append(t)
        if repeat < 2:
            times["one at a time"].append(seconds(lambda: one_at_a_time(X, n, rng))[0])
    best = {name: min(values) for name, values in times.items()}
    bare = best["gram"] + best["triangular"]
    best |= {
        "bare": bare,
        "one at a time / accelerated": best["one at a time"] / best["accelerated"],
        "accelerated / bare": best["accelerated"] / bare,
    }
    print(f"\nspeed at n = {n}, best of {repeats} (one at a time: of 2)")
    for name, value in best.items():
        print(f"  {name:<28} {value:6.2f}" + ("x" if "/" in name else " s"))
    return best


def clusters(rng):
    """Other shapes of data, where the start and the last atoms of a rule matter."""
    centres = rng.normal(size=(3000, 32))
    crowd = np.vstack([0.3 * rng.normal(size=(19_000, 6)), np.repeat(5 * rng.normal(size=(200, 6)), 5, axis=0)])
    crowd[19_000:] += 0.05 * rng.normal(size=(1000, 6))
    return {
        "normal": (rng.normal(size=(20_000, 16)), 0.03, 500),
        "heavy tails": (rng.standard_t(2, size=(20_000, 8)), 0.1, 500),
        "near copies": (centres[rng.zipf(1.3, 20_000) % 3000] + 0.05 * rng.normal(size=(20_000, 32)), 0.03, 500),
        "crowd and 200 small clusters": (crowd, 0.4, 600),
    }


def shapes():
    rows = []
    print("\nrelative residual (seconds) on other shapes of data, 20,000 inputs")
    print(f"{'':<30}" + "".join(f"{rule:>18}" for rule in RULES))
    for name, (X, gamma, n) in clusters(np.random.default_rng(0)).items():
        kernel, cells = InputKernel("rbf", gamma=gamma), []
        for rule in RULES:
            choose = lambda: choose_basis(kernel, X, n, rule, random_state=0, engine=ENGINE)  # noqa: B023, E731
            took, basis = seconds(choose)
            rows.append({"data": name, "rule": rule, "residual": basis.relative_residual, "seconds": took})
            cells.append(f"{basis.relative_residual:.5f} ({took:4.2f} s)")
        print(f"{name:<30}" + "".join(f"{cell:>18}" for cell in cells), flush=True)
    return rows


def kernels(X, n=500):
    """Means of inputs stand for them where the kernel is smooth at x = x', and not where it has a kink."""
    rows = []
    rules = ("random", "uniform", "lloyd", "kmeans")
    print(f"\nrelative residual by kernel, {len(X)} letters, n = {n}")
    print(f"{'':<24}" + "".join(f"{rule:>10}" for rule in rules))
    for kernel in (
        RBF,
        InputKernel("poly", gamma=0.05, degree=2),
        InputKernel("poly", gamma=0.05, degree=3),
        InputKernel("chi2", gamma=0.05),
        InputKernel("laplacian", gamma=0.03),
    ):
        name = f"{kernel.name} {kernel.degree if kernel.name == 'poly' else ''}".strip()
        left = {
            rule: choose_basis(kernel, X, n, rule, random_state=0, engine=ENGINE).relative_residual for rule in rules
        }
        rows += [{"kernel": name, "rule": rule, "residual": value} for rule, value in left.items()]
        print(f"{name:<24}" + "".join(f"{value:>10.4f}" for value in left.values()), flush=True)
    return rows


def tried(X, optimum, n=1000):
    """Two ways to less than 1.3x: both cost more than kmeans."""
    print(f"\ntried at n = {n}: residual / optimum (seconds)")
    start = choose_basis(RBF, X, n, "lloyd", random_state=0, engine=ENGINE).landmarks
    gamma = RBF.gamma

    def explained(flat):
        """-tr(F F') and its gradient in the landmarks."""
        B = flat.reshape(start.shape)
        K, G = RBF.gram(B), RBF.gram(B, X)
        A = scipy.linalg.cho_solve(scipy.linalg.cho_factor(K + 1e-10 * np.eye(n)), G)
        P, S = A * G, (A @ A.T) * K
        gradient = P @ X - P.sum(axis=1)[:, None] * B - S @ B + S.sum(axis=1)[:, None] * B
        return -P.sum(), -4 * gamma * gradient.ravel()

    options = {"maxiter": 10}
    took, moved = seconds(lambda: minimize(explained, start.ravel(), jac=True, method="L-BFGS-B", options=options))
    rows = {"landmarks moved by ten L-BFGS steps": ((len(X) + moved.fun) / optimum, took)}

    def truncated():
        F = choose_basis(RBF, X, 3 * n // 2, "lloyd", random_state=0, engine=ENGINE).F
        return scipy.linalg.eigvalsh(F.T @ F)[::-1]

    took, values = seconds(truncated)
    rows["the best n directions of 3n/2 atoms"] = ((len(X) - values[:n].sum()) / optimum, took)
    for name, (ratio, took) in rows.items():
        print(f"  {name:<38} {ratio:.3f}x ({took:.1f} s)", flush=True)
    return {name: {"ratio": float(ratio), "seconds": took} for name, (ratio, took) in rows.items()}


def picture(rows, optimum, U, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    look = {
        "greedy": ("#D55E00", "v"),
        "random": ("#0072B2", "o"),
        "uniform": ("#56B4E9", "s"),
        "kmeans": ("#CC79A7", "^"),
        "lloyd": ("#009E73", "D"),
    }
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), sharey=True, layout="constrained")
    for rule, (colour, marker) in look.items():
        mine = [row for row in rows if row["rule"] == rule]
        residual = [row["residual"] for row in mine]
        for axis, key in ((left, "n"), (right, "seconds")):
            axis.plot([row[key] for row in mine], residual, color=colour, marker=marker, ms=5, lw=1.5, label=rule)
    sizes = sorted(optimum)
    left.plot(sizes, [optimum[n] / U for n in sizes], "k--", lw=1.5, label="optimum (eigenvalues)")
    for n in sizes:
        right.axhline(optimum[n] / U, color="k", ls="--", lw=0.6)
        right.annotate(f"n = {n}", (0.995, optimum[n] / U), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    left.set(xscale="log", yscale="log", xlabel="atoms n", ylabel="tr(K - FF') / tr K", title="by atoms")
    right.set(xscale="log", xlabel="seconds for atoms and F", title="by time; dashed: optimum at each n")
    left.set_xticks(sizes, [str(n) for n in sizes])
    left.set_yticks([0.05, 0.1, 0.2, 0.4, 0.6], ["0.05", "0.1", "0.2", "0.4", "0.6"])
    left.minorticks_off()
    left.legend(frameon=False)
    figure.savefig(path, dpi=150)
    print(f"\nwrote {path}")


def memory():
    """Peak memory of a fresh process for each rule, with the inputs and the interpreter in it."""
    rows = {}
    print("\nmemory: 1,000,000 x 64 float32, rbf, n = 500; F itself takes 1.86 GiB (2.00 GB)")
    for rule in ("random", "lloyd"):
        command = [sys.executable, __file__, "--memory-of", rule]
        rows[rule] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"  {rule:<8} peak {rows[rule]['peak GB']:.2f} GB, {rows[rule]['seconds']:.0f} s", flush=True)
    return rows


def memory_of(rule):
    X = np.random.default_rng(0).standard_normal((1_000_000, 64), dtype=np.float32)
    kernel = InputKernel("rbf", gamma=0.01)
    took, features = seconds(
        lambda: make_features(kernel, distinct(X).inputs, 500, rule, random_state=0, engine=ENGINE)
    )
    assert features.F.shape == (1_000_000, 500)
    assert features.F.dtype == np.float32
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"peak GB": peak, "seconds": took, "residual": features.basis.relative_residual}))


def save(**sections):
    """Write sections of the results; the others stay."""
    path = FIGURES / "basis.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps(results | sections, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory", action="store_true", help="measure memory and nothing else")
    parser.add_argument("--memory-of", metavar="RULE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.memory_of:
        return memory_of(arguments.memory_of)
    FIGURES.mkdir(parents=True, exist_ok=True)
    print(json.dumps(environment()))
    if arguments.memory:
        return save(memory=memory())
    X = letters()
    choose_basis(RBF, X[:500], 50, "lloyd", engine=ENGINE)
    took_speed = speed(X)
    took, values = seconds(lambda: scipy.linalg.eigvalsh(RBF.gram(X), overwrite_a=True))
    print(f"\neigenvalues of the whole matrix: {took:.0f} s")
    optimum = {n: float(values[:-n].sum()) for n in SIZES}
    rows = quality(X, SIZES, optimum)
    other = shapes()
    by_kernel = kernels(X[:3000])
    attempts = tried(X, optimum[1000])
    save(environment=environment(), U=len(X), optimum=optimum, quality=rows, speed=took_speed)
    save(shapes=other, kernels=by_kernel, tried=attempts)
    return picture(rows, optimum, len(X), FIGURES / "basis.png")


if __name__ == "__main__":
    main()
