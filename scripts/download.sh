#!/usr/bin/env bash
# Prepare all data sets below a folder: `scripts/download.sh -d DATA`. All arguments go to `benchsuite prepare`:
# `--synthetic` generates data of the same shape instead, `--verify` checks those that exist.
set -euo pipefail

bin=$(dirname "$0")/../.venv/bin/benchsuite
[ -x "$bin" ] || bin=$(command -v benchsuite) || { echo "scripts/download.sh: run scripts/install first" >&2; exit 2; }
exec "$bin" prepare "$@"
