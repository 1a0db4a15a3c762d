"""Read, check and write the files of models and checkpoints, which contain tensors and JSON."""

from .budget import Budget as Budget
from .error import ModelFileError as ModelFileError
from .model_file import Content as Content
from .model_file import begins_like_model as begins_like_model
from .model_file import read as read
from .model_file import write as write
from .output_file import PathLike as PathLike
from .output_file import check_target as check_target
from .output_file import find_remote as find_remote
from .output_file import local_copy as local_copy
from .output_file import named_errors as named_errors
from .output_file import open_binary as open_binary
from .output_file import whole_file as whole_file
