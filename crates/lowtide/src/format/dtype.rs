//! Element types: what one element is, and how many bytes it takes.
//!
//! In: NumPy's words (`"<f4"`, `"float32"`). Out: a [`Dtype`], a kind and a byte order. Bytes are never
//! swapped on the way: an array of big-endian numbers stays one, as NumPy's would, and
//! [`Dtype::to_native`] swaps where a caller asks for native numbers.

use crate::door::BYTE_ORDER;
use crate::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Which numbers, whatever their byte order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)] // the names are NumPy's
pub enum Kind {
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Float16,
    Float32,
    Float64,
    BFloat16,
    Complex64,
    Complex128,
}

/// The order of the bytes inside one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ByteOrder {
    /// Least significant byte first.
    Little,
    /// Most significant byte first.
    Big,
}

impl ByteOrder {
    /// This machine's order.
    pub const NATIVE: Self = if cfg!(target_endian = "little") { Self::Little } else { Self::Big };
}

impl FromStr for ByteOrder {
    type Err = Error;

    fn from_str(word: &str) -> Result<Self> {
        match word {
            "little" => Ok(Self::Little),
            "big" => Ok(Self::Big),
            "native" => Ok(Self::NATIVE),
            _ => Err(Error::argument(
                BYTE_ORDER.is(word.to_owned()) + " is not known",
                "one of \"little\", \"big\", \"native\"",
            )),
        }
    }
}

/// The type of an array's elements. One-byte kinds are always [`ByteOrder::NATIVE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dtype {
    kind: Kind,
    byte_order: ByteOrder,
}

/// Kind, NumPy's name, the letter and size in a `.npy` header. bfloat16 has no letter in NumPy.
const TABLE: [(Kind, &str, &str); 15] = [
    (Kind::Bool, "bool", "b1"),
    (Kind::Int8, "int8", "i1"),
    (Kind::Int16, "int16", "i2"),
    (Kind::Int32, "int32", "i4"),
    (Kind::Int64, "int64", "i8"),
    (Kind::UInt8, "uint8", "u1"),
    (Kind::UInt16, "uint16", "u2"),
    (Kind::UInt32, "uint32", "u4"),
    (Kind::UInt64, "uint64", "u8"),
    (Kind::Float16, "float16", "f2"),
    (Kind::Float32, "float32", "f4"),
    (Kind::Float64, "float64", "f8"),
    (Kind::BFloat16, "bfloat16", "bfloat16"),
    (Kind::Complex64, "complex64", "c8"),
    (Kind::Complex128, "complex128", "c16"),
];

impl Kind {
    /// Bytes of one element.
    pub const fn itemsize(self) -> usize {
        match self {
            Self::Bool | Self::Int8 | Self::UInt8 => 1,
            Self::Int16 | Self::UInt16 | Self::Float16 | Self::BFloat16 => 2,
            Self::Int32 | Self::UInt32 | Self::Float32 => 4,
            Self::Int64 | Self::UInt64 | Self::Float64 | Self::Complex64 => 8,
            Self::Complex128 => 16,
        }
    }

    /// Bytes of one number inside an element: half an element for complex numbers.
    const fn number_size(self) -> usize {
        match self {
            Self::Complex64 | Self::Complex128 => self.itemsize() / 2,
            _ => self.itemsize(),
        }
    }
}

impl Dtype {
    /// The names of all kinds.
    pub const NAMES: [&str; TABLE.len()] = {
        let mut names = [""; TABLE.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = TABLE[at].1;
            at += 1;
        }
        names
    };

    /// A kind in a byte order.
    pub const fn new(kind: Kind, byte_order: ByteOrder) -> Self {
        let byte_order = if kind.itemsize() == 1 { ByteOrder::NATIVE } else { byte_order };
        Self { kind, byte_order }
    }

    /// A kind in this machine's byte order.
    pub const fn native(kind: Kind) -> Self {
        Self::new(kind, ByteOrder::NATIVE)
    }

    /// Which numbers.
    pub const fn kind(self) -> Kind {
        self.kind
    }

    /// The order of their bytes.
    pub const fn byte_order(self) -> ByteOrder {
        self.byte_order
    }

    /// Bytes of one element.
    pub const fn itemsize(self) -> usize {
        self.kind.itemsize()
    }

