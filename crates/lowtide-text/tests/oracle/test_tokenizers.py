"""Ids are those of Python's tiktoken and of Hugging Face's tokenizers, on any text that they take."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_oracles import ALPHABET, ROOT, SMALL, Rust, standard_library, tiktoken_encoding, torture

pytestmark = pytest.mark.heavy

OPENAI = ["gpt2", "r50k_base", "p50k_base", "p50k_edit", "cl100k_base", "o200k_base", "o200k_harmony"]
DIFFERENT = ["gpt2", "cl100k_base", "o200k_base"]
hostile = st.lists(st.sampled_from(ALPHABET) | st.characters(exclude_categories=["Cs"]), max_size=60).map(
    "".join
)


def same(ours: list[int], theirs: list[int], text: str) -> None:
    if ours != theirs:
        at = next((i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1]), -1)
        pytest.fail(f"token {at} of {text[:200]!r}: {ours[at : at + 5]} here, {theirs[at : at + 5]} there")


@pytest.mark.parametrize("name", OPENAI)
def test_small_texts_have_the_ids_of_tiktoken(name: str) -> None:
    theirs = tiktoken_encoding(name)
    with Rust(name) as ours:
        for text in SMALL:
            same(ours.encode(text), theirs.encode_ordinary(text), text)


@pytest.mark.parametrize("name", DIFFERENT)
@pytest.mark.parametrize("texts", [standard_library, torture])
def test_ids_are_those_of_tiktoken(name: str, texts: Callable[[], Iterator[str]]) -> None:
    theirs = tiktoken_encoding(name)
    gave_up = []
    with Rust(name) as ours:
        for text in texts():
            found = ours.encode(text)
            try:
                same(found, theirs.encode_ordinary(text), text)
            except BaseException as error:  # tiktoken panics on a megabyte of whitespace: StackOverflow
                if type(error).__name__ != "PanicException" or not text.isspace():
                    raise
                gave_up.append(text[:2])
    assert len(gave_up) <= 2, gave_up


@pytest.mark.parametrize("name", DIFFERENT)
def test_ids_are_those_of_tiktoken_on_any_text(name: str) -> None:
    theirs = tiktoken_encoding(name)
    with Rust(name) as ours:

        @settings(max_examples=3000, deadline=None, suppress_health_check=list(HealthCheck))
        @given(hostile)
        def check(text: str) -> None:
            same(ours.encode(text), theirs.encode_ordinary(text), text)

        check()


def test_the_golden_file_is_what_tiktoken_says() -> None:
    lines = (ROOT / "crates/lowtide-text/tests/valid/tiktoken.jsonl").read_text().splitlines()
    assert len(lines) > 80
    for line in map(json.loads, lines):
        assert tiktoken_encoding(line["encoding"]).encode_ordinary(line["text"]) == line["ids"]


def train(kind: str, path: Path) -> None:
    """Writes a tokenizer.json of this kind, learned from the standard library."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    def bpe() -> trainers.BpeTrainer:
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        return trainers.BpeTrainer(
            vocab_size=3000, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
        )

    if kind == "bpe":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = bpe()
    elif kind == "llama3":
        from tokenizers import Regex

        pattern = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        )
        split = pre_tokenizers.Split(Regex(pattern + r"|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated")
        tokenizer = Tokenizer(models.BPE(ignore_merges=True))
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
        tokenizer.decoder = decoders.ByteLevel()
        trainer = bpe()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|endoftext|> $A", special_tokens=[("<|endoftext|>", 0)]
        )
    elif kind == "unigram":
        tokenizer = Tokenizer(models.Unigram())
        tokenizer.normalizer = normalizers.NFKC()
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=2000, special_tokens=["<unk>", "</s>"], unk_token="<unk>", show_progress=False
        )
    else:
        tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer()
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(
            vocab_size=2000, special_tokens=["[UNK]", "[CLS]", "[SEP]"], show_progress=False
        )
    tokenizer.train_from_iterator((text for n, text in enumerate(standard_library()) if n % 40 == 0), trainer)
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding()
    tokenizer.save(str(path))


@pytest.mark.parametrize("kind", ["bpe", "llama3", "unigram", "wordpiece"])
def test_ids_are_those_of_hugging_face(kind: str, tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    path = tmp_path / "tokenizer.json"
    train(kind, path)
    theirs = Tokenizer.from_file(str(path))
    theirs.no_truncation()
    theirs.no_padding()
    theirs.encode_special_tokens = True

    def check(text: str) -> None:
        same(ours.encode(text), theirs.encode(text, add_special_tokens=False).ids, text)

    with Rust(str(path)) as ours:
        for n, text in enumerate(standard_library()):
            if n % 3 == 0:
                check(text)
        for text in torture():
            if len(text) < 2**17:
                check(text)

        @settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
        @given(hostile)
        def any_text(text: str) -> None:
            check(text)

        any_text()
