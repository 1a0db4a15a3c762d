"""
Smooth images from noisy ones
=============================

A grid of pixels is a graph: each pixel has a label, and neighbours mostly share theirs. A 30 x 30 grid is too wide
for exact inference; tree-reweighted messages give an upper bound on the log-partition, and labels to go with it.
"""

# %%
# Noisy images, and the grid that joins their pixels.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import GraphCRF

rng = np.random.default_rng(0)
side = 30
pixels = np.arange(side * side).reshape(side, side)
edges = np.concatenate(
    [
        np.column_stack((pixels[:, :-1].ravel(), pixels[:, 1:].ravel())),
        np.column_stack((pixels[:-1].ravel(), pixels[1:].ravel())),
    ]
)


def image():
    u, v = np.meshgrid(np.linspace(-2, 2, side), np.linspace(-2, 2, side))
    a, b, c, d = rng.normal(size=4)
    labels = (np.sin(2 * a * u + c) + np.sin(2 * b * v + d) > 0).astype(int).ravel()
    return (labels[:, None] + rng.normal(size=(side * side, 1)), edges), labels


train = [image() for _ in range(5)]
noisy, truth = image()

# %%
# Exact inference refuses the grid, and says what it would cost.
try:
    GraphCRF("linear").fit(*map(list, zip(*train, strict=True)))
except ValueError as error:
    print(error)

# %%
# With and without edges.
alone = GraphCRF("linear", cliques=()).fit(*map(list, zip(*train, strict=True)))
joined = GraphCRF("linear", inference="loopy", tol=1e-3).fit(*map(list, zip(*train, strict=True)))
print("certificate of", joined.covers_, "-", f"relative gap {joined.certificate_.relative_gap:.0e}")

fig, axes = plt.subplots(1, 4, figsize=(11, 3))
by_name = {
    "noisy": noisy[0],
    "without edges": alone.predict([noisy])[0],
    "with edges": joined.predict([noisy])[0],
    "truth": truth,
}
for ax, (name, values) in zip(axes, by_name.items(), strict=True):
    ax.imshow(values.reshape(side, side), cmap="cividis")
    right = "" if name == "noisy" else f", {np.mean(values == truth):.0%} right"
    ax.set_title(name if name == "truth" else name + right, fontsize=10)
    ax.axis("off")
fig.tight_layout()
plt.show()
