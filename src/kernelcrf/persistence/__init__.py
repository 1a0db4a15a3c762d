"""The file format of models and checkpoints: checked tensors and JSON. It does not depend on any model."""

from kernelcrf.persistence.model_file import ModelFileError, PathLike, check_target, read, whole_file, write

__all__ = ["ModelFileError", "PathLike", "check_target", "read", "whole_file", "write"]
