import gzip

import pytest

from studies.datasets import load_names


def test_names_by_hand(tmp_path):
    path = tmp_path / "probablepeople" / "company_labeled.xml.gz"
    path.parent.mkdir()
    text = "<NameCollection><Name><A>Lee,</A> <B> Ann</B> <C/></Name><Name/></NameCollection>"
    path.write_bytes(gzip.compress(text.encode()))
    data = load_names("company", folder=tmp_path)
    assert data.X == [[{"word": "Lee,"}, {"word": "Ann"}]]
    assert [y.tolist() for y in data.y] == [["A", "B"]]


@pytest.mark.parametrize(("subset", "counts"), [("person", (2898, 6032)), ("company", (1383, 5383))])
def test_the_public_sets_have_their_counts(data_folder, subset, counts):
    data = load_names(subset, folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == counts
