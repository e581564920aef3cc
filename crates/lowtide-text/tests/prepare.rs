//! The whole work on small corpora, against tokens that are made here by hand.

use lowtide::format::Dialect;
use lowtide::format::manifest::Manifest;
use lowtide_text::verify::{Wish, verify};
use lowtide_text::{OnError, Progress, Settings, prepare};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

fn run(input: &Path, output: &Path, settings: &Settings) -> lowtide::Result<Manifest> {
    prepare(&[input.to_owned()], output, settings, &mut |_: &Progress| {}, &|| Ok(()))
}

fn settings() -> Settings {
    Settings { tokenizer: "bytes".into(), threads: Some(2), ..Settings::default() }
}

/// A corpus of JSON lines whose documents have every length from nothing to more than a load.
fn corpus(folder: &Path, documents: u32) -> (PathBuf, Vec<String>) {
    let texts: Vec<String> = (0..documents)
        .map(|n| {
            let len = match n % 50 {
                0 => 0,
                49 => 300_000,
                k => k * k,
            };
            let word = format!("document {n} é ");
            word.chars().cycle().take(len as usize).collect()
        })
        .collect();
    let lines: Vec<String> = texts
        .iter()
        .map(|text| format!("{{\"text\": {}}}\n", serde_json::to_string(text).unwrap()))
        .collect();
    let path = folder.join("corpus.jsonl");
    std::fs::write(&path, lines.concat()).unwrap();
    (path, texts.into_iter().filter(|text| !text.is_empty()).collect())
}

fn bytes_of(texts: &[String], before: bool) -> Vec<u8> {
    let end = 256_u16.to_le_bytes();
    let mut all = Vec::new();
    for text in texts {
        if before {
            all.extend(end);
        }
        all.extend(text.bytes().flat_map(|byte| u16::from(byte).to_le_bytes()));
        if !before {
            all.extend(end);
        }
    }
    all
}

fn files(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let read = |entry: std::fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), std::fs::read(entry.path()).unwrap())
    };
    entries.map(read).collect()
}

#[test]
fn every_format_is_what_our_own_readers_read() {
    let folder = tempfile::tempdir().unwrap();
    let (input, texts) = corpus(folder.path(), 400);
    for format in [Dialect::NanoGpt, Dialect::LlmC, Dialect::Megatron, Dialect::Datatrove, Dialect::Npy] {
        for shard_tokens in [None, Some(200_000)] {
            let output = folder.path().join(format!("{format}-{}", shard_tokens.is_some()));
            let manifest = run(&input, &output, &Settings { format, shard_tokens, ..settings() }).unwrap();
            assert_eq!(manifest.counts.documents, texts.len() as u64);
            assert_eq!(manifest.counts.empty, 8);
            let tokens = lowtide::TokenOptions::new().end_of_text(256).open([&output]).unwrap();
            let expected = bytes_of(&texts, format.marks_beginnings());
            assert_eq!(tokens.len() * 2, expected.len() as u64, "{format}");
            let all = tokens.array().chunks(1 << 20).unwrap();
            let all: Vec<u8> = all.flat_map(|chunk| chunk.unwrap().bytes().to_vec()).collect();
            assert!(all == expected, "{format}");
            assert_eq!(tokens.documents(&|| Ok(())).unwrap(), Some(texts.len() as u64), "{format}");
            assert_eq!(tokens.files()[0].dialect, format);
            assert_eq!(tokens.files().len() > 1, shard_tokens.is_some() || tokens.files().len() > 1);
            let verified = verify(&output, &Wish::default(), &mut |_, _| {}, &|| Ok(())).unwrap();
            assert_eq!(verified.findings, [], "{format}");
            assert!(!output.join(".lowtide-prepare").exists());
        }
    }
}

