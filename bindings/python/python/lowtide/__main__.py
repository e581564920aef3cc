"""The ``lowtide`` command: ``lowtide …`` or ``python -m lowtide …``."""

import signal
import sys

from lowtide import _lowtide


def main() -> int:
    """Run the command with the arguments of this process."""
    # The work happens outside the interpreter, where Python's own handlers would only be noted.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    return _lowtide.main(["lowtide", *sys.argv[1:]], sys.executable or None)


if __name__ == "__main__":
    sys.exit(main())
