//! The tokens of a portion of the input, in a file: what one machine of several has made, until all of it is put
//! together.
//!
//! A document is its number among those of the portion, then pieces of tokens, each behind its length, then a length of
//! zero. Behind the last one stand what was counted, and a checksum of all. The file has another name until it is synced
//! and whole; then it is the same, byte for byte, whoever made it and however often.

use crate::shards::Out;
use crate::state::State;
use lowtide::format::manifest::Counts;
use lowtide::store::Cache;
use lowtide::write::Append;
use lowtide::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Stands where the number of a document would, behind the last one.
const END: u64 = u64::MAX;
/// Tokens that are copied at once.
const COPY: usize = 1 << 20;
/// What is counted is a few numbers, and twenty lines about documents that could not be read.
const MOST: usize = 1 << 20;

/// What was made of a portion.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Made {
    /// Documents of it, those that were passed over and empty ones included.
    pub numbers: u64,
    /// Tokens.
    pub tokens: u64,
    /// What was counted on the way.
    pub counts: Counts,
    /// What was wrong with the first documents that were passed over.
    pub said: Vec<String>,
}

impl Made {
    /// Adds what was counted to what was counted before.
    pub(crate) fn add_to(&self, all: &mut Counts) {
        let Counts { documents, skipped, empty, text_bytes, longest } = &self.counts;
        all.documents += documents;
        all.skipped += skipped;
        all.empty += empty;
        all.text_bytes += text_bytes;
        all.longest = all.longest.max(*longest);
    }
}

/// Takes the documents of a portion.
pub struct Portion {
    file: Append,
    crc: u32,
    tokens: u64,
    /// Bytes of a token.
    width: u64,
    /// Where the document began: bytes, checksum, tokens.
    before: (u64, u32, u64),
    left: bool,
}

impl Portion {
    pub fn create(path: &Path, width: usize, cache: Cache) -> Result<Self> {
        let file = Append::create(path, cache)?;
        Ok(Self { file, crc: 0, tokens: 0, width: width as u64, before: (0, 0, 0), left: false })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        self.file.write(bytes)
    }

    /// Writes down what was counted, and gives the file its name.
    pub fn finish(mut self, name: &Path, state: State) -> Result<Made> {
        let made =
            Made { numbers: state.place.number, tokens: self.tokens, counts: state.counts, said: state.said };
        let json = serde_json::to_vec(&made).map_err(|error| Error::Bug { what: error.to_string() })?;
        self.put(&END.to_le_bytes())?;
        self.put(&json)?;
        let len = u32::try_from(json.len()).unwrap_or(u32::MAX);
        self.put(&len.to_le_bytes())?;
        let crc = self.crc;
        self.file.write(&crc.to_le_bytes())?;
        self.file.sync()?;
        lowtide::write::rename(self.file.path(), name)?;
        self.left = true;
        Ok(made)
    }
}

impl Drop for Portion {
    fn drop(&mut self) {
        if !self.left {
            let _ = fs::remove_file(self.file.path());
        }
    }
}

impl Out for Portion {
    fn begin(&mut self, document: u64) -> Result<()> {
        self.before = (self.file.len(), self.crc, self.tokens);
        self.put(&document.to_le_bytes())
    }

    fn write(&mut self, tokens: &[u8]) -> Result<()> {
        for piece in tokens.chunks(1 << 30) {
            let len = u32::try_from(piece.len()).unwrap_or(0);
            self.put(&len.to_le_bytes())?;
            self.put(piece)?;
        }
        self.tokens += tokens.len() as u64 / self.width;
        Ok(())
    }

    fn end(&mut self) -> Result<()> {
        self.put(&0_u32.to_le_bytes())
    }

    fn abort(&mut self) -> Result<()> {
        let bytes;
        (bytes, self.crc, self.tokens) = self.before;
        self.file.truncate(bytes)
    }

    fn sync(&mut self, _: &mut State) -> Result<()> {
        self.file.sync()
    }
}

/// What was made of a portion, where its file is there.
pub fn made(path: &Path) -> Result<Option<Made>> {
    let wrong = |error| Error::io(path, "read the file", error);
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        file => file.map_err(wrong)?,
    };
    let mut end = [0; 8];
    let found = file.seek(SeekFrom::End(-8)).and_then(|at| file.read_exact(&mut end).map(|()| at));
    let at = found.map_err(|_| damaged(path, "too few bytes"))?;
    let [a, b, c, d, ..] = end;
    let len = u32::from_le_bytes([a, b, c, d]) as usize;
    let start =
        at.checked_sub(len as u64).filter(|_| len <= MOST).ok_or_else(|| damaged(path, "no counts"))?;
    let mut json = vec![0; len];
    file.seek(SeekFrom::Start(start)).and_then(|_| file.read_exact(&mut json)).map_err(wrong)?;
    serde_json::from_slice(&json).map(Some).map_err(|error| damaged(path, &error.to_string()))
}

