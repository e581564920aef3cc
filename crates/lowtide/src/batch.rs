//! What the caller gets: elements in memory, owned.

use crate::budget::Budget;
use crate::budget::pool::Block;
use crate::error::{Error, Result};
use crate::format::{Dtype, Element, Order, byte_len};

/// Elements in memory, the caller's. Dropping it returns the memory to the pool it came from.
#[derive(Debug)]
pub struct Batch {
    block: Block,
    dtype: Dtype,
    shape: Vec<usize>,
    order: Order,
}

impl Batch {
    pub(crate) fn new(block: Block, dtype: Dtype, shape: Vec<usize>, order: Order) -> Self {
        Self { block, dtype, shape, order }
    }

    /// The element type, with the file's byte order.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }

    /// The shape.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The order of the elements in [`bytes`](Self::bytes): the file's.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// An empty place for elements of the caller's own kind, to be filled.
    pub(crate) fn blank<T: Element>(budget: &Budget, shape: Vec<usize>) -> Result<Self> {
        let too_large = || Error::argument("the batch is too large: its size does not fit in 63 bits", "");
        let bytes = byte_len(&shape, size_of::<T>()).and_then(|n| usize::try_from(n).ok());
        let block = Block::for_caller(budget, bytes.ok_or_else(too_large)?)?;
        Ok(Self::new(block, Dtype::native(T::KIND), shape, Order::C))
    }

    /// The elements of a batch that was made for `T`.
    pub(crate) fn as_mut_slice<T: Element>(&mut self) -> &mut [T] {
        debug_assert_eq!(self.dtype, Dtype::native(T::KIND));
        self.block.elements_mut()
    }

    /// The elements as they stand in the file.
    pub fn bytes(&self) -> &[u8] {
        &self.block
    }

    /// The elements as Rust numbers, without a copy.
    ///
    /// # Errors
    /// [`Error::Argument`] if `T` is another type than the array's, or the file has the other byte order
    /// ([`to_vec`](Self::to_vec) swaps).
    pub fn as_slice<T: Element>(&self) -> Result<&[T]> {
        if self.dtype != Dtype::native(T::KIND) {
            let wanted = Dtype::native(T::KIND);
            return Err(Error::argument(
                format!("the elements are {}, not {wanted}", self.dtype),
                "see Batch::to_vec",
            ));
        }
        Ok(self.block.elements())
    }

    /// The elements as Rust numbers in this machine's byte order.
    ///
    /// # Errors
    /// [`Error::Argument`] if `T` is another type than the array's.
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        if self.dtype.kind() != T::KIND {
            let wanted = Dtype::native(T::KIND);
            return Err(Error::argument(format!("the elements are {}, not {wanted}", self.dtype), ""));
        }
        let mut number = vec![0; size_of::<T>()];
        let read = |bytes: &[u8]| {
            number.copy_from_slice(bytes);
            self.dtype.to_native(&mut number);
            T::from_ne(&number)
        };
        Ok(self.block.chunks_exact(size_of::<T>()).map(read).collect())
    }

    /// Hands it to the caller: from now on it is not counted.
    pub(crate) fn deliver(self) -> Self {
        Self { block: self.block.deliver(), ..self }
    }

    /// The memory, for a foreign owner such as NumPy.
    pub fn into_block(self) -> Block {
        self.block
    }
}
