#!/bin/sh
# Writes the files of a release into FOLDER: wheel, chart, kubectl plugin with its manifest, bill of materials, the
# changelog's section, and SHA256SUMS over them.
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
REBALANCER_COMMIT=$(git -C "$top" rev-parse HEAD)
export SOURCE_DATE_EPOCH REBALANCER_COMMIT

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

wheel=$(basename "$target"/kube_rebalancer-*-py3-none-any.whl)
version=${wheel#kube_rebalancer-}
version=${version%-py3-none-any.whl}
plugin=$target/kubectl-rebalancer-v$version.tar.gz
mkdir "$work/plugin"
cp "$top/LICENSE" "$top/deploy/krew/kubectl-rebalancer" "$top/deploy/requirements-runtime.lock" \
  "$target/$wheel" "$work/plugin"
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" -C "$work/plugin" -cf - . |
  gzip -n >"$plugin"
sum=$(sha256sum "$plugin" | cut -d ' ' -f 1)
sed -e '/^#/d' -e "s/VERSION/$version/" -e "s/SHA256/$sum/" "$top/deploy/krew/rebalancer.yaml" >"$target/krew.yaml"

# the section of this version, or what is not released yet
awk -v version="$version" '/^## / { in_it = $2 == version } in_it' "$top/CHANGELOG.md" >"$target/CHANGES.md"
[ -s "$target/CHANGES.md" ] || awk '/^## / { in_it = $2 == "Unreleased" } in_it' "$top/CHANGELOG.md" >"$target/CHANGES.md"

(cd "$target" && sha256sum ./*.whl ./*.json ./*.tar.gz $(ls ./*.tgz 2>/dev/null) >SHA256SUMS)
if [ -n "${COSIGN_KEY:-}" ]; then
  cosign sign-blob --yes --key "$COSIGN_KEY" --output-signature "$target/SHA256SUMS.sig" "$target/SHA256SUMS"
fi
