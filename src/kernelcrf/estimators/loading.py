"""From a file to a fitted estimator."""

from __future__ import annotations

from kernelcrf.estimators.chain import ChainCRF
from kernelcrf.estimators.state import restore
from kernelcrf.persistence import ModelFileError, PathLike, read


def load(path: PathLike) -> ChainCRF:
    """The fitted estimator that `save` wrote to a file."""
    config, arrays = read(path)
    if config.get("estimator") != "ChainCRF":
        raise ModelFileError(f"{path}: estimator {config.get('estimator')!r}: expected 'ChainCRF'; upgrade kernelcrf")
    model = ChainCRF()
    try:
        restore(model, config, arrays)
    except ModelFileError as error:
        raise ModelFileError(f"{path}: {error}") from None
    return model
