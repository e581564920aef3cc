//! Documents into shards: each begins in the shard that is open for its split, and the shard ends with the document
//! that fills it.

use crate::job::Settings;
use crate::split::{Part, Splitter};
use crate::state::{OpenShard, State, Work};
use lowtide::format::manifest::{Checked, Shard};
use lowtide::format::{Dialect, Dtype, Order, llmc, megatron, npy};
use lowtide::store::Cache;
use lowtide::write::Append;
use lowtide::{Error, Result};
use std::fs::{self, File};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// What takes documents as tokens.
pub trait Out {
    /// A document begins.
    fn begin(&mut self, document: u64) -> Result<()>;
    /// More of its tokens.
    fn write(&mut self, tokens: &[u8]) -> Result<()>;
    /// It is whole.
    fn end(&mut self) -> Result<()>;
    /// It is not to be there.
    fn abort(&mut self) -> Result<()>;
    /// Waits until all is on disk, and writes down how much that is.
    fn sync(&mut self, state: &mut State) -> Result<()>;
}

/// What the shards are.
#[derive(Clone, Debug)]
pub struct Shape {
    pub dialect: Dialect,
    pub dtype: Dtype,
    pub shard_tokens: u64,
    pub numbered: bool,
    pub tokenizer: String,
    pub cache: Cache,
}

impl Shape {
    pub fn new(settings: &Settings, dtype: Dtype, tokenizer: &str, cache: Cache) -> Self {
        Self {
            dialect: settings.format,
            dtype,
            shard_tokens: settings.shard_tokens(),
            numbered: settings.numbered(),
            tokenizer: tokenizer.to_owned(),
            cache,
        }
    }

    fn name(&self, part: Part, number: usize) -> String {
        let end = match self.dialect {
            Dialect::Datatrove => "ds",
            Dialect::Npy | Dialect::Olmo => "npy",
            _ => "bin",
        };
        let part = part.name();
        if self.numbered { format!("{part}-{number:05}.{end}") } else { format!("{part}.{end}") }
    }

    /// The header of a file of so many tokens.
    fn header(&self, tokens: u64) -> Result<Vec<u8>> {
        match self.dialect {
            Dialect::LlmC => llmc::header(self.dtype, tokens),
            Dialect::Npy => {
                npy::header(self.dtype, &[usize::try_from(tokens).unwrap_or(usize::MAX)], Order::C)
            }
            _ => Ok(Vec::new()),
        }
    }

    /// Whether something is written down for each document: an entry of the index, or what will be one.
    fn indexed(&self) -> bool {
        matches!(self.dialect, Dialect::Megatron | Dialect::Datatrove)
    }
}

/// A shard that is being written.
struct Open {
    name: String,
    data: Append,
    /// Ends of documents for datatrove, lengths for Megatron.
    index: Option<Append>,
    tokens: u64,
    documents: u64,
    crc: u32,
    index_crc: u32,
    /// Where the document began: bytes, tokens, checksum.
    before: (u64, u64, u32),
}

/// Writes the shards of all splits.
pub struct Shards<'a> {
    work: &'a Work,
    shape: Shape,
    splitter: Splitter,
    open: [Option<Open>; 2],
    done: [Vec<Shard>; 2],
    current: Part,
    /// Files that no state speaks of any more, and those that only the last one on disk does.
    unused: Vec<PathBuf>,
    used: Vec<PathBuf>,
}

impl<'a> Shards<'a> {
    pub fn new(work: &'a Work, shape: Shape, splitter: Splitter) -> Self {
        Self {
            work,
            shape,
            splitter,
            open: [None, None],
            done: [Vec::new(), Vec::new()],
            current: Part::Train,
            unused: Vec::new(),
            used: Vec::new(),
        }
    }

    /// Goes on where `state` stands.
    pub fn resume(work: &'a Work, shape: Shape, splitter: Splitter, state: &State) -> Result<Self> {
        let mut shards = Self::new(work, shape, splitter);
        shards.done.clone_from(&state.done);
        for part in Part::ALL {
            shards.check_done(part)?;
        }
        for open in &state.open {
            let Some(&part) = Part::ALL.get(open.split) else { continue };
            shards.open[open.split] = Some(shards.reopen(part, open)?);
        }
        Ok(shards)
    }

    /// That the shards that were whole are still there, under their names and in their sizes.
    fn check_done(&self, part: Part) -> Result<()> {
        for (number, shard) in self.done[part.index()].iter().enumerate() {
            let name = self.shape.name(part, number);
            if shard.file.file != name || shard.beside.iter().any(|file| !file.file.starts_with(stem(&name)))
            {
                return Err(gone(&self.work.whole(&name), "another name in what was written down of it"));
            }
            for file in std::iter::once(&shard.file).chain(&shard.beside) {
                let path = self.work.whole(&file.file);
                let found = match fs::symlink_metadata(&path) {
                    Ok(meta) if meta.is_file() && meta.len() == file.bytes => continue,
                    Ok(meta) if meta.is_file() => format!("{} bytes instead of {}", meta.len(), file.bytes),
                    _ => "no such file".into(),
                };
                return Err(gone(&path, &found));
            }
        }
        Ok(())
    }

