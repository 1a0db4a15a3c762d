"""Read and write the binary model files of CRFsuite.

A file has six parts. All integers are unsigned, with 32 bits and the lowest byte first.

    header            the letters lCRF, the size of the file, the letters FOMC, the version (100), a number that
                      CRFsuite sets to 0, the numbers of labels and attributes, the positions of the other five parts
    features          the letters FEAT, the size of this part, the number of features, and for each feature its kind
                      (0: attribute and label, 1: two labels), its attribute or first label, its label, its weight as a
                      64-bit float
    labels            a list of names, see `names`
    attributes        a list of names
    by label          the letters LFRF, the size of this part, the number of labels + 2, the position of the references
                      of each label, and two zeros; then for each label the number of transitions from it, and their
                      places among the features
    by attribute      the letters AFRF, then the same for the features of each attribute, without the two zeros

CRFsuite stores features in order of kind, then of attribute or first label, then of label, and so does `write_model`.

`read_model` checks each size and position before it uses it, and raises if the parts of the file contradict each other.
A changed name is noticed, since its hash is stored too. A changed weight is not, because the format has no checksum.

Names are UTF-8 in most files. Bytes that are not UTF-8 become lone surrogates (the error handler "surrogateescape"), so
that they are written as they were read. CRFsuite ends names with a NUL, so that a name cannot contain one.
"""

from __future__ import annotations

import os
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kernelcrf.arrays import Array, Floats, Ints
from kernelcrf.persistence import ModelFileError, PathLike, named_errors, wapiti, whole_file
from kernelcrf.persistence.crfsuite.checked_bytes import NUMBER, CheckedBytes
from kernelcrf.persistence.crfsuite.names import names_chunk, read_names
from kernelcrf.validation import shown

HEADER = struct.Struct("<4sI4s9I")
CHUNK = struct.Struct("<4s2I")
MARK, KIND, VERSION = b"lCRF", b"FOMC", 100
FEATURES, BY_LABEL, BY_ATTRIBUTE = b"FEAT", b"LFRF", b"AFRF"
STATE, TRANSITION = 0, 1
FEATURE = np.dtype([("kind", "<u4"), ("source", "<u4"), ("label", "<u4"), ("weight", "<f8")])
LARGEST = 2**32 - 1
SUFFIX = ".crfsuite"
OTHER_PROGRAMS = {SUFFIX: "CRFsuite", wapiti.SUFFIX: "Wapiti"}
"""The programs whose model files are written, by the extension of the file."""


class StateWeights(NamedTuple):
    """The weights of pairs of an attribute and a label: three arrays with one entry per pair.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.crfsuite import StateWeights
    >>> state = StateWeights(attributes=np.array([0, 0]), labels=np.array([0, 1]), weights=np.array([1.5, -1.5]))
    >>> state.weights[state.labels == 1]
    array([-1.5])
    """

    attributes: Ints
    labels: Ints
    weights: Floats


class TransitionWeights(NamedTuple):
    """The weights of pairs of adjacent labels: three arrays with one entry per pair.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.crfsuite import TransitionWeights
    >>> transitions = TransitionWeights(sources=np.array([0]), targets=np.array([1]), weights=np.array([0.5]))
    >>> transitions.targets
    array([1])
    """

    sources: Ints
    targets: Ints
    weights: Floats


@dataclass(frozen=True, eq=False)
class CRFsuiteModel:
    """The content of a model file of CRFsuite.

    labels : the names of the labels; the id of a label is its place in this list.
    attributes : the names of the attributes; the id of an attribute is its place in this list.
    state : the weights of pairs (id of an attribute, id of a label).
    transitions : the weights of pairs (id of a label, id of the label after it).

    Pairs that are not listed have the weight 0. `read_model` returns pairs in order of their ids.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.crfsuite import CRFsuiteModel, StateWeights, TransitionWeights
    >>> state = StateWeights(np.array([0, 1]), np.array([0, 1]), np.array([0.5, 2.0]))
    >>> transitions = TransitionWeights(np.array([0]), np.array([1]), np.array([-1.0]))
    >>> CRFsuiteModel(["N", "V"], ["word=time", "word=flies"], state, transitions).labels
    ['N', 'V']
    """

    labels: list[str]
    attributes: list[str]
    state: StateWeights
    transitions: TransitionWeights


