#!/bin/bash
# What was run, a part at a time: run.sh PART FOLDER, where FOLDER takes the data. Needs the right to make a control group
# (version 1). Each part writes PART.txt, and what lowtide watch saw of it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
examples=$here/../../../examples
part=$1 data=$2
own=$(sed -n 's/^[0-9]*:memory://p' /proc/self/cgroup)
group=/sys/fs/cgroup/memory$own/lowtide-run-$$

limited() {    # limited BYTES COMMAND…: in a control group of that size, watched from inside; the kernel's counts at the end
    mkdir "$group"
    echo "$1" > "$group/memory.limit_in_bytes"
    shift
    echo "\$ $* # in $(cat "$group/memory.limit_in_bytes") bytes" | sed "s|$examples/||g; s|$data|data|g; s|$here/||g"
    sh -c 'echo $$ > "$0/cgroup.procs" && exec "$@"' "$group" "$@" 2>&1 | sed "s|$group|the group|g; s|$data|data|g; s|$here/||g" || true
    echo "the group's peak: $(cat "$group/memory.max_usage_in_bytes") bytes; the limit was met $(cat "$group/memory.failcnt") times"
    for _ in 1 2 3 4 5; do rmdir "$group" 2> /dev/null && break; sleep 0.5; done
}
plain() {
    echo "\$ $*" | sed "s|$examples/||g; s|$data|data|g"
    "$@" 2>&1 | sed "s|$data|data|g"
}
size() { echo $(($(stat -c %s "$1") / 10)); }

case $part in
tokens)  # a hundred times Python's standard library, as bytes: 6.3 GB in all
    mkdir -p "$data/corpus"
    stdlib=$(python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')
    find "$stdlib" -name '*.py' -not -path '*-packages/*' | sort | xargs cat | iconv -f utf-8 -t utf-8 -c > "$data/corpus/000.txt"
    for n in $(seq -w 1 99); do ln -f "$data/corpus/000.txt" "$data/corpus/0$n.txt"; done
    lowtide prepare "$data/corpus" -o "$data/tokens" --tokenizer bytes --val 0.03 --cache drop
    ;;
train)  # 300 steps in a tenth of the file; torch's own files are brought into the page cache before, outside the group
    python "$examples/nanogpt/train.py" "$data/tokens" --steps 2 --checkpoint "$data/c.pt" > /dev/null
    limited "$(size "$data/tokens/train.bin")" lowtide watch --no-chart --file "$data/tokens" --json "$here/$part.json" -- \
        python "$examples/nanogpt/train.py" "$data/tokens" --steps 300 --block-size 64 --checkpoint "$data/c.pt"
    ;;
ranks)  # two ranks, then one that goes on; the tokens are cold
    python -c 'import os, sys; os.posix_fadvise(os.open(sys.argv[1], 0), 0, 0, os.POSIX_FADV_DONTNEED)' "$data/tokens/train.bin"
    plain python -m torch.distributed.run --standalone --nproc-per-node 2 "$examples/nanogpt/train.py" "$data/tokens" --steps 100 --decay-steps 200 --checkpoint "$data/r.pt"
    plain python "$examples/nanogpt/train.py" "$data/tokens" --steps 200 --resume --checkpoint "$data/r.pt"
    ;;
epochs)  # the loader alone: ten epochs of 1 GiB in a tenth of it
    head -c 1G "$data/tokens/train.bin" > "$data/train.bin"
    python -c 'import os, sys; f = os.open(sys.argv[1], 0); os.fsync(f); os.posix_fadvise(f, 0, 0, os.POSIX_FADV_DONTNEED)' "$data/train.bin"
    limited "$(size "$data/train.bin")" lowtide watch --no-chart --file "$data/train.bin" --json "$here/$part.json" -- python "$here/epochs.py" "$data/train.bin"
    ;;
rows)  # make 5.1 GB of rows and fit models, all in a tenth of the file
    limited 512000000 python "$examples/rows/make.py" "$data/rows"
    python -c 'import lowtide, sklearn.linear_model, torch; torch.optim.SGD([torch.zeros(1)])'
    for fit in fit_sklearn fit_torch; do
        limited 512000000 lowtide watch --no-chart --file "$data/rows" --json "$here/$fit.json" -- python "$examples/rows/$fit.py" "$data/rows" --scratch "$data"
    done
    ;;
esac > "$here/$part.txt"
# What names this machine's folders is not kept.
sed -i "s|$group|/sys/fs/cgroup/the group|g; s|$own/lowtide-run-$$|/the group|g; s|$data|data|g; s|$(cd "$examples" && pwd)|examples|g; s|$examples|examples|g; s|$here/||g" "$here"/*.json
