"""The page on estimators adds one to a copy of the library, by the three files that it names."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import kernelcrf

PAGE = Path(__file__).parents[2] / "docs/extend/estimator.md"
COMPARE = """
import numpy as np
from sklearn.base import clone
from kernelcrf import KernelClassifier, RatingClassifier, load
rng = np.random.default_rng(0)
X = rng.normal(size=(80, 2))
y = np.clip(np.round(X.sum(axis=1) + 3 + 0.3 * rng.normal(size=80)), 1, 5).astype(int)
similar = np.exp(-np.abs(np.subtract.outer(np.arange(5), np.arange(5))) / 2.0)
options = {"C": 3.0, "gamma": 0.5, "n_components": 30, "random_state": 0, "laplace": True}
model = clone(RatingClassifier(reach=2.0, **options)).fit(X, y)
twin = KernelClassifier(label_kernel=similar, **options).fit(X, y)
np.testing.assert_allclose(model.predict_proba(X), twin.predict_proba(X), atol=1e-12)
assert model.log_marginal_likelihood() == twin.log_marginal_likelihood()
model.save("model.kcrf")
again = load("model.kcrf")
assert type(again) is RatingClassifier and again.reach == 2.0
np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
assert (again.set_params(warm_start=True).fit(X, y).predict(X) == model.predict(X)).all()
try:
    RatingClassifier(reach=0.0).fit(X, y)
except ValueError as error:
    print(error)
try:
    again.set_params(reach=1.0).fit(X, y)
except ValueError as error:
    print(error)
"""


def test_an_estimator_on_existing_parts_takes_three_files(tmp_path):
    # Compiled loops are kept beside their source, so copies of both need not be compiled again.
    shutil.copytree(Path(kernelcrf.__file__).parent, tmp_path / "kernelcrf")
    module, line, model = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (tmp_path / "kernelcrf/estimators/ratings.py").write_text(module, encoding="utf-8")
    names = tmp_path / "kernelcrf/__init__.py"
    text, home = names.read_text(encoding="utf-8"), '        "SegmentCRF":'
    assert text.count(home) == 1
    names.write_text(text.replace(home, line + home), encoding="utf-8")
    files = tmp_path / "kernelcrf/preprocessing/files.py"
    text, added = re.subn(r"^Model = .*$", model.strip(), files.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert added == 1
    before = "from kernelcrf.estimators.segments import"
    text = text.replace(before, "from kernelcrf.estimators.ratings import RatingClassifier\n" + before)
    files.write_text(text, encoding="utf-8")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{COMPARE}"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    first, second = result.stdout.splitlines() or [result.stderr, ""]
    assert first.startswith("reach=0.0: expected ")
    assert "reach" in second
    assert "warm_start" in second
