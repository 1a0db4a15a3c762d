"""
Which cliques does a chain need?
================================

Labels of a sequence may depend on more than their neighbour. Structure search starts from a chain and bounds what
each kind of clique that it lacks could gain: pairs at distance two, triples, steps that depend on the inputs.
"""

# %%
# A label repeats the one before the last, most of the time: a chain of first order cannot say so.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import GraphCRF

rng = np.random.default_rng(0)
X, y = [], []
for _ in range(120):
    labels = list(rng.integers(3, size=2))
    while len(labels) < 15:
        labels.append(labels[-2] if rng.random() < 0.85 else rng.integers(3))
    y.append(np.array(labels))
    X.append(np.eye(3)[labels] + rng.normal(size=(15, 3)))
train, test = slice(0, 60), slice(60, 120)

# %%
# The search, round by round.
model = GraphCRF("linear", cliques="auto", edge_kernel="linear", random_state=0).fit(X[train], y[train])
for k, stage in enumerate(model.search_.rounds):
    joined = ", ".join(candidate.template for candidate in stage.joined) or "nothing"
    print(f"round {k}: objective {stage.objective:.1f}, at most {stage.left_out:.1f} to gain; {joined} joins")
print("the objective with all candidates is nowhere below", round(model.search_.lower_bound, 1))

# %%
# What it brings on new sequences, beside each fixed choice.
choices = {
    "nodes alone": (),
    "edges": ("edges",),
    "edges, skips": ("edges", "skips"),
    "edges, paths": ("edges", "paths"),
}
accuracy = {
    name: GraphCRF("linear", cliques=cliques).fit(X[train], y[train]).score(X[test], y[test])
    for name, cliques in choices.items()
}
accuracy["learned: " + ", ".join(model.cliques_)] = model.score(X[test], y[test])

fig, ax = plt.subplots(figsize=(7, 2.8))
colours = ["#999999"] * len(choices) + ["#0072B2"]
ax.barh(list(accuracy), list(accuracy.values()), color=colours)
for k, value in enumerate(accuracy.values()):
    ax.text(value + 0.005, k, f"{value:.3f}", va="center", fontsize=9)
ax.set_xlim(0.5, 1)
ax.set_xlabel("accuracy on new sequences")
ax.invert_yaxis()
fig.tight_layout()
plt.show()
