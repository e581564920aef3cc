//! The whole work: one thread reads, some make tokens, and the caller's writes them in the order of the input.

use crate::deal::{self, Spools};
use crate::documents::{self, Mark, Reading, Sink};
use crate::encode::{Between, Encoding};
use crate::feed::{After, Fate, Feeder, Load, SAID};
use crate::inputs::{self, Source};
use crate::job::{Job, OnError, Settings};
use crate::packing::Gauge;
use crate::portion;
use crate::room::Room;
use crate::says::TOKENIZER;
use crate::shards::{Out, Shape, Shards};
use crate::split::{Part, Shuffle, Splitter};
use crate::state::{Found, State, Work};
use crate::tokenizer::{self, CharsBuilder, Tokenizer};
use lowtide::Interrupt;
use lowtide::format::Dtype;
use lowtide::format::manifest::{Counts, Manifest, Shard, Split, TokenizerId};
use lowtide::store::Cache;
use lowtide::{CacheWish, Error, Result, meter};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How often the caller is asked whether to go on, and told how far it is.
const BEAT: Duration = Duration::from_millis(50);

/// How far the work is.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// What is being done.
    pub step: Step,
    /// Bytes of all inputs, as they are on disk, and how many of them have been read.
    pub bytes: u64,
    /// See `bytes`.
    pub read: u64,
    /// Bytes of text that became tokens.
    pub text: u64,
    /// Documents that were written.
    pub documents: u64,
    /// Tokens that were written.
    pub tokens: u64,
    /// Tokens that are to be dealt in another order, while that is done.
    pub to_deal: u64,
    /// Documents that were passed over.
    pub skipped: u64,
    /// What was wrong with the first of them: file, line and byte.
    pub said: Vec<String>,
    /// What an earlier run had read: the rest is what this one has done.
    pub resumed: u64,
    /// Tokens of an earlier run, likewise.
    pub resumed_tokens: u64,
}

/// The steps of the work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Step {
    /// The characters are collected: only for `chars`.
    Looking,
    /// Text becomes tokens.
    #[default]
    Encoding,
    /// What several machines have made is put together.
    Joining,
    /// Documents are dealt in another order.
    Dealing,
    /// Files go to an object store: `read` of `bytes` are there.
    Sending,
}

/// Where tokens come from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// All text is read here.
    Text,
    /// The portions of it are tokens already, each in a file.
    Portions(&'a [PathBuf]),
}

/// Makes token files of text, and says what they are.
///
/// What is there already of the same work is gone on with; where all of it is, nothing is done.
///
/// # Errors
/// [`Error::Argument`] for settings that make no sense and for a folder with something else in it;
/// [`Error::Format`] for a document that cannot be read; [`Error::Io`] as the system has it.
pub fn prepare(
    names: &[PathBuf],
    output: &Path,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
    interrupt: Interrupt<'_>,
) -> Result<Manifest> {
    prepare_for(output, names, output, settings, progress, interrupt)
}

/// The same of files that go from `output` to `address`, which is what messages name.
pub fn prepare_for(
    address: &Path,
    names: &[PathBuf],
    output: &Path,
    settings: &Settings,
    progress: &mut dyn FnMut(&Progress),
    interrupt: Interrupt<'_>,
) -> Result<Manifest> {
    settings.check()?;
    let sources = inputs::find(names, &settings.include, output)?;
    documents::fit(settings, &sources)?;
    let mut run = Run::new(settings, &sources, progress, interrupt);
    let tokenizer = run.tokenizer()?;
    let room = run.room(&*tokenizer)?;
    let job = Job::new(settings, &*tokenizer, &sources);
    let (work, found) = Work::open_for(address, output, &job)?;
    let state = match found {
        Found::Done(manifest) => {
            work.clear()?;
            return Ok(*manifest);
        }
        Found::Begun(state) => Some(*state),
        Found::New => None,
    };
    run.whole(&*tokenizer, &room, work, job, state, Origin::Text)
}

