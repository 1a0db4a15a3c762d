import re
from datetime import date
from html import unescape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelcrf import ChainCRF, KernelClassifier, metrics
from kernelcrf.datasets import make_sequences
from kernelcrf.preprocessing import PerToken
from kernelcrf.report import make_report, write_report
from kernelcrf.report.page import POLICY, STYLE, text
from kernelcrf.report.sections import stretches

SCRIPT = "<script>document.title = 'run'</script>"
NASTY = [SCRIPT, '" onload="alert(1)', "</style><b>", "a&amp;b", "\u202eback", "x" * 300, "\x00\x1b[31m", "'", "\ud800"]
VOID = {"meta", "br", "line", "rect", "circle", "polyline"}


class Tags(HTMLParser):
    """The elements of a page, and whether all that are opened are closed in their order."""

    def __init__(self, html):
        super().__init__()
        self.open, self.seen, self.attributes, self.texts = [], [], [], []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


@pytest.fixture(scope="module")
def nasty():
    """A model and data whose words and labels try to be markup."""
    data = make_sequences(30, random_state=0)
    names = ["B-<i>x</i>", f"B-{SCRIPT}", "O"]
    y = [[names[label] for label in labels] for labels in data.y]
    tokens = [[NASTY[t % len(NASTY)] for t in range(len(labels))] for labels in y]
    crf = ChainCRF(n_components=20, random_state=0, solver="lbfgs", C=1.0).fit(data.X, y)
    return crf, data.X, y, tokens


def test_nothing_that_is_shown_is_markup(nasty, tmp_path):
    crf, X, y, tokens = nasty
    html = make_report(crf, X, y, tokens=tokens, train_tokens=tokens, title=f"{SCRIPT} & more")
    page = Tags(html)
    assert not {"script", "i", "b", "img", "iframe", "link"} & set(page.seen) - {"b"}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert html.count("<style>") == html.count("</style>") == 1
    assert page.seen.count("b") == 10  # the headline and the figures of the summary
    assert ("content", POLICY) in page.attributes
    assert SCRIPT in page.texts
    assert f"{SCRIPT} & more" in page.texts
    write_report(tmp_path / "r.html", html)
    assert (
        SCRIPT.replace("<", "&lt;").replace(">", "&gt;").replace("'", "&#x27;").encode()
        in (tmp_path / "r.html").read_bytes()
    )


def test_text_shows_what_cannot_be_seen():
    assert text("<a href='x'>&\x00\x1b\x7f") == "&lt;a href=&#x27;x&#x27;&gt;&amp;\u2400\u241b\u2421"
    assert unescape(text('"')) == '"'


def test_the_numbers_are_those_of_the_model(nasty):
    crf, X, y, tokens = nasty
    html = make_report(crf, X, y, tokens=tokens, n_hardest=4)
    words = re.sub(r"<[^>]*>", "|", html)
    predicted = [labels.tolist() for labels in crf.predict(X)]
    scores = metrics.bootstrap(y, predicted, crf.predict_proba(X), crf.classes_.tolist(), scheme="lenient")
    headline = scores["span_f1"]
    assert f"|{headline.value:.4f}| F1 of spans |(95 % interval: {headline.low:.4f} to {headline.high:.4f})" in words
    assert date.today().isoformat() in words
    for name in ("span_f1", "flat_accuracy", "log_loss", "expected_calibration_error"):
        score = scores[name]
        assert re.search(rf"{score.value:.4f}\W+{score.low:.4f} to {score.high:.4f}", words)
    assert f"{100 * crf.certificate_.relative_gap:.2g} % above the least value" in words
    _, counts = metrics.flat_confusion(y, predicted)
    cells = [int(cell or 0) for cell in re.findall(r'<td[^>]*style="--p:[^>]*>([\d,]*)</td>', html)]
    np.testing.assert_array_equal(np.reshape(cells, counts.shape), counts)
    errors = counts - np.diag(counts.diagonal())
    confused = re.findall(r'<bdi>([\d,]+)</bdi></td><td class="number"><bdi>([\d.]+)%</bdi>', html)
    assert [int(n) for n, _ in confused] == sorted(errors[errors > 0], reverse=True)[:10]
    assert float(confused[0][1]) == round(100 * errors.max() / counts.sum(axis=1)[errors.max(axis=1).argmax()], 1)
    log_p = crf.log_prob(X, y) / np.array(list(map(len, y)))
    assert [int(i) for i in re.findall(r'id="sequence-(\d+)"', html)] == np.argsort(log_p)[:4].tolist()
    worst = int(np.argmin(log_p))
    code = crf.classes_.tolist()
    proba = crf.predict_proba([X[worst]])[0]
    doubts = [float(p) for p in re.findall(r'class="token[^"]*" style="--p:([\d.]+)"', html)[: len(y[worst])]]
    np.testing.assert_allclose(doubts, [1 - proba[t, code.index(label)] for t, label in enumerate(y[worst])], atol=6e-4)
    assert re.search(r"n_components\W+20", words)


