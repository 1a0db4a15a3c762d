"""Run the command line: `python -m kernelcrf` does the same as the command `kernelcrf`.

`python -m kernelcrf compile` also runs without the packages of the extra `cli`.
"""

import sys

if sys.argv[1:2] == ["compile"]:
    from kernelcrf.cli import compilation

    compilation.main(sys.argv[2:])
else:
    from kernelcrf.cli import main

    main()