/// The work, with what it is told and whom it tells.
pub struct Run<'a> {
    settings: &'a Settings,
    sources: &'a [Source],
    /// Which bytes of each source are read; where it has none, all.
    pub ranges: &'a [Option<Range<u64>>],
    pub cache: Cache,
    gauge: Gauge,
    progress: &'a mut dyn FnMut(&Progress),
    interrupt: Interrupt<'a>,
    seen: Progress,
}

impl<'a> Run<'a> {
    pub fn new(
        settings: &'a Settings,
        sources: &'a [Source],
        progress: &'a mut dyn FnMut(&Progress),
        interrupt: Interrupt<'a>,
    ) -> Self {
        let bytes = sources.iter().map(Source::bytes).sum::<u64>();
        let cache = match settings.cache {
            CacheWish::Keep => Cache::Keep,
            CacheWish::Auto if bytes <= meter::room().bytes / 2 => Cache::Keep,
            CacheWish::Drop | CacheWish::Auto => Cache::Drop,
        };
        let seen = Progress { bytes, ..Progress::default() };
        Self { settings, sources, ranges: &[], cache, gauge: Gauge::default(), progress, interrupt, seen }
    }

    /// Makes all files, the manifest last.
    pub fn whole(
        mut self,
        tokenizer: &dyn Tokenizer,
        room: &Room,
        work: Work,
        job: Job,
        state: Option<State>,
        from: Origin<'_>,
    ) -> Result<Manifest> {
        let (counts, done) = self.make(tokenizer, room, &work, state, from)?;
        if let Some((name, json)) = tokenizer.table() {
            work.place(name, json.as_bytes())?;
        }
        let manifest = self.manifest(tokenizer, job, counts, done)?;
        work.finish(&manifest)?;
        Ok(manifest)
    }

    pub fn reading(&self, room: &Room) -> Reading {
        // A portion of the inputs does not tell how many there are.
        let alone = self.sources.len() == 1 && self.ranges.is_empty();
        Reading {
            kind: self.settings.input,
            field: self.settings.field.split('.').map(str::to_owned).collect(),
            field_needed: alone && self.settings.asks_for_field(),
            separator: self.settings.separator.clone(),
            cache: self.cache,
            room: room.line,
            page: room.page,
            gauge: self.gauge.clone(),
        }
    }

    fn threads(&self) -> usize {
        self.settings.threads.unwrap_or_else(lowtide::sys::cores)
    }

    pub fn room(&self, tokenizer: &dyn Tokenizer) -> Result<Room> {
        let budget =
            self.settings.budget.unwrap_or_else(|| lowtide::Budget::default_for(meter::room().bytes).limit());
        let width = self.settings.dtype(tokenizer.vocabulary())?.itemsize();
        let deals = self.settings.shuffle_documents.is_some();
        let mut memory = tokenizer.memory();
        memory.held += Source::memory(self.sources);
        Room::new(budget, self.threads(), width, memory, deals)
    }

    /// The tokenizer that was asked for. That of characters is made of all that there are.
    pub fn tokenizer(&mut self) -> Result<Arc<dyn Tokenizer>> {
        if self.settings.tokenizer != "chars" {
            return tokenizer::named(&self.settings.tokenizer);
        }
        if let Some(once) = self.sources.iter().find(|source| source.comes_once()) {
            let name = match once {
                Source::Stdin => "standard input".into(),
                Source::File { path, .. } => path.display().to_string(),
            };
            return Err(Error::argument(
                TOKENIZER.is("chars") + " reads its input twice, and " + name + " comes only once",
                "write it to a file first",
            ));
        }
        self.seen.step = Step::Looking;
        let reading = self.reading(&self.room(&tokenizer::Bytes)?);
        let (chars, on_error) = (CharsBuilder::default(), self.settings.on_error);
        let mut look = Look { chars, on_error, last: Instant::now(), run: self };
        for source in look.run.sources {
            documents::read(source, &reading, None, &mut look)?;
        }
        let chars = look.chars;
        self.gauge.set(0);
        self.seen.step = Step::Encoding;
        Ok(Arc::new(chars.build()))
    }

