#!/usr/bin/env bash
# Pins every dependency with its hashes, for all platforms: for production, for production that traces (the image), for
# the demo, for building the image, for developers.
set -euo pipefail
uv=${1:-uv}
compile=("$uv" pip compile --quiet --universal --generate-hashes --no-annotate --custom-compile-command "make lock")
"${compile[@]}" pyproject.toml --output-file requirements.lock
"${compile[@]}" pyproject.toml --constraint requirements.lock --extra otel --output-file requirements-otel.lock
"${compile[@]}" pyproject.toml --constraint requirements.lock --extra embedded --group build --output-file requirements-demo.lock
"${compile[@]}" --constraint requirements-demo.lock --group build --output-file deploy/requirements-build.lock
"${compile[@]}" pyproject.toml --constraint requirements-demo.lock --constraint requirements-otel.lock --extra embedded --group build --group dev --output-file requirements-dev.lock
