"""Train a GPT on token files that may be far larger than memory: nanoGPT's loop, fed by Lowtide.

    lowtide prepare TEXTS -o data --val 0.01
    python train.py data
    torchrun --standalone --nproc-per-node 2 train.py data --resume

The loader's state is in the checkpoint: --resume goes on with the very next batch, also on another number of
ranks. A step is --batch-size windows over all ranks together, and the same windows whatever their number.
"""

import argparse
import itertools
import json
import math
import os
import time
import zlib

import numpy as np
import torch
import torch.distributed as dist
from model import GPT

import lowtide.torch

parser = argparse.ArgumentParser(description="Train a GPT from token files.", allow_abbrev=False)
parser.add_argument("data", help="a folder that lowtide prepare has made, with --val")
for name, value, meaning in [
    ("steps", 300, "how many steps to take"),
    ("batch-size", 12, "windows in a step, over all ranks"),
    ("block-size", 128, "tokens in a window"),
    ("layers", 4, "blocks in the model"),
    ("width", 128, "numbers that stand for a token: a multiple of 32, which a head has"),
    ("lr", 1e-3, "the highest learning rate"),
    ("decay-steps", 0, "steps after which the learning rate has fallen; 0 takes --steps"),
    ("log-every", 10, "steps from line to line"),
    ("eval-every", 100, "steps from validation to validation; 0 does without"),
    ("save-every", 100, "steps from checkpoint to checkpoint"),
    ("sample", 200, "tokens to write at the end"),
    ("seed", 1337, "decides the model, the order and the draws"),
    ("checkpoint", "checkpoint.pt", "its file"),
    ("trace", "", "a file, to add the loss of each step and checksums of its windows to"),
]:
    parser.add_argument(f"--{name}", type=type(value), default=value, help=f"{meaning} ({value})")
parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
ways = "every window once; random draws, by lowtide.torch.get_batch; the same draws, by nanoGPT's own lines"
parser.add_argument("--batches", choices=["loader", "draws", "nanogpt"], default="loader", help=ways)


def nanogpt_batch(path, dtype, batch_size, block_size):
    """Draw a batch as nanoGPT's train.py does, to compare with."""
    data = np.memmap(path, dtype=dtype, mode="r")
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([torch.from_numpy((data[i : i + block_size]).astype(np.int64)) for i in ix])
    y = torch.stack([torch.from_numpy((data[i + 1 : i + 1 + block_size]).astype(np.int64)) for i in ix])
    return x, y


def over_all_ranks(loss):
    """Give the mean loss of all ranks."""
    if dist.is_initialized():
        dist.all_reduce(loss.div_(dist.get_world_size()))
    return loss.item()


def save(path, checkpoint):
    """Write a checkpoint under another name first: a kill leaves the old one or the new one, whole."""
    torch.save(checkpoint, f"{path}.new")
    with open(f"{path}.new") as file:
        os.fsync(file.fileno())
    os.replace(f"{path}.new", path)


def main(argv=None):
    """Train."""
    args = parser.parse_args(argv)
    if args.resume and args.batches != "loader":
        parser.error("only the loader knows where it was: --resume needs --batches loader")
    ranks, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))  # torchrun sets them
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    if args.batch_size % ranks:
        raise SystemExit(f"--batch-size {args.batch_size} cannot be shared out over {ranks} ranks")
    if ranks > 1:
        dist.init_process_group("gloo" if device == "cpu" else "nccl")
    say = print if rank == 0 else lambda text: None

    batch = args.batch_size // ranks, args.block_size  # the loader finds out by itself which rank it is
    tokens = lowtide.tokens(args.data)
    loader = tokens.loader(*batch, seed=args.seed, epochs=None, prefetch=16)  # more would only begin later
    torch.manual_seed(args.seed)
    model = GPT(tokens.vocabulary or 50304, args.block_size, args.layers, args.width).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.95), weight_decay=0.1)
    parts, first = {"loader": loader, "model": model, "optimizer": optimizer}, 0
    if args.resume and os.path.exists(args.checkpoint):
        checkpoint = torch.load(args.checkpoint, map_location=device)
        first = checkpoint["step"]
        for name, part in parts.items():
            part.load_state_dict(checkpoint[name])  # the loader's may be of any number of ranks
    shared = torch.nn.parallel.DistributedDataParallel(model) if ranks > 1 else model
    say(f"step {first} of {args.steps}, {sum(p.numel() for p in model.parameters()):,} parameters, {loader}")

    @torch.no_grad()
    def evaluate(step):
        pairs = (map(torch.from_numpy, pair) for pair in itertools.islice(validation, 20))
        losses = [model(x.to(device), y.to(device)) for x, y in pairs]
        say(f"step {step}: validation loss {over_all_ranks(torch.stack(losses).mean()):.4f}")

    if args.eval_every:  # with the same batches every time
        validation = lowtide.tokens(args.data, split="val").loader(*batch, repeat=True)
        evaluate(first)
    torch.manual_seed(args.seed + rank)  # for the draws
    next_batch = {
        "loader": lambda: map(torch.from_numpy, next(loader)),
        "draws": lambda: lowtide.torch.get_batch(tokens, *batch),
        "nanogpt": lambda: nanogpt_batch(tokens.files[0], tokens.dtype, *batch),
    }[args.batches]
    waited = spent = 0.0  # seconds: for batches, and in all
    with lowtide.watch(tokens.files) as watch:
        for step in range(first, args.steps):
            begin = time.perf_counter()
            x, y = (part.to(device) for part in next_batch())
            waited += time.perf_counter() - begin
            loss = shared(x, y)
            if args.trace:  # before the ranks meet in backward: every step in a checkpoint is in the trace
                windows = [zlib.crc32(window) for window in x.cpu().numpy()]
                line = {"step": step, "rank": rank, "loss": loss.item(), "windows": windows}
                with open(args.trace, "a") as file:
                    file.write(json.dumps(line) + "\n")
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            fall = 0.55 + 0.45 * math.cos(math.pi * min(1, step / (args.decay_steps or args.steps)))
            for group in optimizer.param_groups:  # up for 20 steps, then along a cosine to a tenth
                group["lr"] = args.lr * min((step + 1) / 20, fall)
            optimizer.step()
            spent += time.perf_counter() - begin
            done, last = step + 1, step + 1 == args.steps
            if last or done % args.log_every == 0:
                rate = (done - first) * args.batch_size * args.block_size / spent
                mean, share = over_all_ranks(loss.detach()), waited / spent
                with open("/proc/self/status") as file:  # as the kernel counts the kinds of memory
                    status = dict(line.split(":", 1) for line in file)
                heap, mapped = (int(status[kind].split()[0]) >> 10 for kind in ("RssAnon", "RssFile"))
                memory = f"heap {heap:,} MiB, mapped {mapped:,} MiB"
                say(f"step {done}: loss {mean:.4f}, {rate:,.0f} tokens/s, loader {share:.2%}, {memory}")
            if args.eval_every and (last or done % args.eval_every == 0):
                evaluate(done)
            if rank == 0 and (last or done % args.save_every == 0):
                save(args.checkpoint, {"step": done} | {k: v.state_dict() for k, v in parts.items()})
    peaks = watch.report.peak_anon_bytes, watch.report.peak_file_bytes, watch.report.peak_cache_bytes or 0
    heap, mapped, cached = (peak >> 20 for peak in peaks)
    say(f"at most: heap {heap:,} MiB, mapped {mapped:,} MiB, page cache of the tokens {cached:,} MiB")
    if rank == 0 and args.sample:
        print(tokens.decode(model.generate([tokens.end_of_text or 0], args.sample)[1:]))
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