    fn reopen(&self, part: Part, was: &OpenShard) -> Result<Open> {
        let name = self.shape.name(part, self.done[part.index()].len());
        let tokens = was.tokens.checked_mul(self.shape.dtype.itemsize() as u64);
        let bytes = tokens.and_then(|bytes| bytes.checked_add(self.shape.header(0).ok()?.len() as u64));
        let entry = match self.shape.dialect {
            Dialect::Megatron => 4,
            Dialect::Datatrove => 8,
            _ => 0,
        };
        if bytes != Some(was.bytes) || was.documents.checked_mul(entry) != Some(was.index_bytes) {
            return Err(gone(&self.work.part(&name), "other numbers in what was written down of it"));
        }
        let (path, whole) = (self.work.part(&name), self.work.whole(&name));
        if !path.exists() && whole.exists() {
            // It was given its name, and nobody was left to write that down.
            lowtide::write::rename(&whole, &path)?;
        }
        let index_path = self.work.part(&format!("{name}.documents"));
        if self.shape.dialect == Dialect::Datatrove && !index_path.exists() {
            let whole = self.work.whole(&format!("{name}.index"));
            if whole.exists() {
                lowtide::write::rename(&whole, &index_path)?;
            }
        }
        let data = Append::reopen(&path, was.bytes, self.shape.cache)?;
        let index =
            self.shape.indexed().then(|| Append::reopen(&index_path, was.index_bytes, self.shape.cache));
        Ok(Open {
            name,
            data,
            index: index.transpose()?,
            tokens: was.tokens,
            documents: was.documents,
            crc: was.crc,
            index_crc: was.index_crc,
            before: (was.bytes, was.tokens, was.crc),
        })
    }

    fn create(&self, part: Part) -> Result<Open> {
        let name = self.shape.name(part, self.done[part.index()].len());
        let mut data = Append::create(&self.work.part(&name), self.shape.cache)?;
        data.write(&self.shape.header(0)?)?;
        let index_path = self.work.part(&format!("{name}.documents"));
        let index = self.shape.indexed().then(|| Append::create(&index_path, self.shape.cache));
        let before = (data.len(), 0, 0);
        let index = index.transpose()?;
        Ok(Open { name, data, index, tokens: 0, documents: 0, crc: 0, index_crc: 0, before })
    }

    fn current(&mut self) -> Result<&mut Open> {
        let none = || Error::argument("a document that was not begun", "");
        self.open[self.current.index()].as_mut().ok_or_else(none)
    }

    /// Makes the shard of a split whole.
    fn close(&mut self, part: Part) -> Result<()> {
        let Some(mut open) = self.open[part.index()].take() else { return Ok(()) };
        if open.documents == 0 {
            return Ok(()); // all that was begun was given up; the part goes with its folder
        }
        let header = self.shape.header(open.tokens)?;
        open.data.write_at(0, &header)?;
        let bytes = open.data.len();
        let tokens_len = usize::try_from(bytes - header.len() as u64).unwrap_or(usize::MAX);
        let crc32c = crc32c::crc32c_combine(crc32c::crc32c(&header), open.crc, tokens_len);
        let whole = self.work.whole(&open.name);
        let (tokens, documents) = (open.tokens, open.documents);
        let name = open.name.clone();
        open.data.sync()?;
        // What lies beside comes first: bare tokens could be taken for another format.
        let beside = self.finish_index(open.index, &name, open.index_crc, tokens, documents)?;
        drop(open.data);
        lowtide::write::rename(&self.work.part(&name), &whole)?;
        self.done[part.index()].push(Shard {
            file: Checked { file: name, bytes, crc32c },
            tokens,
            documents,
            beside,
        });
        Ok(())
    }

    fn finish_index(
        &mut self,
        index: Option<Append>,
        name: &str,
        crc32c: u32,
        tokens: u64,
        documents: u64,
    ) -> Result<Vec<Checked>> {
        let Some(mut index) = index else { return Ok(Vec::new()) };
        index.sync()?;
        if self.shape.dialect == Dialect::Datatrove {
            let (file, bytes) = (format!("{name}.index"), index.len());
            index.finish(&self.work.whole(&file))?;
            let text = format!(
                "{}|{}\n{tokens}\n{tokens} tokens",
                self.shape.tokenizer,
                self.shape.dtype.itemsize()
            );
            let metadata = format!("{name}.metadata");
            self.work.place(&metadata, text.as_bytes())?;
            let checked =
                Checked { file: metadata, bytes: text.len() as u64, crc32c: crc32c::crc32c(text.as_bytes()) };
            return Ok(vec![Checked { file, bytes, crc32c }, checked]);
        }
        let lengths = index.path().to_owned();
        drop(index);
        let file = format!("{}.idx", name.trim_end_matches(".bin"));
        let made = self.megatron(&lengths, &file, documents)?;
        self.used.push(lengths);
        Ok(vec![made])
    }

