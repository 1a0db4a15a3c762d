"""Annotated text: one token a line, columns apart by a tab or a blank, and something that ends a sentence.

An empty line ends it (CoNLL-2000, WNUT-17, UD), or a line `<file> name` begins the next one (Helsinki Prosody Corpus).
Lines end at newlines only: text of social media holds other characters that Unicode counts as line ends.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from kernelcrf.datasets.labelled import Array, Indices, LabelledSequences
from kernelcrf.datasets.source import Folder, Source, choice, cut, numbers, read_text, split_lines
from kernelcrf.formats.columns import rows

Part: TypeAlias = Literal["train", "dev", "test"]
NA = "NA"
MARK = "<file>\t"

CONLL2000 = Source(
    folder="conll2000_chunking",
    layout=(
        "conll2000_chunking/{train,test}.txt.gz, UTF-8: a token a line as 'word pos chunk' with single blanks between, "
        "an empty line after each sentence; the shared task's own files."
    ),
    origin="packages/corpora/conll2000.zip of https://github.com/nltk/nltk_data",
    description="Text chunking of the Wall Street Journal, the shared task of CoNLL-2000.",
    licence="none stated; text of the Penn Treebank, released for the shared task: research use",
    citation=("E. F. Tjong Kim Sang and S. Buchholz, Introduction to the CoNLL-2000 Shared Task: Chunking, CoNLL 2000"),
)
WNUT17 = Source(
    folder="wnut17_ner",
    layout=(
        "wnut17_ner/{train,dev,test}.txt.gz, UTF-8: a token a line as 'word<tab>label', one empty line after each "
        "post; from wnut17train.conll, emerging.dev.conll and emerging.test.annotated, blanks at line ends removed."
    ),
    origin="https://github.com/leondz/emerging_entities_17",
    description="Named entities that are new or rare, in posts of social media: the shared task of W-NUT 2017.",
    licence="CC BY 4.0",
    citation=(
        "L. Derczynski, E. Nichols, M. van Erp and N. Limsopatham, Results of the WNUT2017 Shared Task on Novel and "
        "Emerging Entity Recognition, W-NUT 2017"
    ),
)
UD_EWT = Source(
    folder="ud_english_ewt",
    layout=(
        "ud_english_ewt/{train,dev,test}.txt.gz, UTF-8: a word a line as 'FORM<tab>UPOS', an empty line after each "
        "sentence; the word rows of the CoNLL-U files, without ranges (1-2) and empty nodes (8.1)."
    ),
    origin="https://github.com/UniversalDependencies/UD_English-EWT, release 2.16",
    description="Universal parts of speech of English web text: Universal Dependencies, English EWT 2.16.",
    licence="CC BY-SA 4.0",
    citation=(
        "N. Silveira, T. Dozat, M.-C. de Marneffe, S. Bowman, M. Connor, J. Bauer and C. Manning, A Gold Standard "
        "Dependency Corpus for English, LREC 2014"
    ),
)
PROSODY = Source(
    folder="helsinki_prosody",
    layout=(
        "helsinki_prosody/{dev,test}.txt.gz and helsinki_prosody/early_2019-05/{train_100,dev,test}.txt.gz, UTF-8: a "
        "line '<file><tab>name' before each sentence, then a token a line as word, prominence, boundary and, in the "
        "final release, their real values, apart by tabs, NA where there is none."
    ),
    origin="https://github.com/Helsinki-NLP/prosody (data/; the early release is in the history of 2019-05-13)",
    description="Prosodic prominence of the words of audio books: the Helsinki Prosody Corpus.",
    licence="CC BY 4.0",
    citation=(
        "A. Talman, A. Suni, H. Celikkanat, S. Kakouros, J. Tiedemann and M. Vainio, Predicting Prosodic Prominence "
        "from Text with Pre-trained Contextualized Word Representations, NoDaLiDa 2019"
    ),
)


def load_conll2000(subset: Literal["train", "test"] = "train", *, folder: Folder = None) -> LabelledSequences:
    """Phrase chunks of the Wall Street Journal, in IOB2.

    X has dicts with `word` and `pos`, y chunk tags such as "B-NP". The shared task's split: 8,936 sentences (211,727
    tokens, 22 tags) for training, 2,012 (47,377 tokens, 19 tags, of which I-LST never occurs in training) for testing;
    none for tuning. Scored by the F1 of spans over all types.

    Licence: none stated; the text is the Penn Treebank's, released for the shared task.
    Source: the corpora of NLTK (conll2000.zip). `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_conll2000
    >>> data = load_conll2000("test")
    >>> data.X[0][0], data.y[0][:2].tolist()
    ({'word': 'Rockwell', 'pos': 'NNP'}, ['B-NP', 'I-NP'])
    """
    choice("subset", subset, ("train", "test"))
    return _tagged(CONLL2000, subset, folder, ("word", "pos", "chunk"), " ")


def load_wnut17(subset: Part = "train", *, folder: Folder = None) -> LabelledSequences:
    """Emerging named entities in social media, in IOB2.

    X has dicts with `word`, y tags of six types: person, location, corporation, group, product, creative-work. The
    shared task's split: 3,394 posts (62,730 tokens) to train, 1,009 (15,733) to tune, 1,287 (23,394) to test,
    all from different sites. Scored by the F1 of spans.

    Licence: CC BY 4.0. Source: github.com/leondz/emerging_entities_17.
    `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_wnut17
    >>> data = load_wnut17("dev")
    >>> len(data.y), data.X[0][0]
    (1009, {'word': 'Stabilized'})
    """
    choice("subset", subset, ("train", "dev", "test"))
    return _tagged(WNUT17, subset, folder, ("word", "label"), "\t")


def load_ud_ewt(subset: Part = "train", *, folder: Folder = None) -> LabelledSequences:
    """Universal parts of speech of English web text, release 2.16.

    X has dicts with `word`, y the 17 universal tags. The treebank's split: 12,544 sentences (204,577 words) to train,
    2,001 (25,147) to tune, 2,077 (25,094) to test. Scored by the accuracy of words; numbers of one release do not
    compare with those of another.

    Licence: CC BY-SA 4.0. Source: github.com/UniversalDependencies/UD_English-EWT.
    `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_ud_ewt
    >>> data = load_ud_ewt("dev")
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'word': 'From'}, {'word': 'the'}], ['ADP', 'DET'])
    """
    choice("subset", subset, ("train", "dev", "test"))
    return _tagged(UD_EWT, subset, folder, ("word", "upos"), "\t")


def load_prosody(
    subset: Literal["train_100", "dev", "test"] = "dev",
    *,
    n_classes: Literal[2, 3] = 3,
    release: Literal["final", "early"] = "final",
    folder: Folder = None,
) -> LabelledSequences:
    """How prominent each word of a sentence is when read aloud, as an automatic analysis of the audio has it.

    X has dicts with `word`; y is 0 (not prominent), 1 or 2 (very), and -1 for tokens without a label: punctuation, and
    some words. `eval_mask` is true where there is a label; only these are scored, by their accuracy. `groups` are
    speakers, `ids` the names of the utterances.

    extras : `boundary`, the strength of the boundary after the word, as y is coded; in the final release also
        `prominence_value` and `boundary_value`, real, NaN where missing. In a few rows of that release one of the two
        annotations is missing without the other, and some punctuation has a label.

    n_classes : 2 joins the labels 1 and 2.
    release : "final" has dev (5,727 sentences, 99,200 labelled words, 40 speakers) and test (4,822; 90,063; 39); its
        files for training are not part of the layout. "early", the first release, has train_100 (33,047 sentences,
        570,708 labelled words), dev (5,728; 99,221) and test (4,824; 90,073), before the annotation was
        redone: a quarter of the 3-way labels differ. Published numbers belong to the final release.

    Licence: CC BY 4.0. Source: github.com/Helsinki-NLP/prosody.
    `folder` : the folder of all data sets, else KERNELCRF_DATA.

    Examples
    --------
    >>> from kernelcrf.datasets import load_prosody
    >>> data = load_prosody("dev", n_classes=2)
    >>> data.X[0][:2], data.y[0][:2].tolist()
    ([{'word': 'A'}, {'word': "'JOLLY'"}], [0, 1])
    """
    choice("release", release, ("final", "early"))
    choice("n_classes", n_classes, (2, 3))
    final = release == "final"
    choice(f"release={release!r}, subset", subset, ("dev", "test") if final else ("train_100", "dev", "test"))
    path = PROSODY.path(folder, f"{subset}.txt.gz" if final else f"early_2019-05/{subset}.txt.gz")

    lines = read_text(path).split("\n")
    heads = [number for number, line in enumerate(lines) if line.startswith(MARK)]
    if not heads or heads[0] != 0:
        raise ValueError(f"{path}, line 1: expected {MARK!r} and the name of the first sentence, got {lines[0]!r}")
    places = [number for number, line in enumerate(lines, 1) if line and not line.startswith(MARK)]
    columns = split_lines(path, [lines[place - 1] for place in places], places, "\t", 5 if final else 3)
    starts = np.searchsorted(places, heads, side="right")
    names = np.array([lines[head].removeprefix(MARK) for head in heads], dtype=np.str_)
    prominence = _grades(path, "prominence", columns[1])
    y = np.minimum(prominence, n_classes - 1)
    extras = {"boundary": _grades(path, "boundary", columns[2])}
    if final:
        for name, cells in zip(("prominence_value", "boundary_value"), columns[3:], strict=True):
            extras[name] = numbers(path, name, ["nan" if cell == NA else cell for cell in cells])
    return LabelledSequences(
        X=_records({"word": columns[0]}, starts),
        y=cut(y, starts),
        ids=names,
        groups=np.array([name.split("_")[0] for name in names], dtype=np.str_),
        eval_mask=cut(y >= 0, starts),
        extras={name: cut(column, starts) for name, column in extras.items()},
        **PROSODY.about(f"Part {subset!r} of the {release} release, {n_classes} classes."),
    )


def _tagged(source: Source, subset: str, folder: Folder, names: tuple[str, ...], separator: str) -> LabelledSequences:
    """Sentences whose last column is the label."""
    columns, starts = read_columns(source.path(folder, f"{subset}.txt.gz"), separator, len(names))
    return LabelledSequences(
        X=_records(dict(zip(names[:-1], columns[:-1], strict=True)), starts),
        y=cut(np.array(columns[-1], dtype=np.str_), starts),
        **source.about(f"Part {subset!r}."),
    )


def read_columns(path: Path, separator: str, width: int) -> tuple[list[list[str]], Indices]:
    """Columns of strings, and where the sentences (m,), ended by an empty line or by the file, start in them."""
    sentences = [cells for batch in rows(path, separator=separator, width=width) for _, _, cells in batch]
    if not sentences:
        raise ValueError(f"{path} has no rows: expected at least one")
    starts = np.cumsum([0, *map(len, sentences[:-1])])
    return [list(column) for column in zip(*chain.from_iterable(sentences), strict=True)], starts


def _records(columns: dict[str, list[str]], starts: Indices) -> list[list[dict[str, str]]]:
    if len(columns) == 1:
        ((name, cells),) = columns.items()
        tokens = [{name: cell} for cell in cells]
    else:
        names = tuple(columns)
        tokens = [dict(zip(names, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    ends = [*starts[1:].tolist(), len(tokens)]
    return [tokens[start:end] for start, end in zip(starts.tolist(), ends, strict=True)]


def _grades(path: Path, name: str, cells: list[str]) -> Array:
    """0, 1 or 2, and -1 for NA."""
    codes = {"0": 0, "1": 1, "2": 2, NA: -1}
    if unknown := set(cells) - set(codes):
        raise ValueError(f"{path}, column {name}: expected 0, 1, 2 or {NA}, got {sorted(unknown)[:5]}")
    return np.fromiter(map(codes.__getitem__, cells), np.int64, len(cells))
