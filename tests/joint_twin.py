"""A dense twin of chains with a kernel on inputs and labels together, which enumerates all labellings.

The score of a labelling is z . phi(y), where the features phi(y) are sums of rows of factors of Gram matrices over
pairs of a clique and a joint label. The minimum of the negative log posterior is found by Newton's method.
"""

import itertools

import numpy as np


def psd_factor(K):
    values, vectors = np.linalg.eigh(K)
    kept = values > 1e-12 * values.max()
    return vectors[:, kept] * np.sqrt(values[kept])


class JointTwin:
    """Sequences with the token Gram matrix K (N, L_t, N, L_t) and the Gram matrix of steps Q (L, L, L, L), or (N, ...).

    K : K[t, y, t', y'] is C k((x_t, y), (x_t', y')), for the tokens of all sequences, one after the other.
    Q : Q[a, b, c, d] is C k((a, b), (c, d)), or Q[t, a, b, t', c, d] if steps see inputs.
    counts : the number of candidates of each token; None if all labels are candidates.
    """

    def __init__(self, lengths, K, Q, counts=None):
        N, L = K.shape[:2]
        A = psd_factor(K.reshape(N * L, -1)).reshape(N, L, -1)
        if Q.ndim == 4:
            of_labels = psd_factor(Q.reshape(L * L, -1)).reshape(L, L, -1)
            B = np.broadcast_to(of_labels, (N, *of_labels.shape))
        else:
            B = psd_factor(Q.reshape(N * L * L, -1)).reshape(N, L, L, -1)
        counts = np.full(N, L) if counts is None else np.asarray(counts)
        self.samples, start = [], 0
        for T in lengths:
            labellings = np.array(list(itertools.product(*(range(n) for n in counts[start : start + T]))))
            tokens = sum(A[start + t][labellings[:, t]] for t in range(T))
            steps = [B[start + t][labellings[:, t - 1], labellings[:, t]] for t in range(1, T)]
            steps = sum(steps) if steps else np.zeros((len(labellings), B.shape[-1]))
            self.samples.append((labellings, np.hstack([tokens, steps])))
            start += T

    def fit(self, y):
        """Return the minimum of P, and the probabilities of all labellings of each sequence there."""
        D = self.samples[0][1].shape[1]
        z = np.zeros(D)
        true = [
            int((labellings == labels).all(axis=1).argmax())
            for (labellings, _), labels in zip(self.samples, y, strict=True)
        ]
        for _ in range(50):
            value, g, H = z @ z / 2, z.copy(), np.eye(D)
            p_all = []
            for (_, phi), i in zip(self.samples, true, strict=True):
                scores = phi @ z
                top = scores.max()
                p = np.exp(scores - top)
                value += top + np.log(p.sum()) - scores[i]
                p /= p.sum()
                p_all.append(p)
                mean = p @ phi
                g += mean - phi[i]
                H += (phi * p[:, None]).T @ phi - np.outer(mean, mean)
            step = np.linalg.solve(H, g)
            z -= step
            if np.abs(step).max() < 1e-12:
                break
        return value, p_all

    def marginals(self, p_all, L):
        """Return the probability of each label of each token, one array (T, L) per sequence."""
        result = []
        for (labellings, _), p in zip(self.samples, p_all, strict=True):
            table = np.zeros((labellings.shape[1], L))
            for t in range(labellings.shape[1]):
                np.add.at(table[t], labellings[:, t], p)
            result.append(table)
        return result
