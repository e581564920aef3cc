//! What must hold for any bytes at all that are opened as `.npy`.
//!
//! One definition for all who ask: the fuzz target, the stored corpus in `cargo test`, and proptest.

use lowtide::format::{Container, Layout, Order, npy, shape_text};
use std::path::Path;

/// Panics if the parser does something wrong with a file of these bytes, or with a file that begins with
/// them and is far larger.
pub fn check(bytes: &[u8]) {
    let own = bytes.len() as u64;
    for file_len in [own, own + 1, 1 << 40, i64::MAX as u64, u64::MAX] {
        check_in_file(bytes, file_len);
    }
}

fn check_in_file(bytes: &[u8], file_len: u64) {
    let path = Path::new("some.npy");
    let layout = npy::parse(path, bytes, file_len);
    match npy::header_len(path, &bytes[..bytes.len().min(12)], file_len) {
        Ok(header_len) => {
            assert!(npy::is_npy(bytes));
            assert!(header_len <= npy::MAX_HEADER_LEN && header_len as u64 <= file_len);
            if let Some(head) = bytes.get(..header_len) {
                // What follows the header does not change what the header says.
                assert_eq!(layout.as_ref().ok(), npy::parse(path, head, file_len).as_ref().ok());
            } else {
                assert!(layout.is_err());
            }
        }
        Err(_) => assert!(layout.is_err()),
    }
    match layout {
        Ok(layout) => {
            let size = layout.shape.iter().map(|&n| n as u128).product::<u128>();
            let end = u128::from(layout.offset) + size * layout.dtype.itemsize() as u128;
            assert_eq!(end, u128::from(file_len), "{layout:?} is not the rest of the file");
            let plain = written_plainly(&layout);
            // The plain header may be longer or shorter: the file moves with it.
            let moved = file_len - layout.offset + plain.len() as u64;
            let offset = plain.len() as u64;
            assert_eq!(npy::parse(path, &plain, moved).unwrap(), Layout { offset, ..layout });
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("some.npy"), "no path: {message}");
            assert!(message.len() < 4096, "a hostile file floods the log: {message}");
            assert!(
                !message.contains(|c: char| c.is_control() && c != '\n'),
                "a terminal obeys this: {message:?}"
            );
        }
    }
}

/// The header as NumPy would write it.
fn written_plainly(layout: &Layout) -> Vec<u8> {
    let Container::Npy { version } = layout.container else { panic!("not .npy: {layout:?}") };
    let fortran = if layout.order == Order::Fortran { "True" } else { "False" };
    let (dtype, shape) = (layout.dtype.numpy_str(), shape_text(&layout.shape));
    let text = format!("{{'descr': '{dtype}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n");
    let length = u32::try_from(text.len()).unwrap().to_le_bytes();
    let length = &length[..if version == 1 { 2 } else { 4 }];
    [&npy::MAGIC[..], &[version, 0], length, text.as_bytes()].concat()
}
