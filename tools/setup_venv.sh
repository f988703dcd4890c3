#!/usr/bin/env bash
# Creates .venv and installs the project into it, editable, with everything that `make` needs.
#
#   PYTHON   the interpreter to create .venv with (default python3); at least 3.11
#   PIP_...  pip's own variables and configuration apply as they are
#
# An existing .venv is kept and only brought up to date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python=${PYTHON:-python3}
venv=.venv

fail() {
    printf 'setup: %s\n' "$@" >&2
    exit 1
}

# What pip cannot install: a compiler and make build the simulated engine, and Verilator's driver
# is a perl script.
missing=()
for tool in g++ make perl; do
    command -v "$tool" >/dev/null || missing+=("$tool")
done
if ((${#missing[@]})); then
    fail "not found: ${missing[*]}" "on Debian or Ubuntu: sudo apt-get install g++ make perl"
fi

[[ ! -x $venv/bin/python ]] || python=$venv/bin/python
command -v "$python" >/dev/null || fail "no such Python: $python (name another with PYTHON=...)"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || fail \
    "Python 3.11 or later is needed, but $python is $("$python" --version 2>&1)" \
    "name another with PYTHON=..., and remove $venv if it was made with an older one"

if [[ $python != "$venv/bin/python" ]]; then
    # Debian packages ensurepip apart, and venv fails half-way without it.
    "$python" -c 'import ensurepip, venv' 2>/dev/null || fail \
        "$python cannot create virtual environments" \
        "on Debian or Ubuntu: sudo apt-get install python3-venv"
    "$python" -m venv "$venv"
fi

pip() { "$venv/bin/python" -m pip "$@"; }

# Only to make the look below cheap, so an index without pip is no reason to stop.
pip install --quiet --constraint constraints.txt --upgrade pip ||
    echo "setup: pip stays at $(pip --version | cut -d' ' -f2)"

# pip's report names what it would download; a CPU build of torch brings no nvidia-* packages.
if report=$(pip install --quiet --dry-run --report - --constraint constraints.txt torch) &&
    grep -Eq '"name": *"nvidia-' <<<"$report"; then
    cat <<'NOTICE'

  ------------------------------------------------------------------------------------------
  torch comes with its CUDA packages here: several GB to download (about 3) and about twice
  that on disk. Afflux itself needs only a CPU build. To have that instead, interrupt now,
    * point pip to an index or folder that holds CPU builds of torch, with pip's own variables
      PIP_INDEX_URL, PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS,
    * or put a CPU build of torch into .venv yourself: what is there already is kept,
  and run this again.
  ------------------------------------------------------------------------------------------

NOTICE
fi

# The build's own needs first, then without isolation: so they are the pinned ones too, and the build
# folder remains valid for `make native`, which compiles again only what has changed.
pip install --constraint constraints.txt scikit-build-core nanobind cmake ninja
PATH="$PWD/$venv/bin:$PATH" pip install --constraint constraints.txt --no-build-isolation --editable '.[dev]'

# `make` compares this file's age with the files that decide what is installed.
touch "$venv/afflux-setup.stamp"
