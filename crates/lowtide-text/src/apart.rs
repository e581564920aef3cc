//! Text to tokens on several machines, with the bytes of one.
//!
//! The input is cut into portions: some small files, a large file, or a range of a large file with many documents. Each
//! is made into tokens by whoever takes it, into a file of its own in the output folder, which all machines see; then one
//! process puts the documents together as one that has read them all would, numbers, shards and manifest. Portions are
//! named after all that their bytes depend on, so what is there needs no second look, and a task can be begun again at
//! any moment, by several at once.
//!
//! | who | calls |
//! |---|---|
//! | the one who has the folder | [`Preparation::begin`], [`task`](Preparation::task) for all, [`finish`](Preparation::finish) |
//! | whoever has a task | [`prepare_portion`] |

use crate::documents;
use crate::inputs::{self, Source};
use crate::job::{Job, OnError, Settings};
use crate::portion::{self, Made, Portion};
use crate::prepare::{Origin, Progress, Run};
use crate::state::{Found, State, Work};
use crate::tokenizer::{self, Chars, Tokenizer};
use lowtide::format::manifest::Manifest;
use lowtide::store::Cache;
use lowtide::{CacheWish, Error, Interrupt, Result};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// Bytes of input for one task, where nobody says: some seconds of work for gpt2, and what a kill loses.
pub const PORTION: u64 = 128 << 20;
/// What opening a file costs beside its bytes, in bytes: of many empty ones not all are one task.
const OPENING: u64 = 64 << 10;
/// Goes into the names of portions, with everything that their bytes depend on.
const VERSION: &str = "lowtide portion 1";

/// A source, or the documents of it that begin in a range.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Piece {
    source: usize,
    range: Option<Range<u64>>,
}

/// Cuts the input into portions of about `size` bytes, in order.
fn portions(sources: &[Source], size: u64, divisible: &mut dyn FnMut(&Source) -> bool) -> Vec<Vec<Piece>> {
    let (mut all, mut open, mut filled) = (Vec::new(), Vec::new(), 0);
    for (source, it) in sources.iter().enumerate() {
        let bytes = it.bytes();
        let count = if bytes > size && divisible(it) { bytes.div_ceil(size) } else { 1 };
        if filled > 0 && (count > 1 || filled + bytes > size) {
            all.push(std::mem::take(&mut open));
            filled = 0;
        }
        if count == 1 {
            open.push(Piece { source, range: None });
            filled += bytes + OPENING;
            continue;
        }
        let at = |n: u64| {
            let at = u128::from(bytes) * u128::from(n) / u128::from(count);
            u64::try_from(at).unwrap_or(bytes)
        };
        all.extend((0..count).map(|n| vec![Piece { source, range: Some(at(n)..at(n + 1)) }]));
    }
    if !open.is_empty() {
        all.push(open);
    }
    all
}

/// A portion, as it is sent to whoever makes tokens of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Task {
    /// Where the file goes, and its name.
    folder: PathBuf,
    name: String,
    tokenizer: String,
    /// The table of `chars`.
    chars: Option<String>,
    fingerprint: String,
    format: String,
    input: Option<String>,
    field: String,
    separator: Option<String>,
    on_error: String,
    budget: Option<u64>,
    keep: bool,
    sources: Vec<Named>,
}

/// A source of a task.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Named {
    path: PathBuf,
    bytes: u64,
    modified: i128,
    range: Option<Range<u64>>,
}

/// The work, for the one who has the folder; until it is dropped nobody else has.
pub struct Preparation {
    settings: Settings,
    sources: Vec<Source>,
    tokenizer: Arc<dyn Tokenizer>,
    job: Job,
    work: Work,
    cache: Cache,
    portions: Vec<Vec<Piece>>,
    /// Their names.
    names: Vec<String>,
}

/// What there is to do.
pub enum Begun {
    /// All of it was done before.
    Done(Box<Manifest>),
    /// The rest.
    ToDo(Box<Preparation>),
}