    fn beat(&mut self) -> Result<()> {
        self.seen.read = self.gauge.read().min(self.seen.bytes);
        (self.progress)(&self.seen);
        (self.interrupt)()
    }

    /// Makes the shards, or what is missing of them.
    fn make(
        &mut self,
        tokenizer: &dyn Tokenizer,
        room: &Room,
        work: &Work,
        state: Option<State>,
        from: Origin<'_>,
    ) -> Result<(Counts, [Vec<Shard>; 2])> {
        let dtype = self.settings.dtype(tokenizer.vocabulary())?;
        let shape = Shape::new(self.settings, dtype, tokenizer.name(), self.cache);
        let splitter = Splitter::new(self.settings.seed, self.settings.val);
        let Some(seed) = self.settings.shuffle_documents else {
            let (mut shards, state) = match state {
                Some(state) => (Shards::resume(work, shape, splitter, &state)?, state),
                None => (Shards::new(work, shape, splitter), State::default()),
            };
            let state = self.tokens(tokenizer, dtype, room, work, state, &mut shards, from)?;
            return Ok((state.counts, shards.finish()?));
        };
        let mut state = state.unwrap_or_default();
        if !state.dealing {
            let shuffle = Shuffle::new(seed);
            let mut spools = if state.spools.is_empty() {
                Spools::new(work, shuffle, self.cache)?
            } else {
                Spools::resume(work, shuffle, self.cache, &state)?
            };
            state = self.tokens(tokenizer, dtype, room, work, state, &mut spools, from)?;
            spools.sync(&mut state)?;
            state.dealing = true;
            if let Origin::Text = from {
                work.save_state(&state)?;
            }
        }
        self.seen.step = Step::Dealing;
        (self.seen.to_deal, self.seen.resumed_tokens) = (state.spooled(dtype.itemsize() as u64), 0);
        let mut shards = Shards::new(work, shape, splitter);
        let (mut last, width) = (Instant::now(), dtype.itemsize() as u64);
        deal::deal(work, self.cache, room.deal, &mut shards, &mut |bytes| {
            self.seen.tokens = bytes / width;
            if last.elapsed() < BEAT {
                return Ok(());
            }
            last = Instant::now();
            self.beat()
        })?;
        Ok((state.counts, shards.finish()?))
    }

    /// Gives all tokens to `out`.
    #[expect(clippy::too_many_arguments, reason = "what is made, of what, and where to")]
    fn tokens(
        &mut self,
        tokenizer: &dyn Tokenizer,
        dtype: Dtype,
        room: &Room,
        work: &Work,
        state: State,
        out: &mut dyn Out,
        from: Origin<'_>,
    ) -> Result<State> {
        match from {
            Origin::Text => self.encode(tokenizer, dtype, room, Some(work), state, out),
            Origin::Portions(files) => self.join(files, dtype.itemsize() as u64, out),
        }
    }

    /// Gives the documents of all portions to `out`, numbered through.
    fn join(&mut self, files: &[PathBuf], width: u64, out: &mut dyn Out) -> Result<State> {
        self.seen.step = Step::Joining;
        self.gauge.set(self.seen.bytes);
        let (mut state, mut before, mut last) = (State::default(), 0, Instant::now());
        for file in files {
            let made = portion::replay(file, state.place.number, out, &mut |bytes| {
                if last.elapsed() < BEAT {
                    return Ok(());
                }
                last = Instant::now();
                self.seen.tokens = before + bytes / width;
                self.beat()
            })?;
            state.place.number += made.numbers;
            before += made.tokens;
            made.add_to(&mut state.counts);
            state.said.extend(made.said);
            state.said.truncate(SAID);
        }
        (self.seen.documents, self.seen.skipped) = (state.counts.documents, state.counts.skipped);
        (self.seen.text, self.seen.tokens) = (state.counts.text_bytes, before);
        self.seen.said.clone_from(&state.said);
        self.beat()?;
        Ok(state)
    }

