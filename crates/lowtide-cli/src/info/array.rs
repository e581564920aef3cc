//! What there is to say about an array.

use super::here::{self, Here};
use super::{Answer, absolute, common};
use crate::draw::thousands;
use crate::headerless::is_integer;
use lowtide::budget::human;
use lowtide::format::{Container, Order, shape_text};
use lowtide::meter::{self, Resident};
use lowtide::{Array, Options, Result};
use lowtide::{Choice, Predicted, Visit};
use serde_json::{Value, json};
use std::path::Path;

pub(super) fn look(path: &Path, options: Options) -> Result<Answer> {
    let array = options.open(path)?;
    let cached = cached(&array);
    let choice = |name, visit| array.choose(visit).map(|Choice { way, why, .. }| (name, way.into(), why));
    let access = [choice("chunks", Visit::Sequential)?, choice("shuffled", Visit::Shuffled)?];
    let (layout, here) = (array.layout(), Here::at(&array)?);
    let format = match layout.container {
        Container::Npy { version } => format!("npy (version {version})"),
        Container::Raw => "raw".into(),
    };
    let order = match layout.order {
        Order::C => "C",
        Order::Fortran => "Fortran",
    };
    let (shared_pairs, shared) = common(cached, array.budget(), &access, &here);
    let mut pairs = vec![
        ("format", format.clone()),
        ("dtype", array.dtype().to_string()),
        ("shape", format!("{}, {order} order", shape_text(array.shape()))),
        ("rows", format!("{} of {}", thousands(array.rows()), human(array.row_bytes() as u64))),
        match array.files() {
            None => ("size", format!("{} from byte {}", human(array.nbytes()), layout.offset)),
            Some(files) => {
                ("size", format!("{} in {} files", human(array.nbytes()), thousands(files.len() as u64)))
            }
        },
    ];
    if are_tokens(&array) {
        pairs.push(("tokens", "lowtide.tokens reads it too: integers of one axis".into()));
    }
    pairs.extend(shared_pairs);
    let predicted = array.predict()?;
    if let Some(advice) = predicted.and_then(|predicted| predicted.advice()) {
        pairs.push(("slow", advice));
    }
    let bills = [("sequential", Visit::Sequential), ("blocks", Visit::Blocks), ("exact", Visit::Shuffled)];
    let bills = here::bills(&array, &bills)?;
    pairs.extend(bills.iter().map(|(_, words, _)| ("requests", words.clone())));
    let title = match array.files() {
        None => array.path().display().to_string(),
        Some(_) => absolute(path).display().to_string(),
    };
    let mut json = json!({
        "path": title,
        "kind": "array",
        "format": format,
        "dtype": array.dtype().name(),
        "numpy_dtype": array.dtype().numpy_str(),
        "shape": array.shape(),
        "order": order,
        "offset": layout.offset,
        "rows": array.rows(),
        "row_bytes": array.row_bytes(),
        "bytes": array.nbytes(),
        "can_be_tokens": are_tokens(&array),
        "files": array.files().map_or(1, <[_]>::len),
        "requests": here::bills_json(&bills),
        "predicted_seconds": predicted.map(|Predicted { exact, scratch, blocks }| json!({
            "exact": exact.as_secs_f64(),
            "scratch": scratch.as_secs_f64(),
            "blocks": blocks.as_secs_f64(),
        })),
    });
    if let Value::Object(json) = &mut json {
        json.extend(shared);
    }
    Ok(Answer { title, pairs, notes: Vec::new(), documents: Vec::new(), json })
}

/// What of its files is in the page cache.
fn cached(array: &Array) -> Resident {
    if array.is_remote() {
        return Resident::Bytes(0); // nothing of an object is
    }
    let Some(files) = array.files() else { return meter::cache::of_path(array.path()) };
    let mut sum = 0;
    for file in files {
        match meter::cache::of_path(&file.path) {
            Resident::Bytes(bytes) => sum += bytes,
            unknown @ Resident::Unknown(_) => return unknown,
        }
    }
    Resident::Bytes(sum)
}

/// Whether it could be tokens as well.
fn are_tokens(array: &Array) -> bool {
    array.shape().len() == 1 && is_integer(array.dtype())
}
