"""Read the training data of ChainCRF, in this process or on a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from kernelcrf.arrays import UserData
from kernelcrf.distributed.sources import is_distributed
from kernelcrf.fitting.sequences import TrainingData, read_training_data


def read_sequences(
    X: UserData,
    y: UserData,
    sample_weight: UserData,
    lengths: UserData,
    *,
    engine: UserData,
    n_components: Mapping[bool, int],
    **settings: UserData,
) -> TrainingData:
    """Read labelled sequences on the cluster of `engine`, or in this process if there is none.

    n_components : the expected number of features per token, for dense (False) and for sparse inputs (True).
    settings : the parameters of `read_training_data`.
    """
    if engine is None and not is_distributed(X):
        return read_training_data(X, y, sample_weight, lengths, **settings)
    from kernelcrf.distributed.training_data import current_cluster, read_parts

    if lengths is not None:
        raise ValueError("lengths cannot be used with data on a cluster: pass sequences, and omit lengths")
    return read_parts(X, y, sample_weight, engine or current_cluster(), n_components=n_components, **settings)
