"""The page on kinds of cliques adds a kind to a copy of the library, by the two changes that it states."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import kernelcrf

PAGE = Path(__file__).parents[2] / "docs/extend/clique.md"
COMPARE = """
import numpy as np
from sklearn.gaussian_process.kernels import RBF
from kernelcrf import ChainCRF, Input, load
from kernelcrf.datasets import make_sequences
data = make_sequences(12, random_state=0)
flagged = [np.hstack([x, np.zeros((len(x), 1))]) for x in data.X]
for x in flagged:
    x[1:2, -1] = 1.0
def total(X, Y):
    return X[:, :2] @ Y[:, :2].T + RBF(0.5)(X[:, :2], Y[:, :2]) * np.outer(X[:, 2], Y[:, 2])
options = {"C": 3.0, "fit_intercept": False, "tol": 1e-10, "random_state": 0, "laplace": True}
dense = ChainCRF(total, n_components=None, **options).fit(flagged, data.y)
inputs = {"all": Input("linear"), "second": Input(RBF(0.5), n_components=None, scores="seconds")}
crf = ChainCRF(inputs=inputs, certify_full=True, **options).fit(data.X, data.y)
crf.save("model.kcrf")
for model in (crf, load("model.kcrf")):
    for p, q in zip(model.predict_proba(data.X), dense.predict_proba(flagged), strict=True):
        np.testing.assert_allclose(p, q, atol=1e-5)
np.testing.assert_allclose(crf.certificate_.objective, dense.certificate_.objective, rtol=1e-8)
np.testing.assert_allclose(crf.log_marginal_likelihood(), dense.log_marginal_likelihood(), rtol=1e-6)
ours, theirs = (model.explain(x[0], 1, 1).score for model, x in ((crf, data.X), (dense, flagged)))
np.testing.assert_allclose(ours, theirs, atol=1e-5)
print("equal", bool(crf.certificate_.gap_full < 1e-6))
"""


def test_a_kind_of_clique_with_inputs_takes_two_files(tmp_path):
    # Compiled loops are kept beside their source, so copies of both need not be compiled again.
    shutil.copytree(Path(kernelcrf.__file__).parent, tmp_path / "kernelcrf")
    rows, kind, _ = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    for name, new, before in (
        (
            "graphs/structure.py",
            rows + "\n",
            '    @property\n    def last_nodes(self) -> Ints:\n        """Return the row of the last token',
        ),
        ("score/cliques.py", kind, "        Clique(ENDS, TOKENS,"),
    ):
        path = tmp_path / "kernelcrf" / name
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1
        path.write_text(text.replace(before, new + before), encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{COMPARE}"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.stdout.split() == ["equal", "True"], result.stderr
