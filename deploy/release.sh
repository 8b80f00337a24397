#!/bin/sh
# Writes the files of a release into FOLDER: wheel, chart, bill of materials, and SHA256SUMS over them.
#   sh deploy/release.sh FOLDER
# The wheel is built by the locked tools and carries the time of the last commit, so that the same commit gives the same
# bytes. The chart is packaged where helm is installed. With COSIGN_KEY the sums are signed by `cosign sign-blob`.
set -eu

target=${1:?usage: release.sh FOLDER}
top=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$target"
target=$(cd "$target" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1
SOURCE_DATE_EPOCH=$(git -C "$top" log -1 --format=%ct)
export SOURCE_DATE_EPOCH

python3 -m venv "$work/tools"
"$work/tools/bin/pip" install --quiet --require-hashes --no-deps --only-binary :all: \
  -r "$top/deploy/requirements-build.lock"
"$work/tools/bin/pip" wheel --quiet --no-deps --no-build-isolation --wheel-dir "$target" "$top"
python3 "$top/deploy/sbom.py" >"$target/rebalancer.cdx.json"
if command -v helm >/dev/null; then
  helm package "$top/deploy/helm/rebalancer" --destination "$target" >/dev/null
else
  echo "release.sh: helm is not installed: no chart" >&2
fi
(cd "$target" && sha256sum ./*.whl ./*.json $(ls ./*.tgz 2>/dev/null) >SHA256SUMS)
if [ -n "${COSIGN_KEY:-}" ]; then
  cosign sign-blob --yes --key "$COSIGN_KEY" --output-signature "$target/SHA256SUMS.sig" "$target/SHA256SUMS"
fi