def begins_like_crfsuite(path: PathLike) -> bool:
    """Return whether the first bytes of a file are those of a model file of CRFsuite."""
    with named_errors(path), open(path, "rb") as file:
        return file.read(len(MARK)) == MARK


def refuse_suffix(path: PathLike, kind: str) -> None:
    """Raise if `path` has the extension of CRFsuite or Wapiti, because they have no models of the class `kind`."""
    program = OTHER_PROGRAMS.get(os.path.splitext(os.fspath(path))[1])
    if program is not None:
        raise ValueError(
            f"path={shown(path)}: a {kind} cannot be written as a model of {program}: expected a ChainCRF. Save it as "
            "a .kcrf file"
        )


def read_model(source: PathLike | bytes) -> CRFsuiteModel:
    """Read a model file of CRFsuite from a path, or from its bytes.

    Raise ModelFileError if the file is not a model of CRFsuite, or is damaged. The memory that this function needs is
    a small multiple of the size of the file, whatever the file contains.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.crfsuite import CRFsuiteModel, StateWeights, TransitionWeights, read_model, write_model
    >>> state = StateWeights(np.array([0, 1]), np.array([0, 1]), np.array([0.5, 2.0]))
    >>> transitions = TransitionWeights(np.array([0]), np.array([1]), np.array([-1.0]))
    >>> write_model(CRFsuiteModel(["N", "V"], ["word=time", "word=flies"], state, transitions), "tags.crfsuite")
    >>> model = read_model("tags.crfsuite")
    >>> model.attributes, model.state.weights
    (['word=time', 'word=flies'], array([0.5, 2. ]))
    """
    try:
        return _parse(CheckedBytes(source if isinstance(source, bytes) else _content(source), "the file"))
    except ModelFileError as error:
        name = "source" if isinstance(source, bytes) else os.fspath(source)
        raise ModelFileError(
            f"{name}: not a model file of CRFsuite, or a damaged one ({error}). Copy the file again, or train the "
            "model again"
        ) from None


def write_model(model: CRFsuiteModel, path: PathLike) -> None:
    """Write a model file that CRFsuite can open; a file that exists at `path` is replaced when the new one is complete.

    Raise ValueError if CRFsuite could not read the model because of names that contain NUL or occur twice, ids without
    a name, pairs that occur twice, or weights that are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelcrf.crfsuite import CRFsuiteModel, StateWeights, TransitionWeights, write_model
    >>> none = np.empty(0, int)
    >>> state = StateWeights(np.array([0]), np.array([1]), np.array([2.0]))
    >>> model = CRFsuiteModel(["N", "V"], ["word=flies"], state, TransitionWeights(none, none, np.empty(0)))
    >>> write_model(model, "verbs.crfsuite")
    """
    content = model_bytes(model)
    with whole_file(path) as file:
        file.write(content)


def model_bytes(model: CRFsuiteModel) -> bytes:
    """Return the content of the file that `write_model` writes."""
    labels = _encode("labels", model.labels)
    attributes = _encode("attributes", model.attributes)
    if not labels:
        raise ValueError("the model has no labels: a file of CRFsuite needs at least one. Fit the model to labels")
    state = _sorted_features("state", STATE, model.state, (len(attributes), len(labels)))
    transitions = _sorted_features("transitions", TRANSITION, model.transitions, (len(labels), len(labels)))
    n_features = len(state) + len(transitions)

    features = CHUNK.pack(FEATURES, CHUNK.size + n_features * FEATURE.itemsize, n_features)
    parts = [features + state.tobytes() + transitions.tobytes(), names_chunk(labels), names_chunk(attributes)]
    positions = np.cumsum([HEADER.size, *map(len, parts)]).tolist()
    parts.append(bytes(-positions[-1] % 4))
    positions[-1] += len(parts[-1])
    parts.append(_references(BY_LABEL, transitions["source"], len(state), len(labels), 2, positions[-1]))
    positions.append(positions[-1] + len(parts[-1]))
    parts.append(_references(BY_ATTRIBUTE, state["source"], 0, len(attributes), 0, positions[-1]))
    size = HEADER.size + sum(map(len, parts))
    if size > LARGEST:
        raise ValueError(
            f"the file would have {size:,} bytes, but CRFsuite can read at most {LARGEST:,}: drop small weights, and "
            "attributes that have no weights"
        )
    return b"".join([HEADER.pack(MARK, size, KIND, VERSION, 0, len(labels), len(attributes), *positions), *parts])


