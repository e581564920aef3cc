//! Token files into token files of another format: the same ids, and documents where both can say where they end.

use super::folder::Folder;
use super::marks::{self, Ends, Side, has_index};
use super::stream::{Seen, Stream};
use super::{OF_THE_INPUT, Wish, refused};
use crate::job::Settings;
use crate::says::{FORMAT, SHARD_TOKENS};
use crate::shards::{Shape, Shards};
use crate::split::{Part, Splitter};
use crate::state::read_manifest;
use lowtide::convert::Loss;
use lowtide::door::{BYTE_ORDER, DTYPE, ORDER, Words};
use lowtide::format::manifest::{Counts, Manifest, SourceFile, Split, TokenizerId};
use lowtide::format::{ByteOrder, Dialect, Dtype, Kind, megatron};
use lowtide::store::Cache;
use lowtide::{CacheWish, Error, Interrupt, Result, TokenOptions, Tokens, meter};
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What one document takes in an index, at most.
const ENTRY: u64 = 20;

/// What was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The folder, as an absolute path.
    pub folder: PathBuf,
    /// What it holds.
    pub manifest: Manifest,
}

/// Converts token files, and says what they have become.
///
/// # Errors
/// [`Error::Argument`] and [`Error::Format`] where something would be lost; whatever opening the input says.
pub fn convert(
    inputs: &[PathBuf],
    output: &Path,
    format: Dialect,
    wish: &Wish,
    progress: &mut dyn FnMut(u64, u64),
    interrupt: Interrupt<'_>,
) -> Result<Made> {
    check(wish)?;
    let streams = open(inputs, wish).map_err(|error| error.renamed(&OF_THE_INPUT))?;
    let Some((_, first)) = streams.first() else {
        return Err(Error::argument("there are no tokens here", ""));
    };
    let dtype = dtype(format, first, wish)?;
    let loss = wish.array.loss;
    let ends = ends(first);
    let mark = match ends {
        Ends::Mark(id, _) => Some(id),
        _ => first.end_of_text().and_then(|id| i64::try_from(id).ok()),
    };
    let (ends, edit) = marks::plan(ends, mark, format, loss)?;
    if loss == Loss::Refused {
        streams.iter().try_for_each(|(_, tokens)| more_in_megatron(tokens))?;
    }
    let total: u64 = streams.iter().map(|(_, tokens)| tokens.len()).sum();
    let width = dtype.itemsize() as u64;
    room(output, &streams, total.saturating_mul(width), format)?;
    let shape = shape(format, dtype, first, wish);
    let folder = Folder::begin(output, wish.array.existing)?;
    let (mut done, mut seen, mut splits) = (0, Seen::default(), Vec::new());
    for (part, tokens) in &streams {
        let stream = Stream { tokens, ends, edit, dtype, shard_tokens: shape.shard_tokens, loss };
        let mut shards = Shards::new(folder.work()?, shape.clone(), Splitter::Only(*part));
        let mut step = |tokens: u64| {
            done += tokens;
            progress(done * width, total * width);
        };
        let one = stream.write(&mut shards, &mut step, interrupt)?;
        seen.documents += one.documents;
        seen.longest = seen.longest.max(one.longest);
        seen.largest = seen.largest.max(one.largest);
        let [train, val] = shards.finish()?;
        splits.push((*part, if *part == Part::Train { train } else { val }));
    }
    let knows = ends != Ends::Unknown || has_index(format);
    let splits = splits.into_iter().map(|(part, mut shards)| {
        if !knows {
            // A file was written as one document, and says nothing of them.
            for shard in &mut shards {
                shard.documents = 0;
            }
        }
        let sum = |of: fn(&lowtide::format::manifest::Shard) -> u64| shards.iter().map(of).sum();
        Split { name: part.name().into(), tokens: sum(|s| s.tokens), documents: sum(|s| s.documents), shards }
    });
    let splits: Vec<Split> = splits.collect();
    let counts = Counts {
        documents: splits.iter().map(|split| split.documents).sum(),
        longest: if knows { seen.longest } else { 0 },
        ..Counts::default()
    };
    let tokenizer = tokenizer(first, mark, seen.largest, folder.work()?)?;
    let manifest = Manifest {
        lowtide: Manifest::VERSION,
        format: format.name().into(),
        dtype: dtype.to_string(),
        tokenizer,
        splits,
        counts,
        settings: settings(format, wish),
        sources: sources(&streams),
    };
    let folder = folder.finish(&manifest, wish.array.existing)?;
    Ok(Made { folder, manifest })
}

/// That the wish is one for tokens.
fn check(wish: &Wish) -> Result<()> {
    let array = |setting: lowtide::door::Setting| {
        Err(Error::argument(setting + " is for arrays, not for token files", "token files are little-endian"))
    };
    if wish.shard_tokens == Some(0) {
        return Err(Error::argument(
            SHARD_TOKENS.number(0) + ": such a shard is full at once",
            "leave it out for one file",
        ));
    }
    match (wish.array.order, wish.array.byte_order) {
        (Some(_), _) => array(ORDER),
        (_, Some(ByteOrder::Big)) => array(BYTE_ORDER.is("big")),
        _ => Ok(()),
    }
}