impl Preparation {
    /// Takes the folder, and cuts the input into portions of about `size` bytes.
    ///
    /// # Errors
    /// As [`prepare`](crate::prepare()); and for what only one machine has, such as standard input.
    pub fn begin(
        names: &[PathBuf],
        output: &Path,
        settings: &Settings,
        size: u64,
        progress: &mut dyn FnMut(&Progress),
        interrupt: Interrupt<'_>,
    ) -> Result<Begun> {
        settings.check()?;
        let sources = inputs::find(names, &settings.include, output)?;
        documents::fit(settings, &sources)?;
        if let Some(once) = sources.iter().find(|source| source.comes_once()) {
            return Err(Error::argument(
                format!("{}: it comes to one machine only, and only once", once.path().display()),
                "write it to a file that all machines see, or prepare it on this one",
            ));
        }
        let mut run = Run::new(settings, &sources, progress, interrupt);
        let tokenizer = run.tokenizer()?;
        let room = run.room(&*tokenizer)?;
        let job = Job::new(settings, &*tokenizer, &sources);
        let (work, found) = Work::open(output, &job)?;
        match found {
            Found::Done(manifest) => {
                work.clear()?;
                return Ok(Begun::Done(manifest));
            }
            // One machine has begun it: how far it was in the input is of no use for portions of it.
            Found::Begun(_) => work.forget_state()?,
            Found::New => {}
        }
        let (reading, cache) = (run.reading(&room), run.cache);
        // What cannot be opened is for its task to tell.
        let mut divisible = |source: &Source| matches!(documents::divisible(source, &reading), Ok(Some(_)));
        let portions = portions(&sources, size.max(1), &mut divisible);
        let mut this = Self {
            settings: settings.clone(),
            sources,
            tokenizer,
            job,
            work,
            cache,
            portions,
            names: Vec::new(),
        };
        this.names = (0..this.portions.len()).map(|number| this.name(number)).collect::<Result<_>>()?;
        Ok(Begun::ToDo(Box::new(this)))
    }

    /// How many portions there are.
    pub fn portions(&self) -> usize {
        self.portions.len()
    }

    /// Bytes of the input, and those of a portion.
    pub fn bytes(&self) -> u64 {
        self.sources.iter().map(Source::bytes).sum()
    }

    /// See [`bytes`](Self::bytes).
    pub fn bytes_of(&self, portion: usize) -> u64 {
        let bytes = |piece: &Piece| match &piece.range {
            Some(range) => range.end - range.start,
            None => self.sources[piece.source].bytes(),
        };
        self.portions[portion].iter().map(bytes).sum()
    }

    /// What was made of a portion by an earlier call.
    ///
    /// # Errors
    /// [`Error::Format`] where its file is damaged, [`Error::Io`] as the system has it.
    pub fn made(&self, portion: usize) -> Result<Option<Made>> {
        portion::made(&self.file(portion))
    }

    /// A portion in words, for [`prepare_portion`] on whichever machine.
    ///
    /// # Errors
    /// [`Error::Io`] where this process has no folder that paths could be relative to.
    pub fn task(&self, portion: usize) -> Result<String> {
        let task = self.described(portion, self.names[portion].clone())?;
        serde_json::to_string(&task).map_err(|error| Error::Bug { what: error.to_string() })
    }

    /// Puts all portions together.
    ///
    /// # Errors
    /// [`Error::Format`] where a portion is missing or damaged; else as [`prepare`](crate::prepare()).
    pub fn finish(self, progress: &mut dyn FnMut(&Progress), interrupt: Interrupt<'_>) -> Result<Manifest> {
        let files: Vec<PathBuf> = (0..self.portions.len()).map(|portion| self.file(portion)).collect();
        let Self { settings, sources, tokenizer, job, work, .. } = self;
        sources.iter().try_for_each(Source::unchanged)?;
        let run = Run::new(&settings, &sources, progress, interrupt);
        let room = run.room(&*tokenizer)?;
        run.whole(&*tokenizer, &room, work, job, None, Origin::Portions(&files))
    }

    fn file(&self, portion: usize) -> PathBuf {
        self.work.part(&self.names[portion])
    }