def _content(path: PathLike) -> bytes:
    size = Path(path).stat().st_size
    if not Path(path).is_file():
        raise ModelFileError(f"{path} is a folder or a device: expected a model file of CRFsuite")
    with named_errors(path), open(path, "rb") as file:
        head = file.read(HEADER.size)
        # A large file of another kind is not read to its end.
        if not head.startswith(MARK) or size > LARGEST:
            raise ModelFileError(
                f"the file begins with {head[:4]!r} and has {size:,} bytes: expected a model file of CRFsuite, which "
                f"begins with {MARK!r} and has at most {LARGEST:,} bytes"
            )
        return head + file.read(size - len(head))


def _parse(file: CheckedBytes) -> CRFsuiteModel:
    head = HEADER.unpack(file.part(0, HEADER.size, "the header").data)
    (mark, size, kind, version), (n_labels, n_attributes), positions = head[:4], head[5:7], head[7:]
    if (mark, kind, version) != (MARK, KIND, VERSION):
        raise ModelFileError(
            f"the file begins with {mark!r}, {kind!r} and version {version}: expected {MARK!r}, {KIND!r} and {VERSION}"
        )
    if size != len(file) or not n_labels:
        raise ModelFileError(
            f"the header says {size:,} bytes and {n_labels:,} labels, but the file has {len(file):,} bytes: expected "
            "the same size, and at least one label"
        )
    n_features = _chunk_length(file, positions[0], FEATURES, "the features")
    features = file.rows(positions[0] + CHUNK.size, n_features, FEATURE, "the features")
    labels = read_names(file, positions[1], n_labels, "labels")
    attributes = read_names(file, positions[2], n_attributes, "attributes")
    of_state = features["kind"] == STATE
    sources = np.where(of_state, n_attributes, n_labels)
    if (features["kind"] > TRANSITION).any() or (features["source"] >= sources).any():
        raise ModelFileError(
            "a feature is of an unknown kind, or its attribute or first label is not in the file: expected the kinds 0 "
            "and 1, and attributes and labels of the file. The file may be damaged: use another copy of it"
        )
    if (features["label"] >= n_labels).any() or not np.isfinite(features["weight"]).all():
        raise ModelFileError(
            "a feature has a weight that is not finite, or its label is not in the file: expected finite weights, and "
            "labels of the file. The file may be damaged: use another copy of it"
        )
    for mark, n, position, is_listed in ((BY_LABEL, n_labels, 3, ~of_state), (BY_ATTRIBUTE, n_attributes, 4, of_state)):
        _check_references(file, positions[position], mark, n, features["source"], is_listed)
    twice = ModelFileError("two features are of the same attribute and label, or of the same pair of labels")
    state, transitions = (_sorted_columns(features[rows], n_labels, twice) for rows in (of_state, ~of_state))
    texts = [[name.decode("utf-8", "surrogateescape") for name in names] for names in (labels, attributes)]
    return CRFsuiteModel(texts[0], texts[1], StateWeights(*state), TransitionWeights(*transitions))


def _sorted_columns(features: Array, n_labels: int, error: ModelFileError) -> tuple[Ints, Ints, Floats]:
    features = features[_order_of_pairs(features["source"], features["label"], n_labels, error)]
    return (
        features["source"].astype(np.int64),
        features["label"].astype(np.int64),
        features["weight"].astype(np.float64),
    )


def _chunk_length(file: CheckedBytes, position: int, mark: bytes, what: str) -> int:
    """Return the number of entries of a chunk; raise unless the chunk begins with `mark`."""
    first_bytes, _, n = CHUNK.unpack(file.part(position, CHUNK.size, what).data)
    if first_bytes != mark:
        raise ModelFileError(f"{what} begin with {first_bytes!r}: expected {mark!r}")
    return int(n)


