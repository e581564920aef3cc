//! Tokens as text: which tokenizer, and what is kept of it between two looks.

use crate::error::unlocked;
use lowtide_text::{Tokenizer, show};
use pyo3::exceptions::{PyIndexError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// The tokenizer that was used last: making one takes up to half a second.
#[derive(Default)]
pub struct Reader(Mutex<Option<Known>>);

#[derive(Clone)]
struct Known {
    name: Option<String>,
    tokenizer: Arc<dyn Tokenizer>,
    /// The tokens, with their documents, which the tokenizer may have told.
    tokens: lowtide::Tokens,
}

impl Reader {
    fn known(&self, tokens: &lowtide::Tokens, name: Option<&str>) -> lowtide::Result<Known> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = kept.as_ref().filter(|known| known.name.as_deref() == name) {
            return Ok(known.clone());
        }
        let tokenizer = show::tokenizer_of(tokens, name)?;
        let tokens = show::with_documents(tokens, &*tokenizer)?;
        let known = Known { name: name.map(str::to_owned), tokenizer, tokens };
        *kept = Some(known.clone());
        Ok(known)
    }

    /// The text of a document; a negative number counts from the end.
    pub fn document(
        &self,
        py: Python<'_>,
        tokens: &lowtide::Tokens,
        number: i64,
        name: Option<&str>,
    ) -> PyResult<String> {
        let found = unlocked(py, |interrupt| {
            let Known { tokenizer, tokens, .. } = self.known(tokens, name)?;
            let index = if let Ok(index) = u64::try_from(number) {
                index
            } else {
                // Where documents are not known, the first one says what is missing.
                let count = tokens.documents(interrupt)?;
                match count.map(|count| count.checked_sub(number.unsigned_abs()).ok_or(count)) {
                    Some(Ok(index)) => index,
                    Some(Err(count)) => return Ok(Err(count)),
                    None => 0,
                }
            };
            match show::document(&tokens, index, &*tokenizer, u64::MAX, interrupt) {
                Err(lowtide::Error::Index { size, .. }) => Ok(Err(size)),
                shown => shown.map(|shown| Ok(shown.text)),
            }
        })?;
        found.map_err(|count| out_of_range(number, count))
    }

    /// The text of ids that a caller has at hand.
    pub fn decode(
        &self,
        tokens: &lowtide::Tokens,
        ids: &Bound<'_, PyAny>,
        name: Option<&str>,
    ) -> PyResult<String> {
        let py = ids.py();
        let array = py.import("numpy")?.call_method1("asarray", (ids,))?;
        let kind: String = array.getattr("dtype")?.getattr("kind")?.extract()?;
        let (axes, size): (usize, usize) =
            (array.getattr("ndim")?.extract()?, array.getattr("size")?.extract()?);
        if axes != 1 || !(kind == "i" || kind == "u" || size == 0) {
            let hint = if axes == 2 { "\nhint: a row of a batch is x[0]" } else { "" };
            return Err(PyTypeError::new_err(format!(
                "ids must be a list or an array of integers with one axis, not {} of {axes} axes{hint}",
                array.getattr("dtype")?
            )));
        }
        let ids: Vec<i64> = array.call_method1("astype", ("int64",))?.call_method0("tolist")?.extract()?;
        let id = |id: i64| {
            u32::try_from(id).map_err(|_| PyValueError::new_err(format!("{id} is no id of any vocabulary")))
        };
        let ids = ids.into_iter().map(id).collect::<PyResult<Vec<u32>>>()?;
        unlocked(py, |_| show::text(&*self.known(tokens, name)?.tokenizer, &ids, false))
    }
}

/// That there are not so many documents.
pub fn out_of_range(number: i64, count: u64) -> PyErr {
    PyIndexError::new_err(format!("document {number} is out of range: there are {count}"))
}
