#!/bin/sh
# Installs the real servers that tests talk to, from Debian's packages. Without root or apt it only says what is
# missing; the tests that need it are skipped with a line then. Nothing is started here: each test starts its own.
# helm and actionlint are not packages of Debian: they are built with go, for about 180 CPU seconds the first time.
set -u

tools=$(dirname "$0")/../.cache/tools
built() { # NAME MODULE
  if command -v "$1" >/dev/null 2>&1 || [ -x "$tools/$1" ]; then return; fi
  # where Go's own archive is unpacked, when no profile has added it
  if ! command -v go >/dev/null 2>&1 && [ -x /usr/local/go/bin/go ]; then PATH=$PATH:/usr/local/go/bin; fi
  if ! command -v go >/dev/null 2>&1; then
    echo "skipped: tests that need $1 (go is not there to build it)"
    return
  fi
  echo "building $1 for the tests"
  mkdir -p "$tools"
  # inlining and symbols would take longer
  GOBIN=$(cd "$tools" && pwd) CGO_ENABLED=0 HOME=${HOME:-$tools} go install -gcflags=all=-l -ldflags='-s -w' "$2" 2>"$tools/$1.log" ||
    echo "skipped: tests that need $1 (its build failed: $(tail -n 1 "$tools/$1.log"))"
}
built helm helm.sh/helm/v3/cmd/helm@v3.18.4
built actionlint github.com/rhysd/actionlint/cmd/actionlint@v1.7.7

missing=""
command -v prometheus >/dev/null 2>&1 && command -v promtool >/dev/null 2>&1 || missing="$missing prometheus"
command -v prometheus-alertmanager >/dev/null 2>&1 || command -v alertmanager >/dev/null 2>&1 || missing="$missing prometheus-alertmanager"
ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$missing postgresql"
command -v pgbouncer >/dev/null 2>&1 || [ -x /usr/sbin/pgbouncer ] || missing="$missing pgbouncer"
command -v chromium >/dev/null 2>&1 || missing="$missing chromium"
command -v kubectl >/dev/null 2>&1 || [ -x "${KUBEBUILDER_ASSETS:-/nonexistent}/kubectl" ] || missing="$missing kubernetes-client"

[ -n "$missing" ] || exit 0
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  for part in $missing; do echo "skipped: tests that need $part (apt-get install $part)"; done
  exit 0
fi

# Debian starts what it installs; a policy of our own says no for as long as this takes
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
export DEBIAN_FRONTEND=noninteractive
echo "installing for the tests:$missing"
apt-get update -qq || echo "apt-get update failed: trying with the lists that are there"
for part in $missing; do
  apt-get install -y -qq --no-install-recommends "$part" >/dev/null 2>&1 || echo "skipped: tests that need $part (its installation failed)"
done
exit 0
