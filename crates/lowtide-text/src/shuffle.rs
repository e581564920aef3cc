//! Documents of token files in shuffled order: token files of the same format, in bounded memory, on after a kill.
//!
//! Document d goes to position π⁻¹(d) of the permutation that a shuffled pass over so many rows goes through. Documents
//! are spooled by their positions and dealt in that order, as those of `prepare` are. Where an end-of-text token says
//! where documents end and one has none, as the last of a file may, it gets one: else it would run into the next.

use crate::deal::{self, ENTRY, SPOOLS, Spools};
use crate::job::Job;
use crate::says::BUDGET;
use crate::shards::{Out as _, Shape, Shards};
use crate::split::{Part, Shuffle, Splitter};
use crate::state::{Found, State, Work};
use lowtide::budget::human;
use lowtide::door::Words;
use lowtide::format::manifest::{Manifest, SourceFile, Split, TokenizerId};
use lowtide::format::{ByteOrder, Dialect, megatron};
use lowtide::order::{Cut, Permutation};
use lowtide::store::{Cache, Storage, is_url};
use lowtide::{Budget, CacheWish, Error, Interrupt, Result, SortStep, Sorting, TokenOptions, Tokens};
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often it is written down how far the work is: what a kill costs at most.
const CHECKPOINT: Duration = Duration::from_secs(5);
/// How often the caller is told.
const BEAT: Duration = Duration::from_millis(50);
/// Stacks, buffers of files, and what the allocator keeps besides.
const FIXED: u64 = 12 << 20;
/// The buffers of all spools.
const BUFFERS: u64 = SPOOLS as u64 * (256 << 10);
/// The least that is left for tokens in memory.
const LEAST: u64 = 8 << 20;
/// Tokens that are read at once.
const CHUNK: usize = 1 << 18;
/// What is written before a document in its spool.
const HEAD: u64 = 24;

/// Documents of token files, to be written in shuffled order.
#[derive(Clone, Debug)]
pub struct ShuffleDocuments {
    /// Files, folders, globs, prefixes: one stream of tokens.
    pub names: Vec<PathBuf>,
    /// How they are opened; its budget and cache are set here.
    pub options: TokenOptions,
    /// Another seed, another order: that of a shuffled pass over as many rows.
    pub seed: u64,
    /// Another epoch, another order.
    pub epoch: u64,
    /// Bytes that all of it may hold.
    pub budget: u64,
}

/// What was made.
#[derive(Clone, Debug)]
pub struct ShuffledDocuments {
    /// The new files.
    pub manifest: Manifest,
    /// Documents that had no end-of-text token, and got one.
    pub marked: u64,
    /// Bytes of tokens, and how many of twice as many an earlier call had written.
    pub bytes: u64,
    /// See `bytes`.
    pub before: u64,
}

impl ShuffleDocuments {
    /// Makes the files in the folder `output`, or goes on with it; where all of it is there, nothing is done.
    ///
    /// # Errors
    /// [`Error::Argument`] where nothing says where documents end, and for a folder with something else in it;
    /// [`Error::Io`] where the disk has no room, or something cannot be read or written.
    pub fn run(
        &self,
        output: &Path,
        progress: &mut dyn FnMut(Sorting),
        interrupt: Interrupt<'_>,
    ) -> Result<ShuffledDocuments> {
        let room = self.room()?;
        let options = self.options.clone().budget(Budget::new(room / 3)?).cache(CacheWish::Drop);
        let tokens = options.open(&self.names)?;
        let (dialect, width) = (tokens.files()[0].dialect, tokens.dtype().itemsize() as u64);
        check(&tokens, &self.options.stored_with(), output)?;
        let bytes = tokens.len() * width;
        let documents = tokens.find_documents(interrupt, &|_| {})?.ok_or_else(|| tokens.no_documents())?;
        let job = self.job(&tokens, dialect)?;
        let (work, found) = Work::open(output, &job)?;
        let state = match found {
            Found::Done(manifest) => {
                work.clear()?;
                return Ok(made(*manifest, tokens.len(), bytes, 2 * bytes));
            }
            Found::Begun(state) => *state,
            Found::New => State::default(),
        };
        let spooled = if state.dealing { bytes } else { state.spools.iter().sum::<u64>().min(bytes) };
        let passes = passes(bytes + HEAD * documents, documents, room / 3 * 2);
        let mut tell = Tell { progress, interrupt, total: 2 * bytes, before: spooled, passes, last: None };
        // A spool that is larger than the memory is spooled again.
        has_room(output, (2 * bytes + bytes / SPOOLS as u64 + HEAD * documents).saturating_sub(spooled))?;
        let state = self.spool(&tokens, documents, &work, state, &mut tell)?;
        let shape = shape(&tokens, dialect);
        let part = match tokens.prepared().and_then(|prepared| prepared.split.as_deref()) {
            Some("val") => Part::Val,
            _ => Part::Train,
        };
        let mut shards = Shards::new(&work, shape, Splitter::Only(part));
        deal::deal(&work, Cache::Drop, room / 3 * 2, &mut shards, &mut |dealt| {
            tell.say(SortStep::Rows, bytes + dealt.min(bytes))
        })?;
        let splits = Part::ALL.into_iter().zip(shards.finish()?).filter(|(_, shards)| !shards.is_empty());
        let splits = splits.map(|(part, shards)| Split {
            name: part.name().into(),
            tokens: shards.iter().map(|shard| shard.tokens).sum(),
            documents: shards.iter().map(|shard| shard.documents).sum(),
            shards,
        });
        let manifest = Manifest {
            lowtide: Manifest::VERSION,
            format: dialect.name().into(),
            dtype: tokens.dtype().to_string(),
            tokenizer: tokenizer(&tokens, &self.options.stored_with(), &work)?,
            splits: splits.collect(),
            counts: state.counts,
            settings: job.settings,
            sources: job.sources,
        };
        work.finish(&manifest)?;
        Ok(made(manifest, tokens.len(), bytes, spooled))
    }

