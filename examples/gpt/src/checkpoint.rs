//! All that a run needs to go on, in one file: the model, the optimizer's averages, where the loader stood.
//!
//! The file is safetensors'; what is no tensor is JSON in its header. It is written under another name, synced and
//! renamed, so that a kill at any moment leaves the old checkpoint or the new one.

use crate::model::{Gpt, KINDS, Settings};
use crate::{Result, wrong};
use candle_core::{DType, Device, Var, safetensors::load_buffer};
use lowtide::{Cache, Error, format::manifest::TokenizerId, write::Append};
use safetensors::SafeTensors;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, path::Path};

pub const NAME: &str = "checkpoint.safetensors";

/// What a run is, besides what it has learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub settings: Settings,
    pub batch: usize,
    pub step: u64, // how many were taken
    pub tokenizer: TokenizerId,
    pub loader: Place,
}

/// Where the loader stood, and in which data: a few numbers, however far it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub epoch: u64,
    pub position: u64,
    pub fingerprint: String,
}

/// Writes the checkpoint of a folder, whole or not at all.
pub fn save(folder: &Path, run: &Run, model: &Gpt) -> Result<()> {
    let header = HashMap::from([("lowtide-gpt".to_owned(), serde_json::to_string(run)?)]);
    let tensors = model.learned.iter().map(|(name, var)| (name, var.as_tensor()));
    // The same name every time: what a kill leaves is written over by the next checkpoint.
    let mut file = Append::create(&folder.join("checkpoint.unfinished"), Cache::Keep)?;
    file.write(&safetensors::serialize(tensors, Some(header))?)?;
    Ok(file.finish(&folder.join(NAME))?)
}

/// Reads the checkpoint of a folder.
pub fn load(folder: &Path) -> Result<(Run, Gpt)> {
    let path = folder.join(NAME);
    let bytes = std::fs::read(&path).map_err(|error| {
        let hint = "no model was trained into this folder yet, or it cannot be read";
        Error::io(&path, "read the checkpoint", error).with_hint(hint)
    })?;
    let what = format!("{}: this is no whole checkpoint of lowtide-gpt", path.display());
    parse(&bytes).map_or_else(|| wrong(what, "choose another --out and train again"), Ok)
}

/// Nothing, where anything is missing or has another shape than the settings say.
fn parse(bytes: &[u8]) -> Option<(Run, Gpt)> {
    let (_, header) = SafeTensors::read_metadata(bytes).ok()?;
    let run: Run = serde_json::from_str(header.metadata().as_ref()?.get("lowtide-gpt")?).ok()?;
    let (settings, tensors) = (run.settings, load_buffer(bytes, &Device::Cpu).ok()?);
    let Settings { vocabulary, block, layers, heads, width, .. } = settings;
    let whole = |(name, shape, _): (String, Vec<usize>, f32)| {
        let mut kinds = KINDS.iter().map(|kind| tensors.get(&format!("{name}{kind}")));
        kinds.all(|found| found.is_some_and(|found| found.dims() == shape && found.dtype() == DType::F32))
    };
    let possible = vocabulary.min(block).min(layers).min(heads).min(width) > 0 && width.is_multiple_of(heads);
    let var = |(name, tensor)| Some((name, Var::from_tensor(&tensor).ok()?));
    let whole = possible && settings.weights().all(whole);
    let learned = whole.then(|| tensors.into_iter().map(var).collect::<Option<_>>())??;
    Some((run, Gpt { settings, learned }))
}