    /// Turns all text from the state's place on into tokens. How far it is, is written down where there is a folder.
    pub fn encode(
        &mut self,
        tokenizer: &dyn Tokenizer,
        dtype: Dtype,
        room: &Room,
        work: Option<&Work>,
        state: State,
        out: &mut dyn Out,
    ) -> Result<State> {
        let between = match tokenizer.end_of_text() {
            None => Between::Nothing,
            Some(id) if self.settings.format.marks_beginnings() => Between::Before(id),
            Some(id) => Between::After(id),
        };
        let encoding = Encoding { tokenizer, between, width: dtype.itemsize() };
        let (free, to_fill) = mpsc::channel();
        let (full, to_encode) = mpsc::channel();
        let (made, to_write) = mpsc::channel();
        for _ in 0..room.loads {
            let _ = free.send(Load::default());
        }
        let after = After {
            place: state.place,
            empty: state.counts.empty,
            skipped: state.counts.skipped,
            said: state.said.clone(),
        };
        let after = (after, self.gauge.clone());
        let feeder = Feeder::new(tokenizer, self.settings.on_error, (to_fill, full), room, after);
        let reading = self.reading(room);
        let earlier: u64 = self.sources.iter().take(state.place.source).map(Source::bytes).sum();
        self.gauge.set(earlier);
        self.seen.resumed_tokens = state.tokens(dtype.itemsize() as u64);
        self.seen.resumed = earlier + state.place.mark.map_or(0, |mark| mark.offset);
        let to_encode = Mutex::new(to_encode);
        let (sources, ranges, place, threads) = (self.sources, self.ranges, state.place, self.threads());
        thread::scope(|scope| {
            let reader = started(scope, move || feed(sources, ranges, &reading, place, feeder));
            let worker = |_| {
                let (to_encode, made, gauge) = (&to_encode, made.clone(), self.gauge.clone());
                started(scope, move || work_on(encoding, to_encode, &made, &gauge)).map(drop)
            };
            // Where the system has threads for some of them only, those do the work.
            let workers: Vec<Result<()>> = (0..threads).map(worker).collect();
            let working = workers.into_iter().reduce(Result::or).unwrap_or(Ok(()));
            let (reader, working) = match reader {
                Ok(reader) => (Some(reader), working),
                Err(error) => (None, Err(error)),
            };
            drop(made);
            let mut writer = Writer::new(out, work, state, self.settings, encoding.width as u64);
            let written = working.and_then(|()| self.write(&mut writer, &to_write, &free));
            // Whoever waits for a load or with one is let go.
            if written.is_err() {
                self.gauge.stop();
            }
            drop((free, to_write));
            let read = reader.map_or(Ok(()), |r| r.join().unwrap_or_else(|_| Err(broke("reading"))));
            match (written, read) {
                // The writer has what the reader left it, and saw no more come: the reader says why.
                (Ok(_), Err(error)) => Err(error),
                (written, _) => {
                    written.and_then(
                        |complete| {
                            if complete { Ok(writer.state) } else { Err(broke("making tokens")) }
                        },
                    )
                }
            }
        })
    }

    /// Writes loads in their order; whether the last one came.
    fn write(&mut self, writer: &mut Writer<'_>, made: &Receiver<Load>, free: &Sender<Load>) -> Result<bool> {
        let (mut waiting, mut next, mut complete) = (BTreeMap::new(), 0, false);
        let mut last = Instant::now();
        loop {
            if last.elapsed() >= BEAT {
                last = Instant::now();
                writer.show(&mut self.seen);
                self.beat()?;
            }
            match made.recv_timeout(BEAT) {
                Ok(load) => waiting.insert(load.number, load),
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => break,
            };
            while let Some(mut load) = waiting.remove(&next) {
                complete = load.after.is_some();
                writer.load(&mut load)?;
                next += 1;
                let _ = free.send(load); // nobody fills it any more at the end
            }
        }
        writer.show(&mut self.seen);
        self.beat()?;
        Ok(complete && waiting.is_empty())
    }

