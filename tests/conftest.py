import os
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("kernelcrf", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("kernelcrf")


@pytest.fixture(scope="session")
def data_folder():
    """The folder of real data; tests that want it skip where it is absent."""
    folder = os.environ.get("KERNELCRF_DATA")
    if not folder or not Path(folder).is_dir():
        pytest.skip("KERNELCRF_DATA names no folder of real data")
    return Path(folder)
