//! The bytes of a source as a stream: unpacked where they are gzip or zstd, told by their first bytes, and with the
//! page cache treated as asked.

use crate::inputs::Source;
use crate::state::NONBLOCK;
use lowtide::store::Cache;
use lowtide::{Error, Result, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::num::NonZero;
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How a file is packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    pub fn of(head: &[u8]) -> Self {
        match head {
            [0x1f, 0x8b, ..] => Self::Gzip,
            // A frame; or one to be passed over, which pzstd and others begin with.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Self::Zstd,
            _ => Self::Plain,
        }
    }
}

/// How many bytes of all sources have been read, for progress; and whether nobody wants any more.
#[derive(Clone, Debug, Default)]
pub struct Gauge(Arc<(AtomicU64, AtomicBool)>);

impl Gauge {
    pub fn read(&self) -> u64 {
        self.0.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, bytes: u64) {
        self.0.0.store(bytes, Ordering::Relaxed);
    }

    pub fn add(&self, bytes: u64) {
        self.0.0.fetch_add(bytes, Ordering::Relaxed);
    }

    /// From now on nothing is read: whoever waits for bytes is let go.
    pub fn stop(&self) {
        self.0.1.store(true, Ordering::Relaxed);
    }

    pub fn stopped(&self) -> bool {
        self.0.1.load(Ordering::Relaxed)
    }
}

/// So much of what a source unpacks to is looked at to know what it is.
const HEAD: u64 = lowtide::format::FOREIGN_HEAD_LEN as u64;

/// A source that was opened, and what its first bytes are when unpacked.
pub struct Opened {
    pub packing: Packing,
    /// The file itself, where it is one that can be read at any place.
    pub file: Option<File>,
    pub stream: Box<dyn Read + Send>,
    /// The first unpacked bytes; they come again from `stream`.
    pub head: Vec<u8>,
}

/// Opens a source at its beginning. `window` is the largest memory that unpacking may take.
pub fn open(source: &Source, cache: Cache, gauge: &Gauge, window: u64) -> Result<Opened> {
    let wrong = |error| Error::io(source.path(), "read the file", error);
    let (file, mut raw): (_, Box<dyn Read + Send>) = match source {
        Source::Stdin => {
            let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(wrong)?;
            (None, Box::new(Counted(Patient(stdin.into(), gauge.clone()), gauge.clone())))
        }
        Source::File { path, .. } => {
            // Opening a pipe would wait for whoever writes into it.
            let opened = File::options().read(true).custom_flags(NONBLOCK).open(path);
            let opened = opened.map_err(|error| Error::io(path, "open the file", error))?;
            let meta = opened.metadata().map_err(wrong)?;
            if meta.is_dir() {
                return Err(Error::io(path, "read the file", io::Error::from(io::ErrorKind::IsADirectory)));
            }
            if meta.is_file() {
                let again = opened.try_clone().map_err(wrong)?;
                (Some(opened), Box::new(Sipped::new(again, cache, gauge)))
            } else {
                (None, Box::new(Counted(Patient(opened, gauge.clone()), gauge.clone())))
            }
        }
    };
    let mut head = Vec::new();
    raw.by_ref().take(8).read_to_end(&mut head).map_err(wrong)?;
    let packing = Packing::of(&head);
    let whole = io::Cursor::new(head).chain(raw);
    let mut stream: Box<dyn Read + Send> = match packing {
        Packing::Plain => Box::new(whole),
        Packing::Gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        Packing::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::new(whole).map_err(wrong)?;
            // A frame says how much memory unpacking it takes; zstd itself allows 128 MiB.
            let log = window.max(1 << 20).ilog2().min(27);
            decoder.window_log_max(log).map_err(wrong)?;
            Box::new(decoder)
        }
    };
    let mut head = Vec::new();
    let looked = stream.by_ref().take(HEAD).read_to_end(&mut head);
    let again = io::Cursor::new(head.clone());
    let stream: Box<dyn Read + Send> = match looked {
        Ok(_) => Box::new(again.chain(stream)),
        // What is wrong with the content is said when it is read. An unpacker might not say it twice.
        Err(error) => Box::new(again.chain(Broken(Some(error)))),
    };
    Ok(Opened { packing, file, stream, head })
}

