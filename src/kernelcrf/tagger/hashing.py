"""Hash feature names as scikit-learn does: by the 32 bits of MurmurHash3 with seed 0, read as a signed number."""

from __future__ import annotations

MASK, C1, C2 = 0xFFFFFFFF, 0xCC9E2D51, 0x1B873593


def signed_hash(key: bytes) -> int:
    """Return the hash of a name, between -2^31 and 2^31 - 1.

    Examples
    --------
    >>> from kernelcrf.tagger.hashing import signed_hash
    >>> signed_hash(b"word=the")
    -1071361226
    """
    h, n = 0, len(key) & ~3
    for start in range(0, n, 4):
        h ^= _mixed(int.from_bytes(key[start : start + 4], "little"))
        h = (_rotated(h, 13) * 5 + 0xE6546B64) & MASK
    h ^= _mixed(int.from_bytes(key[n:], "little")) ^ len(key)
    h = ((h ^ h >> 16) * 0x85EBCA6B) & MASK
    h = ((h ^ h >> 13) * 0xC2B2AE35) & MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def _mixed(k: int) -> int:
    return (_rotated((k * C1) & MASK, 15) * C2) & MASK


def _rotated(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & MASK
