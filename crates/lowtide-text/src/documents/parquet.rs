//! Parquet: a document is a row of a column of text. Read without Arrow, a few rows at a time.

use super::guarded::Guarded;
use super::{Reading, Sink, pieces, skip};
use crate::says::{BUDGET, FIELD};
use lowtide::door::Words;
use lowtide::{Error, Result};
use parquet::column::reader::ColumnReader;
use parquet::data_type::ByteArray;
use parquet::file::reader::{FileReader, SerializedFileReader};
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::Ordering;

/// Rows that are decoded at once: their text stays in the pages that it was read from.
const ROWS: usize = 64;

pub fn read(path: &Path, file: &File, how: &Reading, sink: &mut dyn Sink) -> Result<()> {
    let mut stopped = None;
    // The parser is not ours, and the file may be hostile: a panic in it is the file's fault.
    let answer = catch_unwind(AssertUnwindSafe(|| rows(path, file, how, sink, &mut stopped)));
    if let Some(error) = stopped {
        return Err(error);
    }
    let said = match answer {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(said)) => said,
        Err(_) => "something that its reader does not understand".to_owned(),
    };
    sink.bad(Error::Format {
        path: path.to_owned(),
        offset: 0,
        expected: format!("a Parquet file with a column of text, {:?}", how.field.join(".")),
        hint: if said.contains("the budget has room") {
            Words::from("a larger ") + BUDGET + " reads it"
        } else {
            Words::from("is the file whole, and ") + FIELD + " the column with the text? " + skip()
        },
        found: said,
    })
}

/// Pushes all rows; what the sink says goes to `stopped`.
fn rows(
    path: &Path,
    file: &File,
    how: &Reading,
    sink: &mut dyn Sink,
    stopped: &mut Option<Error>,
) -> Result<(), String> {
    let file = file.try_clone().map_err(|error| error.to_string())?;
    let guarded = Guarded::new(file, how.page);
    let pages = guarded.pages();
    let reader = SerializedFileReader::new(guarded).map_err(|error| error.to_string())?;
    pages.store(true, Ordering::Relaxed);
    let schema = reader.metadata().file_metadata().schema_descr_ptr();
    let columns: Vec<_> = schema.columns().iter().map(|column| column.path().string()).collect();
    let wanted = how.field.join(".");
    let Some(column) = columns.iter().position(|name| *name == wanted) else {
        return Err(format!("the columns {}", columns.join(", ")));
    };
    let kind = schema.column(column);
    if kind.max_rep_level() > 0 {
        return Err(format!("a list in {wanted:?}"));
    }
    let (mut values, mut levels) = (Vec::<ByteArray>::new(), Vec::<i16>::new());
    let mut number = 0_u64;
    for group in 0..reader.num_row_groups() {
        let group = reader.get_row_group(group).map_err(|error| error.to_string())?;
        let reader = group.get_column_reader(column).map_err(|error| error.to_string())?;
        let ColumnReader::ByteArrayColumnReader(mut reader) = reader else {
            return Err(format!("another type than text in {wanted:?}"));
        };
        loop {
            values.clear();
            levels.clear();
            let read = reader.read_records(ROWS, Some(&mut levels), None, &mut values);
            let (records, _, _) = read.map_err(|error| error.to_string())?;
            if records == 0 {
                break;
            }
            let mut values = values.iter();
            for row in 0..records {
                // Without levels every row has a value; a row below the highest level has none.
                let value = match levels.get(row) {
                    Some(&level) if level < kind.max_def_level() => None,
                    _ => values.next(),
                };
                number += 1;
                if let Err(error) = document(path, number, value, sink) {
                    *stopped = Some(error);
                    return Ok(());
                }
            }
        }
        how.gauge.add(u64::try_from(group.metadata().compressed_size()).unwrap_or(0));
    }
    Ok(())
}

fn document(path: &Path, row: u64, value: Option<&ByteArray>, sink: &mut dyn Sink) -> Result<()> {
    let bytes = value.map_or(&[][..], ByteArray::data);
    match std::str::from_utf8(bytes) {
        Ok(text) => {
            pieces(text).try_for_each(|piece| sink.push(piece))?;
            sink.end(None)
        }
        Err(error) => {
            let at = error.valid_up_to();
            sink.bad(Error::Format {
                path: path.to_owned(),
                offset: at as u64,
                expected: "text in UTF-8".into(),
                found: format!("the byte {:#04x} (row {row})", bytes[at]),
                hint: skip(),
            })
        }
    }
}
