#!/usr/bin/env bash
# Installs this machine's wheel as a user would, in a virtual environment with numpy and nothing else, far from the
# sources, and uses it: with every CPython from 3.11 on that is here.
#   wheels/try.sh [FOLDER OF WHEELS]
set -euo pipefail
wheels=$(cd "${1:-$(dirname "$0")/../dist}" && pwd)
smoke=$(cd "$(dirname "$0")" && pwd)/smoke.py
wheel=$(ls "$wheels"/lowtide-*_"$(uname -m)".whl)
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"

tried=0
for python in "${PYTHON:-python3}" python3.{11..14}; do
    # A name may stand for a version that is not installed, or for one that was tried already.
    version=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2> /dev/null) || continue
    [ ! -d "$version" ] || continue
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || continue
    "$python" -m venv "$version"
    "$version/bin/pip" install --quiet --disable-pip-version-check --only-binary :all: "$wheel"
    cp "$smoke" .
    env -u PYTHONPATH PATH="$place/$version/bin:$PATH" "$version/bin/python" -W error -I smoke.py "$(basename "$wheel" | cut -d- -f2)"
    tried=$((tried + 1))
done
[ "$tried" -gt 0 ] || { echo "no CPython 3.11 or newer to try the wheel with: make PYTHON=..." >&2; exit 1; }
