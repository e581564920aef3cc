//! What many ranks ask of an object store, and how long that takes them: small enough for every run, and in full.
//!
//! The figures of docs/scaling.md: `cargo test --release -p lowtide ranks_in_full -- --ignored --nocapture`.

use super::*;
use crate::engine::fill::planned_row_bytes;
use crate::engine::shares;
use crate::format::manifest::{Checked, Counts, Manifest, Shard as ShardFile, Split, TokenizerId};
use crate::order::{Mix, Order};
use std::collections::BTreeSet;

const MIB: u64 = 1 << 20;
/// What a connection transfers in the time of a first byte is 2.7 MB: blocks of this size are worth a request.
const BLOCK: u64 = 4 * MIB;

const SMALL: World = World {
    shards: 20,
    shard_tokens: 1_000_000,
    ranks: 16,
    batch: 4,
    block: 512,
    within: Within::Shuffled,
    budget: 16 * MIB,
};

/// 10,000 shards of 100 million tokens each: 2 TB. A window is 4 KiB.
const FULL: World = World {
    shards: 10_000,
    shard_tokens: 100_000_000,
    ranks: 1_024,
    batch: 8,
    block: 2_048,
    within: Within::Shuffled,
    budget: 256 * MIB,
};

/// As `blocks="auto"` would choose them for a store of this first byte.
fn blocks(world: &World) -> Within {
    let windows = world.shards * world.shard_tokens / world.block;
    let row = planned_row_bytes(usize::try_from(world.window_bytes()).unwrap());
    Within::Blocks(Mix::choose(row, windows, shares::mix(world.budget), BLOCK))
}

/// So many chunks of one rank that whole mixes are read, where it is blocks that are read.
fn several_mixes(world: &World) -> u64 {
    let Within::Blocks(mix) = world.within else { return 73 };
    let rows = mix.block_rows.get() * mix.buffer_blocks.get();
    (3 * rows / (world.batch * world.ranks)).max(73)
}

/// Bytes of the `lowtide.json` of so many shards.
fn manifest(shards: u64) -> u64 {
    let shard = |n: u64| ShardFile {
        file: Checked { file: format!("train-{n:05}.bin"), bytes: 200_000_000, crc32c: u32::MAX },
        tokens: 100_000_000,
        documents: 123_456,
        beside: Vec::new(),
    };
    let manifest = Manifest {
        lowtide: 1,
        format: "nanogpt".into(),
        dtype: "<u2".into(),
        tokenizer: TokenizerId {
            name: "gpt2".into(),
            fingerprint: "0".repeat(32),
            vocabulary: 50_257,
            end_of_text: Some(50_256),
            file: None,
        },
        splits: vec![Split {
            name: "train".into(),
            tokens: shards * 100_000_000,
            documents: shards * 123_456,
            shards: (0..shards).map(shard).collect(),
        }],
        counts: Counts::default(),
        settings: serde_json::Map::default(),
        sources: Vec::new(),
    };
    serde_json::to_vec_pretty(&manifest).unwrap().len() as u64
}

fn all(world: &World, chunks: u64) -> Vec<Vec<Group>> {
    (0..world.ranks).map(|rank| world.requests(rank, chunks).unwrap()).collect()
}

/// How many windows ranks have when they have all of these groups.
fn windows(world: &World, groups: &[Vec<Group>]) -> u64 {
    groups.iter().flatten().map(|group| group.chunks).sum::<u64>() * world.batch
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 * 1e-9
}

/// Every window of the first steps is asked for, and by the order alone it is known which those are.
#[test]
fn what_ranks_ask_for_is_what_the_order_says() {
    for within in [Within::Shuffled, Within::Sequential, blocks(&SMALL)] {
        let world = World { within, ..SMALL };
        let (chunks, groups) = (9, all(&world, 9));
        let stream = Stream::new(world.shards * world.shard_tokens, world.block, 0, within).unwrap();
        let mut starts = vec![0; usize::try_from(chunks * world.ranks * world.batch).unwrap()];
        stream.fill(0, &mut starts);
        let asked: BTreeSet<(u64, u64)> = groups
            .iter()
            .flatten()
            .flat_map(|group| &group.requests)
            .map(|request| (request.offset, request.bytes))
            .collect();
        for start in starts {
            // In one request, or in two where it lies in two shards or ranges.
            let mut at = 2 * start;
            while at < 2 * start + world.window_bytes() {
                let here = asked.range(..=(at, u64::MAX)).rev().find(|(offset, bytes)| offset + bytes > at);
                let (offset, bytes) = here.copied().unwrap_or_else(|| panic!("nobody asks for byte {at}"));
                at = offset + bytes;
            }
        }
        for request in groups.iter().flatten().flat_map(|group| &group.requests) {
            assert_eq!(request.offset / world.shard_bytes(), request.shard);
            assert_eq!((request.offset + request.bytes - 1) / world.shard_bytes(), request.shard);
        }
    }
}