    /// Reads NumPy's words: `"<f4"`, `">i8"`, `"|b1"`, `"=u2"`, `"f4"`, `"float32"`, `"bfloat16"`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for what NumPy knows and we do not (objects, strings, dates, `float128`),
    /// [`Error::Argument`] for what nobody knows.
    pub fn parse(text: &str) -> Result<Self> {
        let (byte_order, word) = match text.as_bytes().first() {
            Some(b'<') => (ByteOrder::Little, &text[1..]),
            Some(b'>') => (ByteOrder::Big, &text[1..]),
            Some(b'=' | b'|') => (ByteOrder::NATIVE, &text[1..]),
            _ => (ByteOrder::NATIVE, text),
        };
        if let Some((kind, ..)) = TABLE.iter().find(|(_, name, code)| *name == word || *code == word) {
            return Ok(Self::new(*kind, byte_order));
        }
        let shown: String = text.chars().take(40).collect();
        let known = || Self::NAMES.join(", ");
        match word.bytes().next() {
            Some(b'O') => Err(Error::unsupported(
                "object arrays are pickles inside, and nothing is ever unpickled here",
                "save the array with a numeric dtype",
            )),
            Some(b'S' | b'U' | b'V' | b'M' | b'm' | b'f' | b'c' | b'a' | b'T') => Err(Error::unsupported(
                format!("dtype {shown:?} is not supported"),
                format!("supported: {}", known()),
            )),
            _ => Err(Error::argument(format!("{shown:?} is not a dtype"), format!("supported: {}", known()))),
        }
    }

    /// NumPy's name: `float32`. The byte order is not part of it.
    pub fn name(self) -> &'static str {
        TABLE.iter().find(|row| row.0 == self.kind).map_or("?", |row| row.1)
    }

    /// NumPy's `dtype.str`: `<f4`, `|b1`; `bfloat16` (or `>bfloat16`), which NumPy does not have.
    pub fn numpy_str(self) -> String {
        let code = TABLE.iter().find(|row| row.0 == self.kind).map_or("?", |row| row.2);
        match (self.itemsize(), self.kind, self.byte_order) {
            (1, ..) => format!("|{code}"),
            (_, Kind::BFloat16, ByteOrder::Little) => code.into(),
            (_, _, ByteOrder::Little) => format!("<{code}"),
            (_, _, ByteOrder::Big) => format!(">{code}"),
        }
    }

    /// Swaps the bytes of every number in place, if they are not in this machine's order.
    pub fn to_native(self, elements: &mut [u8]) {
        if self.byte_order != ByteOrder::NATIVE {
            for number in elements.chunks_exact_mut(self.kind.number_size()) {
                number.reverse();
            }
        }
    }
}

impl FromStr for Dtype {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::parse(text)
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        if self.byte_order == ByteOrder::NATIVE { Ok(()) } else { f.write_str(" (big-endian)") }
    }
}

mod sealed {
    pub trait Sealed {}
}

/// A Rust number that an array can hold.
pub trait Element: Copy + Default + Send + Sync + sealed::Sealed + 'static {
    /// Its kind in a file.
    const KIND: Kind;
    /// Reads one number from exactly its own size of native bytes.
    fn from_ne(bytes: &[u8]) -> Self;
}

macro_rules! elements {
    ($($rust:ty => $kind:ident),* $(,)?) => {$(
        impl sealed::Sealed for $rust {}
        impl Element for $rust {
            const KIND: Kind = Kind::$kind;
            fn from_ne(bytes: &[u8]) -> Self {
                let mut own = [0; size_of::<$rust>()];
                own.copy_from_slice(bytes);
                <$rust>::from_ne_bytes(own)
            }
        }
    )*};
}

elements! {
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => UInt8, u16 => UInt16, u32 => UInt32, u64 => UInt64,
    half::f16 => Float16, half::bf16 => BFloat16, f32 => Float32, f64 => Float64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_reads_back_what_it_writes() {
        for (kind, name, _) in TABLE {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let dtype = Dtype::new(kind, order);
                assert_eq!(Dtype::parse(&dtype.numpy_str()).unwrap(), dtype, "{name}");
            }
            assert_eq!(Dtype::parse(name).unwrap(), Dtype::native(kind));
        }
    }

    #[test]
    fn what_cannot_be_read_is_refused_by_name() {
        for (text, says) in [
            ("|O", "nothing is ever unpickled"),
            ("<M8[ns]", "\"<M8[ns]\" is not supported"),
            ("<U7", "\"<U7\" is not supported"),
            ("<f16", "\"<f16\" is not supported"),
            ("float128", "\"float128\" is not supported"),
            ("quux", "\"quux\" is not a dtype"),
            ("", "\"\" is not a dtype"),
        ] {
            let message = Dtype::parse(text).unwrap_err().to_string();
            assert!(message.contains(says), "{text}: {message}");
        }
    }

    #[test]
    fn complex_numbers_swap_each_half() {
        let mut bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        let other = if ByteOrder::NATIVE == ByteOrder::Little { ByteOrder::Big } else { ByteOrder::Little };
        Dtype::new(Kind::Complex64, other).to_native(&mut bytes);
        assert_eq!(bytes, [4, 3, 2, 1, 8, 7, 6, 5]);
    }
}
