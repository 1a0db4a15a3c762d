"""
Which sequences to label next
=============================

Labels are dear and unlabelled sequences are not. `select_for_labelling` picks those of a pool that the current model
knows least about, unlike each other, so that the same accuracy is reached with fewer labels.
"""

# %%
# A pool in which most sequences are alike: two of four labels are rare, and only some sequences have it.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import ChainCRF


def draw(rng, n):
    X, y = [], []
    for _ in range(n):
        labels = np.repeat(rng.choice(4, size=5, p=[0.49, 0.49, 0.01, 0.01]), 4)
        angle = np.array([0.0, 1.0, 2.2, 2.7])[labels]
        points = np.column_stack((np.cos(angle), np.sin(angle))) * rng.choice([-1, 1], size=(len(labels), 1))
        X.append(points + 0.25 * rng.normal(size=points.shape))
        y.append(labels)
    return X, y


X_test, y_test = draw(np.random.default_rng(99), 300)
classes = [0, 1, 2, 3]


def balanced_accuracy(crf):
    found, true = np.hstack(crf.predict(X_test)), np.hstack(y_test)
    return np.mean([(found[true == label] == label).mean() for label in classes])


# %%
# Five rounds of eight sequences each, six times with pools of their own, by chance and by entropy.
rounds, batch, trials = 6, 8, 6
curves = {"at random": np.zeros((trials, rounds)), "by entropy": np.zeros((trials, rounds))}
for trial in range(trials):
    X, y = draw(np.random.default_rng(trial), 300)
    for name, curve in curves.items():
        rng = np.random.RandomState(trial)
        chosen = list(range(batch))
        for k in range(rounds):
            crf = ChainCRF(C=10.0, n_components=60, classes=classes, tol=1e-2, random_state=0)
            crf.fit([X[i] for i in chosen], [y[i] for i in chosen])
            curve[trial, k] = balanced_accuracy(crf)
            rest = [i for i in range(len(X)) if i not in chosen]
            if name == "at random":
                chosen += rng.choice(rest, batch, replace=False).tolist()
            else:
                places = crf.select_for_labelling([X[i] for i in rest], batch, random_state=rng)
                chosen += [rest[place] for place in places]

# %%
# Mean over the trials, with its standard error.
labelled = batch * np.arange(1, rounds + 1)
fig, ax = plt.subplots(figsize=(7, 4))
for (name, curve), style, colour in zip(curves.items(), ("s--", "o-"), ("#D55E00", "#0072B2"), strict=True):
    ax.errorbar(
        labelled,
        curve.mean(axis=0),
        curve.std(axis=0) / np.sqrt(trials),
        fmt=style,
        color=colour,
        label=name,
        capsize=3,
    )
    print(f"{name:10} accuracy after {labelled[-1]} sequences: {curve[:, -1].mean():.2f}")
ax.set(xlabel="labelled sequences", ylabel="accuracy, mean over the four labels")
ax.legend(loc="lower right")
fig.tight_layout()
plt.show()
