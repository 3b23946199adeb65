#!/usr/bin/env bash
# Pins every dependency with its hashes, for all platforms: one file for production, one for the demo, one for developers.
set -euo pipefail
uv=${1:-uv}
compile=("$uv" pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command "make lock" pyproject.toml)
"${compile[@]}" --output-file requirements.lock
"${compile[@]}" --constraint requirements.lock --extra embedded --group build --output-file requirements-demo.lock
"${compile[@]}" --constraint requirements-demo.lock --extra embedded --group build --group dev --output-file requirements-dev.lock
