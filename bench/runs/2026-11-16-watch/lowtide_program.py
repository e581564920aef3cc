
import json, sys, time
path, seconds = sys.argv[1], float(sys.argv[2])
begin = time.monotonic()
def over():
    return time.monotonic() - begin > seconds
done, why = 0, "np.memmap"

import lowtide
rows = lowtide.open(path, dtype="float32", shape=(-1, 128))
epoch = 0
while not over():
    it = rows.shuffled(256, seed=0, epoch=epoch)
    why = f"access={it.access}: {it.why}"
    for chunk in it:
        done += len(chunk)
        if over():
            break
    epoch += 1

print(json.dumps({"rows": done, "seconds": time.monotonic() - begin, "why": why}))
