#!/usr/bin/env bash
# Builds the wheels for x86-64 and aarch64 into dist/, on either of them. Zig brings the C library of
# manylinux_2_28 (glibc 2.28: Debian 10, RHEL 8, Ubuntu 20.04 and newer) for both, so no container is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH

rm -f dist/lowtide-*.whl
for machine in x86_64 aarch64; do
    target=$machine-unknown-linux-gnu
    wheels/rust-target.sh "$target"
    echo "building the wheel for $machine"
    maturin build --release --quiet --locked --zig --target "$target" --compatibility manylinux_2_28 --out dist
done
