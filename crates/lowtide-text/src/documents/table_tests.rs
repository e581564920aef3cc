//! Parquet files, whole and damaged, as the parser's own writer makes them.

use super::tests::{kept, reading, texts};
use super::{InputKind, Reading};
use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType};
use parquet::file::properties::WriterProperties;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use std::sync::Arc;

/// A table of one column, seven rows in a group.
fn table(rows: &[Option<&str>]) -> Vec<u8> {
    let schema = parse_message_type("message rows { optional binary text (UTF8); }").unwrap();
    let properties = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default()));
    let mut writer =
        SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties.build())).unwrap();
    for rows in rows.chunks(7) {
        let mut group = writer.next_row_group().unwrap();
        let mut column = group.next_column().unwrap().unwrap();
        let values: Vec<ByteArray> = rows.iter().flatten().map(|&text| text.into()).collect();
        let levels: Vec<i16> = rows.iter().map(|row| i16::from(row.is_some())).collect();
        column.typed::<ByteArrayType>().write_batch(&values, Some(&levels), None).unwrap();
        column.close().unwrap();
        group.close().unwrap();
    }
    writer.into_inner().unwrap()
}

fn rows() -> Vec<Option<String>> {
    (0..40).map(|n| (n % 5 != 3).then(|| format!("row {n} ").repeat(n % 4 * 50))).collect()
}

fn bytes() -> Vec<u8> {
    let rows = rows();
    table(&rows.iter().map(Option::as_deref).collect::<Vec<_>>())
}

#[test]
fn rows_are_documents_and_what_is_null_is_empty() {
    let expected: Vec<String> = rows().into_iter().map(Option::unwrap_or_default).collect();
    assert_eq!(texts(&kept("rows.parquet", &bytes(), &reading(None))), expected);
    let other = Reading { field: vec!["body".into()], ..reading(None) };
    let found = kept("rows.parquet", &bytes(), &other);
    assert!(found.documents[0].as_ref().unwrap_err().contains("the columns text"));
}

#[test]
fn a_page_that_does_not_fit_is_refused_by_its_header() {
    let large = "x".repeat(600 << 10);
    let file = table(&[Some("small"), Some(&large)]);
    let small = Reading { page: 512 << 10, ..reading(None) };
    let said = kept("rows.parquet", &file, &small).documents[0].clone().unwrap_err();
    assert!(said.contains("a page of 1 MiB, and the budget has room for 0"), "{said}");
    assert!(said.contains("a larger budget= reads it"), "{said}");
    assert_eq!(texts(&kept("rows.parquet", &file, &reading(None))), ["small", &large]);
}

/// Any byte may be any other: documents or an error, and neither a panic that gets out nor memory by what a byte says.
#[test]
fn damaged_tables_are_errors() {
    let good = bytes();
    let (mut seed, mut errors) = (1_u64, 0);
    let mut luck = |below: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    for round in 0..500 {
        let mut bad = good.clone();
        for _ in 0..=luck(3) {
            // Half of them in the description at the end, where sizes are.
            let from = if round % 2 == 0 { good.len() - 400 } else { 4 };
            let at = from + luck(good.len() - from - 8);
            bad[at] = if luck(2) == 0 { 0xff } else { luck(256).to_le_bytes()[0] };
        }
        let found = kept("rows.parquet", &bad, &reading(Some(InputKind::Parquet)));
        errors += usize::from(found.documents.iter().any(Result::is_err));
    }
    assert!(errors > 100, "{errors}");
}
