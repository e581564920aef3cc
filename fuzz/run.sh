#!/bin/sh
# Fuzzes every target for so many seconds, and fails on the first crash.
#   fuzz/run.sh SECONDS_PER_TARGET
#
# Needs stable Rust and a C++ compiler. Sanitizers are what would need nightly, and there is nothing for
# them to see: the parsers have no unsafe code.
set -eu
seconds=${1:?usage: fuzz/run.sh SECONDS_PER_TARGET}
cd "$(dirname "$0")"

version=0.13.2
cargo fuzz --version 2>/dev/null | grep -qF " $version" || cargo install cargo-fuzz --version "$version" --locked

for target in fuzz_targets/*.rs; do
    target=$(basename "$target" .rs)
    # New inputs go to a folder of their own: a run does not change what is checked in. A crash is left
    # in fuzz/artifacts/TARGET; once fixed, move it to fuzz/corpus/TARGET, where `cargo test` runs it.
    found=${CARGO_TARGET_DIR:-target}/found/$target
    mkdir -p "$found"
    set -- "$found" "corpus/$target"
    for seeds in attacks/$target valid/$target valid/tokens/$target; do
        [ ! -d "../crates/lowtide/tests/$seeds" ] || set -- "$@" "../crates/lowtide/tests/$seeds"
    done
    echo "fuzzing $target for $seconds s"
    cargo fuzz run --sanitizer none "$target" "$@" -- \
        -max_total_time="$seconds" -timeout=5 -rss_limit_mb=512 -max_len=4096 -print_final_stats=1
done
