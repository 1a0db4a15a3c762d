"""
Label sequences of vectors
==========================

A sequence is an array with a row for each token. The classes of these tokens overlap, so that a token by itself is
often ambiguous; what its neighbours are decides. A conditional random field returns the probability of every label at
every token, given the whole sequence.
"""

# %%
# Sequences of a known law: three classes, and a label that tends to stay as it was.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import ChainCRF, KernelClassifier
from kernelcrf.datasets import make_sequences

train = make_sequences(150, mean_length=20, noise=0.5, stickiness=0.85, random_state=0)
test = make_sequences(150, mean_length=20, noise=0.5, stickiness=0.85, random_state=1)
print(
    f"{len(train.X)} sequences to train, the first with {train.X[0].shape[0]} tokens of {train.X[0].shape[1]} numbers"
)

# %%
# The same kernel with the chain and without it.
chain = ChainCRF("rbf", C=3.0, n_components=100, random_state=0).fit(train.X, train.y)
alone = KernelClassifier("rbf", C=3.0, n_components=100, random_state=0).fit(np.vstack(train.X), np.hstack(train.y))
accuracy = {
    "tokens alone": alone.score(np.vstack(test.X), np.hstack(test.y)),
    "in their sequence": chain.score(test.X, test.y),
    "best possible": 1 - test.bayes_error,
}
for name, value in accuracy.items():
    print(f"{name:18} {value:.3f}")

# %%
# One sequence in detail: the probability of each label, without and with its neighbours. Dots are the true labels.
i = int(np.argmax([len(labels) for labels in test.y]))
probabilities = {
    "tokens alone": alone.predict_proba(test.X[i]),
    "in their sequence": chain.predict_proba(test.X[i : i + 1])[0],
}
fig, axes = plt.subplots(2, 1, figsize=(9, 4.2), sharex=True)
for ax, (name, p) in zip(axes, probabilities.items(), strict=True):
    image = ax.imshow(p.T, cmap="Blues", vmin=0, vmax=1, aspect="auto")
    right = p.argmax(axis=1) == test.y[i]
    places = np.arange(len(right))
    ax.plot(places[right], test.y[i][right], "o", color="#D55E00", ms=5)
    ax.plot(places[~right], test.y[i][~right], "o", mfc="none", mec="#D55E00", mew=1.5, ms=6)
    ax.set(ylabel="label", yticks=range(3), title=f"{name}: {right.mean():.0%} right")
axes[1].set_xlabel("token")
fig.colorbar(image, ax=axes, label="probability")
plt.show()