/// No prefix serves more than it may, every request is served once, and more prefixes or fewer ranks are never slower.
#[test]
fn a_store_serves_what_it_may_and_no_more() {
    let groups = all(&SMALL, 41);
    let wanted: usize = groups.iter().flatten().map(|group| group.requests.len()).sum();
    let limits = Limits { rate: 200, burst: 20, ..Limits::S3 };
    let mut ends = Vec::new();
    for prefixes in [1, 4, 16] {
        let limits = Limits { prefixes, ..limits };
        let outcome = Store::new(limits).serve(SMALL.shards, Opening::Manifest(1000), &groups);
        assert_eq!(outcome.requests, wanted as u64 + SMALL.ranks);
        assert!(outcome.peak() <= limits.rate + limits.burst, "{}", outcome.peak());
        let floor = (outcome.requests - limits.burst * prefixes) / (limits.rate * prefixes);
        assert!(outcome.end >= floor * SECOND, "{} s are less than it takes", seconds(outcome.end));
        assert!(outcome.first.iter().zip(&outcome.opened).all(|(first, opened)| first > opened));
        ends.push(outcome.end);
    }
    assert!(ends.is_sorted_by(|a, b| a > b), "{ends:?}");
    let few = Store::new(limits).serve(SMALL.shards, Opening::Manifest(1000), &groups[..2]);
    assert!(few.end < ends[0]);
    // Without a limit that counts, a rank has its first batch after two waits.
    let alone = Store::new(Limits::S3).serve(SMALL.shards, Opening::Manifest(1000), &groups[..1]);
    assert!((2 * FIRST_BYTE..3 * FIRST_BYTE).contains(&alone.first[0]), "{}", alone.first[0]);
    assert_eq!(alone.refused, 0);
}

/// Opening by a manifest is one request a rank, whatever the shards; by headers it is one for each shard and rank.
#[test]
fn opening_costs_what_it_costs() {
    let groups = all(&SMALL, 1);
    let opened = |opening| {
        let outcome = Store::new(Limits::S3).serve(3_000, opening, &groups);
        let opened =
            outcome.requests - groups.iter().flatten().map(|group| group.requests.len() as u64).sum::<u64>();
        (opened / SMALL.ranks, *outcome.opened.iter().max().unwrap())
    };
    let (requests, by_manifest) = opened(Opening::Manifest(manifest(3_000)));
    assert_eq!(requests, 1);
    let (requests, by_listing) = opened(Opening::Listing);
    assert_eq!(requests, 3);
    let (requests, by_headers) = opened(Opening::Headers);
    assert_eq!(requests, 3_003);
    assert!(by_manifest < by_listing && by_listing < by_headers);
    assert!(by_headers > 3_000 * SMALL.ranks * SECOND / 5_500 - SECOND);
}

/// What a pass over blocks asks for when each rank has its share of every block.
#[test]
fn blocks_are_for_few_ranks() {
    let asked = |ranks| {
        let world = World { ranks, within: blocks(&SMALL), ..SMALL };
        let groups = world.requests(0, several_mixes(&world)).unwrap();
        let windows = windows(&world, std::slice::from_ref(&groups));
        let requests = groups.iter().map(|group| group.requests.len()).sum::<usize>();
        let bytes: u64 = groups.iter().flat_map(|group| &group.requests).map(|request| request.bytes).sum();
        (requests as f64 / windows as f64, bytes as f64 / (windows * world.window_bytes()) as f64)
    };
    let (requests, bytes) = asked(1);
    assert!(requests < 0.05 && bytes < 1.1, "{requests} requests a window, {bytes} bytes a byte");
    let (_, bytes) = asked(16);
    assert!(bytes > 3.0, "{bytes}: what lies between is read by all, and used by others");
}

