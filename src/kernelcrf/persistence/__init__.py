"""Read, check and write the files of models and checkpoints, which contain tensors and JSON."""

from kernelcrf.persistence.budget import Budget as Budget
from kernelcrf.persistence.error import ModelFileError as ModelFileError
from kernelcrf.persistence.model_file import Content as Content
from kernelcrf.persistence.model_file import begins_like_model as begins_like_model
from kernelcrf.persistence.model_file import read as read
from kernelcrf.persistence.model_file import write as write
from kernelcrf.persistence.output_file import PathLike as PathLike
from kernelcrf.persistence.output_file import check_target as check_target
from kernelcrf.persistence.output_file import named_errors as named_errors
from kernelcrf.persistence.output_file import whole_file as whole_file
