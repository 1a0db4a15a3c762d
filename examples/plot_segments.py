"""
Phases that last: segments of the sunspot cycle
================================================

The number of sunspots usually rises for three to six years and then falls for five to eight. A chain knows how likely
a phase is to end, but not how long it has lasted: its durations are geometric, so that a phase of one year is the
likeliest. :class:`~kernelcrf.SegmentCRF` scores whole phases, and learns how long they last.
"""

# %%
# The yearly numbers of sunspots from 1700 on, and the years in which a phase ended: published minima and maxima.
import matplotlib.pyplot as plt
import numpy as np
import statsmodels.api as sm

from kernelcrf import ChainCRF, SegmentCRF
from kernelcrf.metrics import spans

table = sm.datasets.sunspots.load_pandas().data
years, spots = table["YEAR"].to_numpy(int), table["SUNACTIVITY"].to_numpy()
minima = [1711, 1723, 1734, 1745, 1755, 1766, 1775, 1784, 1798, 1810, 1823, 1833, 1843, 1855, 1867, 1878, 1889, 1901]
minima += [1913, 1923, 1933, 1944, 1954, 1964, 1976, 1986, 1996, 2008]
maxima = [1705, 1718, 1727, 1738, 1750, 1761, 1769, 1778, 1788, 1805, 1816, 1829, 1837, 1848, 1860, 1870, 1883, 1894]
maxima += [1906, 1917, 1928, 1937, 1947, 1957, 1968, 1979, 1989, 2000]
ends = sorted([(year, "rising") for year in maxima] + [(year, "falling") for year in minima])
phases = np.array([next(phase for end, phase in ends if year <= end) for year in years])

# %%
# The models see the number of spots and its change from year to year, with noise: a poor telescope. They learn from the
# years before 1900 and label those after.
rng = np.random.default_rng(0)
inputs = np.column_stack([spots, np.gradient(spots)])
inputs = inputs / inputs.std(axis=0) + 0.7 * rng.normal(size=inputs.shape)
old = years < 1900
X, y, X_new, y_new = [inputs[old]], [phases[old]], [inputs[~old]], [phases[~old]]
chain = ChainCRF("rbf", C=1.0, random_state=0).fit(X, y)
segments = SegmentCRF("rbf", C=1.0, ends=False, random_state=0).fit(X, y)
for name, model in {"chain": chain, "segments": segments}.items():
    p = model.log_prob(X_new, y_new)[0] / len(y_new[0])
    print(f"{name:9} {model.score(X_new, y_new):.2f} of the years right, log-probability {p:.2f} per year")

# %%
# The scores of durations, in years: short phases are unlikely, and four years are more likely for rising than for
# falling.
print(segments.duration_table().round(1).T.to_string())

# %%
# The predicted phases, each with the probability that it starts and ends in exactly these years; the line is the
# probability of "rising" in each year.
fig, (top, *rows) = plt.subplots(4, 1, figsize=(10, 6), sharex=True, height_ratios=(2, 1, 1, 1))
top.plot(years[~old], spots[~old], color="#555555")
top.set(ylabel="sunspots", xlim=(1899.5, 2008.5))
colours = {"rising": "#D55E00", "falling": "#56B4E9"}
found = {"chain": chain.distribution(X_new).spans()[0], "segments": segments.distribution(X_new).spans()[0]}
for axes, (name, phases_found) in zip(rows, {"true": spans(y_new[0], "runs"), **found}.items(), strict=True):
    for span in phases_found:
        axes.axvspan(1899.5 + span.start, 1899.5 + span.end, color=colours[span.label], alpha=0.45, linewidth=0)
        if name != "true":
            middle = 1899.5 + (span.start + span.end) / 2
            axes.text(middle, 0.5, f"{100 * span.probability:.0f} %", ha="center", va="center", fontsize=7)
    if name != "true":
        model = chain if name == "chain" else segments
        rising = model.predict_proba(X_new)[0][:, model.classes_.tolist().index("rising")]
        axes.step(years[~old], rising, where="mid", color="black", linewidth=1)
    axes.set(ylabel=name, ylim=(0, 1), yticks=[0, 1])
handles = [plt.Rectangle((0, 0), 1, 1, color=colour, alpha=0.45) for colour in colours.values()]
fig.legend(handles, colours, loc="upper center", ncols=2, frameon=False)
fig.tight_layout(rect=(0, 0, 1, 0.96))
plt.show()