    fn described(&self, portion: usize, name: String) -> Result<Task> {
        let absolute = |path: &Path| {
            std::path::absolute(path).map_err(|error| Error::io(path, "find the folder of it", error))
        };
        let named = |piece: &Piece| match &self.sources[piece.source] {
            Source::File { path, bytes, modified } => Ok(Named {
                path: absolute(path)?,
                bytes: *bytes,
                modified: *modified,
                range: piece.range.clone(),
            }),
            Source::Stdin => Err(Error::Bug { what: "standard input in a portion".into() }),
        };
        let Settings { tokenizer, format, input, field, separator, on_error, budget, .. } = &self.settings;
        let path = Path::new(tokenizer);
        Ok(Task {
            folder: absolute(&self.work.folder())?,
            name,
            // The path of a tokenizer.json, from wherever.
            tokenizer: if path.exists() { absolute(path)?.display().to_string() } else { tokenizer.clone() },
            chars: (tokenizer == "chars")
                .then(|| self.tokenizer.table().map(|(_, json)| json.to_owned()))
                .flatten(),
            fingerprint: self.tokenizer.fingerprint(),
            format: format.name().into(),
            input: input.map(|kind| kind.name().into()),
            field: field.clone(),
            separator: separator.clone(),
            on_error: on_error.name().into(),
            budget: *budget,
            keep: self.cache == Cache::Keep,
            sources: self.portions[portion].iter().map(named).collect::<Result<_>>()?,
        })
    }

    /// The name of a portion's file: all that its bytes depend on is in it.
    fn name(&self, portion: usize) -> Result<String> {
        let task = self.described(portion, String::new())?;
        let Task { fingerprint, format, input, field, separator, on_error, sources, .. } = &task;
        let all = (VERSION, fingerprint, format, input, field, separator, on_error, sources);
        let json = serde_json::to_vec(&all).map_err(|error| Error::Bug { what: error.to_string() })?;
        Ok(format!("portion-{portion:06}-{}", &blake3::hash(&json).to_hex()[..16]))
    }
}

/// The tokenizer that was used last: making one takes up to half a second, and a process gets task after task.
static LAST: Mutex<Option<Arc<dyn Tokenizer>>> = Mutex::new(None);

/// Makes tokens of a portion, on one thread, unless they are there already.
///
/// # Errors
/// [`Error::Argument`] where this machine has another tokenizer of that name; else as [`prepare`](crate::prepare()).
pub fn prepare_portion(task: &str, interrupt: Interrupt<'_>) -> Result<Made> {
    let task: Task = serde_json::from_str(task)
        .map_err(|error| Error::argument(format!("this is no task: {error}"), ""))?;
    let whole = task.folder.join(format!("{}.part", task.name));
    if let Some(made) = portion::made(&whole)? {
        return Ok(made);
    }
    let settings = task.settings()?;
    let tokenizer = task.tokenizer()?;
    let (sources, ranges): (Vec<Source>, Vec<_>) = task
        .sources
        .into_iter()
        .map(|Named { path, bytes, modified, range }| (Source::File { path, bytes, modified }, range))
        .unzip();
    let nobody = &mut |_: &Progress| {};
    let mut run = Run::new(&settings, &sources, nobody, interrupt);
    run.ranges = &ranges;
    let (room, dtype) = (run.room(&*tokenizer)?, settings.dtype(tokenizer.vocabulary())?);
    let other = task.folder.join(format!("{}.{}.tmp", task.name, attempt()));
    let mut out = Portion::create(&other, dtype.itemsize(), run.cache)?;
    let state = run.encode(&*tokenizer, dtype, &room, None, State::default(), &mut out)?;
    out.finish(&whole, state)
}

/// Tells this attempt from all others, on all machines.
fn attempt() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut hash = blake3::Hasher::new();
    let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos();
    let host = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    hash.update(&host).update(&time.to_le_bytes()).update(&std::process::id().to_le_bytes());
    hash.update(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
    hash.finalize().to_hex()[..16].to_owned()
}

impl Task {
    fn settings(&self) -> Result<Settings> {
        Ok(Settings {
            tokenizer: self.tokenizer.clone(),
            format: self.format.parse()?,
            input: self.input.as_deref().map(str::parse).transpose()?,
            field: self.field.clone(),
            separator: self.separator.clone(),
            on_error: self.on_error.parse::<OnError>()?,
            threads: Some(1),
            budget: self.budget,
            cache: if self.keep { CacheWish::Keep } else { CacheWish::Drop },
            ..Settings::default()
        })
    }

