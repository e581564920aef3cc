//! `lowtide cache`: what a local cache of remote objects holds; it can be emptied, or taken away.

use crate::Failure;
use crate::draw::{self, Cell, counted, safe};
use lowtide::budget::human;
use lowtide::store::LocalCache;
use lowtide::store::local_cache::layout::SLOT;
use lowtide::store::local_cache::{Facts, Held};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// Objects in the table; `--json` has all of them.
const SHOWN: usize = 20;

/// Show what a local cache of remote objects holds, empty it, or take it away
///
/// A cache is a folder of a fixed size that Lowtide makes where a remote array or token file is opened with
/// local_cache= and local_cache_size=. Other folders are refused.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  lowtide cache /nvme/lowtide\n  lowtide cache /nvme/lowtide --clear")]
#[allow(clippy::doc_markdown)] // it is help for people at a shell
pub struct Args {
    /// The folder of the cache
    #[arg(value_name = "DIR")]
    dir: PathBuf,
    /// Empty it: it keeps its size, and whoever reads from it fetches again
    #[arg(long)]
    clear: bool,
    /// Take it away, and the folder with it if nothing else is in it; whoever reads from it goes on
    #[arg(long, conflicts_with = "clear")]
    remove: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Result<(), Failure> {
    let dir = &args.dir;
    let cache = LocalCache::open_existing(dir)?;
    let facts = cache.facts();
    let done = if args.clear {
        cache.clear()?;
        Done::Emptied
    } else if args.remove {
        drop(cache);
        Done::Removed { folder: LocalCache::remove(dir)? }
    } else {
        Done::Nothing
    };
    if args.json {
        say!("{:#}", json(dir, &facts, &done));
    } else {
        say(dir, &facts, &done);
    }
    Ok(())
}

/// What was done to it.
enum Done {
    Nothing,
    Emptied,
    /// And whether its folder went with it.
    Removed {
        folder: bool,
    },
}

fn say(dir: &Path, facts: &Facts, done: &Done) {
    let held = format!("{}, {}", human(facts.bytes), counted(facts.blocks, "block"));
    match done {
        Done::Emptied => return say!("{}: emptied; it held {held}", dir.display()),
        Done::Removed { folder: true } => return say!("{}: taken away; it held {held}", dir.display()),
        Done::Removed { folder: false } => {
            return say!("{}: taken away, but for the folder, which holds other files", dir.display());
        }
        Done::Nothing => {}
    }
    let counts = &facts.counts;
    let read = counts.hit_bytes.saturating_add(counts.fetched_bytes);
    let share = if read == 0 { 0.0 } else { counts.hit_bytes as f64 / read as f64 * 100.0 };
    let stored = counted(counts.stored, "block");
    draw::pairs(
        &dir.display().to_string(),
        &[
            (
                "size",
                format!(
                    "{}, of which {} are on the disk now",
                    human(facts.geometry.size),
                    human(facts.on_disk)
                ),
            ),
            ("used", format!("{held} of {}, of {} each", counted(facts.geometry.slots, "slot"), human(SLOT))),
            (
                "read",
                format!(
                    "{} from it, {} fetched ({share:.0} % from it)",
                    human(counts.hit_bytes),
                    human(counts.fetched_bytes)
                ),
            ),
            ("stored", format!("{stored}, for which {} made way", draw::thousands(counts.evicted))),
            ("owner", owner(facts.owner)),
        ],
    );
    if facts.objects.is_empty() {
        return;
    }
    let row = |held: &Held| -> Vec<Cell> {
        vec![safe(&held.label).into(), draw::thousands(held.blocks).into(), human(held.bytes).into()]
    };
    draw::table(
        &["object", "blocks", "bytes"],
        &facts.objects.iter().take(SHOWN).map(row).collect::<Vec<_>>(),
    );
    if facts.objects.len() > SHOWN {
        draw::note(&format!("and {} more objects; --json has all", facts.objects.len() - SHOWN));
    }
}

/// A user by name, where this machine knows one.
fn owner(number: u32) -> String {
    let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = known.lines().find_map(|line| {
        let mut parts = line.split(':');
        let name = parts.next()?;
        (parts.nth(1)?.parse() == Ok(number)).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("user {number}"))
}

fn json(dir: &Path, facts: &Facts, done: &Done) -> Value {
    let objects: Vec<Value> = facts
        .objects
        .iter()
        .map(|held| json!({ "address": held.label, "blocks": held.blocks, "bytes": held.bytes }))
        .collect();
    json!({
        "path": dir.to_string_lossy(),
        "size": facts.geometry.size,
        "on_disk": facts.on_disk,
        "slots": facts.geometry.slots,
        "slot_size": SLOT,
        "blocks": facts.blocks,
        "bytes": facts.bytes,
        "hit_bytes": facts.counts.hit_bytes,
        "fetched_bytes": facts.counts.fetched_bytes,
        "stored_blocks": facts.counts.stored,
        "evicted_blocks": facts.counts.evicted,
        "owner": owner(facts.owner),
        "objects": objects,
        "done": match done {
            Done::Nothing => Value::Null,
            Done::Emptied => json!("cleared"),
            Done::Removed { .. } => json!("removed"),
        },
    })
}
