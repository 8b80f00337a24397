#!/bin/sh
# Installs rebalancer into a virtual environment of its own, from the lock files and this source tree alone:
#   sh deploy/install.sh FOLDER
# The image is built by this script, and a test runs it. It needs python3 (3.11 or newer, with venv) and an index or
# cache that pip can reach; every file is checked against its hash. Neither pip nor what builds the wheel is in FOLDER.
set -eu

target=${1:?usage: install.sh FOLDER}
top=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
pip=$work/tools/bin/pip

python3 -m venv "$work/tools"
"$pip" install --quiet --require-hashes --no-deps --only-binary :all: -r "$top/deploy/requirements-build.lock"
"$pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$work/wheel" "$top"

python3 -m venv --without-pip "$target"
install="$pip --python $target/bin/python install --quiet"
# just what is listed; `check` tells whether anything is missing
$install --require-hashes --no-deps --only-binary :all: -r "$top/deploy/requirements-runtime.lock"
$install --no-deps --no-index "$work"/wheel/*.whl
"$pip" --python "$target/bin/python" check
# imported by nothing: tests of packages, and the asyncio client of kubernetes
find "$target" -type d \( -name tests -o -path '*/kubernetes/aio' \) -path '*/site-packages/*' -prune -exec rm -rf {} +