#[test]
fn threads_and_budgets_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (input, texts) = corpus(folder.path(), 300);
    let base = Settings { val: 0.2, shard_tokens: Some(500_000), ..settings() };
    let mut seen = Vec::new();
    for (n, (threads, budget)) in [(1, 64 << 20), (2, 256 << 20), (7, 48 << 20)].into_iter().enumerate() {
        let output = folder.path().join(format!("out-{n}"));
        let settings = Settings { threads: Some(threads), budget: Some(budget), ..base.clone() };
        let manifest = run(&input, &output, &settings).unwrap();
        assert_eq!(manifest.splits.len(), 2);
        assert_eq!(manifest.splits.iter().map(|s| s.documents).sum::<u64>(), texts.len() as u64);
        seen.push(files(&output));
    }
    assert!(seen[0] == seen[1] && seen[1] == seen[2]);
}

#[test]
fn documents_are_dealt_in_another_order_each_once() {
    let folder = tempfile::tempdir().unwrap();
    let (input, texts) = corpus(folder.path(), 2_000);
    let mut orders = Vec::new();
    for (seed, budget) in [(1, 256 << 20), (1, 40 << 20), (2, 256 << 20)] {
        let output = folder.path().join(format!("out-{seed}-{budget}"));
        let settings = Settings { shuffle_documents: Some(seed), budget: Some(budget), ..settings() };
        run(&input, &output, &settings).unwrap();
        let bytes = std::fs::read(output.join("train.bin")).unwrap();
        let ids: Vec<u16> = bytes.as_chunks::<2>().0.iter().map(|b| u16::from_le_bytes(*b)).collect();
        let documents = ids.split_inclusive(|&id| id == 256);
        let text = |document: &[u16]| {
            let bytes = document.iter().filter_map(|&id| u8::try_from(id).ok()).collect();
            String::from_utf8(bytes).unwrap()
        };
        orders.push(documents.map(text).collect::<Vec<_>>());
    }
    assert!(orders[0] == orders[1], "a smaller budget gives the same order");
    assert_ne!(orders[0], orders[2]);
    for order in &mut orders {
        let moved = order.iter().zip(&texts).filter(|(now, then)| now != then).count();
        assert!(moved > texts.len() * 9 / 10);
        order.sort();
    }
    let mut expected = texts;
    expected.sort();
    assert!(orders.iter().all(|order| *order == expected));
}

#[test]
fn a_run_that_was_stopped_goes_on_and_gives_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let (input, _) = corpus(folder.path(), 1_500);
    for (format, shuffle) in
        [(Dialect::NanoGpt, None), (Dialect::Megatron, None), (Dialect::Datatrove, Some(3))]
    {
        let settings = Settings {
            format,
            shuffle_documents: shuffle,
            val: 0.1,
            shard_tokens: Some(700_000),
            checkpoint: Duration::ZERO,
            ..settings()
        };
        let whole = folder.path().join(format!("{format}-whole"));
        run(&input, &whole, &settings).unwrap();
        let output = folder.path().join(format!("{format}-again"));
        let mut stops = 0;
        for beats in 0_u64.. {
            let left = AtomicU64::new(beats);
            let mut progress = |_: &Progress| {};
            let answer = prepare(std::slice::from_ref(&input), &output, &settings, &mut progress, &|| {
                let go = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
                go.map(|_| ()).map_err(|_| lowtide::Error::Interrupted)
            });
            match answer {
                Ok(_) => break,
                Err(lowtide::Error::Interrupted) => stops += 1,
                Err(other) => panic!("{other}"),
            }
            assert!(!output.join("lowtide.json").exists() && stops < 1_000);
        }
        assert!(stops > 0 && files(&whole) == files(&output), "{format}");
        assert_eq!(run(&input, &output, &settings).unwrap(), run(&input, &whole, &settings).unwrap());
    }
}

#[test]
fn another_command_into_the_same_folder_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (input, _) = corpus(folder.path(), 60);
    let output = folder.path().join("out");
    run(&input, &output, &settings()).unwrap();
    let again = run(&input, &output, &Settings { val: 0.5, ..settings() }).unwrap_err().to_string();
    assert!(again.contains("it was made with val=0.0, this is val=0.5"), "{again}");
    std::fs::write(&input, "{\"text\": \"other\"}\n").unwrap();
    let again = run(&input, &output, &settings()).unwrap_err().to_string();
    assert!(again.contains("corpus.jsonl has changed since"), "{again}");
    let strange = folder.path().join("strange");
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("train.bin"), "").unwrap();
    let again = run(&input, &strange, &settings()).unwrap_err().to_string();
    assert!(again.contains("has a train.bin already"), "{again}");
}

