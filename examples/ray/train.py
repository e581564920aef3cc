"""Train a small language model with Ray Train, from token files, and go on with another number of workers.

    lowtide prepare TEXTS -o data
    python train.py data --workers 2
    python train.py data --workers 4

The second command goes on from the first one's last checkpoint, with the very next window. A step is
--batch-size windows over all workers together, and the same windows whatever their number.
"""

import argparse
import json
import os
import tempfile

import ray.train
import ray.train.torch
import torch
from torch import nn

import lowtide


class Model(nn.Module):
    """From token ids (batch, time) to logits (batch, time, vocabulary): each token from the ones before."""

    def __init__(self, vocabulary, width=64):
        super().__init__()
        self.tokens, self.past = nn.Embedding(vocabulary, width), nn.GRU(width, width, batch_first=True)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.past(self.tokens(x))[0])


def train_loop_per_worker(config):
    """Train on this worker's share of every step."""
    context = ray.train.get_context()
    torch.manual_seed(config["seed"])
    model = ray.train.torch.prepare_model(Model(config["vocabulary"]))
    optimizer = torch.optim.AdamW(model.parameters(), lr=config["lr"])
    # Made here and not sent from the driver: Ray has set RANK and WORLD_SIZE, which the loader asks for.
    loader = lowtide.tokens(config["data"]).loader(
        config["batch_size"] // context.get_world_size(),
        config["block_size"],
        seed=config["seed"],
        epochs=None,
    )
    step = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            saved = torch.load(f"{folder}/model.pt", map_location="cpu")
            with open(f"{folder}/loader.json") as file:
                loader.load_state_dict(json.load(file))  # of any number of workers
        unwrapped(model).load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]

    device = ray.train.torch.get_device()
    for x, y in loader:
        if step >= config["steps"]:
            break
        trace(config, step, x)
        x, y = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if step % config["save_every"] == 0 or step == config["steps"]:
            report(model, optimizer, loader, step, loss.item())


def report(model, optimizer, loader, step, loss):
    """Report to Ray; the first worker adds the checkpoint. The loader's state is the same on every worker."""
    metrics = {"step": step, "loss": loss}
    if loader.rank > 0:
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        state = {"model": unwrapped(model).state_dict(), "optimizer": optimizer.state_dict(), "step": step}
        torch.save(state, f"{folder}/model.pt")
        with open(f"{folder}/loader.json", "w") as file:
            json.dump(loader.state_dict(), file)
        ray.train.report(metrics, checkpoint=ray.train.Checkpoint.from_directory(folder))


def unwrapped(model):
    """Give the model itself: with several workers Ray has put it into torch's DistributedDataParallel."""
    return getattr(model, "module", model)


def trace(config, step, x):
    """Write down with which tokens the windows of a step begin, if that was asked for."""
    if config["trace"]:
        rank = ray.train.get_context().get_world_rank()
        with open(os.path.join(config["trace"], f"{os.getpid()}-{rank}"), "a") as file:
            file.writelines(f"{step} {token}\n" for token in x[:, 0])


def main(argv=None):
    """Read the command line and start the workers."""
    parser = argparse.ArgumentParser(description="Train from token files with Ray Train.")
    parser.add_argument(
        "data", help="what lowtide.tokens takes: a folder that lowtide prepare has made, a file"
    )
    for name, value, meaning in [
        ("workers", 2, "how many workers"),
        ("steps", 100, "after how many steps it ends, those before the checkpoint included"),
        ("batch-size", 16, "windows in a step, over all workers"),
        ("block-size", 128, "tokens in a window"),
        ("save-every", 10, "steps from checkpoint to checkpoint"),
        ("vocabulary", 50304, "how many different tokens there are"),
        ("seed", 1337, "decides the model and the order"),
    ]:
        parser.add_argument(f"--{name}", type=int, default=value, help=f"{meaning} ({value})")
    parser.add_argument("--lr", type=float, default=1e-3, help="the learning rate (0.001)")
    parser.add_argument(
        "--storage", default="runs", help="a folder that all nodes see, for checkpoints (runs)"
    )
    parser.add_argument("--name", default="example", help="of the run: the same name goes on (example)")
    parser.add_argument("--trace", help="a folder for the beginnings of windows that each worker has seen")
    args = parser.parse_args(argv)
    if args.batch_size % args.workers:
        parser.error(f"--batch-size {args.batch_size} is not a multiple of --workers {args.workers}")
    config = vars(args)
    for name in ("data", "storage", "trace"):  # workers are elsewhere
        config[name] = config[name] and os.path.abspath(config[name])
    trainer = ray.train.torch.TorchTrainer(
        train_loop_per_worker,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(num_workers=args.workers, use_gpu=torch.cuda.is_available()),
        run_config=ray.train.RunConfig(
            name=args.name,
            storage_path=args.storage,
            failure_config=ray.train.FailureConfig(max_failures=3),  # from the last checkpoint
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    print(trainer.fit().metrics)


if __name__ == "__main__":
    main()