def _check_references(file: CheckedBytes, position: int, mark: bytes, n: int, source: Ints, is_listed: Array) -> None:
    """Raise unless a chunk of references, by which CRFsuite finds the features of a label or attribute, is valid.

    The chunk must refer once to each feature for which `is_listed` is true, and to no other feature.
    """
    what = "the references to features"
    wrong = ModelFileError(f"{what} ({mark.decode()}) do not match the features: expected one per feature")
    if _chunk_length(file, position, mark, what) < n:
        raise wrong
    places = file.numbers(position + CHUNK.size, n, what)
    counts = file.numbers_at(places, what)
    if counts.sum() != np.count_nonzero(is_listed):
        raise wrong
    before = np.cumsum(counts) - counts
    references = file.numbers_at(np.repeat(places + 4 - 4 * before, counts) + 4 * np.arange(counts.sum()), what)
    if len(references) and references.max() >= len(is_listed):
        raise wrong
    leads_home = source[references] == np.repeat(np.arange(n), counts)
    if not leads_home.all() or (np.bincount(references, minlength=len(is_listed)) != is_listed).any():
        raise wrong


def _references(mark: bytes, source: Array, first: int, n: int, n_spare: int, position: int) -> bytes:
    """Return a chunk of references, by which CRFsuite finds the features of each label or attribute.

    source : the label or attribute of each feature, in increasing order.
    first : the place of the first of these features among all features of the file.
    """
    counts = np.bincount(source, minlength=n)
    heads = np.arange(n) + np.cumsum(counts) - counts
    numbers = np.empty(n + len(source), np.int64)
    is_feature = np.ones(len(numbers), np.bool_)
    is_feature[heads] = False
    numbers[heads] = counts
    numbers[is_feature] = first + np.arange(len(source))
    size = CHUNK.size + 4 * (n + n_spare)
    places = np.concatenate((position + size + 4 * heads, np.zeros(n_spare, np.int64)))
    head = CHUNK.pack(mark, (size + 4 * len(numbers)) & LARGEST, n + n_spare)
    return head + places.astype(NUMBER).tobytes() + numbers.astype(NUMBER).tobytes()


def _encode(field: str, names: Sequence[str]) -> list[bytes]:
    try:
        encoded = [name.encode("utf-8", "surrogateescape") for name in names]
    except (AttributeError, UnicodeEncodeError) as error:
        raise ValueError(f"{field} has a name that UTF-8 cannot store ({error}): expected plain text") from None
    if b"\0" in b"".join(encoded):
        bad = next(name for name in names if "\0" in name)
        raise ValueError(
            f"{field} has the name {shown(bad)}: expected names without NUL, because CRFsuite ends each name with NUL; "
            "rename it"
        )
    if len(set(encoded)) < len(encoded):
        bad = Counter(encoded).most_common(1)[0][0].decode("utf-8", "surrogateescape")
        raise ValueError(
            f"{field} has the name {shown(bad)} more than once: expected different names; rename all but one"
        )
    return encoded


def _sorted_features(field: str, kind: int, weights: StateWeights | TransitionWeights, sizes: tuple[int, int]) -> Array:
    """Return the features of one kind in the order of CRFsuite; raise ValueError if CRFsuite could not read them."""
    arrays = [np.asarray(array) for array in weights]
    if {array.shape for array in arrays} != {(len(arrays[0].ravel()),)}:
        raise ValueError(
            f"the arrays of {field} have the shapes {', '.join(str(array.shape) for array in arrays)}: expected "
            "one-dimensional arrays of the same length"
        )
    source, label, weight = arrays
    for name, ids, size in zip(weights._fields, (source, label), sizes, strict=False):
        if len(ids) and (ids.dtype.kind not in "iu" or ids.min() < 0 or ids.max() >= size):
            raise ValueError(
                f"{field}.{name} has values that are not ids of names: expected integers >= 0 and below {size:,}"
            )
    if weight.dtype.kind not in "iuf" or not np.isfinite(weight).all():
        raise ValueError(f"{field}.weights has values that are not finite: expected finite numbers")
    twice = ValueError(f"{field} has two weights for the same pair of ids: expected one weight per pair")
    order = _order_of_pairs(source, label, sizes[1], twice)
    features = np.empty(len(source), FEATURE)
    features["kind"] = kind
    for name, array in zip(("source", "label", "weight"), arrays, strict=True):
        features[name] = array[order]
    return features


def _order_of_pairs(source: Array, label: Array, n_labels: int, error: ValueError) -> Array:
    """Return the indices that sort pairs of ids by source and then by label; raise `error` if a pair occurs twice."""
    pairs = source.astype(np.int64) * n_labels + label.astype(np.int64)
    order = np.argsort(pairs, kind="stable")
    if (np.diff(pairs[order]) == 0).any():
        raise error
    return order