impl Opened {
    /// Makes `head` longer until it is `enough`, or as long as `most`; whether it is all that there is. What is wrong
    /// with the stream is said when it is read.
    pub fn look(&mut self, most: usize, enough: &dyn Fn(&[u8]) -> bool) -> bool {
        let mut stream = std::mem::replace(&mut self.stream, Box::new(io::empty()));
        // What was looked at comes again.
        let passed = io::copy(&mut stream.by_ref().take(self.head.len() as u64), &mut io::sink());
        let mut end = passed.map(|_| false);
        while matches!(end, Ok(false)) && self.head.len() < most && !enough(&self.head) {
            let (held, step) = (self.head.len(), STEP.min(most - self.head.len()));
            self.head.resize(held + step, 0);
            let got = stream.read(&mut self.head[held..]);
            self.head.truncate(held + got.as_ref().map_or(0, |&got| got));
            end = match got {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(false),
                got => got.map(|got| got == 0),
            };
        }
        let again = io::Cursor::new(self.head.clone());
        let (stream, ended): (Box<dyn Read + Send>, _) = match end {
            Ok(ended) => (Box::new(again.chain(stream)), ended),
            Err(error) => (Box::new(again.chain(Broken(Some(error)))), false),
        };
        self.stream = stream;
        ended
    }
}

/// How much more is looked at in one step.
const STEP: usize = 4 << 10;

/// A stream that has nothing but an error.
struct Broken(Option<io::Error>);

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

/// Opens a plain file at a place where a document begins.
pub fn open_at(source: &Source, offset: u64, cache: Cache, gauge: &Gauge) -> Result<Box<dyn Read + Send>> {
    let path = source.path();
    let mut file = File::open(path).map_err(|error| Error::io(path, "open the file", error))?;
    file.seek(SeekFrom::Start(offset)).map_err(|error| Error::io(path, "read the file", error))?;
    gauge.add(offset);
    Ok(Box::new(Sipped::new(file, cache, gauge)))
}

struct Counted<R>(R, Gauge);

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.1.stopped() {
            return Err(io::Error::other("stopped"));
        }
        let got = self.0.read(into)?;
        self.1.add(got as u64);
        Ok(got)
    }
}

/// Standard input or a pipe, which may be silent for long: a reader that waits for it can still be stopped.
struct Patient(File, Gauge);

/// How often a reader that waits looks whether it is still wanted.
const WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

impl Read for Patient {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            let ready = poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&WAIT));
            if self.1.stopped() {
                return Err(io::Error::other("stopped"));
            }
            // What cannot be waited for can be read.
            if ready != Ok(0) {
                match self.0.read(into) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    answer => return answer,
                }
            }
        }
    }
}

/// A file that is read once, from front to back: what that brought into the page cache goes behind the reader.
struct Sipped {
    file: Counted<File>,
    offset: u64,
    /// What was not in the page cache before us, window by window; empty where all may stay.
    ours: Vec<bool>,
    dropped: u64,
}

/// A multiple of what a large folio takes: a folio that is covered in part is not dropped.
const WINDOW: u64 = 8 << 20;
const _: () = assert!(WINDOW.is_multiple_of(sys::HUGE));

impl Sipped {
    fn new(mut file: File, cache: Cache, gauge: &Gauge) -> Self {
        let offset = file.stream_position().unwrap_or(0);
        let ours = if cache == Cache::Drop { ours(&file) } else { Vec::new() };
        let dropped = offset / WINDOW * WINDOW;
        Self { file: Counted(file, gauge.clone()), offset, ours, dropped }
    }

    fn drop_until(&mut self, end: u64) {
        while self.dropped < end {
            let window = usize::try_from(self.dropped / WINDOW).unwrap_or(usize::MAX);
            if self.ours.get(window) == Some(&true) {
                let (advice, len) = (rustix::fs::Advice::DontNeed, NonZero::new(WINDOW));
                let _ = rustix::fs::fadvise(&self.file.0, self.dropped, len, advice);
            }
            self.dropped += WINDOW;
        }
    }
}

/// Which windows of a file have nothing in the page cache. Where the kernel does not tell, none.
fn ours(file: &File) -> Vec<bool> {
    let len = file.metadata().map_or(0, |meta| if meta.is_file() { meta.len() } else { 0 });
    let absent = |window: u64| sys::cached_bytes(file, window * WINDOW, WINDOW).is_ok_and(|bytes| bytes == 0);
    (0..len.div_ceil(WINDOW)).map(absent).collect()
}

impl Read for Sipped {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = self.file.read(into)?;
        self.offset += got as u64;
        if !self.ours.is_empty() && self.offset - self.dropped >= 2 * WINDOW {
            self.drop_until((self.offset / WINDOW - 1) * WINDOW);
        }
        Ok(got)
    }
}

impl Drop for Sipped {
    fn drop(&mut self) {
        if !self.ours.is_empty() {
            self.drop_until(self.offset.next_multiple_of(WINDOW));
        }
    }
}
