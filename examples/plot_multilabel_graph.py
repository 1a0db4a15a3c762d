"""
Several labels at once, and which of them interact
==================================================

Six labels of which some exclude each other and some come together. `MultiLabelCRF` finds the pairs that interact,
says how strongly, and predicts whole sets.
"""

# %%
# Labels depend on the inputs by a curve, and on each other by three interactions; the others are independent.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import MultiLabelCRF
from kernelcrf.plotting import LabelGraphDisplay

names = ["rain", "umbrella", "sun", "sunglasses", "wind", "kite"]
truth = {(0, 1): 5.0, (2, 3): 5.0, (0, 2): -4.0, (4, 5): 4.0}
rng = np.random.default_rng(0)
weights = np.zeros((6, 6))
for (a, b), value in truth.items():
    weights[a, b] = weights[b, a] = value


def draw(n):
    X = rng.uniform(-2, 2, size=(n, 3))
    fields = 2 * np.column_stack([np.sin(2 * X), np.cos(3 * X)])[:, [0, 3, 1, 4, 2, 5]]
    Y = rng.integers(2, size=(n, 6))
    for _ in range(50):  # Gibbs sampling of the Ising model that the interactions make
        for j in range(6):
            log_odds = fields[:, j] + (Y - 0.5) @ weights[:, j]
            Y[:, j] = rng.random(n) < 1 / (1 + np.exp(-log_odds))
    return X, Y


(X, Y), (X_new, Y_new) = draw(800), draw(800)

# %%
# Structure search starts from labels alone and lets pairs join while they are expected to gain something.
learned = MultiLabelCRF("rbf", n_components=60, random_state=0).fit(X, Y)
alone = MultiLabelCRF("rbf", n_components=60, structure="none", random_state=0).fit(X, Y)
found = {tuple(pair): value for pair, value in zip(learned.edges_.tolist(), learned.interactions_, strict=True)}
for pair in sorted(truth | found):
    a, b = (names[k] for k in pair)
    print(f"{a:9} - {b:11} true {truth.get(pair, 0.0):5.1f}, learned {found.get(pair, 0.0):5.1f}")
scores = {name: model.score(X_new, Y_new) for name, model in (("labels alone", alone), ("learned graph", learned))}
print("whole sets right:", ", ".join(f"{name} {value:.2f}" for name, value in scores.items()))

# %%
# The graph that was learned.
fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), width_ratios=(1, 1))
LabelGraphDisplay(weights, names).plot(left)
left.set_title("the law of the data")
LabelGraphDisplay.from_estimator(learned, labels=names, ax=right)
right.set_title(f"learned; {scores['learned graph']:.0%} of the sets right, {scores['labels alone']:.0%} without it")
fig.tight_layout()
plt.show()
