"""Read a fitted estimator from a file."""

from __future__ import annotations

from typing import get_args

from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.classifier import KernelClassifier
from kernelcrf.estimators.graph import GraphCRF
from kernelcrf.estimators.markov_network import MarkovNetwork
from kernelcrf.estimators.multilabel import MultiLabelCRF
from kernelcrf.persistence import ModelFileError, PathLike, read
from kernelcrf.validation import PATH, validated

Model = ChainCRF | KernelClassifier | GraphCRF | MarkovNetwork | MultiLabelCRF
ESTIMATORS: dict[str, type[Model]] = {cls.__name__: cls for cls in get_args(Model)}


@validated(path=PATH)
def load(path: PathLike) -> Model:
    """Return the fitted estimator that `save` wrote to a file.

    Examples
    --------
    >>> from kernelcrf import ChainCRF, load
    >>> from kernelcrf.datasets import make_sequences
    >>> data = make_sequences(20, random_state=0)
    >>> ChainCRF(n_components=50, random_state=0).fit(data.X, data.y).save("model.kcrf")
    >>> load("model.kcrf").predict(data.X[:1])[0][:5]
    array([1, 2, 2, 2, 2])
    """
    config, arrays = read(path)
    name = config.get("estimator")
    if not isinstance(name, str) or name not in ESTIMATORS:
        raise ModelFileError(
            f"{path} has the unknown estimator {name!r}: expected one of {', '.join(ESTIMATORS)}; upgrade kernelcrf"
        )
    try:
        return ESTIMATORS[name].from_arrays(config, arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
