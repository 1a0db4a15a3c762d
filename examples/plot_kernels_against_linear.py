"""
A problem that needs a kernel
=============================

Each class lies on both sides of the origin, so that all classes have the same mean and no linear function of the
inputs tells one from another. A linear conditional random field learns the transitions and nothing else; one with a
kernel comes close to the best that is possible.
"""

# %%
# The data, and four kernels.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import ChainCRF
from kernelcrf.datasets import make_sequences
from kernelcrf.kernels import Polynomial

train, test = make_sequences(150, random_state=0), make_sequences(150, random_state=1)
models = {
    "linear": ChainCRF("linear", C=10.0),
    "poly, degree 2": ChainCRF(Polynomial(degree=2), C=10.0, n_components=50, random_state=0),
    "poly, degree 4": ChainCRF(Polynomial(degree=4), C=10.0, n_components=50, random_state=0),
    "rbf": ChainCRF("rbf", C=10.0, n_components=100, random_state=0),
}
accuracy = {name: model.fit(train.X, train.y).score(test.X, test.y) for name, model in models.items()}

# %%
# What the models believe of a single token at each place of the plane, as the mixture of three colours, and how often
# they are right on new sequences.
u = np.linspace(-2, 2, 120)
plane = np.column_stack([axis.ravel() for axis in np.meshgrid(u, u)])
colours = np.array([[0.0, 0.45, 0.70], [0.90, 0.62, 0.0], [0.0, 0.62, 0.45]])
X, y = np.vstack(test.X), np.hstack(test.y)

fig, axes = plt.subplots(1, 4, figsize=(11, 3.8), sharey=True, layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    p = np.vstack(model.predict_proba(list(plane[:, None, :])))
    ax.imshow((p @ colours).reshape(120, 120, 3), origin="lower", extent=(-2, 2, -2, 2), alpha=0.6)
    for label in range(3):
        own = X[y == label][:80]
        ax.plot(own[:, 0], own[:, 1], ".", ms=4, color=0.7 * colours[label])
    ax.set(
        title=f"{name}\n{accuracy[name]:.2f} right", xlim=(-2, 2), ylim=(-2, 2), xticks=(-1, 0, 1), yticks=(-1, 0, 1)
    )
fig.suptitle(f"new sequences; the best possible is {1 - test.bayes_error:.2f}", fontsize=11)
plt.show()
