#!/usr/bin/env bash
# The pictures of --plan --svg (plan.py). BIN: the folder of the programs.
command -v python3 >/dev/null || { echo "skipped: reading pictures needs python3" && exit 77; }
TRAIN=${BIN:?}/tutti-train exec python3 -B "$(dirname "$0")/plan.py"
