"""
Why this label?
===============

Which training examples stand behind a decision, and how much of it comes from the neighbours? `ChainCRF.explain`
takes the score of a label apart. Here on scikit-learn's handwritten digits, strung together so that each is mostly
the successor of the last.
"""

# %%
# Sequences of digit images that count upwards, with some skips.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from kernelcrf import ChainCRF
from kernelcrf.basis import Landmarks

digits = load_digits()
rng = np.random.default_rng(0)
places = {
    split: [np.flatnonzero(digits.target[part] == d) + part.start for d in range(10)]
    for split, part in (("train", slice(0, 1000)), ("test", slice(1000, 1797)))
}


def draw(split, n, noise):
    X, y = [], []
    for _ in range(n):
        labels = [int(rng.integers(10))]
        while len(labels) < 8:
            labels.append((labels[-1] + 1) % 10 if rng.random() < 0.8 else int(rng.integers(10)))
        images = digits.data[[rng.choice(places[split][d]) for d in labels]] / 16
        X.append(images + noise * rng.normal(size=images.shape))
        y.append(np.array(labels))
    return X, y


X, y = draw("train", 120, noise=0.0)
X_new, y_new = draw("test", 60, noise=0.35)
crf = ChainCRF(C=10.0, n_components=Landmarks(300, "random"), random_state=0).fit(X, y)
print(f"{crf.score(X_new, y_new):.3f} of the noisy test digits right")

# %%
# The token that owes most to its neighbours: right in its sequence, wrong by itself.
whys = [
    (crf.explain(x, t, label=labels[t]), i, t)
    for i, (x, labels) in enumerate(zip(X_new, y_new, strict=True))
    for t in range(1, 7)
]
why, i, t = max((item for item in whys if item[0].p > 0.5), key=lambda item: item[0].neighbours)
print(why)

# %%
# The sequence, the probabilities with and without it, and the landmarks that speak for and against the label.
fig = plt.figure(figsize=(10, 5.2))
grid = fig.add_gridspec(2, 8, height_ratios=(1, 1.15))
for k in range(8):
    ax = fig.add_subplot(grid[0, k])
    ax.imshow(X_new[i][k].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
    ax.set_title(
        f"is {y_new[i][k]}", fontsize=10, color="#D55E00" if k == t else "black", weight="bold" if k == t else None
    )
    ax.set(xticks=[], yticks=[])
    for side in ax.spines.values():
        side.set(color="#D55E00" if k == t else "#BBBBBB", linewidth=2.5 if k == t else 1)
ax = fig.add_subplot(grid[1, :3])
bars = ax.barh(["by itself", "in its sequence"], [why.p_alone, why.p], color=["#999999", "#0072B2"])
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(xlim=(0, 1.15), xlabel=f"probability of {why.label}", xticks=(0, 0.5, 1))
ax.invert_yaxis()
for k in range(5):
    ax = fig.add_subplot(grid[1, 3 + k])
    sequence, token = why.positions[k]
    ax.imshow(X[sequence][token].reshape(8, 8), cmap="Blues" if why.contributions[k] > 0 else "Oranges")
    ax.set_title(f"a {y[sequence][token]}: {why.contributions[k]:+.2f}", fontsize=10)
    ax.set(xticks=[], yticks=[])
    if k == 2:
        ax.set_xlabel("training digits that contribute most to the score")
fig.tight_layout()
plt.show()