/// The figures of docs/scaling.md.
#[test]
#[ignore = "some minutes; the figures of docs/scaling.md"]
fn ranks_in_full() {
    println!(
        "window {} bytes, batch {} windows a rank, budget {} MiB, first byte {} ms, {} MB/s a connection, {}-{} in flight a rank, {} requests/s a prefix, {} MB/s a rank",
        FULL.window_bytes(),
        FULL.batch,
        FULL.budget / MIB,
        FIRST_BYTE / 1_000_000,
        CONNECTION / 1_000_000,
        IN_FLIGHT.0,
        IN_FLIGHT.1,
        Limits::S3.rate,
        Limits::S3.network / 1_000_000
    );
    println!("\nwhat ranks ask for (rank 0)\norder ranks requests/window bytes/request bytes/byte");
    for ranks in [1, 8, 64, 1_024] {
        for (name, within) in orders(&FULL) {
            let world = World { ranks, within, ..FULL };
            let groups = world.requests(0, several_mixes(&world)).unwrap();
            let windows = windows(&world, std::slice::from_ref(&groups));
            let requests: u64 = groups.iter().map(|group| group.requests.len() as u64).sum();
            let bytes: u64 =
                groups.iter().flat_map(|group| &group.requests).map(|request| request.bytes).sum();
            println!(
                "{name} {ranks} {:.3} {} {:.2}",
                requests as f64 / windows as f64,
                bytes / requests.max(1),
                bytes as f64 / (windows * world.window_bytes()) as f64
            );
        }
    }
    println!(
        "\nfirst batch (all ranks begin at once, shuffled)\nranks shards opening prefixes opened_last_s first_median_s first_last_s requests refused peak/s/prefix"
    );
    let first = |ranks: u64, shards: u64, opening: Opening, prefixes: u64| {
        let world = World { shards, ranks, ..FULL };
        let groups = all(&world, 1);
        let outcome = Store::new(Limits { prefixes, ..Limits::S3 }).serve(shards, opening, &groups);
        let mut first = outcome.first.clone();
        first.sort_unstable();
        let opened = seconds(*outcome.opened.iter().max().unwrap());
        let name = match opening {
            Opening::Manifest(_) => "manifest",
            Opening::Listing => "listing",
            Opening::Headers => "headers",
        };
        println!(
            "{ranks} {shards} {name} {prefixes} {opened:.2} {:.2} {:.2} {} {} {}",
            seconds(first[first.len() / 2]),
            seconds(first[first.len() - 1]),
            outcome.requests,
            outcome.refused,
            outcome.peak()
        );
    };
    for ranks in [1, 8, 64, 256, 1_024] {
        first(ranks, 10_000, Opening::Manifest(manifest(10_000)), 1);
    }
    for shards in [100, 1_000, 10_000] {
        first(1_024, shards, Opening::Manifest(manifest(shards)), 1);
        first(1_024, shards, Opening::Listing, 1);
    }
    for prefixes in [4, 16, 64] {
        first(1_024, 10_000, Opening::Manifest(manifest(10_000)), prefixes);
    }
    for (ranks, shards) in [(64, 1_000), (1_024, 100), (1_024, 1_000)] {
        first(ranks, shards, Opening::Headers, 1);
    }
    println!(
        "\nmanifest bytes: 100 shards {}, 1,000 {}, 10,000 {}",
        manifest(100),
        manifest(1_000),
        manifest(10_000)
    );
    println!(
        "\nas fast as the store gives (1,024 ranks, 10,000 shards, 73 batches each or more)\norder prefixes seconds steps/s windows/s requests/s peak/s/prefix refused bytes/byte GB/s"
    );
    for (name, within) in orders(&FULL) {
        let world = World { within, ..FULL };
        let groups = all(&world, 73);
        for prefixes in [1, 16, 64] {
            let outcome = Store::new(Limits { prefixes, ..Limits::S3 }).serve(
                world.shards,
                Opening::Manifest(1),
                &groups,
            );
            let (time, windows) = (seconds(outcome.end), windows(&world, &groups));
            println!(
                "{name} {prefixes} {time:.2} {:.2} {:.0} {:.0} {} {} {:.2} {:.2}",
                windows as f64 / (world.batch * world.ranks) as f64 / time,
                windows as f64 / time,
                outcome.requests as f64 / time,
                outcome.peak(),
                outcome.refused,
                outcome.bytes as f64 / (windows * world.window_bytes()) as f64,
                outcome.bytes as f64 / time / 1e9
            );
        }
    }
}

fn orders(world: &World) -> [(&'static str, Within); 3] {
    [("shuffled", Within::Shuffled), ("sequential", Within::Sequential), ("blocks", blocks(world))]
}
