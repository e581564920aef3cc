//! `a.astype(dtype)`: the same rows, as elements of another type.

use crate::array::Array;
use crate::cast::Cast;
use crate::door::Words;
use crate::error::{Error, Result};
use crate::format::Dtype;
use crate::store::AsType;

impl Array {
    /// The same rows as elements of another type, converted as they are read, to the bit as NumPy's `astype` converts.
    /// Nothing is read now. [`layout`](Self::layout) still says what is in the file.
    ///
    /// ```no_run
    /// use lowtide::format::{Dtype, Kind};
    ///
    /// let halves = lowtide::open("halves.npy")?; // float16
    /// let array = halves.astype(Dtype::native(Kind::Float32))?;
    /// for chunk in array.chunks(4096)? {
    ///     let chunk = chunk?;
    ///     let rows: &[f32] = chunk.as_slice()?;
    /// #   let _ = rows;
    /// }
    /// # Ok::<(), lowtide::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Argument`] where NumPy's `same_kind` does not allow it, and where these elements were rounded already.
    pub fn astype(&self, dtype: Dtype) -> Result<Self> {
        let cast = match self.as_type() {
            None => Cast::new(self.layout().dtype, dtype),
            Some(AsType { cast, .. }) if cast.to() == dtype => Ok(cast),
            Some(AsType { cast, .. }) => cast.then(dtype).unwrap_or_else(|| {
                let (from, to) = (cast.from(), cast.to());
                let what =
                    format!("{from} is read as {to}, which rounds: that cannot become {dtype} as it is read");
                Err(Error::argument(
                    what,
                    format!("{dtype} from {from}: use astype of the array that was opened"),
                ))
            }),
        };
        let with_path = |error| match error {
            Error::Argument { what, hint } => {
                Error::Argument { what: Words::from(format!("{}: ", self.path().display())) + what, hint }
            }
            other => other,
        };
        let cast = cast.map_err(with_path)?;
        Ok(self.as_read(Some(AsType { cast, first: self.layout().offset })))
    }
}
