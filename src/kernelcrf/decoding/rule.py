"""The protocol of decoding rules, which choose one labelling, given the distribution p(y|x) of all labellings."""

from __future__ import annotations

from typing import Any, ClassVar, Protocol, runtime_checkable

from kernelcrf.arrays import Array


@runtime_checkable
class DecodingRule(Protocol):
    """A rule that chooses the labels to predict from a distribution, such as `ChainCRF.distribution` returns.

    A rule that inherits from this class defines `name` and `decode`, and gets the defaults of the other attributes.

    Attributes
    ----------
    name : str
        The name of the rule in error messages, and for `decoding=` if the rule is in `kernelcrf.decoding.RULES`.
    needs : tuple of str, default=("probabilities",)
        The names of the attributes and methods of a distribution that the rule uses. Estimators whose distribution
        lacks one of them refuse the rule.
    pools_samples : bool, default=False
        Whether the labels of a sample depend on the other samples. If so, a test set must be decoded as a whole.

    Examples
    --------
    >>> from kernelcrf.decoding import DecodingRule
    >>> class Rarest(DecodingRule):
    ...     name = "rarest"
    ...
    ...     def decode(self, distribution):
    ...         return distribution.probabilities.argmin(axis=-1)
    >>> Rarest().needs, Rarest().pools_samples
    (('probabilities',), False)
    """

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ("probabilities",)
    pools_samples: ClassVar[bool] = False

    def decode(self, distribution: Any) -> Array:
        """Return the chosen labels as indices into the last axis of `distribution.probabilities`.

        The result is an array of integers in the shape of `distribution.probabilities` without its last axis: one label
        per token of all sequences, per node of all graphs or per row, or one row of labels per label set.
        """
        raise NotImplementedError