def test_sequences_without_words_show_where_labels_are_wrong(nasty):
    crf, X, y, _ = nasty
    html = make_report(crf, X, y, n_hardest=30)
    Tags(html)
    assert 'class="token wrong"' not in html
    predicted = crf.predict(X)
    parts = re.findall(r'<p>([^<]*)</p><ul class="sequence" id="sequence-(\d+)">(.*?)</ul>', html)
    assert len(parts) == len(X)
    for said, i, items in parts:
        gold, own = y[int(i)], predicted[int(i)].tolist()
        wrong = [t for t in range(len(gold)) if gold[t] != own[t]]
        assert (
            said == f"{len(gold)} tokens; {len(wrong)} of {len(gold)} labels are wrong ({len(wrong) / len(gold):.1%})."
        )
        covered = []
        for first, last, true, label in re.findall(
            r"<bdi>(\d+)(?:–(\d+))?</bdi><small><bdi>(.*?)</bdi> → <bdi>(.*?)</bdi></small>", items
        ):
            run = range(int(first), int(last or first) + 1)
            covered += run
            # Long labels are cut.
            assert {(gold[t][:20], own[t][:20]) for t in run} == {(unescape(true)[:20], unescape(label)[:20])}
        assert covered == wrong


def test_the_longest_stretches_of_wrong_labels_are_shown():
    gold, predicted = ["a", None, "a"] + ["a", "b"] * 30 + ["b"] * 4, ["a", "b", "a"] + ["b"] * 64
    html = stretches(7, gold, predicted)
    assert "67 tokens; 30 of 66 labels are wrong (45.5%). These are the 20 longest of 30 stretches." in html
    assert html.count("<li") == 20
    assert "<bdi>3–6</bdi>" in stretches(0, ["a"] * 8, ["a"] * 3 + ["b"] * 4 + ["a"])


def test_a_phone_shows_the_counts_of_the_confusion_matrix():
    assert "font-size: 0" not in STYLE
    assert ".wide::-webkit-scrollbar {" in STYLE


def test_chosen_decisions_show_the_training_tokens_behind_them(nasty):
    crf, X, y, _ = nasty
    train = [[f"train-{i}-{t}" for t in range(len(labels))] for i, labels in enumerate(y)]
    html = make_report(crf, X, y, train_tokens=train, decisions=[(3, 1)])
    why = crf.explain(X[3], 1)
    assert f"<h3>Sequence 3, token 1 as <bdi>{text(why.label)[:9]}" in html  # without words, no number stands for one
    words = [[f"word-{i}-{t}" for t in range(len(labels))] for i, labels in enumerate(y)]
    assert "<h3>Sequence 3, token 1: <bdi>word-3-1</bdi> as <bdi>" in make_report(
        crf, X, y, tokens=words, decisions=[(3, 1)]
    )
    for (i, t), value in zip(why.positions.tolist(), why.contributions.tolist(), strict=True):
        # The intercept belongs to no token.
        assert i < 0 or f"training sequence {i}, token {t}: <bdi>train-{i}-{t}</bdi></td>" in html
        assert f"{value:+.3f}" in html
    assert "training sequence -1" not in html
    for column, value, _, effect in why.columns:
        assert f"<bdi>{column}</bdi> = {value:.4g}</td>" in html
        assert f"{effect:+.3f}" in html
    for arguments, message in [
        ({"decisions": [(99, 0)]}, "decision 99:0: expected the index of a sequence, below 30"),
        (
            {"train_tokens": [["a"]], "decisions": [(3, 1)]},
            "expected the words of the data that the model was trained on",
        ),
        ({"tokens": []}, "expected the same number in X, y and tokens"),
    ]:
        with pytest.raises(ValueError, match=message):
            make_report(crf, X, y, **arguments)


