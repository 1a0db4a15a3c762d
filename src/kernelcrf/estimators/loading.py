"""From a file to a fitted estimator."""

from __future__ import annotations

from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.state import restore
from kernelcrf.persistence import ModelFileError, PathLike, read


def load(path: PathLike) -> ChainCRF:
    """The fitted estimator that `save` wrote to a file.

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
    if config.get("estimator") != "ChainCRF":
        raise ModelFileError(f"{path}: estimator {config.get('estimator')!r}: expected 'ChainCRF'; upgrade kernelcrf")
    model = ChainCRF()
    try:
        restore(model, config, arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    return model