#[test]
fn bad_documents_stop_the_work_or_are_passed_over_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let input = folder.path().join("bad.jsonl");
    let long = "x".repeat(3 << 20);
    let text = format!(
        "{{\"text\": \"one\"}}\nnot json\n{{\"text\": \"{long}\"\n{{\"text\": \"{long}\"}}\n{{\"no\": 1}}\n{{\"text\": \"two\"}}\n"
    );
    std::fs::write(&input, text).unwrap();
    let stop = run(&input, &folder.path().join("stop"), &settings()).unwrap_err().to_string();
    assert!(stop.contains("bad.jsonl: at byte 16") && stop.contains("line 2"), "{stop}");
    let output = folder.path().join("skip");
    let skip = Settings { on_error: OnError::Skip, budget: Some(32 << 20), ..settings() };
    let manifest = run(&input, &output, &skip).unwrap();
    assert_eq!((manifest.counts.documents, manifest.counts.skipped), (3, 3));
    let texts = ["one".to_owned(), long, "two".to_owned()];
    assert!(std::fs::read(output.join("train.bin")).unwrap() == bytes_of(&texts, false));
}

#[test]
fn what_was_changed_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (input, _) = corpus(folder.path(), 200);
    let output = folder.path().join("out");
    run(&input, &output, &settings()).unwrap();
    let path = output.join("train.bin");
    let good = std::fs::read(&path).unwrap();
    let said = |bytes: &[u8]| {
        std::fs::write(&path, bytes).unwrap();
        let verified = verify(&output, &Wish::default(), &mut |_, _| {}, &|| Ok(())).unwrap();
        verified.findings.into_iter().map(|finding| finding.what.to_string()).collect::<Vec<_>>()
    };
    let mut bad = good.clone();
    bad[1_000] ^= 1;
    assert!(said(&bad)[0].contains("its bytes have changed"));
    bad[1_001] = 0xff;
    assert!(said(&bad)[0].starts_with("at byte 1000: the id 65"), "{:?}", said(&bad));
    assert!(said(&good[..good.len() - 2])[0].contains("were written"));
    assert!(said(&good).is_empty());
    std::fs::remove_file(&path).unwrap();
    let verified = verify(&output, &Wish::default(), &mut |_, _| {}, &|| Ok(())).unwrap();
    assert!(verified.findings[0].what.to_string().contains("cannot be opened"));
}

#[test]
fn what_the_error_about_a_field_hints_at_can_be_done_in_the_same_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("d"), folder.path().join("out"));
    std::fs::write(&input, "{\"body\": \"one\"}\n{\"body\": \"two\"}\n").unwrap();
    let said = run(&input, &output, &settings()).unwrap_err().to_string();
    assert!(said.contains("found a JSON object without it (line 1)"), "{said}");
    let body = Settings { field: "body".into(), ..settings() };
    assert_eq!(run(&input, &output, &body).unwrap().counts.documents, 2);
    // Once something was made, it is of use to whoever asked for it.
    let said = run(&input, &output, &settings()).unwrap_err().to_string();
    assert!(said.contains("made in another way"), "{said}");
}

#[test]
fn characters_have_no_token_between_documents_to_give() {
    let folder = tempfile::tempdir().unwrap();
    let (input, output) = (folder.path().join("d.txt"), folder.path().join("out"));
    std::fs::write(&input, "some words").unwrap();
    run(&input, &output, &Settings { tokenizer: "chars".into(), ..settings() }).unwrap();
    let tokens = lowtide::tokens(&output).unwrap();
    let chars = lowtide_text::show::tokenizer_of(&tokens, None).unwrap();
    let said = lowtide_text::show::document(&tokens, 0, &*chars, 100, &|| Ok(())).unwrap_err().to_string();
    assert!(said.contains("t.decode(t[:200])") && said.contains("format=\"megatron\""), "{said}");
    assert!(!said.contains("50256"), "{said}");
}
