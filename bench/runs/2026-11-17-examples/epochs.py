"""Ten epochs of the loader alone: how many windows came, and whether each epoch was whole."""

import sys
import time

import lowtide

tokens = lowtide.tokens(sys.argv[1])
loader = tokens.loader(batch_size=12, block_size=1024, seed=0)
print(f"{len(tokens):,} tokens, {loader}", flush=True)
for epoch in range(10):
    begin, windows, total = time.perf_counter(), 0, 0
    for x, _ in loader:
        windows += len(x)
        total += int(x[:, 0].sum())
    seconds = time.perf_counter() - begin
    print(f"epoch {epoch}: {windows:,} windows, {windows / seconds:,.0f} a second, {loader.access}, sum {total}", flush=True)
print(loader.why)