    /// Makes Megatron's index of the lengths of its documents.
    fn megatron(&self, lengths: &Path, file: &str, documents: u64) -> Result<Checked> {
        let mut out = Append::create(&self.work.part(file), self.shape.cache)?;
        let mut crc32c = 0;
        let mut put = |bytes: &[u8]| {
            crc32c = crc32c::crc32c_append(crc32c, bytes);
            out.write(bytes)
        };
        put(&megatron::header(self.shape.dtype, documents)?)?;
        each_length(lengths, |length| put(&length.to_le_bytes()))?;
        let (mut pointer, width) = (0_u64, self.shape.dtype.itemsize() as u64);
        each_length(lengths, |length| {
            put(&pointer.to_le_bytes())?;
            pointer += u64::from(length) * width;
            Ok(())
        })?;
        (0..=documents).try_for_each(|sequence| put(&sequence.to_le_bytes()))?;
        let bytes = out.len();
        out.finish(&self.work.whole(file))?;
        Ok(Checked { file: file.to_owned(), bytes, crc32c })
    }

    /// Makes all shards whole; those of each split.
    pub fn finish(mut self) -> Result<[Vec<Shard>; 2]> {
        for part in Part::ALL {
            self.close(part)?;
        }
        Ok(self.done)
    }
}

/// A name without what comes after its last dot.
fn stem(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(stem, _)| stem)
}

/// What an earlier run has made is not there as it was left.
fn gone(path: &Path, found: &str) -> Error {
    Error::Format {
        path: path.to_owned(),
        offset: 0,
        expected: "what the earlier run has left".into(),
        found: found.to_owned(),
        hint: "put it back, or begin again in another folder".into(),
    }
}

/// Goes through a file of u32.
fn each_length(path: &Path, mut f: impl FnMut(u32) -> Result<()>) -> Result<()> {
    let wrong = |error| Error::io(path, "read the file", error);
    let mut reader = BufReader::with_capacity(1 << 16, File::open(path).map_err(wrong)?);
    let mut entry = [0; 4];
    loop {
        match reader.read_exact(&mut entry) {
            Ok(()) => f(u32::from_le_bytes(entry))?,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(wrong(error)),
        }
    }
}

impl Out for Shards<'_> {
    fn begin(&mut self, document: u64) -> Result<()> {
        self.current = self.splitter.part(document);
        let at = self.current.index();
        if self.open[at].is_none() {
            self.open[at] = Some(self.create(self.current)?);
        }
        let open = self.current()?;
        open.before = (open.data.len(), open.tokens, open.crc);
        Ok(())
    }

    fn write(&mut self, tokens: &[u8]) -> Result<()> {
        let width = self.shape.dtype.itemsize();
        let open = self.current()?;
        open.data.write(tokens)?;
        open.tokens += (tokens.len() / width) as u64;
        open.crc = crc32c::crc32c_append(open.crc, tokens);
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        let (dialect, full) = (self.shape.dialect, self.shape.shard_tokens);
        let open = self.current()?;
        open.documents += 1;
        if let Some(index) = &mut open.index {
            let entry = if dialect == Dialect::Megatron {
                let length = i32::try_from(open.tokens - open.before.1).map_err(|_| {
                    let path = index.path().display();
                    Error::argument(
                        format!("{path}: a document of {} tokens", open.tokens - open.before.1),
                        "Megatron's index counts to 2,147,483,647: take another format",
                    )
                })?;
                length.to_le_bytes().to_vec()
            } else {
                open.tokens.to_le_bytes().to_vec()
            };
            index.write(&entry)?;
            open.index_crc = crc32c::crc32c_append(open.index_crc, &entry);
        }
        if open.tokens >= full {
            self.close(self.current)?;
        }
        Ok(())
    }

    fn abort(&mut self) -> Result<()> {
        let open = self.current()?;
        let (bytes, tokens, crc) = open.before;
        open.data.truncate(bytes)?;
        (open.tokens, open.crc) = (tokens, crc);
        Ok(())
    }

    fn sync(&mut self, state: &mut State) -> Result<()> {
        for path in self.unused.drain(..) {
            fs::remove_file(&path).map_err(|error| Error::io(&path, "remove the file", error))?;
        }
        self.unused = std::mem::take(&mut self.used);
        state.open.clear();
        for part in Part::ALL {
            let Some(open) = &mut self.open[part.index()] else { continue };
            open.data.sync()?;
            open.index.as_mut().map_or(Ok(()), Append::sync)?;
            state.open.push(OpenShard {
                split: part.index(),
                bytes: open.data.len(),
                index_bytes: open.index.as_ref().map_or(0, Append::len),
                tokens: open.tokens,
                documents: open.documents,
                crc: open.crc,
                index_crc: open.index_crc,
            });
        }
        state.done.clone_from(&self.done);
        Ok(())
    }
}
