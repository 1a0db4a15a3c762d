import numpy as np
from sklearn import config_context
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from kernelcrf import ChainCRF
from kernelcrf.answers.summary import summarise, text_of


def fitted(**parameters):
    X, y = [[["a"], ["b"]], [["b"]]] * 3, [["<b>X</b>", "Y"], ["Y"]] * 3
    return ChainCRF("linear", **{"C": 1.0, **parameters}).fit(X, y)


def test_a_notebook_shows_the_diagram_and_the_fitted_facts_escaped():
    unfitted, crf = ChainCRF("linear", C=1.0), fitted(C=2.0)
    assert "sk-container" in unfitted._repr_html_()
    assert "kernelcrf-facts" not in unfitted._repr_html_()
    for html in (crf._repr_html_(), crf._repr_mimebundle_()["text/html"]):
        assert "sk-container" in html
        assert "<th>certified gap</th>" in html
        assert "<td>2: &lt;b&gt;X&lt;/b&gt; Y</td>" in html
        assert "C=2.0" in html
    with config_context(display="text"):
        assert "text/html" not in crf._repr_mimebundle_()
        assert not hasattr(crf, "_repr_html_")


def test_facts_are_those_of_the_model():
    crf = fitted(C=2.0, solver="lbfgs")
    facts = summarise(crf)
    assert facts["labels"] == ["<b>X</b>", "Y"]
    assert facts["weights"] == 2 + 4  # each feature occurs with one label
    assert facts["certified gap"] == crf.certificate_.relative_gap
    assert facts["settings"] == {"C": 2.0, "kernel": "linear", "solver": "lbfgs"}
    assert "landmarks" not in facts
    assert (facts["passes"], facts["solver seconds"]) == tuple(crf.gap_curve_[-1, 1:])
    missing = ChainCRF("linear", C=1.0).fit([[["a"], ["b"]]] * 3, [["X", None], ["Y", None], ["X", "Y"]])
    assert "certified gap" not in summarise(missing)
    assert text_of(list(range(40))).endswith("29 and 10 more")


def test_facts_of_a_model_with_a_kernel_of_several_parts():
    X, y = [np.eye(3)] * 3, [["a", "b", "a"]] * 3
    crf = ChainCRF(ConstantKernel(2.0) * RBF(0.5), C=1.0).fit(X, y)
    assert summarise(crf)["settings"] == {"C": 1.0, "kernel": "1.41**2 * RBF(length_scale=0.5)"}
    assert "RBF(length_scale=0.5)" in crf._repr_html_()
