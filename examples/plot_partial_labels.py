"""
Learning from partly labelled sequences
=======================================

Labels cost time, and annotators skip what they are not sure of. A missing label is no reason to throw a sequence
away: training sums over all labels that it may have had, exactly.
"""

# %%
# Hide a growing share of the training labels at random, and learn in three ways: from all that is known, from the
# sequences without a gap alone, and from the tokens with a label as if they had no neighbours.
import matplotlib.pyplot as plt
import numpy as np

from kernelcrf import ChainCRF, KernelClassifier
from kernelcrf.datasets import make_sequences

law = {"noise": 0.5, "stickiness": 0.9, "mean_length": 8}
train, test = make_sequences(120, random_state=0, **law), make_sequences(200, random_state=1, **law)
settings = {"C": 3.0, "n_components": 60, "random_state": 0, "tol": 1e-3}
shares = [0.0, 0.2, 0.4, 0.6, 0.8, 0.9]
accuracy = {"all that is known": [], "whole sequences only": [], "labelled tokens, alone": []}
for share in shares:
    rng = np.random.default_rng(0)
    hidden = [np.where(rng.random(len(labels)) < share, -1, labels) for labels in train.y]
    accuracy["all that is known"].append(ChainCRF(**settings).fit(train.X, hidden).score(test.X, test.y))
    whole = [i for i, labels in enumerate(hidden) if (labels >= 0).all()]
    seen = {label for i in whole for label in hidden[i].tolist()}
    few = ChainCRF(**settings).fit([train.X[i] for i in whole], [hidden[i] for i in whole]) if len(seen) > 1 else None
    accuracy["whole sequences only"].append(few.score(test.X, test.y) if few is not None else np.nan)
    X, y = np.vstack(train.X), np.hstack(hidden)
    alone = KernelClassifier(**settings).fit(X[y >= 0], y[y >= 0])
    accuracy["labelled tokens, alone"].append(alone.score(np.vstack(test.X), np.hstack(test.y)))

# %%
# With four labels of five gone, the chain still learns what the sequences are like.
fig, ax = plt.subplots(figsize=(7, 4))
styles = zip(accuracy.items(), ("o-", "s--", "^:"), ("#0072B2", "#D55E00", "#009E73"), strict=True)
for (name, values), style, colour in styles:
    ax.plot(np.multiply(shares, 100), values, style, color=colour, label=name)
ax.axhline(1 - test.bayes_error, color="#999999", linewidth=1)
ax.annotate("best possible", (0, 1 - test.bayes_error), va="bottom", fontsize=9, color="#555555")
ax.set(xlabel="labels hidden, %", ylabel="accuracy on new sequences")
ax.legend(loc="lower left")
fig.tight_layout()
plt.show()
