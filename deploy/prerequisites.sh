#!/usr/bin/env bash
# Debian packages the project's commands need, installed when they are missing and this machine lets us.
#   prerequisites.sh venv PYTHON    the standard library's venv
#   prerequisites.sh kafka PYTHON   what a real Apache Kafka still needs: Java, and Maven to fetch it
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
    *)
        echo "usage: prerequisites.sh venv|kafka PYTHON" >&2
        exit 2
        ;;
esac