    /// What tokens in memory may take: while they are spooled, and while they are dealt.
    fn room(&self) -> Result<u64> {
        let needs = FIXED + BUFFERS + LEAST;
        if self.budget < needs {
            return Err(Error::Budget {
                what: "shuffling documents".into(),
                needs,
                limit: self.budget,
                hint: Words::from("a larger ") + BUDGET,
            });
        }
        Ok(self.budget - FIXED - BUFFERS)
    }

    /// All that the bytes depend on.
    fn job(&self, tokens: &Tokens, dialect: Dialect) -> Result<Job> {
        let mut sources = Vec::new();
        let mut versions = blake3::Hasher::new();
        for path in tokens.files().iter().flat_map(|file| std::iter::once(&file.path).chain(&file.index)) {
            if is_url(path) {
                let storage = self.options.stored_with();
                versions.update(storage.version(path)?.as_bytes());
                let bytes = storage.head(path, 0)?.1;
                sources.push(SourceFile { path: path.to_string_lossy().into_owned(), bytes, modified: 0 });
                continue;
            }
            let meta = fs::metadata(path).map_err(|error| Error::io(path, "look at the file", error))?;
            let modified = i128::from(meta.mtime()) * 1_000_000_000 + i128::from(meta.mtime_nsec());
            sources.push(SourceFile {
                path: path.to_string_lossy().into_owned(),
                bytes: meta.len(),
                modified,
            });
        }
        let settings = [
            ("format", json!(dialect.name())),
            ("shuffle-documents", json!(self.seed)),
            ("epoch", json!(self.epoch)),
            ("end-of-text", json!(tokens.end_of_text())),
        ];
        let far = sources.iter().any(|source| is_url(Path::new(&source.path)));
        let versions = far.then(|| ("versions", json!(versions.finalize().to_hex()[..32])));
        let settings = settings.into_iter().chain(versions);
        let settings = settings.map(|(name, value): (&str, Value)| (name.to_owned(), value)).collect();
        Ok(Job { settings, sources })
    }

    /// Spools all documents from the state's place on.
    fn spool(
        &self,
        tokens: &Tokens,
        documents: u64,
        work: &Work,
        state: State,
        tell: &mut Tell<'_>,
    ) -> Result<State> {
        if state.dealing {
            return Ok(state);
        }
        let order = Shuffle::permuted(&Permutation::new(documents, self.seed, self.epoch));
        let spools = if state.spools.is_empty() {
            Spools::new(work, order, Cache::Drop)?
        } else {
            Spools::resume(work, order, Cache::Drop, &state)?
        };
        let mut spooling = Spooling::new(tokens, documents, work, (state, spools), tell.interrupt)?;
        let width = tokens.dtype().itemsize();
        let mut at = spooling.document.as_ref().map_or(tokens.len(), |document| document.start);
        if at < tokens.len() {
            let mut chunks =
                tokens.array().cut(&Cut { seed: None, rows: at..tokens.len() })?.chunks(CHUNK)?;
            while let Some(chunk) = chunks.next_chunk(tell.interrupt) {
                let chunk = chunk?;
                spooling.take(at, chunk.bytes(), tell.interrupt)?;
                at += (chunk.bytes().len() / width) as u64;
                tell.say(SortStep::Runs, at * width as u64)?;
            }
        }
        spooling.finish(tell.interrupt)
    }
}

