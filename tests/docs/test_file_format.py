"""The page on file formats adds a format to a copy of the library, by the two files that it names."""

import gzip
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import kernelcrf

PAGE = Path(__file__).parents[2] / "docs/extend/file_format.md"
SENTENCES = "The/DT dog/NN barks/VBZ\n\nIt/PRP barks/VBZ\nA/DT cat/NN and/or/CC a/DT dog/NN\n"
FILES = {
    "train.tok": SENTENCES,
    "wrong.tok": "The/DT dog\n",
    "weight.jsonl": '{"tokens": ["a"], "labels": ["x"], "weight": 2}\n',
    "none.jsonl": '{"tokens": ["a"]}\n',
}
COMMANDS = """import sys
from kernelcrf.cli import main
for arguments in {commands!r}:
    sys.argv[1:] = arguments
    try:
        main()
    except SystemExit as end:
        print("exit", end.code)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Run all commands in one process, with a copy of the library that has the format of the page.

    Return the folder with the files, and what was printed.
    """
    folder = tmp_path_factory.mktemp("library")
    # Compiled loops are kept beside their source, so copies of both need not be compiled again.
    shutil.copytree(Path(kernelcrf.__file__).parent, folder / "kernelcrf")
    module, line = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    formats = folder / "kernelcrf/formats"
    (formats / "tok.py").write_text(module, encoding="utf-8")
    registry = (formats / "registry.py").read_text(encoding="utf-8")
    end = registry.rindex("}")
    (formats / "registry.py").write_text(registry[:end] + line + registry[end:], encoding="utf-8")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    commands = (
        "convert train.tok train.jsonl",
        "convert train.jsonl again.tok.gz",
        "fit train.tok tagger.kcrf -C 10",
        "tag tagger.kcrf train.tok",
        "evaluate tagger.kcrf train.tok",
        "--help",
        "convert train.tok train.doc",
        "convert train.tok train.jsonl --from word",
        "convert wrong.tok a.jsonl",
        "convert weight.jsonl a.tok",
        "convert none.jsonl a.tok",
    )
    script = COMMANDS.format(commands=[command.split() for command in commands])
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{script}"
    result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    return folder, result.stdout, result.stderr


def test_the_format_is_read_written_and_tagged_by_all_commands(ran):
    folder, out, err = ran
    assert out.count("exit 0") == 6, (out, err)
    assert gzip.decompress((folder / "again.tok.gz").read_bytes()).decode() == SENTENCES.replace("\n\n", "\n")
    assert "dog\tNN\n" in out
    assert "words with slashes (.tok)" in " ".join(out.split())
    assert "the extension '.doc' is not known: expected one of .txt" in err
    assert ".tok; or pass the format, one of columns, conllu, jsonl, crfsuite, parquet, npz, tok" in err
    assert "npz or tok; omit the option" in " ".join(err.split())


def test_the_format_refuses_what_it_cannot_store_by_file_and_line(ran):
    assert ran[2].splitlines()[-3:] == [
        "error: wrong.tok, line 1: got the token 'dog': expected a word, a slash and a label",
        "error: weight.jsonl, line 1: a .tok file would change the weight of this sequence: expected strings, or "
        "numbers that float64 can represent exactly",
        "error: none.jsonl, line 1: the sequence has no labels: expected labels, or write a .jsonl file",
    ]
