"""Epochs, validation and resuming under trainers that others wrote: Lightning, and Hugging Face's Trainer.

Both take exactly ``len`` batches of an epoch. What they have seen is compared with ``tokens.loader``'s.
"""

from __future__ import annotations

import logging
import warnings

import pytest
from token_streams import starts

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch_dataloaders import MARKS, through  # noqa: E402 (they need torch)

from lowtide.torch import TokenDataset  # noqa: E402

pytestmark = [*MARKS, pytest.mark.filterwarnings("default")]  # the trainers' own are not ours

TOKENS = 3_300  # 65 windows of 50: 16 batches of 4


def epochs(tokens, count, first=0):
    """What each epoch must be."""
    return [starts(tokens.loader(4, 50, epoch=epoch, seed=2)) for epoch in range(first, first + count)]


# Lightning


@pytest.fixture(scope="module")
def lightning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    return module


@pytest.fixture
def watcher(lightning):
    """A model of one weight, which notes the batches of every epoch and of every validation."""

    class Watcher(lightning.LightningModule):
        def __init__(self, stop_at=None):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.seen, self.validated, self.stop_at = {}, [], stop_at

        def on_validation_epoch_start(self):
            self.validated.append([])

        def training_step(self, batch, number):
            if self.stop_at is not None and self.trainer.global_step == self.stop_at:
                raise KeyboardInterrupt  # as a machine that is taken away
            epoch = self.seen.setdefault(self.trainer.current_epoch, [])
            epoch += starts([[torch.as_tensor(part) for part in batch]])
            return self.weight * 0

        def validation_step(self, batch, number):
            self.validated[-1] += starts([[torch.as_tensor(part) for part in batch]])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    return Watcher


@pytest.fixture
def trainer(lightning, tmp_path):
    def make(**settings):
        quiet = {
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "logger": False,
            "enable_checkpointing": False,
        }
        return lightning.Trainer(accelerator="cpu", default_root_dir=tmp_path, **{**quiet, **settings})

    return make


def feeds(tokens, **settings):
    """The ways to feed a trainer, each a function that makes one anew."""
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader

    def dataset():
        return TokenDataset(tokens, 4, 50, seed=2, **settings)

    return {
        "loader": lambda: tokens.loader(4, 50, seed=2, **settings),
        "dataset": dataset,
        "DataLoader": lambda: through(dataset()),
        "DataLoader, 2 workers": lambda: through(dataset(), 2),
        "stateful": lambda: stateful(dataset(), batch_size=None),
        "stateful, 2 workers": lambda: stateful(dataset(), batch_size=None, num_workers=2),
    }


FEEDS = ["loader", "dataset", "DataLoader", "DataLoader, 2 workers", "stateful", "stateful, 2 workers"]


@pytest.mark.parametrize("feed", FEEDS)
def test_lightning_trains_every_epoch(counting, watcher, trainer, feed):
    tokens, model = counting(TOKENS), watcher()
    trainer(max_epochs=4).fit(model, feeds(tokens)[feed]())
    assert [len(epoch) for epoch in model.seen.values()] == [16] * 4
    assert list(model.seen.values()) == epochs(tokens, 4)


@pytest.mark.parametrize("feed", FEEDS)
def test_lightning_validates_with_the_same_windows(counting, watcher, trainer, feed):
    tokens, model = counting(TOKENS), watcher()
    validation = feeds(tokens, repeat=True)[feed]()
    settings = {"max_epochs": 3, "limit_val_batches": 5, "val_check_interval": 8}
    trainer(**settings).fit(model, tokens.loader(4, 50, seed=2), validation)
    assert list(model.seen.values()) == epochs(tokens, 3)
    (first,) = epochs(tokens, 1)
    # The first one is Lightning's look whether validation works at all, with two batches.
    assert model.validated == [first[:2], *[first[:5]] * 6]
    trainer().validate(model, validation, verbose=False)
    assert model.validated[-1] == first


@pytest.mark.parametrize("feed", ["loader", "dataset", "stateful", "stateful, 2 workers"])
@pytest.mark.parametrize("stop", [5, 16, 21, 32])
def test_lightning_resumes_where_its_checkpoint_was_taken(
    counting, lightning, watcher, trainer, tmp_path, feed, stop
):
    """Lightning keeps a loader's state by itself; `stop` is in an epoch, or just after its last batch."""
    tokens = counting(TOKENS)
    whole = [batch for epoch in epochs(tokens, 3) for batch in epoch]
    save = lightning.callbacks.ModelCheckpoint(tmp_path, every_n_train_steps=stop, save_top_k=-1)
    model = watcher(stop_at=stop + 2)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        trainer(max_epochs=3, callbacks=[save], enable_checkpointing=True).fit(model, feeds(tokens)[feed]())
    (checkpoint,) = tmp_path.glob(f"*step={stop}.ckpt")
    resumed = watcher()
    trainer(max_epochs=3).fit(resumed, feeds(tokens)[feed](), ckpt_path=checkpoint, weights_only=False)
    assert [batch for epoch in resumed.seen.values() for batch in epoch] == whole[stop:]


# Hugging Face


@pytest.fixture
def hugging(tmp_path, monkeypatch):
    """A Trainer over ready-made batches, with a model of one weight that notes what it has seen."""
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        transformers = pytest.importorskip("transformers", reason="transformers is not installed")
        pytest.importorskip("accelerate", reason="accelerate is not installed")

    class Watcher(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))
            self.seen, self.validated = [], []

        def forward(self, input_ids, labels):
            (self.seen if self.training else self.validated).extend(starts([(input_ids, labels)]))
            return {"loss": self.weight * 0.0, "logits": input_ids[:, :1].float()}

    def named(pair):
        return {"input_ids": pair[0], "labels": pair[1]}

    class Trainer(transformers.Trainer):
        def get_train_dataloader(self):
            return through(self.train_dataset, collate_fn=named)

        def get_eval_dataloader(self, eval_dataset=None):
            return through(self.eval_dataset, collate_fn=named)

    def make(train, validation=None, **settings):
        quiet = {"report_to": [], "disable_tqdm": True, "save_strategy": "no", "logging_strategy": "no"}
        arguments = transformers.TrainingArguments(
            str(tmp_path / "run"), use_cpu=True, **{**quiet, **settings}
        )
        return Trainer(model=Watcher(), args=arguments, train_dataset=train, eval_dataset=validation)

    return make


def test_hugging_face_trains_every_epoch(counting, hugging):
    tokens = counting(TOKENS)
    trainer = hugging(TokenDataset(tokens, 4, 50, seed=2), num_train_epochs=4)
    trainer.train()
    assert trainer.state.global_step == 64
    want = [batch for epoch in epochs(tokens, 4) for batch in epoch]
    assert trainer.model.seen == want


def test_hugging_face_validates_with_the_same_windows(counting, hugging):
    tokens = counting(TOKENS)
    train, validation = (TokenDataset(tokens, 4, 50, seed=2, repeat=repeat) for repeat in (False, True))
    trainer = hugging(train, validation, num_train_epochs=3, eval_strategy="epoch", prediction_loss_only=True)
    trainer.train()
    (first,) = epochs(tokens, 1)
    assert trainer.model.validated == first * 3