/// Documents on their way from the stream into spools.
struct Spooling<'a> {
    tokens: &'a Tokens,
    work: &'a Work,
    spools: Spools,
    state: State,
    saved: Instant,
    documents: u64,
    /// The tokens of the document that comes next, or is being written; `None` behind the last.
    document: Option<Range<u64>>,
    /// Whether some of it was written.
    begun: bool,
    /// Its last token so far.
    last: Vec<u8>,
    mark: Option<Mark>,
}

/// The token that says where documents end, as the files have it, where nothing else says it.
struct Mark {
    token: Vec<u8>,
    begins: bool,
}

impl Mark {
    fn of(tokens: &Tokens) -> Option<Self> {
        let indexed = tokens.files().iter().any(|file| file.index.is_some());
        let mut token = tokens.end_of_text().filter(|_| !indexed)?.to_le_bytes().to_vec();
        token.truncate(tokens.dtype().itemsize());
        if tokens.dtype().byte_order() == ByteOrder::Big {
            token.reverse();
        }
        Some(Self { token, begins: tokens.files().iter().any(|file| file.dialect.marks_beginnings()) })
    }
}

impl<'a> Spooling<'a> {
    fn new(
        tokens: &'a Tokens,
        documents: u64,
        work: &'a Work,
        (state, spools): (State, Spools),
        interrupt: Interrupt<'_>,
    ) -> Result<Self> {
        let (saved, mark) = (Instant::now(), Mark::of(tokens));
        let mut new = Self {
            tokens,
            work,
            spools,
            state,
            saved,
            documents,
            document: None,
            begun: false,
            last: Vec::new(),
            mark,
        };
        new.document = new.look(interrupt)?;
        Ok(new)
    }

    /// The document that comes next.
    fn look(&self, interrupt: Interrupt<'_>) -> Result<Option<Range<u64>>> {
        let number = self.state.place.number;
        if number >= self.documents {
            return Ok(None);
        }
        self.tokens.document_range(number, interrupt, &|_| {}).map(Some)
    }

    /// Takes the tokens from `at` on.
    fn take(&mut self, at: u64, bytes: &[u8], interrupt: Interrupt<'_>) -> Result<()> {
        let width = self.tokens.dtype().itemsize();
        let end = at + (bytes.len() / width) as u64;
        let place = |token: u64| usize::try_from(token.clamp(at, end) - at).unwrap_or(0) * width;
        while let Some(document) = self.document.clone().filter(|document| document.start < end) {
            self.write(&bytes[place(document.start)..place(document.end)])?;
            if document.end > end {
                break;
            }
            self.end(&document, interrupt)?;
        }
        Ok(())
    }

    fn write(&mut self, part: &[u8]) -> Result<()> {
        if !self.begun {
            self.begun = true;
            self.spools.begin(self.state.place.number)?;
            if let Some(Mark { token, begins: true }) = &self.mark
                && !part.starts_with(token)
            {
                self.spools.write(token)?;
            }
        }
        let width = self.tokens.dtype().itemsize();
        if let Some(last) = part.len().checked_sub(width) {
            self.last.clear();
            self.last.extend_from_slice(&part[last..]);
        }
        self.spools.write(part)
    }

    /// The document is whole.
    fn end(&mut self, document: &Range<u64>, interrupt: Interrupt<'_>) -> Result<()> {
        if let Some(Mark { token, begins: false }) = &self.mark
            && *token != self.last
        {
            self.spools.write(token)?;
        }
        self.spools.end()?;
        self.begun = false;
        let State { place, counts, .. } = &mut self.state;
        counts.documents += 1;
        counts.longest = counts.longest.max(document.end - document.start);
        place.number += 1;
        if self.saved.elapsed() >= CHECKPOINT {
            self.spools.sync(&mut self.state)?;
            self.work.save_state(&self.state)?;
            self.saved = Instant::now();
        }
        self.document = self.look(interrupt)?;
        match &self.document {
            Some(next) if next.start != document.end => Err(Error::unsupported(
                format!(
                    "{}: document {} begins at token {}, not where the one before it ends, at {}",
                    self.tokens.files()[0].path.display(),
                    self.state.place.number,
                    next.start,
                    document.end
                ),
                "documents that do not follow each other cannot be shuffled without losing tokens",
            )),
            _ => Ok(()),
        }
    }

    /// All tokens were taken: what comes now are documents without any.
    fn finish(mut self, interrupt: Interrupt<'_>) -> Result<State> {
        while let Some(document) = self.document.clone() {
            self.write(&[])?;
            self.end(&document, interrupt)?;
        }
        self.spools.sync(&mut self.state)?;
        self.state.dealing = true;
        self.work.save_state(&self.state)?;
        Ok(self.state)
    }
}

