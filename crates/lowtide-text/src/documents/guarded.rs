//! A Parquet file as its reader sees it: it gets no more at once than there is room for, and nothing that would have it
//! allocate more than that.

use super::thrift;
use parquet::errors::{ParquetError, Result};
use parquet::file::reader::{ChunkReader, Length};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file, and how large a page may be.
pub struct Guarded {
    file: Arc<File>,
    page: u64,
    /// Whether the description at the end has been read: what comes then are pages.
    described: Arc<AtomicBool>,
}

impl Guarded {
    pub fn new(file: File, page: u64) -> Self {
        Self { file: Arc::new(file), page, described: Arc::default() }
    }

    /// To be set when the description has been read.
    pub fn pages(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.described)
    }

    fn fits(&self, what: &str, bytes: u64) -> Result<()> {
        if bytes <= self.page {
            return Ok(());
        }
        let (bytes, most) = (bytes.div_ceil(1 << 20), self.page >> 20);
        Err(ParquetError::General(format!("{what} of {bytes} MiB, and the budget has room for {most}")))
    }
}

impl Length for Guarded {
    fn len(&self) -> u64 {
        self.file.metadata().map_or(0, |meta| meta.len())
    }
}

impl ChunkReader for Guarded {
    type T = Reader;

    fn get_read(&self, start: u64) -> Result<Reader> {
        let most = self.described.load(Ordering::Relaxed).then_some(self.page);
        Ok(Reader { file: Arc::clone(&self.file), at: start, most, buffer: [0; 512], filled: 0..0 })
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<bytes::Bytes> {
        let page = self.described.load(Ordering::Relaxed);
        self.fits(if page { "a page" } else { "a description" }, length as u64)?;
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        if !page && !thrift::is_plausible(&bytes) {
            return Err(ParquetError::General("a description that makes no sense".into()));
        }
        Ok(bytes.into())
    }
}

/// The file from a place on. A page's header is looked at before its reader sees it.
pub struct Reader {
    file: Arc<File>,
    at: u64,
    /// What a page may take, until the header was looked at.
    most: Option<u64>,
    buffer: [u8; 512],
    filled: std::ops::Range<usize>,
}

impl Read for Reader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.filled.is_empty() {
            let got = self.file.read_at(&mut self.buffer, self.at)?;
            self.at += got as u64;
            self.filled = 0..got;
            if let Some(most) = self.most.take() {
                check(&self.buffer[..got], most)?;
            }
        }
        let len = into.len().min(self.filled.len());
        into[..len].copy_from_slice(&self.buffer[self.filled.start..self.filled.start + len]);
        self.filled.start += len;
        Ok(len)
    }
}

/// That a page of this header fits, packed and unpacked.
fn check(head: &[u8], most: u64) -> io::Result<()> {
    let Some((unpacked, packed)) = thrift::page_sizes(head) else {
        return Err(io::Error::other("the header of a page makes no sense"));
    };
    let bytes = unpacked.saturating_add(packed);
    if bytes <= most {
        return Ok(());
    }
    let (bytes, most) = (bytes.div_ceil(1 << 20), most >> 20);
    Err(io::Error::other(format!("a page of {bytes} MiB, and the budget has room for {most}")))
}
