//! A stream of tokens on disk: one file or thousands, in any of the dialects that people write.
//!
//! [`Tokens`] answers for windows of them, widened to the integers that a model wants, and for documents;
//! [`Loader`](crate::Loader) goes through them in batches. Like an [`Array`] it holds no data.

use crate::array::Array;
use crate::batch::Batch;
use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::door::{END_OF_TEXT, FORMAT, Words};
use crate::engine::bytes::Data;
use crate::engine::fetch::Fetch;
use crate::engine::tactics::Gap;
use crate::error::{Error, Result};
use crate::format::{Container, Dialect, Dtype, Layout, Order, ReadAt, manifest};
use crate::interrupt::Interrupt;
use crate::open::{absolute, end_to_end, whole};
use crate::options::{Access, CacheWish, Wish};
use crate::selection::Axis;
use crate::shards::documents::Front;
use crate::shards::{Documents, Prepared, TokenFile, TokenWish, check_tokens, disagree, find_tokens};
use crate::store::{One, Read, Storage, is_url};
use crate::widen::{Token, widen_pair};
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Raw tokens that [`Tokens::windows`] reads at once, before they are widened: they should still be in the
/// processor's cache then.
const AT_ONCE: usize = 1 << 20;

/// How to open a stream of tokens.
///
/// ```no_run
/// use lowtide::{Access, TokenOptions};
/// let tokens = TokenOptions::new().access(Access::Read).open(["shards/*.bin"])?;
/// # Ok::<(), lowtide::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct TokenOptions {
    wish: Wish,
    files: TokenWish,
    end_of_text: Option<u64>,
    split: Option<String>,
}

impl TokenOptions {
    /// The defaults: what the files say, `auto` access, the default budget.
    pub fn new() -> Self {
        Self::default()
    }

    /// How to read.
    pub fn access(mut self, access: Access) -> Self {
        self.wish.access = access;
        self
    }

    /// What happens to what we bring into the page cache.
    pub fn cache(mut self, cache: CacheWish) -> Self {
        self.wish.cache = cache;
        self
    }

    /// How much memory to use.
    pub fn budget(mut self, budget: Budget) -> Self {
        self.wish.budget = Some(budget);
        self
    }

    /// The type of a token, for files that do not say.
    pub fn dtype(mut self, dtype: Dtype) -> Self {
        self.files.dtype = Some(dtype);
        self
    }

