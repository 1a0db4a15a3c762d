"""
The certificate at work
=======================

A fit minimises a convex function. At every point that it visits, Lemma 9 of the paper turns the gradient into a
number that the minimum cannot be below; the greatest of these numbers and the objective close in on the optimum from
both sides.
"""

# %%
# One fit, watched: the objective from above, the lower bound from below.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.plotting import GapDisplay

data = make_sequences(150, noise=0.4, random_state=0)
crf = ChainCRF(C=10.0, n_components=100, tol=1e-8, random_state=0).fit(data.X, data.y)
gap, passes, _ = crf.gap_curve_.T
objective = crf.objective_curve_
lower = objective * (1 - gap)
best = crf.certificate_.objective
print(
    f"status {crf.certificate_.status}, relative gap {crf.certificate_.relative_gap:.0e} after {crf.n_iter_} iterations"
)

# %%
# The certified gap is never smaller than the true one, which we know here because the fit went on to 1e-8.
true_gap = (objective - best) / best
print("the certificate covers the truth:", bool((gap >= true_gap - 1e-12).all()))

# %%
# Landmarks have a certificate of their own: `gap_full` bounds what all inputs as landmarks could still gain. With
# ``n_components="auto"`` the basis grows until that is small.
auto = ChainCRF(C=10.0, n_components="auto", tol=1e-3, random_state=0).fit(data.X, data.y)
share = auto.certificate_.gap_full / auto.certificate_.objective
print(f"{len(auto.landmarks_)} landmarks of {sum(map(len, data.y))} inputs: within {share:.2%} of the optimum")

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8))
left.plot(passes, objective, color="#0072B2", label="objective")
left.plot(passes, np.maximum(lower, 0), color="#D55E00", linestyle="--", label="lower bound")
left.axhline(best, color="#999999", linewidth=1, label="optimum")
left.set(
    xlabel="passes over the data",
    ylabel="negative log posterior",
    ylim=(0, 3 * best),
    xlim=(0, passes[len(passes) // 2]),
)
left.legend()
GapDisplay.from_estimator(crf, ax=right, name="certified")
shown = true_gap > 1e-9
right.plot(passes[shown], true_gap[shown], ".:", color="#999999", label="true")
right.legend()
fig.tight_layout()
plt.show()
