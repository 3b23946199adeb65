#!/usr/bin/env bash
# Debian packages the project's commands need, installed when they are missing and this machine lets us.
#   prerequisites.sh venv PYTHON    the standard library's venv
#   prerequisites.sh kafka PYTHON   what a real Apache Kafka still needs: Java, and Maven to fetch it
#   prerequisites.sh promtool       Prometheus' checker of alert rules, into .cache
#   prerequisites.sh pgbouncer      the pooler that the tests run the worker behind
#   prerequisites.sh openssl        what makes the tests' certificates
# What cannot be installed is said; whoever needed it decides what follows.
set -euo pipefail

install_packages() {
    local as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        sudo -n true 2>/dev/null || { missing "$@"; return; }
        as_root=(sudo -n)
    fi
    command -v apt-get >/dev/null || { missing "$@"; return; }
    echo "Installing $* (once) ..."
    "${as_root[@]}" apt-get update -qq
    DEBIAN_FRONTEND=noninteractive "${as_root[@]}" apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# Taken out of its package: installed, the package would start a Prometheus.
fetch_promtool() {
    local directory
    command -v apt-get >/dev/null || { missing promtool; return; }
    if [ "$(id -u)" -eq 0 ]; then apt-get update -qq; fi
    echo "Fetching promtool (once) ..."
    directory=$(mktemp -d)
    if (cd "$directory" && apt-get download -qq prometheus 2>/dev/null && dpkg-deb -x prometheus_*.deb .); then
        mkdir -p .cache/promtool
        mv "$directory/usr/bin/promtool" .cache/promtool/promtool
    else
        missing promtool
    fi
    rm -rf "$directory"
}

missing() {
    echo "Not installed, and not installable from here: $*" >&2
}

case "${1:-}" in
    venv)
        "${2:?the python to check}" -c 'import ensurepip, venv' 2>/dev/null || install_packages python3-venv
        ;;
    kafka)
        packages=$("${2:?the python of the project}" -m worker.embedded.prerequisites 2>/dev/null) || install_packages $packages
        ;;
    promtool)
        cd "$(dirname "$0")/.."
        [ -x .cache/promtool/promtool ] || command -v promtool >/dev/null || fetch_promtool
        ;;
    pgbouncer)
        PATH="$PATH:/usr/sbin" command -v pgbouncer >/dev/null || install_packages pgbouncer
        ;;
    openssl)
        command -v openssl >/dev/null || install_packages openssl
        ;;
    *)
        echo "usage: prerequisites.sh venv|kafka PYTHON, or prerequisites.sh promtool|pgbouncer|openssl" >&2
        exit 2
        ;;
esac