    fn manifest(
        &self,
        tokenizer: &dyn Tokenizer,
        job: Job,
        counts: Counts,
        done: [Vec<Shard>; 2],
    ) -> Result<Manifest> {
        if counts.documents == 0 && counts.skipped > 0 {
            let first = self.seen.said.first().map_or("", |said| said);
            return Err(Error::argument(
                format!("there is no text in the input: {} documents could not be read", counts.skipped),
                format!("the first of them: {first}"),
            ));
        }
        if counts.documents == 0 {
            return Err(Error::argument(
                "there is no text in the input",
                "are these the right files? Every one of them is empty",
            ));
        }
        let splits = Part::ALL.into_iter().zip(done).filter(|(_, shards)| !shards.is_empty());
        let splits = splits.map(|(part, shards)| Split {
            name: part.name().into(),
            tokens: shards.iter().map(|shard| shard.tokens).sum(),
            documents: shards.iter().map(|shard| shard.documents).sum(),
            shards,
        });
        Ok(Manifest {
            lowtide: Manifest::VERSION,
            format: self.settings.format.name().into(),
            dtype: self.settings.dtype(tokenizer.vocabulary())?.to_string(),
            tokenizer: TokenizerId {
                name: tokenizer.name().into(),
                fingerprint: tokenizer.fingerprint(),
                vocabulary: tokenizer.vocabulary().into(),
                end_of_text: tokenizer.end_of_text().map(u64::from),
                file: tokenizer.table().map(|(name, _)| name.into()),
            },
            splits: splits.collect(),
            counts,
            settings: job.settings,
            sources: job.sources,
        })
    }
}

/// Starts a thread.
fn started<'scope, T: Send + 'scope>(
    scope: &'scope thread::Scope<'scope, '_>,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<thread::ScopedJoinHandle<'scope, T>> {
    let thread = thread::Builder::new().name("lowtide-prepare".into()).spawn_scoped(scope, work);
    thread.map_err(|e| Error::no_thread(Path::new("lowtide-prepare"), "start a thread", e))
}

fn broke(what: &str) -> Error {
    Error::argument(format!("a thread broke while {what}"), "this is a bug: please report it")
}

/// Reads all sources from a place on.
fn feed(
    sources: &[Source],
    ranges: &[Option<Range<u64>>],
    reading: &Reading,
    from: crate::state::Place,
    mut feeder: Feeder<'_>,
) -> Result<()> {
    for (index, source) in sources.iter().enumerate().skip(from.source) {
        // By its place where it has one, else by reading over what is done.
        let (done, mark) = if index == from.source { (from.documents, from.mark) } else { (0, None) };
        feeder.begin_source(index, source.path(), done, mark);
        match ranges.get(index).and_then(Option::as_ref) {
            Some(range) => documents::read_range(source, reading, range, &mut feeder)?,
            None => documents::read(source, reading, mark, &mut feeder)?,
        }
        feeder.end_source();
    }
    feeder.finish()
}

/// Makes tokens of loads until there are none.
fn work_on(encoding: Encoding<'_>, to_encode: &Mutex<Receiver<Load>>, made: &Sender<Load>, gauge: &Gauge) {
    let (mut ids, usual) = (Vec::new(), 1 << 20);
    loop {
        ids.clear();
        ids.shrink_to(usual); // a piece that could not be cut has more
        let next = to_encode.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(mut load) = next else { return };
        if !encoding.encode(&mut load, &mut ids, gauge) || made.send(load).is_err() {
            return;
        }
    }
}

/// Writes documents, and how far they are.
struct Writer<'a> {
    out: &'a mut dyn Out,
    work: Option<&'a Work>,
    state: State,
    settings: &'a Settings,
    /// Bytes of a token.
    width: u64,
    saved: Instant,
    tokens: u64,
    /// What this run has passed over besides the reader.
    failed: u64,
    said: Vec<String>,
    /// Of the document that is being written: its tokens and bytes of text, and whether it is passed over.
    document: (u64, u64),
    lost: bool,
}

