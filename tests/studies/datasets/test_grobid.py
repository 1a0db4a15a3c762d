import io
import re
import tarfile

import pytest

from studies.datasets import grobid_columns, grobid_templates, load_grobid

CITATION = """<?xml version="1.0"?>
<TEI xmlns="http://www.tei-c.org/ns/1.0"><!-- a comment --><listBibl>
<bibl>[1] <author>Ann <lb/>Lee</author>, <title level="j">J. of X</title> <biblScope unit="page">3-4</biblScope>
<biblScope type="pp">7</biblScope> <foreign>in <hi>press</hi></foreign></bibl><bibl> </bibl>
</listBibl></TEI>"""
AFFILIATION = """<tei><author><affiliation><orgName type="department">Physics</orgName>,
<address><settlement>Lyon</settlement></address></affiliation></author></tei>"""
TEMPLATES = """# a comment
U00:%x[-1,0]
U07:%x[-1,0]/%x[0,11]
U80:%x[0,14]
U81:%x[1,18]
U90:%x[0,19]
UA0:%x[0,20]
#UA1:%x[0,20]
B
"""


def write(folder, name, files):
    path = folder / "grobid" / f"{name}.tar.gz"
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for member, text in files.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return folder


def test_fields_become_tags_and_line_breaks_end_lines(tmp_path):
    files = {
        "citation/corpus/b.xml": "<a><bibl><date>1999</date></bibl></a>",
        "citation/corpus/a.xml": CITATION,
        "citation/corpus/c.xml.exclude": "<no xml",
        "citation/evaluation/d.xml": CITATION,
    }
    data = load_grobid("citation", folder=write(tmp_path, "citation", files))
    words = [" ".join(token["word"] for token in x) for x in data.X]
    assert words == ["[ 1 ] Ann Lee , J . of X 3 - 4 7 in press", "1999"]
    assert " ".join(data.y[0]) == (
        "O O O B-author I-author O B-journal I-journal I-journal I-journal B-pages I-pages I-pages B-pages O O"
    )
    assert [t for t, token in enumerate(data.X[0]) if token["line"] == "first"] == [0, 4]
    assert [t for t, token in enumerate(data.X[0]) if token["line"] == "last"] == [3, 15]


def test_an_author_with_all_affiliations_is_one_item(tmp_path):
    files = {"affiliation-address/corpus/a.xml": AFFILIATION}
    data = load_grobid("affiliation", folder=write(tmp_path, "affiliation-address", files))
    assert [tag.tolist() for tag in data.y] == [["B-department", "O", "B-settlement"]]


def test_templates_that_read_dictionaries_are_left_out(tmp_path):
    files = {"affiliation-address/crfpp-templates/a.template": TEMPLATES}
    templates = grobid_templates("affiliation", folder=write(tmp_path, "affiliation-address", files))
    assert templates.text.split("\n") == ["U00:%x[-1,0]", "U07:%x[-1,0]/%x[0,11]", "U90:%x[0,19]", "UA0:%x[0,20]", "B"]
    cells = grobid_columns([{"word": "USA-95", "line": "first"}, {"word": ".", "line": "last"}], "affiliation")
    assert templates.features([cells])[0][1] == ["U00:USA-95", "U07:USA-95/none", "U90:full stop", "UA0:."]
    assert cells[0] == [
        *("USA-95", "usa-95", "U", "US", "USA", "USA-", "5", "95", "-95", "A-95"),
        *("first", "all", "some", "0", "0", "0", "0", "0", "0", "other", "X-0"),
    ]


def test_places_are_twelfths_of_a_citation():
    cells = grobid_columns([{"word": word, "line": "inner"} for word in "abc"], "citation")
    assert [cell[-1] for cell in cells] == ["0", "4", "8"]


def test_damaged_xml_is_named(tmp_path):
    files = {"date/corpus/a.xml": "<dates><date>"}
    with pytest.raises(ValueError, match=re.escape("a.xml: expected XML")):
        load_grobid("date", folder=write(tmp_path, "date", files))


def test_the_public_corpora_have_their_counts(data_folder):
    data = load_grobid("date", folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == (644, 2480)
    assert len(grobid_templates("date", folder=data_folder).compiled) == 43
