"""Fits and predictions on a Dask cluster whose workers hold the data; needs `pip install 'kernelcrf[dask]'`.

    dask             the engine: it calls functions on workers, adds up results, and recovers from lost workers
    sources          the forms of training data that fits accept with a cluster
    part_reader      how each estimator reads its samples in parts: the workers summarise them first, and then read them
    summary          summaries of parts, whose sum says how all parts are read alike
    sequences, segments, rows    the samples of the estimators, in parts
    bundles, bundled_parts    sums over parts of the data, and which worker has which parts
    inputs, basis, corpus, partition    distinct inputs, landmarks, features, loss and gradient of data in parts
    answers          labels and probabilities of Dask collections
    parquet          Parquet files that the workers read and write

The engine and the Parquet readers are imported when they are first used: importing this package does not import Dask.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kernelcrf.distributed.sources import RawSequences, SequenceSources

if TYPE_CHECKING:
    from kernelcrf.distributed.dask import DaskEngine
    from kernelcrf.distributed.parquet import TaggingReport, read_parquet, tag_parquet
else:
    _HOMES = {"DaskEngine": "dask", "TaggingReport": "parquet", "read_parquet": "parquet", "tag_parquet": "parquet"}

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}: expected one of {', '.join(__all__)}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = ["DaskEngine", "RawSequences", "SequenceSources", "TaggingReport", "read_parquet", "tag_parquet"]
