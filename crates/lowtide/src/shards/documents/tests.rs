//! Scanned documents against the rule read aloud, and what is remembered of them.

use super::super::find_tokens;
use super::*;
use crate::format::{Dialect, Dtype};
use proptest::prelude::*;
use std::cell::Cell;
use std::path::Path;

const MARK: u64 = 7;

/// Files that are not on any disk.
fn files(shards: &[(Vec<u8>, Dialect)]) -> Vec<TokenFile> {
    let file = |(i, (tokens, dialect)): (usize, &(Vec<u8>, Dialect))| TokenFile {
        path: format!("nowhere/{i}.bin").into(),
        index: None,
        dialect: *dialect,
        dtype: Dtype::parse("uint8").unwrap(),
        offset: 0,
        tokens: tokens.len() as u64,
        len: tokens.len() as u64,
    };
    shards.iter().enumerate().map(file).collect()
}

/// Every document, by walking over the tokens one by one.
fn by_hand(shards: &[(Vec<u8>, Dialect)]) -> Vec<Range<u64>> {
    let (mut documents, mut at) = (Vec::new(), 0_u64);
    for (tokens, dialect) in shards {
        let mut begin = 0;
        for (i, &token) in tokens.iter().enumerate() {
            let cut = if *dialect == Dialect::LlmC { i } else { i + 1 };
            if u64::from(token) == MARK && cut > begin && cut < tokens.len() {
                documents.push(at + begin as u64..at + cut as u64);
                begin = cut;
            }
        }
        let end = at + tokens.len() as u64;
        if !tokens.is_empty() {
            documents.push(at + begin as u64..end);
        }
        at = end;
    }
    documents
}

/// Reads a stream in memory.
fn reader(stream: &[u8]) -> impl Fn(u64, &mut [u8]) -> Result<()> {
    |offset, out| {
        let start = usize::try_from(offset).unwrap();
        out.copy_from_slice(&stream[start..start + out.len()]);
        Ok(())
    }
}

fn scan_by(block: u64, shards: &[(Vec<u8>, Dialect)], read: ReadAt<'_>) -> Documents {
    let scanned = Scanned::scan(block, &files(shards), MARK, read, &|| Ok(()), &|_| ()).unwrap();
    Documents(How::Scanned(scanned))
}

fn shards() -> impl Strategy<Value = Vec<(Vec<u8>, Dialect)>> {
    // Mostly marks, or hardly any: documents within a block, and over many.
    let tokens = prop_oneof![
        prop::collection::vec(5_u8..9, 0..60),
        prop::collection::vec(prop::num::u8::ANY, 0..60),
        (0_usize..60).prop_map(|n| vec![7; n]),
    ];
    let dialect = prop::sample::select(vec![Dialect::NanoGpt, Dialect::LlmC]);
    prop::collection::vec((tokens, dialect), 1..5)
}

proptest! {
    #[test]
    fn every_document_is_where_walking_finds_it(
        shards in shards(), block in 1_u64..20, order in any::<prop::sample::Index>(),
    ) {
        let stream: Vec<u8> = shards.iter().flat_map(|(tokens, _)| tokens.clone()).collect();
        let read = reader(&stream);
        let documents = scan_by(block, &shards, &read);
        let expected = by_hand(&shards);
        prop_assert_eq!(documents.len(), expected.len() as u64);
        prop_assert_eq!(documents.is_empty(), expected.is_empty());
        // Forwards, and from anywhere: what was asked before makes no difference.
        for (i, range) in (0..).zip(&expected) {
            prop_assert_eq!(&documents.range(i, &read).unwrap(), range);
        }
        if !expected.is_empty() {
            let i = order.index(expected.len());
            prop_assert_eq!(&documents.range(i as u64, &read).unwrap(), &expected[i]);
        }
        let beyond = documents.range(expected.len() as u64, &read);
        prop_assert!(matches!(beyond, Err(Error::Index { .. })), "{:?}", beyond);
    }
}

proptest! {
    #[test]
    fn the_front_knows_the_documents_that_end_in_it(
        shards in shards(), block in 1_u64..20, blocks in 1_usize..6,
    ) {
        let stream: Vec<u8> = shards.iter().flat_map(|(tokens, _)| tokens.clone()).collect();
        let reach = Cell::new(0);
        let all = reader(&stream);
        let read = |offset, out: &mut [u8]| {
            reach.set(reach.get().max(offset + out.len() as u64));
            all(offset, out)
        };
        let front = Front(Scanned::scan_front(block, blocks, &files(&shards), MARK, &read).unwrap());
        let expected = by_hand(&shards);
        let known = (0..).zip(&expected).map(|(i, range)| (front.range(i, &read).unwrap(), range));
        let known: Vec<_> = known.collect();
        for (found, range) in &known {
            prop_assert!(found.as_ref().is_none_or(|found| found == *range), "{:?} {:?}", found, range);
        }
        // All that end before the last block that was counted, and nothing was read beyond it.
        let counted = u64::try_from(blocks).unwrap() * block;
        let sure = expected.iter().filter(|range| range.end < reach.get().min(counted)).count();
        prop_assert!(known.iter().take(sure.saturating_sub(shards.len())).all(|(found, _)| found.is_some()));
        prop_assert!(reach.get() <= counted);
        prop_assert!(front.range(expected.len() as u64, &read).unwrap().is_none());
    }
}