/// The streams of the input: the splits of a prepared folder, or one.
fn open(inputs: &[PathBuf], wish: &Wish) -> Result<Vec<(Part, Tokens)>> {
    let mut options = TokenOptions::new().cache(wish.cache).storage(wish.far.storage.clone());
    if let Some(dtype) = wish.input.dtype {
        options = options.dtype(dtype);
    }
    if let Some(dialect) = wish.input.format {
        options = options.dialect(dialect);
    }
    if let Some(id) = wish.end_of_text {
        options = options.end_of_text(id);
    }
    if let Some(budget) = &wish.budget {
        options = options.budget(budget.clone());
    }
    let splits = match inputs {
        [folder] => read_manifest(folder)?.map(|manifest| manifest.splits),
        _ => None,
    };
    let Some(splits) = splits else { return Ok(vec![(Part::Train, options.open(inputs)?)]) };
    let one = |split: Split| {
        let part = Part::ALL.into_iter().find(|part| part.name() == split.name).ok_or_else(|| {
            Error::unsupported(format!("a split called {:?} cannot be written", split.name), "train or val")
        })?;
        Ok((part, options.clone().split(split.name).open(inputs)?))
    };
    splits.into_iter().map(one).collect()
}

/// What says where documents end.
fn ends(tokens: &Tokens) -> Ends {
    let indexed = tokens.files().iter().any(|file| file.index.is_some());
    let front = tokens.files().first().is_some_and(|file| file.dialect.marks_beginnings());
    match tokens.end_of_text().and_then(|id| i64::try_from(id).ok()) {
        _ if indexed => Ends::Index,
        Some(id) => Ends::Mark(id, if front { Side::Front } else { Side::Back }),
        None => Ends::Unknown,
    }
}

/// The type of the output's tokens: what was asked for, what `lowtide prepare` would take for the vocabulary where that is
/// known, or one of the same size as the input's. That every id fits is seen when it is written.
fn dtype(format: Dialect, tokens: &Tokens, wish: &Wish) -> Result<Dtype> {
    use Kind::{Int8, Int16, Int32, Int64, UInt8, UInt16, UInt32, UInt64};
    let all = [UInt8, UInt16, UInt32, UInt64, Int8, Int16, Int32, Int64];
    let (holds, usual): (&[Kind], &[Kind]) = match format {
        Dialect::LlmC | Dialect::Datatrove => (&[UInt16, UInt32], &[UInt16, UInt32]),
        Dialect::Megatron => (&[UInt8, Int8, Int16, Int32, Int64, UInt16], &[UInt8, UInt16, Int32, Int64]),
        Dialect::NanoGpt | Dialect::Olmo => (&all, &[UInt16, UInt32]),
        _ => (&all, &all),
    };
    let little = |kind| Dtype::new(kind, ByteOrder::Little);
    if let Some(asked) = wish.array.dtype {
        if holds.contains(&asked.kind()) && asked == little(asked.kind()) {
            return Ok(asked);
        }
        let names: Vec<&str> = holds.iter().map(|&kind| little(kind).name()).collect();
        return Err(Error::argument(
            FORMAT.is(format.name()) + " has no files of " + DTYPE.is(asked.numpy_str()),
            format!("one of {}", names.join(", ")),
        ));
    }
    let kind = tokens.dtype().kind();
    if usual.contains(&kind) {
        return Ok(little(kind));
    }
    if let Some(prepared) = tokens.prepared()
        && let Ok(vocabulary) = u32::try_from(prepared.manifest.tokenizer.vocabulary)
    {
        return Settings { format, ..Settings::default() }.dtype(vocabulary);
    }
    let wide = usual.iter().find(|other| other.itemsize() >= kind.itemsize());
    Ok(little(*wide.or(usual.last()).unwrap_or(&UInt16)))
}

fn shape(format: Dialect, dtype: Dtype, tokens: &Tokens, wish: &Wish) -> Shape {
    let settings = Settings { format, shard_tokens: wish.shard_tokens, ..Settings::default() };
    let cache = match wish.cache {
        CacheWish::Keep => Cache::Keep,
        CacheWish::Auto if tokens.len() * dtype.itemsize() as u64 <= meter::room().bytes / 2 => Cache::Keep,
        CacheWish::Drop | CacheWish::Auto => Cache::Drop,
    };
    Shape::new(&settings, dtype, &name(tokens), cache)
}

/// What made the ids, as far as it is known.
fn name(tokens: &Tokens) -> String {
    if let Some(prepared) = tokens.prepared() {
        return prepared.manifest.tokenizer.name.clone();
    }
    let metadata =
        tokens.files().first().filter(|file| file.dialect == Dialect::Datatrove).and_then(|file| {
            let mut path = file.path.clone().into_os_string();
            path.push(".metadata");
            std::fs::read_to_string(path).ok()
        });
    let line = metadata.as_deref().and_then(|text| text.lines().next()?.rsplit_once('|'));
    line.map_or("unknown", |(name, _)| name).chars().take(200).collect()
}

