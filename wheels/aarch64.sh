#!/usr/bin/env bash
# Runs the core's tests for aarch64: natively on such a machine, under qemu's user mode on others.
# On Debian and Ubuntu, root installs the emulator and the C library by itself; elsewhere it says what is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
target=aarch64-unknown-linux-gnu

if [ "$(uname -m)" = aarch64 ]; then
    exec cargo test --release --quiet --package lowtide
fi

roots=/usr/aarch64-linux-gnu
emulator() { command -v qemu-aarch64-static || command -v qemu-aarch64; }
ready() { emulator > /dev/null && [ -e "$roots/lib/ld-linux-aarch64.so.1" ] && [ -e "$roots/lib/libgcc_s.so.1" ]; }
packages="qemu-user-static libc6-arm64-cross libgcc-s1-arm64-cross"
if ! ready && [ "$(id -u)" = 0 ] && command -v apt-get > /dev/null; then
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages > /dev/null
fi
if ! ready; then
    echo "the tests for aarch64 were NOT run: they need qemu's user mode and aarch64's C library in $roots" >&2
    echo "hint: on Debian and Ubuntu, as root: apt-get install $packages" >&2
    exit 1
fi

wheels/rust-target.sh "$target"
skip=()
while read -r name why; do
    echo "not under qemu: $name: $why"
    skip+=(--skip "$name")
done < <(grep -v '^#' wheels/not-under-qemu.txt)
# Properties are checked in full natively: here they only have to meet the other architecture.
export PROPTEST_CASES=${PROPTEST_CASES:-32}
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="$(emulator) -L $roots"
PATH=$PWD/.venv/bin:$PATH cargo-zigbuild test --release --quiet --package lowtide \
    --target "$target.2.28" -- --exact "${skip[@]}"