/// Says how far it is, now and then.
struct Tell<'a> {
    progress: &'a mut dyn FnMut(Sorting),
    interrupt: Interrupt<'a>,
    total: u64,
    before: u64,
    passes: u32,
    last: Option<Instant>,
}

impl Tell<'_> {
    fn say(&mut self, step: SortStep, written: u64) -> Result<()> {
        if self.last.is_some_and(|last| last.elapsed() < BEAT) {
            return Ok(());
        }
        self.last = Some(Instant::now());
        let Self { total, before, passes, .. } = *self;
        (self.progress)(Sorting { step, written, total, before, passes });
        (self.interrupt)()
    }
}

/// How often all of it is read and written, on an average: a spool that does not fit in the room is spooled again.
fn passes(bytes: u64, documents: u64, room: u64) -> u32 {
    let (mut passes, mut spool) = (2, (bytes + 2 * ENTRY * documents) / SPOOLS as u64);
    while spool > room && passes < 10 {
        (passes, spool) = (passes + 1, spool / SPOOLS as u64);
    }
    passes
}

fn made(manifest: Manifest, tokens: u64, bytes: u64, before: u64) -> ShuffledDocuments {
    let written = manifest.splits.iter().map(|split| split.tokens).sum::<u64>();
    ShuffledDocuments { manifest, marked: written.saturating_sub(tokens), bytes, before }
}

/// As the files that are read: one file, or shards of the size of the largest.
fn shape(tokens: &Tokens, dialect: Dialect) -> Shape {
    let files = tokens.files();
    let name = tokens.prepared().map_or("unknown", |prepared| &prepared.manifest.tokenizer.name);
    Shape {
        dialect,
        dtype: tokens.dtype(),
        shard_tokens: files
            .iter()
            .map(|file| file.tokens)
            .max()
            .filter(|_| files.len() > 1)
            .unwrap_or(u64::MAX),
        numbered: files.len() > 1,
        tokenizer: name.to_owned(),
        cache: Cache::Drop,
    }
}

/// What made the tokens, as far as that is known.
fn tokenizer(tokens: &Tokens, storage: &Storage, work: &Work) -> Result<TokenizerId> {
    let Some(prepared) = tokens.prepared() else {
        let bits = 8 * tokens.dtype().itemsize().min(7);
        return Ok(TokenizerId {
            name: "unknown".into(),
            fingerprint: String::new(),
            vocabulary: 1 << bits,
            end_of_text: tokens.end_of_text(),
            file: None,
        });
    };
    let tokenizer = prepared.manifest.tokenizer.clone();
    if let Some(name) = &tokenizer.file {
        let path = prepared.folder.join(name);
        let (table, _) = storage.head(&path, usize::MAX)?;
        work.place(name, &table)?;
    }
    Ok(tokenizer)
}

/// That these files can be shuffled into that folder.
fn check(tokens: &Tokens, storage: &Storage, output: &Path) -> Result<()> {
    let there = fs::canonicalize(output).ok();
    for file in tokens.files() {
        let folder = file.path.parent().and_then(|folder| fs::canonicalize(folder).ok());
        if there.is_some() && folder == there {
            return Err(Error::argument(
                format!("{}: the folder holds what is read, {}", output.display(), file.path.display()),
                "name another folder for the result",
            ));
        }
        if file.dialect != tokens.files()[0].dialect {
            return Err(Error::argument(
                format!(
                    "{} and {} have different formats",
                    tokens.files()[0].path.display(),
                    file.path.display()
                ),
                "what is shuffled together is written in one",
            ));
        }
        if let (Dialect::Megatron, Some(index)) = (file.dialect, &file.index) {
            let (head, len) = storage.head(index, megatron::HEADER_LEN)?;
            let found = megatron::Index::parse(index, &head, len)?;
            if found.sequences != found.documents {
                return Err(Error::unsupported(
                    format!(
                        "{}: {} documents have {} sequences",
                        index.display(),
                        found.documents,
                        found.sequences
                    ),
                    "only documents of one sequence each can be shuffled: where others are cut would be lost",
                ));
            }
        }
    }
    Ok(())
}

/// Refuses what the disk has no room for.
fn has_room(output: &Path, needs: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(output).map_err(|error| Error::io(output, "look at the folder", error))?;
    let room = stat.f_bavail.saturating_mul(stat.f_frsize);
    if needs <= room {
        return Ok(());
    }
    let full = std::io::Error::from(rustix::io::Errno::NOSPC);
    Err(Error::io(output, "shuffle documents into the folder", full).with_hint(format!(
        "{} are needed, {} are free there",
        human(needs),
        human(room)
    )))
}
