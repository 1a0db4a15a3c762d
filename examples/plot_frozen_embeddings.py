"""
Frozen embeddings, few labels
=============================

A network that was trained for something else turns inputs into vectors; it stays as it is, and a conditional random
field on its vectors learns the task at hand from a few labelled sequences. Here a small network has learned to answer
four questions about noisy images of digits. Its hidden layer, frozen, then serves to name the digits of sequences.
"""

# %%
# The network: is the digit odd, is it above four, has it a loop, is it made of straight lines? Its hidden layer is
# the embedding.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.neural_network import MLPClassifier

from kernelcrf import ChainCRF

digits = load_digits()
images, rng, noise = digits.data / 16, np.random.default_rng(0), 0.35
clean, names = np.repeat(images[:1000], 20, axis=0), np.repeat(digits.target[:1000], 20)
answers = [names % 2 == 1, names > 4, np.isin(names, (0, 6, 8, 9)), np.isin(names, (1, 4, 7))]
network = MLPClassifier((64,), alpha=1.0, tol=3e-3, n_iter_no_change=3, random_state=0)
network.fit(clean + noise * rng.normal(size=clean.shape), np.column_stack(answers).astype(int))


def embed(x):
    return np.maximum(x @ network.coefs_[0] + network.intercepts_[0], 0).astype(np.float32)


# %%
# Sequences of digits that the network has not seen: each is mostly followed by the next.
def draw(n, part):
    X, y = [], []
    for _ in range(n):
        labels = [int(rng.integers(10))]
        while len(labels) < 8:
            labels.append((labels[-1] + 1) % 10 if rng.random() < 0.5 else int(rng.integers(10)))
        places = [rng.choice(np.flatnonzero(digits.target[part] == d)) + part.start for d in labels]
        X.append(images[places] + noise * rng.normal(size=(8, 64)))
        y.append(np.array(labels))
    return X, y


X, y = draw(160, slice(1000, 1400))
X_test, y_test = draw(200, slice(1400, 1797))

# %%
# Errors against the number of labelled sequences. Where the network has done the bending, a linear kernel is enough.
inputs = {"pixels": lambda x: x, "frozen embedding": embed}
sizes = [5, 10, 20, 40, 80, 160]
errors = {}
for name, function in inputs.items():
    Z, Z_test = [function(x) for x in X], [function(x) for x in X_test]
    for kernel, C in (("linear", 1.0), ("rbf", 10.0)):
        models = (ChainCRF(kernel, C=C, n_components=200, tol=1e-3, random_state=0).fit(Z[:n], y[:n]) for n in sizes)
        errors[f"{kernel} on {name}"] = [1 - model.score(Z_test, y_test) for model in models]

fig, ax = plt.subplots(figsize=(7, 4.2))
styles = (("s--", "#E69F00"), ("o-", "#D55E00"), ("s--", "#56B4E9"), ("o-", "#0072B2"))
for (name, values), (style, colour) in zip(errors.items(), styles, strict=True):
    ax.plot(sizes, np.multiply(values, 100), style, color=colour, label=name)
    print(f"{name:25}" + "".join(f"{100 * value:7.1f}" for value in values))
ax.set(xscale="log", yscale="log", xlabel="labelled sequences of eight digits", ylabel="wrong digits, %")
ax.set_xticks(sizes, sizes)
ax.minorticks_off()
ax.set_yticks([10, 20, 40, 60], [10, 20, 40, 60])
ax.grid(alpha=0.3)
ax.legend()
fig.tight_layout()
plt.show()