    /// The dialect, instead of what the files look like.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.files.dialect = Some(dialect);
        self
    }

    /// The token between documents, for files without an index of them.
    pub fn end_of_text(mut self, token: u64) -> Self {
        self.end_of_text = Some(token);
        self
    }

    /// How object stores are reached: what is opened may have an address, `s3://bucket/shards/`.
    #[allow(clippy::needless_pass_by_value)] // as the other options are given
    pub fn storage(mut self, storage: Storage) -> Self {
        self.files.storage = Some(storage.afresh());
        self
    }

    /// What object stores are reached with; it knows the objects that were opened.
    pub fn stored_with(&self) -> Storage {
        self.files.storage.clone().unwrap_or_default()
    }

    /// Which split of a folder that `lowtide prepare` has made; `train`, unless said.
    pub fn split(mut self, name: impl Into<String>) -> Self {
        self.split = Some(name.into());
        self
    }

    /// What a manifest says, where the user does not.
    fn prepared(&mut self, prepared: &Prepared) -> Result<()> {
        let manifest = &prepared.manifest;
        self.end_of_text = self.end_of_text.or(manifest.tokenizer.end_of_text);
        // The other dialects say it themselves.
        let dialect = manifest.dialect()?;
        if self.files.dialect.is_none() && dialect.is_bare() {
            self.files.dialect = Some(dialect);
            let said = manifest.dtype.parse()?;
            match self.files.dtype.replace(said) {
                Some(wished) if wished != said => {
                    return Err(disagree(&prepared.folder.join(manifest::NAME), said, wished));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Opens files, folders, globs and Megatron prefixes as one stream, in this order.
    pub fn open(mut self, names: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<Tokens> {
        self.wish.check()?;
        let mut names: Vec<PathBuf> = names.into_iter().map(|name| absolute(name.as_ref())).collect();
        names.iter().try_for_each(|name| self.wish.access.fits(is_url(name)))?;
        let storage = self.files.storage.get_or_insert_default().clone();
        let prepared = Prepared::find(&mut names, self.split.as_deref(), &storage)?;
        let insisted = self.files.dialect; // on another reading than the manifest's, perhaps
        prepared.as_ref().map_or(Ok(()), |prepared| self.prepared(prepared))?;
        let found = find_tokens(&names, &self.files)?;
        if let (Some(prepared), None) = (&prepared, insisted) {
            prepared.check_sizes(&found.files)?;
        }
        let too_many = || Error::argument("the files together have more tokens than 63 bits can count", "");
        let tokens = found.files.iter().try_fold(0_u64, |sum, file| sum.checked_add(file.tokens));
        let tokens = tokens.and_then(|n| usize::try_from(n).ok()).ok_or_else(too_many)?;
        let dtype = found.files.first().map_or_else(|| "uint16".parse(), |file| Ok(file.dtype))?;
        if let Some(token) = self.end_of_text {
            Documents::check_end_of_text(token, dtype)?;
        }
        let (source, offset) = match &*found.files {
            [file] => {
                let open = One::open(&file.path, &storage)?;
                if open.len() != file.len {
                    let (path, end) = (file.path.clone(), file.len);
                    return Err(Error::Truncated { path, offset: 0, end, found: open.len() });
                }
                (whole(open, &storage)?, file.offset)
            }
            files => {
                let parts = files.iter().zip(&found.unseen).map(|(file, &unseen)| {
                    let bytes = file.offset..file.offset + file.tokens * dtype.itemsize() as u64;
                    (&file.path, bytes, unseen.then(|| check_tokens(file, &self.files)))
                });
                (end_to_end(parts, &storage)?, 0)
            }
        };
        let len = source.len();
        let path = found.files.first().map_or_else(PathBuf::new, |file| file.path.clone());
        let layout = Layout::new(&path, Container::Raw, dtype, vec![tokens], Order::C, offset, len)?;
        Ok(Tokens(Arc::new(Inner {
            array: Array::over(Data::open(source, self.wish)?, layout),
            files: found.files,
            warnings: found.warnings,
            end_of_text: self.end_of_text,
            prepared,
            storage,
            front: OnceLock::new(),
            documents: OnceLock::new(),
        })))
    }
}

/// A stream of tokens on disk. Clones share the files.
#[derive(Clone)]
pub struct Tokens(Arc<Inner>);

struct Inner {
    array: Array,
    files: Vec<TokenFile>,
    warnings: Vec<Words>,
    end_of_text: Option<u64>,
    prepared: Option<Prepared>,
    storage: Storage,
    /// The documents at the beginning: whoever looks at the first ones needs no pass over all tokens.
    front: OnceLock<Option<Front>>,
    documents: OnceLock<Option<Documents>>,
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { array, files, .. } = &*self.0;
        write!(f, "Tokens({:?}, {} tokens of {}", array.path(), self.len(), self.dtype())?;
        if files.len() > 1 { write!(f, ", {} files)", files.len()) } else { f.write_str(")") }
    }
}

impl Tokens {
    /// How many tokens there are.
    pub fn len(&self) -> u64 {
        self.0.array.rows()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The type of a token in the files.
    pub fn dtype(&self) -> Dtype {
        self.0.array.dtype()
    }

    /// The files, in the order of the stream.
    pub fn files(&self) -> &[TokenFile] {
        &self.0.files
    }

    /// What looked odd when the files were found.
    pub fn warnings(&self) -> &[Words] {
        &self.0.warnings
    }

    /// The manifest of the files, where `lowtide prepare` has made them.
    pub fn prepared(&self) -> Option<&Prepared> {
        self.0.prepared.as_ref()
    }

    /// The token between documents: the one that was given, or the manifest's.
    pub fn end_of_text(&self) -> Option<u64> {
        self.0.end_of_text
    }

    /// The same tokens, with another token between documents.
    ///
    /// # Errors
    /// [`Error::Argument`] for a token that the files' type cannot hold.
    pub fn with_end_of_text(&self, token: u64) -> Result<Self> {
        Documents::check_end_of_text(token, self.dtype())?;
        let Inner { array, files, prepared, storage, .. } = &*self.0;
        Ok(Self(Arc::new(Inner {
            array: array.clone(),
            files: files.clone(),
            warnings: Vec::new(),
            end_of_text: Some(token),
            prepared: prepared.clone(),
            storage: storage.clone(),
            front: OnceLock::new(),
            documents: OnceLock::new(),
        })))
    }

    /// All tokens as an array of one axis.
    pub fn array(&self) -> &Array {
        &self.0.array
    }

    /// A window of `block` tokens and the one after them for every token where one begins.
    pub(crate) fn windows_of(&self, block: usize) -> Array {
        let windows = self.0.array.rows().saturating_sub(block as u64);
        self.0.array.overlapping(1, block + 1, usize::try_from(windows).unwrap_or(usize::MAX))
    }

    /// The budget that this and all made from it share.
    pub fn budget(&self) -> &Budget {
        self.0.array.budget()
    }

    /// Lets go of the files. Whatever is made from this fails from now on.
    pub fn close(&self) {
        self.0.array.close();
    }

    /// What these files are, in a few hexadecimal digits.
    pub fn fingerprint(&self) -> Result<String> {
        self.0.array.fingerprint()
    }

    /// The windows that begin at `starts`: x, and y shifted by one, each of `starts.len()` × `block` tokens.
    ///
    /// ```no_run
    /// let tokens = lowtide::tokens("train.bin")?;
    /// let (x, y) = tokens.windows::<i64>(&[0, 7_000], 1024, &|| Ok(()))?;
    /// assert_eq!(x.as_slice::<i64>()?[1], y.as_slice::<i64>()?[0]);
    /// # Ok::<(), lowtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Start`] for a window that does not lie inside the stream.
    pub fn windows<T: Token>(
        &self,
        starts: &[u64],
        block: usize,
        interrupt: Interrupt<'_>,
    ) -> Result<(Batch, Batch)> {
        let shape = vec![starts.len(), block];
        self.check(starts, block)?; // before memory for them is asked for
        let mut x = Batch::blank::<T>(self.budget(), shape.clone())?;
        let mut y = Batch::blank::<T>(self.budget(), shape)?;
        self.windows_into::<T>(starts, block, x.as_mut_slice(), y.as_mut_slice(), interrupt)?;
        Ok((x, y))
    }

    /// The same into the caller's own memory.
    ///
    /// # Errors
    /// As [`windows`](Self::windows); [`Error::Argument`] where `x` or `y` have another size.
    pub fn windows_into<T: Token>(
        &self,
        starts: &[u64],
        block: usize,
        x: &mut [T],
        y: &mut [T],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        self.check(starts, block)?;
        let wanted = starts.len().checked_mul(block);
        if wanted != Some(x.len()) || wanted != Some(y.len()) {
            let (x, y, n) = (x.len(), y.len(), starts.len());
            let what = format!("x has {x} tokens and y has {y}, {n} windows of {block} were asked for");
            return Err(Error::argument(what, ""));
        }
        let window = self.window_bytes(block);
        let at_once = (AT_ONCE / window).clamp(1, starts.len().max(1));
        // The caller asked for this, so it may exceed the budget; what is free in the pool is used.
        let mut raw = Block::for_caller(self.budget(), at_once * window)?;
        let outputs = x.chunks_mut(at_once * block).zip(y.chunks_mut(at_once * block));
        for (starts, (x, y)) in starts.chunks(at_once).zip(outputs) {
            let raw = &mut raw[..starts.len() * window];
            self.read_windows(starts, block, raw, interrupt)?;
            widen_windows(self.dtype(), raw, block, x, y)?;
        }
        Ok(())
    }

    /// The windows that begin at `starts` as they stand in the files, end to end, in memory of the budget.
    ///
    /// # Errors
    /// [`Error::Budget`] where it has no room for them.
    pub(crate) fn raw_windows(
        &self,
        starts: &[u64],
        block: usize,
        interrupt: Interrupt<'_>,
    ) -> Result<Block> {
        let len = starts.len() * self.window_bytes(block);
        let Some(mut raw) = Block::counted(self.budget(), len)? else {
            return Err(Error::Memory { needs: len as u64 });
        };
        self.read_windows(starts, block, &mut raw, interrupt)?;
        Ok(raw)
    }

    /// Bytes of a window of `block` tokens and the one after them.
    fn window_bytes(&self, block: usize) -> usize {
        (block + 1) * self.dtype().itemsize()
    }

    fn read_windows(
        &self,
        starts: &[u64],
        block: usize,
        raw: &mut [u8],
        interrupt: Interrupt<'_>,
    ) -> Result<()> {
        let array = &self.0.array;
        let (item, offset) = (self.dtype().itemsize() as u64, array.layout().offset);
        let places = starts.iter().zip(raw.chunks_exact_mut(self.window_bytes(block)));
        let mut reads: Vec<_> =
            places.map(|(&start, into)| Read { offset: offset + start * item, into }).collect();
        self.fetch(&mut reads, interrupt)
    }

    /// That every window lies inside the stream.
    pub(crate) fn check(&self, starts: &[u64], block: usize) -> Result<()> {
        if block == 0 {
            return Err(Error::argument(
                "a window of 0 tokens has nothing to learn from",
                "block_size is at least 1",
            ));
        }
        let (tokens, block) = (self.len(), block as u64);
        let Some(&worst) = starts.iter().max() else { return Ok(()) };
        if block >= tokens || worst >= tokens - block {
            let start = starts.iter().find(|&&start| block >= tokens || start >= tokens - block);
            let last = i128::from(tokens) - i128::from(block) - 1;
            let start = start.copied().unwrap_or(worst).into();
            return Err(Error::Start { start, block, last: last.max(-1), tokens });
        }
        Ok(())
    }

    /// How many documents there are: from an index, or by the end-of-text token, which takes a pass over all
    /// tokens the first time. `None` where neither is there.
    pub fn documents(&self, interrupt: Interrupt<'_>) -> Result<Option<u64>> {
        self.find_documents(interrupt, &|_| {})
    }

    /// The same; `progress` is told how many tokens are done, several times a second where it takes long.
    pub fn find_documents(&self, interrupt: Interrupt<'_>, progress: &dyn Fn(u64)) -> Result<Option<u64>> {
        Ok(self.index(interrupt, progress)?.map(Documents::len))
    }

    /// The same, as far as it is known without a pass over the tokens: from an index, from the manifest, or what a
    /// scan has found or written down before.
    pub fn known_documents(&self) -> Result<Option<u64>> {
        match self.0.documents.get() {
            Some(found) => Ok(found.as_ref().map(Documents::len)),
            None => Ok(self.written_index()?.as_ref().map(Documents::len).or_else(|| self.counted())),
        }
    }

    /// The documents that the manifest counts, where it speaks of these very tokens and of this end of text.
    fn counted(&self) -> Option<u64> {
        let prepared = self.prepared()?;
        let end = prepared.manifest.tokenizer.end_of_text?;
        let same = self.0.end_of_text == Some(end) && prepared.tokens() == Some(self.len());
        prepared.documents().filter(|_| same)
    }

    /// The tokens of a document, as they stand in the file.
    ///
    /// # Errors
    /// [`Error::Index`] where there is no such document, [`Error::Argument`] where documents are not known.
    pub fn document(&self, number: u64, interrupt: Interrupt<'_>) -> Result<Batch> {
        self.part(self.document_range(number, interrupt, &|_| {})?, interrupt)
    }

    /// Which tokens a document is. One near the beginning is found at once; `progress` is as for
    /// [`find_documents`](Self::find_documents).
    ///
    /// # Errors
    /// As [`document`](Self::document).
    pub fn document_range(
        &self,
        number: u64,
        interrupt: Interrupt<'_>,
        progress: &dyn Fn(u64),
    ) -> Result<Range<u64>> {
        let read = |offset, out: &mut [u8]| self.bytes(offset, out, interrupt);
        if let Some(range) = self.front_range(number, &read)? {
            return Ok(range);
        }
        match self.index(interrupt, progress)? {
            Some(documents) => documents.range(number, &read),
            None => Err(self.no_documents()),
        }
    }

    /// That nothing says where documents end, and what can be done about it. Where the tokenizer itself has no such token, as
    /// that of characters has none, there is no number to give.
    pub fn no_documents(&self) -> Error {
        let none = self.prepared().is_some_and(|made| made.manifest.tokenizer.end_of_text.is_none());
        Error::argument(
            format!("{}: nothing says where documents end", self.0.array.path().display()),
            if none {
                Words::from(
                    "its tokenizer has no token between documents: t.decode(t[:200]) is the text of the first ",
                ) + "tokens; prepared with "
                    + FORMAT.is("megatron")
                    + " the documents are kept"
            } else {
                Words::from("give ") + END_OF_TEXT + ", the token between documents (50256 for GPT-2)"
            },
        )
    }

    /// The same for a document at the beginning, where there is no index and no scan yet.
    fn front_range(&self, number: u64, read: ReadAt<'_>) -> Result<Option<Range<u64>>> {
        let (None, Some(token)) = (self.0.documents.get(), self.0.end_of_text) else { return Ok(None) };
        if let Some(front) = self.0.front.get() {
            return front.as_ref().map_or(Ok(None), |front| front.range(number, read));
        }
        let front = match self.written_index()? {
            Some(_) => None,
            None => Some(Documents::scan_front(&self.0.files, token, read)?),
        };
        let front = self.0.front.get_or_init(|| front);
        front.as_ref().map_or(Ok(None), |front| front.range(number, read))
    }

    /// Tokens as they stand in the file.
    ///
    /// # Errors
    /// [`Error::Index`] for tokens that are not there.
    pub fn part(&self, range: Range<u64>, interrupt: Interrupt<'_>) -> Result<Batch> {
        let too_large = |_| Error::argument("this is too much for this machine", "");
        let start = usize::try_from(range.start).map_err(too_large)?;
        let count = usize::try_from(range.end.saturating_sub(range.start)).map_err(too_large)?;
        self.0.array.select(vec![Axis::Range { start, step: 1, count }], interrupt)
    }

    /// Writes what a scan for the end-of-text token found beside the first file, so that the next time it is
    /// only read. Says where.
    pub fn remember_documents(&self, interrupt: Interrupt<'_>) -> Result<PathBuf> {
        match (self.index(interrupt, &|_| {})?, self.0.end_of_text) {
            (Some(documents), Some(_)) => documents.save(&self.0.files),
            _ => Err(Error::argument(
                Words::from("there is nothing to remember: documents are only scanned for where ")
                    + END_OF_TEXT
                    + " is given",
                "",
            )),
        }
    }

    fn index(&self, interrupt: Interrupt<'_>, progress: &dyn Fn(u64)) -> Result<Option<&Documents>> {
        if let Some(known) = self.0.documents.get() {
            return Ok(known.as_ref());
        }
        let found = match (self.written_index()?, self.0.end_of_text) {
            (None, Some(token)) => {
                let read = |offset, out: &mut [u8]| self.bytes(offset, out, interrupt);
                Some(Documents::scan(&self.0.files, token, &read, interrupt, progress)?)
            }
            (written, _) => written,
        };
        Ok(self.0.documents.get_or_init(|| found).as_ref())
    }

    /// What stands beside the files: their own index, or what a scan has written down.
    fn written_index(&self) -> Result<Option<Documents>> {
        let Inner { files, end_of_text, storage, .. } = &*self.0;
        let remembered = || end_of_text.and_then(|token| Documents::load(files, token));
        Ok(Documents::from_index_in(files, storage)?.or_else(remembered))
    }

    fn fetch(&self, reads: &mut [Read<'_>], interrupt: Interrupt<'_>) -> Result<()> {
        let (array, budget) = (&self.0.array, self.budget());
        let interrupt: Interrupt<'_> = &|| array.data().stop(interrupt);
        Fetch { lane: &*array.random()?, budget, gap: Gap::Lost, interrupt }.reads(reads)
    }

    /// Bytes of the stream, from the first token on.
    fn bytes(&self, offset: u64, out: &mut [u8], interrupt: Interrupt<'_>) -> Result<()> {
        let array = &self.0.array;
        let mut reads = [Read { offset: array.layout().offset + offset, into: out }];
        self.fetch(&mut reads, interrupt)
    }
}

/// Widens windows of `block` tokens and one more, end to end in `raw`, into x and y.
pub(crate) fn widen_windows<T: Token>(
    dtype: Dtype,
    raw: &[u8],
    block: usize,
    x: &mut [T],
    y: &mut [T],
) -> Result<()> {
    let windows = raw.chunks_exact((block + 1) * dtype.itemsize());
    let outputs = x.chunks_exact_mut(block).zip(y.chunks_exact_mut(block));
    windows.zip(outputs).try_for_each(|(raw, (x, y))| widen_pair(dtype, raw, x, y))
}
