"""The data sets that only the studies read, as `sources.toml` describes them."""

from pathlib import Path

from kernelcrf.datasets.source import read_sources

SOURCES = read_sources(Path(__file__).with_name("sources.toml"))