def test_the_report_of_a_pipeline_is_that_of_its_last_step_on_transformed_sequences(nasty):
    crf, X, y, tokens = nasty
    pipe = make_pipeline(PerToken(StandardScaler()), clone(crf)).fit(X, y)
    alone = make_report(pipe[-1], pipe[0].transform(X), y, tokens=tokens)
    html = make_report(pipe, X, y, tokens=tokens)
    before = alone.index("Settings and versions")
    plain = html.replace(" (after preprocessing)", "")
    assert plain[:before] == alone[:before]
    assert re.search(r"<bdi>x?\d+</bdi> \(after preprocessing\) = -?[\d.]+</td>", html)
    assert "(after preprocessing)" not in alone
    linear = make_pipeline(PerToken(StandardScaler()), ChainCRF("linear", C=1.0)).fit(X, y)
    assert re.search(r"<bdi>[^<]*\d</bdi> \(after preprocessing\)</td>", make_report(linear, X, y, tokens=tokens))
    assert "pertoken__transformer" in plain[before:]
    assert "(after preprocessing)" not in make_report(make_pipeline(pipe[-1]), pipe[0].transform(X), y)
    assert "pertoken__transformer" not in alone
    classifier = KernelClassifier(n_components=5).fit(np.concatenate(X), np.concatenate(y))
    for model in (classifier, StandardScaler()):
        with pytest.raises(TypeError, match=r"model=.*ChainCRF.*, or a Pipeline that ends with one"):
            make_report(model, X, y)


def test_features_labels_that_are_new_or_missing_and_many_labels():
    names = [f"L{j:02d}" for j in range(40)]
    rng = np.random.default_rng(0)
    y = [[names[j] for j in rng.integers(40, size=5)] for _ in range(40)]
    X = [[[f"w={label}", "<u>"] for label in labels] for labels in y]
    crf = ChainCRF("linear", tol=1e-2, C=1.0).fit(X, y)
    y[0] = ["new", None, *y[0][2:]]
    y[1] = [None] * 5
    html = make_report(crf, X, y, decisions=[(0, 0)])
    Tags(html)
    assert re.search(r"These are the 25 of 4\d labels with the most errors\.", html)
    assert "&lt;u&gt;" in html
    assert "truly <bdi>new</bdi>" in html
    assert "F1 of spans" not in html
    assert 'id="sequence-1"' not in html


WORDS = [[["a"], ["b"]], [["b"], ["a"]], [["a"], ["a"]]]


@pytest.mark.parametrize("missing", [None, -1, pd.NA])
def test_missing_labels_are_not_wrong(missing):
    crf = ChainCRF("linear", C=10.0).fit(WORDS, [[0, 1], [1, 0], [0, 0]])
    html = make_report(crf, WORDS, [[0, missing], [1, 0], [0, 0]], decisions=[(0, 1)])
    assert "0 of 1 labels are wrong" in html
    assert "truly" not in html


def test_what_is_no_landmark_is_not_called_a_training_token():
    rng = np.random.default_rng(0)
    X, y, words = [rng.normal(size=(4, 1)) for _ in range(4)], [[0, 0, 1, 0]] * 4, [list("abcd")] * 4
    crf = ChainCRF("rbf", n_components=2, C=1.0, fit_intercept=True, random_state=0, gamma=1.0).fit(X, y)
    html = make_report(crf, X, y, tokens=words, train_tokens=words, decisions=[(0, 0)])
    assert "sequence -1" not in html
    assert "intercept" in html


def test_labels_may_have_the_names_of_averages():
    y = [["accuracy", "macro avg"], ["macro avg", "accuracy"], ["accuracy", "accuracy"]]
    html = make_report(ChainCRF("linear", C=10.0).fit(WORDS, y), WORDS, y)
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    shown = {tuple(re.findall(r">([^<>]+)<", row))[0::4] for row in rows if "1.0000" in row}
    assert {("accuracy", "4"), ("label macro avg", "2"), ("macro avg", "6")} <= shown


def test_a_report_without_spans_is_written():
    crf = ChainCRF("linear", C=10.0).fit(WORDS, [["O", "B-X"], ["B-X", "O"], ["O", "O"]])
    html = make_report(crf, [[["a"], ["a"]]], [["O", "O"]])
    assert "There are no spans." in html