#[test]
fn tokens_of_blocks_and_buffers_are_counted_once() {
    // Three blocks and a bit, with marks at every edge there is.
    let block = usize::try_from(BLOCK).unwrap();
    let mut tokens = vec![0; 3 * block + 5];
    for edge in [0, 1, block - 1, block, block + 1, 2 * block - 1, 3 * block, 3 * block + 4] {
        tokens[edge] = 7;
    }
    for dialect in [Dialect::NanoGpt, Dialect::LlmC] {
        let shards = [(tokens.clone(), dialect), (tokens.clone(), dialect)];
        let stream = [&tokens[..], &tokens].concat();
        let read = reader(&stream);
        let done = Cell::new(0);
        let progress = |tokens| done.set(tokens);
        let documents = Documents::scan(&files(&shards), MARK, &read, &|| Ok(()), &progress).unwrap();
        assert_eq!(done.get(), stream.len() as u64);
        let found: Vec<_> = (0..documents.len()).map(|i| documents.range(i, &read).unwrap()).collect();
        assert_eq!(found, by_hand(&shards), "{dialect}");
    }
}

#[test]
fn a_walk_reads_every_block_once_and_a_long_document_two() {
    let mut tokens = vec![0; 1000];
    tokens[10] = 7;
    tokens[20] = 7;
    tokens[905] = 7;
    let shards = [(tokens.clone(), Dialect::NanoGpt)];
    let asked = Cell::new(0);
    let read = |offset: u64, out: &mut [u8]| {
        asked.set(asked.get() + out.len());
        reader(&tokens)(offset, out)
    };
    let documents = scan_by(100, &shards, &read);
    assert_eq!(asked.replace(0), 999, "the last token cannot say anything");
    for i in 0..4 {
        documents.range(i, &read).unwrap();
    }
    assert!(asked.replace(0) <= 200, "the first block and the tenth");
    assert_eq!(documents.range(2, &read).unwrap(), 21..906);
    assert!(asked.get() <= 200);
}

#[test]
fn documents_are_shared_between_threads() {
    fn shared<T: Send + Sync + std::fmt::Debug>() {}
    shared::<Documents>();
}

#[test]
fn a_scan_can_be_interrupted_and_errors_are_passed_on() {
    let shards = [(vec![0; 1000], Dialect::NanoGpt)];
    let stop = || Err(Error::Interrupted);
    let scan = Documents::scan(&files(&shards), MARK, &reader(&shards[0].0), &stop, &|_| ());
    assert!(matches!(scan, Err(Error::Interrupted)));
    let broken = |_: u64, _: &mut [u8]| Err(Error::argument("broken", ""));
    assert!(Documents::scan(&files(&shards), MARK, &broken, &|| Ok(()), &|_| ()).is_err());
    let large = Documents::scan(&files(&shards), 256, &reader(&shards[0].0), &|| Ok(()), &|_| ());
    assert!(large.unwrap_err().to_string().contains("end_of_text=256 cannot be among tokens of uint8"));
    assert!(Documents::scan(&[], MARK, &reader(&[]), &|| Ok(()), &|_| ()).is_err());
}

#[test]
fn a_file_that_changed_after_the_scan_is_noticed() {
    let mut tokens = vec![0; 1000];
    tokens[500] = 7;
    let documents = scan_by(100, &[(tokens.clone(), Dialect::NanoGpt)], &reader(&tokens));
    for (at, token) in [(500, 0), (501, 7)] {
        let mut changed = tokens.clone();
        changed[at] = token;
        let error = documents.range(0, &reader(&changed)).unwrap_err().to_string();
        assert!(
            error.contains("0.bin: at byte 500: expected the documents that an earlier scan found"),
            "{error}"
        );
    }
    documents.range(0, &reader(&tokens)).unwrap();
}