/// What made the ids, for the manifest; a table of its own comes along.
fn tokenizer(
    tokens: &Tokens,
    mark: Option<i64>,
    largest: i64,
    work: &crate::state::Work,
) -> Result<TokenizerId> {
    let end_of_text = mark.and_then(|id| u64::try_from(id).ok());
    let vocabulary = u64::try_from(largest).unwrap_or(0).max(end_of_text.unwrap_or(0)) + 1;
    let Some(prepared) = tokens.prepared() else {
        return Ok(TokenizerId {
            name: name(tokens),
            fingerprint: String::new(),
            vocabulary,
            end_of_text,
            file: None,
        });
    };
    let known = prepared.manifest.tokenizer.clone();
    if let Some(file) = &known.file {
        let path = prepared.folder.join(file);
        let table = std::fs::read(&path).map_err(|error| Error::io(&path, "read the file", error))?;
        work.place(file, &table)?;
    }
    Ok(TokenizerId { vocabulary: known.vocabulary.max(vocabulary), end_of_text, ..known })
}

/// What an index of Megatron's says that no other format can: modes, and documents of several sequences.
fn more_in_megatron(tokens: &Tokens) -> Result<()> {
    for file in tokens.files().iter().filter(|file| file.dialect == Dialect::Megatron) {
        let Some(path) = &file.index else { continue };
        let wrong = |error| Error::io(path, "read the index", error);
        let source = File::open(path).map_err(wrong)?;
        let len = source.metadata().map_err(wrong)?.len();
        let mut head = [0; megatron::HEADER_LEN];
        source.read_exact_at(&mut head, 0).map_err(wrong)?;
        let index = megatron::Index::parse(path, &head, len)?;
        let shown = path.display();
        if index.sequences != index.documents {
            let (sequences, documents) = (index.sequences, index.documents);
            return Err(refused(
                format!("{shown}: where {sequences} sequences end would be lost: only its {documents} documents are kept")
                    .into(),
                Words::NONE,
            ));
        }
        let modes_at = megatron::HEADER_LEN as u64 + 12 * index.sequences + 8 * (index.documents + 1);
        let mut piece = vec![0_u8; 1 << 16];
        let mut at = modes_at;
        while at < len {
            let some = usize::try_from(len - at).map_or(piece.len(), |left| left.min(piece.len()));
            source.read_exact_at(&mut piece[..some], at).map_err(wrong)?;
            if let Some(found) = piece[..some].iter().position(|&mode| mode != 0) {
                let (sequence, mode) = (at - modes_at + found as u64, piece[found].cast_signed());
                return Err(refused(
                    format!("{shown}: modes would be lost: sequence {sequence} has mode {mode}").into(),
                    Words::NONE,
                ));
            }
            at += some as u64;
        }
    }
    Ok(())
}

/// That the disk has room for all of it.
fn room(output: &Path, streams: &[(Part, Tokens)], bytes: u64, format: Dialect) -> Result<()> {
    let index = if has_index(format) {
        let documents = |tokens: &Tokens| tokens.known_documents().ok().flatten().unwrap_or(0);
        streams.iter().map(|(_, tokens)| documents(tokens).saturating_mul(ENTRY)).sum()
    } else {
        0
    };
    let needs = bytes.saturating_add(index);
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let Some(there) = output.ancestors().find(|folder| folder.is_dir()) else { return Ok(()) };
    let Ok(disk) = rustix::fs::statvfs(there) else { return Ok(()) };
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if needs <= free {
        return Ok(());
    }
    let human = lowtide::budget::human;
    let full = io::Error::from(rustix::io::Errno::NOSPC);
    let hint = format!("it needs {}, {} are free; nothing was written", human(needs), human(free));
    Err(Error::io(&output, "make the folder", full).with_hint(hint))
}

/// Every setting that the bytes depend on.
fn settings(format: Dialect, wish: &Wish) -> Map<String, Value> {
    let pairs = [
        ("converted", json!(true)),
        ("format", json!(format.name())),
        ("dtype", json!(wish.array.dtype.map(Dtype::numpy_str))),
        ("shard-tokens", json!(wish.shard_tokens)),
        ("end-of-text", json!(wish.end_of_text)),
        ("lossy", json!(wish.array.loss == Loss::Allowed)),
    ];
    pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn sources(streams: &[(Part, Tokens)]) -> Vec<SourceFile> {
    let files = streams.iter().flat_map(|(_, tokens)| tokens.files());
    files
        .map(|file| {
            let meta = std::fs::metadata(&file.path).ok();
            let time = |meta: &std::fs::Metadata| {
                i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec())
            };
            let modified = meta.as_ref().map_or(0, time);
            SourceFile { path: file.path.to_string_lossy().into_owned(), bytes: file.len, modified }
        })
        .collect()
}
