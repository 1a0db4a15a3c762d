import subprocess
import sys


def test_import_pulls_in_no_engine_plotting_or_command_line():
    code = "import sys, kernelcrf; print(sorted({'dask', 'matplotlib', 'typer'} & set(sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
