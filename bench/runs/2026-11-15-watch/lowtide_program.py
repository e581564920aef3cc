
import os, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
begin = time.monotonic()
def over():
    return time.monotonic() - begin > seconds

import lowtide
rows = lowtide.open(path, dtype="float32", shape=(-1, 128), budget="256MiB", cache="drop")
epoch = 0
while not over():
    for chunk in rows.shuffled(4096, seed=0, epoch=epoch):
        if over():
            break
    epoch += 1
