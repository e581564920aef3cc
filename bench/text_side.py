"""nanoGPT's data/openwebtext/prepare.py, over a local file of JSON lines: ``python bench/text_side.py IN OUT``.

Line by line its own code, but for where the text comes from, how many processes there are (the cores), and a bar of
progress. tiktoken's vocabulary is ours by its SHA-256, for the package would fetch it. Prints the seconds of each step.
"""

import json
import os
import sys
import time
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
source, output = Path(sys.argv[1]), Path(sys.argv[2])
output.mkdir(parents=True)
os.environ["HF_HOME"] = str(output / "cache")

import datasets  # noqa: E402
import numpy as np  # noqa: E402
import tiktoken.registry  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[1] / "crates/lowtide-text/tests/oracle"))
from token_oracles import tiktoken_encoding  # noqa: E402

datasets.disable_progress_bars()
num_proc = len(os.sched_getaffinity(0))
enc = tiktoken_encoding("gpt2")
enc.name = "gpt2"
tiktoken.registry.ENCODINGS["gpt2"] = enc  # so that other processes get it by its name


def process(example):
    ids = enc.encode_ordinary(example["text"])  # encode_ordinary ignores any special tokens
    ids.append(enc.eot_token)  # add the end of text token, e.g. 50256 for gpt2 bpe
    return {"ids": ids, "len": len(ids)}


if __name__ == "__main__":
    begun = time.perf_counter()
    dataset = datasets.load_dataset("json", data_files=str(source), num_proc=1)
    loaded = time.perf_counter()
    split_dataset = dataset["train"].train_test_split(test_size=0.0005, seed=2357, shuffle=True)
    split_dataset["val"] = split_dataset.pop("test")
    tokenized = split_dataset.map(process, remove_columns=["text"], num_proc=num_proc)
    mapped = time.perf_counter()
    for split, dset in tokenized.items():
        arr_len = np.sum(dset["len"], dtype=np.uint64)
        arr = np.memmap(output / f"{split}.bin", dtype=np.uint16, mode="w+", shape=(int(arr_len),))
        total_batches = min(1024, len(dset))  # its 1024 needs as many documents
        idx = 0
        for batch_idx in range(total_batches):
            batch = dset.shard(num_shards=total_batches, index=batch_idx, contiguous=True).with_format(
                "numpy"
            )
            arr_batch = np.concatenate(batch["ids"])
            arr[idx : idx + len(arr_batch)] = arr_batch
            idx += len(arr_batch)
        arr.flush()
    written = time.perf_counter()
    print(json.dumps({"load": loaded - begun, "split_map": mapped - loaded, "write": written - mapped}))