impl<'a> Writer<'a> {
    fn new(
        out: &'a mut dyn Out,
        work: Option<&'a Work>,
        state: State,
        settings: &'a Settings,
        width: u64,
    ) -> Self {
        let tokens = state.tokens(width);
        Self {
            out,
            work,
            state,
            settings,
            width,
            saved: Instant::now(),
            tokens,
            failed: 0,
            said: Vec::new(),
            document: (0, 0),
            lost: false,
        }
    }

    fn show(&self, seen: &mut Progress) {
        let Counts { documents, skipped, text_bytes, .. } = self.state.counts;
        (seen.documents, seen.skipped, seen.text, seen.tokens) =
            (documents, skipped, text_bytes, self.tokens);
        seen.said.clone_from(&self.state.said);
    }

    fn load(&mut self, load: &mut Load) -> Result<()> {
        let (mut text, mut tokens) = (0, 0);
        for piece in &mut load.pieces {
            let bytes = &load.tokens[tokens..piece.tokens_end];
            let text_bytes = (piece.text_end - text) as u64;
            (text, tokens) = (piece.text_end, piece.tokens_end);
            if piece.first {
                self.out.begin(piece.document)?;
                (self.document, self.lost) = ((0, 0), false);
            }
            match std::mem::replace(&mut piece.fate, Fate::Written) {
                _ if self.lost => {}
                Fate::Written => self.piece(bytes, text_bytes, piece.last)?,
                Fate::PassedOver => self.give_up()?,
                Fate::Failed(error) if self.settings.on_error == OnError::Stop => return Err(error),
                Fate::Failed(error) => {
                    self.failed += 1;
                    if self.said.len() < SAID {
                        self.said.push(crate::feed::said(&error));
                    }
                    self.give_up()?;
                }
            }
        }
        if let Some(after) = load.after.take() {
            self.save(after)?;
        }
        Ok(())
    }

    fn piece(&mut self, bytes: &[u8], text_bytes: u64, last: bool) -> Result<()> {
        self.out.write(bytes)?;
        self.document.0 += bytes.len() as u64 / self.width;
        self.document.1 += text_bytes;
        if last {
            self.out.end()?;
            let counts = &mut self.state.counts;
            counts.documents += 1;
            counts.text_bytes += self.document.1;
            counts.longest = counts.longest.max(self.document.0);
            self.tokens += self.document.0;
        }
        Ok(())
    }

    fn give_up(&mut self) -> Result<()> {
        self.lost = true;
        self.out.abort()
    }

    /// Writes down how far it is, now and then.
    fn save(&mut self, after: After) -> Result<()> {
        self.state.place = after.place;
        self.state.counts.empty = after.empty;
        self.state.counts.skipped = after.skipped + self.failed;
        self.state.said = after.said;
        self.state.said.extend(self.said.iter().cloned());
        self.state.said.truncate(SAID);
        if let Some(work) = self.work
            && self.saved.elapsed() >= self.settings.checkpoint
        {
            self.out.sync(&mut self.state)?;
            work.save_state(&self.state)?;
            self.saved = Instant::now();
        }
        Ok(())
    }
}

/// Collects characters.
struct Look<'a, 'b> {
    chars: CharsBuilder,
    on_error: OnError,
    last: Instant,
    run: &'a mut Run<'b>,
}

impl Sink for Look<'_, '_> {
    fn push(&mut self, text: &str) -> Result<()> {
        self.chars.add(text);
        if self.last.elapsed() < BEAT {
            return Ok(());
        }
        self.last = Instant::now();
        self.run.beat()
    }

    fn end(&mut self, _: Option<Mark>) -> Result<()> {
        Ok(())
    }

    fn bad(&mut self, error: Error) -> Result<()> {
        if self.on_error == OnError::Stop { Err(error) } else { Ok(()) }
    }
}
