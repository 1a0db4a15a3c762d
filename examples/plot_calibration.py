"""
Is a probability of 0.9 right nine times in ten?
================================================

A model with a large C on few data is too sure of itself. Two ways to mend it: choose C by the evidence, which needs
the training data alone, or divide the scores by a temperature that is found on held-out sequences.
"""

# %%
# Noisy sequences, few of them, and three models.
import matplotlib.pyplot as plt

from kernelcrf import ChainCRF, TemperatureScaling
from kernelcrf.datasets import make_sequences
from kernelcrf.metrics import expected_calibration_error, log_loss
from kernelcrf.plotting import ReliabilityDisplay

law = {"noise": 0.6, "stickiness": 0.6}
train, held_out = make_sequences(40, random_state=0, **law), make_sequences(40, random_state=1, **law)
test = make_sequences(500, random_state=2, **law)
settings = {"n_components": 100, "random_state": 0}
too_sure = ChainCRF(C=1000.0, **settings).fit(train.X, train.y)
models = {
    "C = 1000": too_sure,
    "C = 1000, temperature": TemperatureScaling(too_sure).fit(held_out.X, held_out.y),
    "C by the evidence": ChainCRF(C="evidence", **settings).fit(train.X, train.y),
}

# %%
# The temperature changes probabilities and nothing else; the evidence also finds a better model.
for name, model in models.items():
    proba = model.predict_proba(test.X)
    loss = log_loss(test.y, proba, model.classes_)
    error = expected_calibration_error(test.y, proba, model.classes_, n_bins=10)
    print(f"{name:22} accuracy {model.score(test.X, test.y):.3f}, log-loss {loss:.3f}, calibration error {error:.3f}")

# %%
# Reliability: what was said against what was so. Points on the diagonal are right to say what they say.
fig, axes = plt.subplots(1, 3, figsize=(11, 3.8), sharey=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    ReliabilityDisplay.from_predictions(test.y, model.predict_proba(test.X), model.classes_, n_bins=10, ax=ax)
    ax.set_title(name)
    ax.legend(loc="upper left", fontsize=8)
for ax in axes[1:]:
    ax.set_ylabel("")
fig.tight_layout()
plt.show()
