import numpy as np
import pytest

from kernelcrf.datasets import load_us_addresses


@pytest.mark.parametrize(
    ("subset", "addresses", "tokens", "labels"),
    [
        ("train", 1_513, 10_722, 29),
        ("train_us50", 50, 331, 7),
        ("train_us50_messy", 63, 404, 11),
        ("train_states", 8, 84, 11),
        ("test", 146, 1_094, 21),
        ("test_us50", 687, 4_627, 15),
        ("test_patterns", 8, 53, 10),
        ("test_states", 5, 50, 9),
    ],
)
def test_us_addresses_have_the_counts_of_their_files(data_folder, subset, addresses, tokens, labels):
    data = load_us_addresses(subset, folder=data_folder)
    assert (len(data.X), data.lengths.sum()) == (addresses, tokens)
    assert len(np.unique(np.concatenate(data.y))) == labels
    words = [token["word"] for x in data.X for token in x]
    assert words == [word.strip() for word in words]


def write(folder, text):
    path = folder / "us_addresses" / "test_labeled.xml"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")


def test_addresses_by_hand(tmp_path):
    text = "<AddressCollection>{}</AddressCollection>".format(
        "<AddressString><N> 12\n</N> <S>Rua</S> <S>Ñuñoa</S>, <P>A&amp;B</P></AddressString><!-- one -->\n"
        "<AddressString><P>Homer</P></AddressString>"
    )
    write(tmp_path, text)
    data = load_us_addresses("test", folder=tmp_path)
    assert [[token["word"] for token in x] for x in data.X] == [["12", "Rua", "Ñuñoa", "A&B"], ["Homer"]]
    assert [y.tolist() for y in data.y] == [["N", "S", "S", "P"], ["P"]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<AddressCollection>", r"test_labeled\.xml: expected XML \(no element found"),
        ("<AddressCollection/>", "the root element is AddressCollection with 0 addresses: expected .* at least one"),
        (
            "<Names><AddressString/></Names>",
            "root element is Names with 1 addresses: expected AddressCollection",
        ),
        ("<!DOCTYPE a><AddressCollection/>", "declares a document type: expected XML without one"),
        ("<AddressCollection><AddressString/></AddressCollection>", "address 1: expected an element AddressString"),
        ("<AddressCollection><A><N>1</N></A></AddressCollection>", "address 1: expected an element AddressString"),
        (
            "<AddressCollection><AddressString><N>1</N></AddressString><AddressString><N> </N></AddressString>"
            "</AddressCollection>",
            "address 2: expected .* one element per token, none of them empty",
        ),
        (
            "<AddressCollection><AddressString><N>1<S>a</S></N></AddressString></AddressCollection>",
            "address 1: expected .* one element per token",
        ),
    ],
)
def test_files_that_are_wrong_are_named(text, message, tmp_path):
    write(tmp_path, text)
    with pytest.raises(ValueError, match=message):
        load_us_addresses("test", folder=tmp_path)