/// Two raw shards on a disk, and their stream.
fn on_disk(folder: &Path) -> (Vec<TokenFile>, Vec<u8>) {
    let shards = [vec![1_u16, 7, 2, 3, 7], vec![4, 7, 5]]
        .map(|tokens| tokens.iter().flat_map(|token| token.to_le_bytes()).collect::<Vec<u8>>());
    for (name, bytes) in ["a.bin", "b.bin"].iter().zip(&shards) {
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    let found = find_tokens(&[folder.join("*.bin")], &super::super::TokenWish::default()).unwrap();
    (found.files, shards.concat())
}

#[test]
fn what_was_remembered_is_found_again_for_the_same_files_only() {
    let folder = tempfile::tempdir().unwrap();
    let (files, stream) = on_disk(folder.path());
    let read = reader(&stream);
    assert!(Documents::load(&files, MARK).is_none());
    let documents = Documents::scan(&files, MARK, &read, &|| Ok(()), &|_| ()).unwrap();
    let kept = documents.save(&files).unwrap();
    assert_eq!(kept, folder.path().join("a.bin.lowtide-documents"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing temporary is left");
    let again = Documents::load(&files, MARK).unwrap();
    let all = |documents: &Documents| -> Vec<_> {
        (0..documents.len()).map(|i| documents.range(i, &read).unwrap()).collect()
    };
    assert_eq!(all(&again), [0..2, 2..5, 5..7, 7..8]);
    assert_eq!(all(&again), all(&documents));
    assert_eq!(again.save(&files).unwrap(), kept, "what was loaded can be kept again");
    assert_eq!(
        find_tokens(&[folder.path().join("*")], &super::super::TokenWish::default()).unwrap().files,
        files
    );

    assert!(Documents::load(&files, 3).is_none(), "another token");
    assert!(Documents::load(&files[..1], MARK).is_none(), "fewer files");
    let swapped = [files[1].clone(), files[0].clone()];
    std::fs::copy(&kept, folder.path().join("b.bin.lowtide-documents")).unwrap();
    assert!(Documents::load(&swapped, MARK).is_none(), "another order");
    let mut begins = files.clone();
    begins[1].dialect = Dialect::LlmC;
    assert!(Documents::load(&begins, MARK).is_none(), "another meaning of the token");
    assert!(Documents::load(&[], MARK).is_none());
    // The same bytes, written at another time.
    let second = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    std::fs::File::options().write(true).open(&files[1].path).unwrap().set_modified(second).unwrap();
    assert!(Documents::load(&files, MARK).is_none(), "changed since");
    let error = documents.save(&files).unwrap_err().to_string();
    assert!(error.contains("expected the files as they were when they were scanned"), "{error}");
}

#[test]
fn a_damaged_memory_is_as_good_as_none() {
    let folder = tempfile::tempdir().unwrap();
    let (files, stream) = on_disk(folder.path());
    let kept =
        Documents::scan(&files, MARK, &reader(&stream), &|| Ok(()), &|_| ()).unwrap().save(&files).unwrap();
    let good = std::fs::read(&kept).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        std::fs::write(&kept, &bad).unwrap();
        assert!(Documents::load(&files, MARK).is_none(), "byte {at}");
        std::fs::write(&kept, &good[..at]).unwrap();
        assert!(Documents::load(&files, MARK).is_none(), "{at} bytes");
    }
    std::fs::write(&kept, [&good[..], &[0]].concat()).unwrap();
    assert!(Documents::load(&files, MARK).is_none());
    // Whole, and lying: more documents than a block has tokens, or a shard that begins none.
    for lie in [6_u32, 0] {
        let mut bad = good[..good.len() - 32].to_vec();
        bad[64..68].copy_from_slice(&lie.to_le_bytes());
        bad.extend(blake3::hash(&bad).as_bytes());
        std::fs::write(&kept, &bad).unwrap();
        assert!(Documents::load(&files, MARK).is_none(), "{lie}");
    }
    // Whole, and lying within reason: seen when that block is looked at.
    let mut bad = good[..good.len() - 32].to_vec();
    bad[64..68].copy_from_slice(&3_u32.to_le_bytes());
    bad.extend(blake3::hash(&bad).as_bytes());
    std::fs::write(&kept, &bad).unwrap();
    let lying = Documents::load(&files, MARK).unwrap();
    assert!(lying.range(1, &reader(&stream)).unwrap_err().to_string().contains("another number of them"));
    std::fs::remove_file(&kept).unwrap();
    std::fs::create_dir(&kept).unwrap();
    assert!(Documents::load(&files, MARK).is_none());
    let failed = Documents::scan(&files, MARK, &reader(&stream), &|| Ok(()), &|_| ()).unwrap().save(&files);
    assert!(failed.unwrap_err().to_string().contains("cannot write the file"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3, "nothing temporary is left");
}
