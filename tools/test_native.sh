#!/usr/bin/env bash
# Builds the C++ and its tests with warnings as errors, and runs the tests: as they are, under the
# address and undefined-behaviour sanitizers, and under the thread sanitizer. Arguments, if any, are
# the kinds to do: plain, address, thread.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export PATH="$PWD/.venv/bin:$PATH"
export UBSAN_OPTIONS=print_stacktrace=1
declare -A sanitize=([plain]= [address]=address,undefined [thread]=thread)

for kind in "${@:-plain address thread}"; do
    for each in $kind; do
        build=build/native-test/$each
        cmake -S drivers/native -B "$build" -G Ninja -DAFFLUX_EXTENSION=OFF -DAFFLUX_TESTS=ON \
            -DAFFLUX_DEVELOPMENT=ON -DAFFLUX_SANITIZE="${sanitize[$each]}" \
            -DCMAKE_UNITY_BUILD=ON >/dev/null
        cmake --build "$build"
        printf '%s:\n' "$each"
        ctest --test-dir "$build" --output-on-failure
    done
done
