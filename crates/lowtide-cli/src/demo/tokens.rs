//! The file once more, as a stream of 2-byte tokens: batches of windows as nanoGPT's `get_batch` draws them, and
//! from Lowtide's loader, in the same memory.

use super::story::{Limit, Side, multiple};
use crate::bench::report::{decimal, whole};
use crate::draw::{self, BOLD, Cell};
use lowtide::budget::human;
use serde_json::{Value, json};

/// What runs in each process.
pub const WORKER: &str = include_str!("tokens.py");
/// The ways, as the program and as people call them.
pub const WAYS: [(&str, &str); 2] = [("nanogpt", "nanoGPT's get_batch"), ("lowtide", "Lowtide's loader")];
/// Windows in a batch and tokens in a window: nanoGPT's.
pub const BATCH: u64 = 12;
pub const BLOCK: u64 = 1024;

/// What was found.
#[derive(Debug)]
pub struct TokensPart {
    pub bytes: u64,
    pub limit: Limit,
    /// `get_batch`, and the loader.
    pub sides: [Side; 2],
}

/// Batches a second.
pub fn batches(side: &Side) -> f64 {
    side.rate() / BATCH as f64
}

impl TokensPart {
    pub fn factor(&self) -> f64 {
        let [nanogpt, lowtide] = &self.sides;
        batches(lowtide) / batches(nanogpt).max(1e-9)
    }

    pub fn sentence(&self) -> String {
        let [nanogpt, lowtide] = &self.sides;
        format!(
            "The same file as {} of 2-byte tokens{}: nanoGPT's get_batch made {} batches of {BATCH} × {BLOCK} a \
             second, Lowtide's loader {}: {}.",
            human(self.bytes),
            self.limit.memory().map_or_else(String::new, |memory| format!(" in {memory} of memory")),
            decimal(batches(nanogpt)),
            decimal(batches(lowtide)),
            multiple(self.factor())
        )
    }

    pub fn json(&self) -> Value {
        let ways: Vec<Value> = self
            .sides
            .iter()
            .map(|side| {
                let mut way = side.json();
                way["batches_per_second"] = batches(side).into();
                way
            })
            .collect();
        json!({ "batch_size": BATCH, "block_size": BLOCK, "ways": ways, "factor": self.factor(),
            "sentence": self.sentence() })
    }

    pub fn print(&self) {
        let line = |side: &Side| -> Vec<Cell> {
            vec![
                Cell::from(side.name).styled(BOLD),
                decimal(batches(side)).into(),
                whole(side.rate() * BLOCK as f64).into(),
                human(side.anon).into(),
                human(side.file).into(),
                side.cache.map_or_else(|| "unknown".into(), human).into(),
            ]
        };
        let rows: Vec<Vec<Cell>> = self.sides.iter().map(line).collect();
        let head = ["", "batches/s", "tokens/s", "RssAnon", "RssFile", "page cache"];
        draw::table_that_fits(&head, &rows, &[5, 3, 2]);
        say!();
        draw::paragraph(&self.sentence(), BOLD);
    }
}
