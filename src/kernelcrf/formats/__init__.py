"""Read and write labelled sequences in files, and turn text into features with templates.

`registry` lists the formats. Each format is read and written by the module that has its name. Names are imported when
they are first used, so that the command line can ask the registry without importing NumPy.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from kernelcrf.formats.registry import FORMATS, Format

if TYPE_CHECKING:
    from kernelcrf.formats.records import FormatError, Record
    from kernelcrf.formats.sequence_files import format_of, read, read_batches, write
    from kernelcrf.formats.templates import TemplateError, Templates, default_templates
else:
    _HOMES = {
        **dict.fromkeys(("FormatError", "Record"), "records"),
        **dict.fromkeys(("format_of", "read", "read_batches", "write"), "sequence_files"),
        **dict.fromkeys(("TemplateError", "Templates", "default_templates"), "templates"),
    }

    def __getattr__(name):
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "FORMATS",
    "Format",
    "FormatError",
    "Record",
    "TemplateError",
    "Templates",
    "default_templates",
    "format_of",
    "read",
    "read_batches",
    "write",
]