    fn tokenizer(&self) -> Result<Arc<dyn Tokenizer>> {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = last.as_ref().filter(|last| last.fingerprint() == self.fingerprint) {
            return Ok(Arc::clone(same));
        }
        let made: Arc<dyn Tokenizer> = match &self.chars {
            Some(json) => Arc::new(Chars::from_json(&self.folder, json.as_bytes())?),
            None => tokenizer::named(&self.tokenizer)?,
        };
        if made.fingerprint() != self.fingerprint {
            return Err(Error::argument(
                format!("the tokenizer {:?} of this machine gives other ids", self.tokenizer),
                "every machine needs the same version of Lowtide, and the same tokenizer.json under this path",
            ));
        }
        *last = Some(Arc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prepare;
    use lowtide::format::Dialect;
    use std::fs;

    fn file(bytes: u64) -> Source {
        Source::File { path: "x".into(), bytes, modified: 0 }
    }

    #[test]
    fn portions_are_about_as_large_and_have_everything_in_order() {
        let sizes = [10, 3 << 20, 40 << 20, 0, 9 << 20, 5, 100 << 20];
        let sources: Vec<Source> = sizes.into_iter().map(file).collect();
        let all = portions(&sources, 8 << 20, &mut |source| source.bytes() > 50 << 20);
        let of = |n: usize| all[n].iter().map(|piece| piece.source).collect::<Vec<_>>();
        assert_eq!((of(0), of(1), of(2), of(3), of(4)), (vec![0, 1], vec![2], vec![3], vec![4], vec![5]));
        assert_eq!(all.len(), 5 + 13, "a hundred megabytes in thirteen ranges");
        let ranges: Vec<_> = all[5..].iter().map(|one| one[0].range.clone().unwrap()).collect();
        assert!(ranges.windows(2).all(|two| two[0].end == two[1].start));
        assert_eq!((ranges[0].start, ranges[12].end), (0, 100 << 20));
        let empty: Vec<Source> = (0..1000).map(|_| file(0)).collect();
        assert_eq!(portions(&empty, 8 << 20, &mut |_| true).len(), 8);
    }

    /// All files of a folder.
    fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
        let mut all: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
            .collect();
        all.sort();
        all
    }

    const GO_ON: Interrupt<'static> = &|| Ok(());

    /// Text of many kinds: lines, JSON with lines that are none, texts between blank lines, a file that is a document.
    fn corpus(folder: &Path) -> Vec<PathBuf> {
        let words = |n: u64| {
            (0..n % 17)
                .flat_map(|w| ["word", ["a ", "b ", "é "][(n * 31 % (w + 7) % 3) as usize]])
                .collect::<String>()
        };
        let lines: String = (0..900).flat_map(|n| [words(n), "\r\n".into()]).collect();
        let json: String = (0..900)
            .map(|n| {
                if n % 97 == 5 { "{\"text\": 7}\n".into() } else { format!("{{\"text\": {:?}}}\n", words(n)) }
            })
            .collect();
        let blank: String = (0..900).flat_map(|n| [words(n), "\n".repeat((n % 5) as usize)]).collect();
        let names = ["a.txt", "b.jsonl", "c.txt", "d.txt", "empty.txt"];
        for (name, text) in names.iter().zip([&*lines, &json, &blank, "one\n\n\ntwo", ""]) {
            fs::write(folder.join(name), text).unwrap();
        }
        names.iter().map(|name| folder.join(name)).collect()
    }

    #[test]
    fn portions_together_are_what_one_machine_makes() {
        let folder = tempfile::tempdir().unwrap();
        let corpus = corpus(folder.path());
        let usual =
            Settings { tokenizer: "bytes".into(), on_error: OnError::Skip, val: 0.1, ..Settings::default() };
        let blank = Some("\n\n".to_owned());
        let worlds = [
            usual.clone(),
            Settings {
                separator: blank.clone(),
                format: Dialect::Megatron,
                shard_tokens: Some(20_000),
                ..usual.clone()
            },
            Settings { input: Some(crate::InputKind::Lines), format: Dialect::Datatrove, ..usual.clone() },
            Settings { shuffle_documents: Some(3), format: Dialect::LlmC, separator: blank, ..usual.clone() },
            Settings { tokenizer: "chars".into(), format: Dialect::Npy, ..usual },
        ];
        for (number, settings) in worlds.iter().enumerate() {
            // JSON lines are no lines of text.
            let as_lines = settings.input.is_some();
            let fits = |path: &&PathBuf| !as_lines || !path.ends_with("b.jsonl");
            let corpus: Vec<PathBuf> = corpus.iter().filter(fits).cloned().collect();
            let (one, many) =
                (folder.path().join(format!("one{number}")), folder.path().join(format!("many{number}")));
            let told = prepare(&corpus, &one, settings, &mut |_| {}, GO_ON).unwrap();
            for size in [7_000, 1 << 30] {
                let begin = || match Preparation::begin(&corpus, &many, settings, size, &mut |_| {}, GO_ON)
                    .unwrap()
                {
                    Begun::ToDo(work) => work,
                    Begun::Done(_) => panic!("nothing was done yet"),
                };
                let work = begin();
                assert_eq!(work.portions() > 6, size == 7_000);
                let bytes: u64 = (0..work.portions()).map(|n| work.bytes_of(n)).sum();
                assert_eq!(bytes, work.bytes());
                assert!(
                    Preparation::begin(&corpus, &many, settings, size, &mut |_| {}, GO_ON).is_err(),
                    "locked"
                );
                // Backwards, some of them twice, and the driver dies in between.
                for n in (0..work.portions()).rev() {
                    let task = work.task(n).unwrap();
                    let made = prepare_portion(&task, GO_ON).unwrap();
                    assert_eq!(prepare_portion(&task, GO_ON).unwrap(), made);
                }
                fs::write(many.join(".lowtide-prepare/left.tmp"), b"by a killed one").unwrap();
                drop(work);
                let work = begin();
                assert!((0..work.portions()).all(|n| work.made(n).unwrap().is_some()));
                assert_eq!(work.finish(&mut |_| {}, GO_ON).unwrap(), told);
                assert!(files(&many) == files(&one), "{number}, {size}");
                assert!(!many.join(".lowtide-prepare").exists());
                assert!(matches!(
                    Preparation::begin(&corpus, &many, settings, size, &mut |_| {}, GO_ON),
                    Ok(Begun::Done(_))
                ));
                fs::remove_dir_all(&many).unwrap();
            }
        }
    }

    #[test]
    fn a_line_is_named_by_its_number_in_the_file_and_a_changed_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (input, output) = (folder.path().join("a.jsonl"), folder.path().join("out"));
        let lines: String =
            (0..1000).flat_map(|n| [format!("{{\"text\": \"line {n}\"}}"), "\n".into()]).collect();
        fs::write(&input, lines.replace("\"line 900\"", "900")).unwrap();
        let settings = Settings { tokenizer: "bytes".into(), ..Settings::default() };
        let names = [input.clone()];
        let Ok(Begun::ToDo(work)) = Preparation::begin(&names, &output, &settings, 4000, &mut |_| {}, GO_ON)
        else {
            panic!("it is not done")
        };
        let said =
            |work: &Preparation, n| prepare_portion(&work.task(n).unwrap(), GO_ON).unwrap_err().to_string();
        let n = work.portions() - 1;
        let at = (0..=n).rev().find(|&n| prepare_portion(&work.task(n).unwrap(), GO_ON).is_err()).unwrap();
        let one = prepare(&names, &folder.path().join("one"), &settings, &mut |_| {}, GO_ON).unwrap_err();
        assert_eq!(said(&work, at), one.to_string());
        assert!(one.to_string().contains("(line 901)"), "{one}");
        let told = work.finish(&mut |_| {}, GO_ON).unwrap_err().to_string();
        assert!(told.contains("no such file"), "{told}");
        let Ok(Begun::ToDo(work)) = Preparation::begin(&names, &output, &settings, 5000, &mut |_| {}, GO_ON)
        else {
            panic!("it is not done")
        };
        fs::write(&input, lines.clone() + "{}\n").unwrap();
        assert!(said(&work, 0).contains("it was changed while it was read"), "{}", said(&work, 0));
    }
}
