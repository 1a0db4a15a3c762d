import numpy as np
import pytest

from clusters import two_workers


@pytest.fixture(scope="session")
def client():
    """The client of one real cluster for all tests that leave its workers alive."""
    pytest.importorskip("distributed")
    with two_workers() as client:
        yield client


@pytest.fixture(scope="session")
def vectors():
    rng = np.random.default_rng(1)
    X = [rng.normal(size=(rng.integers(1, 9), 3)) for _ in range(60)]
    y = [np.where(np.sin(2 * x[:, 0]) > 0, "up", "down").tolist() for x in X]
    return X, y
