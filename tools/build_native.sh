#!/usr/bin/env bash
# Compiles what has changed in drivers/native and puts the extension where the editable install looks
# for it. pip has done both at `make setup`; this does it again in seconds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bin=$PWD/.venv/bin
build=build/native
export PATH="$bin:$PATH"

if [[ ! -f $build/build.ninja ]]; then
    cmake -S drivers/native -B $build -G Ninja -DPython_EXECUTABLE="$bin/python"
fi
cmake --build $build
site=$("$bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
cmake --install $build --prefix "$site" >/dev/null

# Type checkers and editors read sources, not what is installed.
cp "$site/afflux_drivers/_native.pyi" drivers/afflux_drivers/_native.pyi

touch .venv/afflux-native.stamp
