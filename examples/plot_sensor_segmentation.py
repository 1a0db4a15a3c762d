"""
Segment the signal of a sensor
==============================

An accelerometer on a belt: standing, walking and running differ in rhythm and strength, which no single sample shows.
Short windows are summarised by a few numbers, a kernel tells the windows apart, and the chain keeps segments whole.
"""

# %%
# Signals with three activities, each for some seconds at a time, 50 samples a second.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, KernelClassifier
from kernelcrf.metrics import flat_accuracy
from kernelcrf.preprocessing import PerToken

ACTIVITIES = ("standing", "walking", "running")
RATE, WINDOW = 50, 25


def record(rng, seconds=60):
    signal, labels = [], []
    while len(signal) < seconds * RATE:
        activity = rng.integers(3)
        t = np.arange(int(rng.uniform(4, 10) * RATE)) / RATE
        pace = (0.0, rng.uniform(1.5, 2.1), rng.uniform(2.2, 3.2))[activity]
        strength = (0.05, rng.uniform(0.5, 0.9), rng.uniform(0.8, 1.6))[activity]
        beat = strength * (np.sin(2 * np.pi * pace * t) + 0.4 * np.sin(4 * np.pi * pace * t + 1))
        signal += (beat + 0.45 * rng.normal(size=len(t))).tolist()
        labels += [activity] * len(t)
    return np.array(signal[: seconds * RATE]), np.array(labels[: seconds * RATE])


def windows(signal, labels):
    """Return spread, range, zero crossings and energy at three paces of each half second, and its middle label."""
    parts = signal.reshape(-1, WINDOW)
    spectrum = np.log(np.abs(np.fft.rfft(parts, axis=1))[:, 1:4])
    crossings = (np.diff(np.sign(parts), axis=1) != 0).mean(axis=1)
    X = np.column_stack((parts.std(axis=1), np.ptp(parts, axis=1), crossings, spectrum))
    return X, labels.reshape(-1, WINDOW)[:, WINDOW // 2]


rng = np.random.default_rng(0)
train, test = ([record(rng) for _ in range(12)] for _ in range(2))
X, y = map(list, zip(*(windows(*one) for one in train), strict=True))
X_new, y_new = map(list, zip(*(windows(*one) for one in test), strict=True))
scaler = PerToken(StandardScaler()).fit(X)
X, X_new = scaler.transform(X), scaler.transform(X_new)

# %%
# Windows by themselves, and in their chain; C by the evidence.
alone = KernelClassifier(C="evidence", n_components=100, random_state=0).fit(np.vstack(X), np.hstack(y))
chain = ChainCRF(C="evidence", n_components=100, random_state=0).fit(X, y)
guesses = {"windows alone": [alone.predict(x) for x in X_new], "chain": chain.predict(X_new)}
for name, guess in guesses.items():
    print(f"{name:14} {flat_accuracy(y_new, guess):.3f} of the windows right")

# %%
# One minute of a new recording.
fig, (top, bottom) = plt.subplots(2, 1, figsize=(10, 4.6), sharex=True, height_ratios=(2, 1.3))
top.plot(np.arange(len(test[0][0])) / RATE, test[0][0], color="#555555", linewidth=0.6)
top.set(ylabel="acceleration, g", xlim=(0, 60))
rows = {"true": y_new[0], **{name: guess[0] for name, guess in guesses.items()}}
colours = ["#999999", "#56B4E9", "#D55E00"]
for row, labels in enumerate(rows.values()):
    for k, label in enumerate(labels):
        bottom.barh(row, WINDOW / RATE, left=k * WINDOW / RATE, color=colours[label], height=0.8)
bottom.set(yticks=range(3), yticklabels=rows, xlabel="seconds")
bottom.invert_yaxis()
handles = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in colours]
fig.legend(handles, ACTIVITIES, loc="upper center", ncols=3, frameon=False)
fig.tight_layout(rect=(0, 0, 1, 0.95))
plt.show()
