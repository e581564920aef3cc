#!/usr/bin/env bash
# Sees to it that Rust can build for a target.
#   wheels/rust-target.sh TARGET
set -euo pipefail
target=${1:?usage: wheels/rust-target.sh TARGET}
if compgen -G "$(rustc --print target-libdir --target "$target")/libstd-*" > /dev/null; then
    exit
fi
if ! command -v rustup > /dev/null; then
    echo "Rust's standard library for $target is not installed, and there is no rustup to fetch it" >&2
    echo "hint: install Rust by rustup, or your distribution's package of that library" >&2
    exit 1
fi
rustup target add "$target"
