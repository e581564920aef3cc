//! `.npy` headers against NumPy's own files and answers, and by property.

#[path = "properties/npy.rs"]
mod property;

use lowtide::format::{ByteOrder, Container, Dtype, Kind, Layout, Order, npy, shape_text};
use proptest::prelude::*;
use std::path::Path;

/// `valid/npy.txt` was written by NumPy, beside the files.
#[test]
fn files_by_numpy_are_read_as_numpy_reads_them() {
    let valid = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/valid");
    let answers = std::fs::read_to_string(valid.join("npy.txt")).unwrap();
    for answer in answers.lines() {
        let name = answer.split('\t').next().unwrap();
        let bytes = std::fs::read(valid.join("npy").join(name)).unwrap();
        let layout = npy::parse(Path::new(name), &bytes, bytes.len() as u64).unwrap();
        let order = if layout.order == Order::C { "C" } else { "F" };
        let (dtype, shape) = (layout.dtype.numpy_str(), shape_text(&layout.shape));
        assert_eq!(format!("{name}\t{dtype}\t{shape}\t{order}\t{}", layout.offset), answer);
        property::check(&bytes);
    }
    assert_eq!(answers.lines().count(), valid.join("npy").read_dir().unwrap().count());
}

const KINDS: [Kind; 15] = [
    Kind::Bool,
    Kind::Int8,
    Kind::Int16,
    Kind::Int32,
    Kind::Int64,
    Kind::UInt8,
    Kind::UInt16,
    Kind::UInt32,
    Kind::UInt64,
    Kind::Float16,
    Kind::Float32,
    Kind::Float64,
    Kind::BFloat16,
    Kind::Complex64,
    Kind::Complex128,
];

/// A layout, and a header that says it in one of the many ways there are.
fn headers() -> impl Strategy<Value = (Layout, Vec<u8>)> {
    let space = prop::sample::select(vec!["", " ", "  ", "\n", "\t", " \r\n"]);
    let dtype = (prop::sample::select(KINDS.to_vec()), any::<bool>());
    let shape = prop::collection::vec(0_usize..7, 0..5);
    let keys = Just(["descr", "fortran_order", "shape"]).prop_shuffle();
    let looks = (any::<bool>(), any::<bool>(), any::<bool>(), 0_usize..200);
    (dtype, shape, any::<bool>(), 1_u8..=3, keys, prop::collection::vec(space, 16), looks).prop_map(
        |((kind, big), shape, fortran, version, keys, spaces, (double, long, comma, padding))| {
            let dtype = Dtype::new(kind, if big { ByteOrder::Big } else { ByteOrder::Little });
            let mut spaces = spaces.into_iter().cycle();
            let mut space = || spaces.next().unwrap();
            let quote = if double { '"' } else { '\'' };
            let mut tuple = String::new();
            for (axis, n) in shape.iter().enumerate() {
                let must = shape.len() == 1 || axis + 1 < shape.len();
                let (l, comma) = (if long { "L" } else { "" }, if must || comma { "," } else { "" });
                tuple += &[space(), &n.to_string(), l, space(), comma].concat();
            }
            let items = keys.map(|key| {
                let value = match key {
                    "descr" => format!("{quote}{}{quote}", dtype.numpy_str()),
                    "shape" => format!("({tuple}{})", space()),
                    _ => (if fortran { "True" } else { "False" }).to_owned(),
                };
                [space(), &format!("{quote}{key}{quote}"), space(), ":", space(), &value, space()].concat()
            });
            let last = if comma { "," } else { "" };
            let text = [space(), "{", &items.join(","), last, space(), "}", &" ".repeat(padding)].concat();
            let length = u32::try_from(text.len()).unwrap().to_le_bytes();
            let length = &length[..if version == 1 { 2 } else { 4 }];
            let head = [&npy::MAGIC[..], &[version, 0], length, text.as_bytes()].concat();
            // Written again here, not taken from the parser: strides tell whether the order matters.
            let matters = !shape.contains(&0) && shape.iter().filter(|&&n| n > 1).count() > 1;
            let order = if fortran && matters { Order::Fortran } else { Order::C };
            let container = Container::Npy { version };
            (Layout { container, dtype, shape, order, offset: head.len() as u64 }, head)
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn every_way_to_write_a_header_is_read((layout, head) in headers()) {
        let file_len = layout.offset + layout.nbytes();
        prop_assert_eq!(npy::header_len(Path::new("x.npy"), &head[..12], file_len).unwrap() as u64, layout.offset);
        prop_assert_eq!(npy::parse(Path::new("x.npy"), &head, file_len).unwrap(), layout);
    }

    #[test]
    fn arbitrary_bytes_are_refused_quietly(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        property::check(&bytes);
    }

    #[test]
    fn arbitrary_text_is_refused_quietly(text in "[\\[\\](){}'\"\\\\:,a-fx0-9L \n-]{0,100}", version in 1_u8..=3) {
        let length = u32::try_from(text.len()).unwrap().to_le_bytes();
        let length = &length[..if version == 1 { 2 } else { 4 }];
        property::check(&[&npy::MAGIC[..], &[version, 0], length, text.as_bytes()].concat());
    }

    #[test]
    fn one_wrong_byte_never_describes_bytes_outside_the_file(
        (layout, mut bytes) in headers(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let at = at.index(bytes.len());
        bytes[at] = byte;
        bytes.resize(usize::try_from(layout.offset + layout.nbytes()).unwrap(), 0);
        property::check(&bytes);
    }
}