/// Gives the documents of a portion to `out`, as if they were numbered from `first` on. `beat` is told how many bytes of
/// tokens there were.
pub fn replay(
    path: &Path,
    first: u64,
    out: &mut dyn Out,
    beat: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<Made> {
    let made = made(path)?.ok_or_else(|| damaged(path, "no such file"))?;
    let file = File::open(path).map_err(|error| Error::io(path, "open the file", error))?;
    let mut from = Checked { from: BufReader::with_capacity(COPY, file), path: path.to_owned(), crc: 0 };
    let (mut buffer, mut copied) = (vec![0; COPY], 0);
    loop {
        let number = u64::from_le_bytes(from.take()?);
        if number == END {
            break;
        }
        out.begin(first.saturating_add(number))?;
        loop {
            let mut left = u32::from_le_bytes(from.take()?) as usize;
            if left == 0 {
                break;
            }
            while left > 0 {
                let some = left.min(COPY);
                from.read(&mut buffer[..some])?;
                out.write(&buffer[..some])?;
                left -= some;
                copied += some as u64;
            }
        }
        out.end()?;
        beat(copied)?;
    }
    let json = serde_json::to_vec(&made).map_err(|error| Error::Bug { what: error.to_string() })?;
    let mut read = vec![0; json.len()];
    from.read(&mut read)?;
    from.take::<4>()?;
    let crc = from.crc;
    if read != json || u32::from_le_bytes(from.take()?) != crc {
        return Err(damaged(path, "another checksum"));
    }
    Ok(made)
}

struct Checked {
    from: BufReader<File>,
    path: PathBuf,
    crc: u32,
}

impl Checked {
    fn read(&mut self, into: &mut [u8]) -> Result<()> {
        self.from.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => damaged(&self.path, "its end"),
            _ => Error::io(&self.path, "read the file", error),
        })?;
        self.crc = crc32c::crc32c_append(self.crc, into);
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.read(&mut bytes)?;
        Ok(bytes)
    }
}

fn damaged(path: &Path, found: &str) -> Error {
    Error::Format {
        path: path.to_owned(),
        offset: 0,
        expected: "the tokens that a task has made of its part of the input".into(),
        found: found.to_owned(),
        hint: "remove it, and run this again: only that part is made again".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Portion, made, replay};
    use crate::shards::Out;
    use crate::state::State;
    use lowtide::Result;
    use lowtide::store::Cache;
    use std::fs;

    /// Documents as they came.
    #[derive(Default)]
    struct Heard(Vec<(u64, Vec<u8>)>, u64);

    impl Out for Heard {
        fn begin(&mut self, document: u64) -> Result<()> {
            self.0.push((document, Vec::new()));
            Ok(())
        }
        fn write(&mut self, tokens: &[u8]) -> Result<()> {
            self.0.last_mut().unwrap().1.extend(tokens);
            Ok(())
        }
        fn end(&mut self) -> Result<()> {
            self.1 += 1;
            Ok(())
        }
        fn abort(&mut self) -> Result<()> {
            unreachable!("what was given up is not in the file")
        }
        fn sync(&mut self, _: &mut State) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn documents_come_back_numbered_on_and_damage_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (tmp, name) = (folder.path().join("a.tmp"), folder.path().join("a.part"));
        let large: Vec<u8> = (0..3_000_000_u32).map(|n| n.to_le_bytes()[0]).collect();
        let mut portion = Portion::create(&tmp, 2, Cache::Keep).unwrap();
        let documents: [(u64, &[&[u8]]); 3] = [(0, &[b"ab", b"cdef"]), (3, &[&large]), (4, &[b"gh"])];
        for (number, pieces) in documents {
            portion.begin(number).unwrap();
            for piece in pieces {
                portion.write(piece).unwrap();
            }
            portion.end().unwrap();
            portion.begin(99).unwrap();
            portion.write(&large).unwrap();
            portion.abort().unwrap();
        }
        assert_eq!(made(&name).unwrap(), None);
        let mut state = State::default();
        (state.place.number, state.counts.documents, state.said) = (6, 3, vec!["x".into()]);
        let told = portion.finish(&name, state).unwrap();
        assert_eq!((told.numbers, told.tokens), (6, 4 + 1_500_000));
        assert_eq!((made(&name).unwrap().as_ref(), tmp.exists()), (Some(&told), false));
        let mut heard = Heard::default();
        assert_eq!(replay(&name, 100, &mut heard, &mut |_| Ok(())).unwrap(), told);
        assert_eq!(heard.1, 3);
        assert_eq!(heard.0[0], (100, b"abcdef".to_vec()));
        assert!(heard.0[1] == (103, large.clone()) && heard.0[2] == (104, b"gh".to_vec()));
        let whole = fs::read(&name).unwrap();
        for at in [0, 9, 20, 100_000, whole.len() - 6, whole.len() - 1] {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            fs::write(&name, &bytes).unwrap();
            let told = replay(&name, 0, &mut Heard::default(), &mut |_| Ok(())).unwrap_err().to_string();
            assert!(told.contains("remove it, and run this again"), "{at}: {told}");
        }
        fs::write(&name, &whole[..whole.len() - 1]).unwrap();
        assert!(replay(&name, 0, &mut Heard::default(), &mut |_| Ok(())).is_err());
        drop(Portion::create(&tmp, 2, Cache::Keep).unwrap());
        assert!(!tmp.exists(), "what is given up leaves nothing");
    }
}
