//! Enough of Thrift's compact protocol to look at what a Parquet file says of sizes before anything is allocated by it.
//!
//! Pure: bytes in, numbers or nothing out. The reader of Parquet, which is not ours, takes a list's length and a page's
//! size from the file and allocates that much; here both are compared with what there is.

/// Structs inside of structs, at most.
const DEEPEST: u32 = 32;

/// Reads values one after the other; `None` where the bytes end or make no sense.
struct Walk<'a> {
    rest: &'a [u8],
}

/// Whether a struct is whole and no list in it has more elements than bytes follow.
pub fn is_plausible(bytes: &[u8]) -> bool {
    Walk { rest: bytes }.structure(DEEPEST).is_some()
}

/// The unpacked and the packed size of the page whose header `bytes` begin with: its fields 2 and 3. A field that comes
/// twice or out of order is refused: which one counts is the other reader's to choose.
pub fn page_sizes(bytes: &[u8]) -> Option<(u64, u64)> {
    let mut walk = Walk { rest: bytes };
    let (mut id, mut sizes) = (0, [None, None]);
    while let Some((field, kind)) = walk.field(id).filter(|&(_, kind)| kind != 0) {
        if field <= id {
            return None;
        }
        id = field;
        if let 2 | 3 = field {
            let size = walk.number().filter(|_| kind == 5)?;
            sizes[usize::from(field == 3)] = Some((size >> 1, size & 1)).filter(|&(_, below)| below == 0);
        } else if walk.value(kind, DEEPEST, false).is_none() {
            break; // what is behind the beginning was not given to us
        }
    }
    Some((sizes[0]?.0, sizes[1]?.0))
}

impl Walk<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, len: u64) -> Option<()> {
        self.rest = self.rest.get(usize::try_from(len).ok()?..)?;
        Some(())
    }

    /// The next field's number and kind; kind 0 is the end of the struct.
    fn field(&mut self, before: u64) -> Option<(u64, u8)> {
        let head = self.byte()?;
        match (head >> 4, head & 15) {
            (_, 0) => Some((before, 0)),
            (0, kind) => Some((self.number()? >> 1, kind)),
            (delta, kind) => Some((before.checked_add(delta.into())?, kind)),
        }
    }

    fn structure(&mut self, depth: u32) -> Option<()> {
        let mut id = 0;
        loop {
            let (field, kind) = self.field(id)?;
            if kind == 0 {
                return Some(());
            }
            id = field;
            self.value(kind, depth, false)?;
        }
    }

    fn value(&mut self, kind: u8, depth: u32, in_list: bool) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // A boolean is its own kind in a struct, and a byte in a list.
            1 | 2 if !in_list => Some(()),
            1..=3 => self.skip(1),
            4..=6 => self.number().map(|_| ()),
            7 => self.skip(8),
            8 => {
                let len = self.number()?;
                self.skip(len)
            }
            9 | 10 => {
                let head = self.byte()?;
                let count = if head >> 4 == 15 { self.number()? } else { u64::from(head >> 4) };
                if count > self.rest.len() as u64 {
                    return None;
                }
                (0..count).try_for_each(|_| self.value(head & 15, depth, true))
            }
            12 => self.structure(depth),
            13 => self.skip(16),
            _ => None, // maps: Parquet has none
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{is_plausible, page_sizes};

    #[test]
    fn sizes_of_a_page_are_read_and_lists_of_more_than_there_is_are_not() {
        // Field 1, i32, 0; field 2, i32, 300; field 3, i32, 7; field 5, a struct with an i32; the end.
        let header = [0x15, 0x00, 0x15, 0xd8, 0x04, 0x15, 0x0e, 0x2c, 0x15, 0x02, 0x00, 0x00];
        assert_eq!(page_sizes(&header), Some((300, 7)));
        assert!(is_plausible(&header));
        assert_eq!(page_sizes(&header[..5]), None);
        assert!((0..header.len()).all(|len| !is_plausible(&header[..len])));
        assert_eq!(page_sizes(&[0x15, 0x00, 0x15, 0x03, 0x15, 0x0e]), None, "a size below 0");
        // Field 1, a list of 2^31 structs.
        assert!(!is_plausible(&[0x19, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x08, 0x00, 0x00, 0x00]));
        assert!(!is_plausible(&[0x1c; 1000]), "structs in structs");
        assert!(!is_plausible(&[0x19; 1000]), "lists in lists");
    }
}
