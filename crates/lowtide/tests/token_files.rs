//! Token files against the peers' own files and answers, and what a user can name.

use lowtide::format::{ByteOrder, Dialect, Dtype, Kind};
use lowtide::shards::{Documents, Found, TokenFile, TokenWish, find_tokens};
use std::ops::Range;
use std::path::{Path, PathBuf};

const ANY: TokenWish = TokenWish { dtype: None, dialect: None, storage: None };

fn dtype(text: &str) -> TokenWish {
    TokenWish { dtype: Some(text.parse().unwrap()), ..ANY }
}

fn dialect(dialect: Dialect) -> TokenWish {
    TokenWish { dialect: Some(dialect), ..ANY }
}

fn find(name: impl Into<PathBuf>, wish: &TokenWish) -> lowtide::Result<Found> {
    find_tokens(&[name.into()], wish)
}

/// The message of an error, without the folder that differs from run to run.
fn says(folder: &Path, name: &str, wish: &TokenWish) -> String {
    let error = find(folder.join(name), wish).unwrap_err().to_string();
    error.replace(&format!("{}/", folder.display()), "").replace(&folder.display().to_string(), "FOLDER")
}

/// The tokens of a file as its description says, read here once more and independently.
fn tokens(file: &TokenFile) -> Vec<i128> {
    let bytes = std::fs::read(&file.path).unwrap();
    assert_eq!(bytes.len() as u64, file.len);
    let width = file.dtype.itemsize();
    let start = usize::try_from(file.offset).unwrap();
    let bytes = &bytes[start..start + usize::try_from(file.tokens).unwrap() * width];
    let signed = matches!(file.dtype.kind(), Kind::Int8 | Kind::Int16 | Kind::Int32 | Kind::Int64);
    let number = |token: &[u8]| {
        let mut token = token.to_vec();
        if file.dtype.byte_order() == ByteOrder::Big {
            token.reverse();
        }
        let sign = if signed && token[width - 1] >= 0x80 { 0xff } else { 0 };
        token.resize(16, sign);
        i128::from_le_bytes(token.try_into().unwrap())
    };
    bytes.chunks_exact(width).map(number).collect()
}

/// `valid/tokens.txt` was written by the peers, beside the files.
#[test]
fn files_by_the_peers_are_read_as_the_peers_read_them() {
    let valid = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/valid");
    let answers = std::fs::read_to_string(valid.join("tokens.txt")).unwrap();
    for answer in answers.lines().skip(1) {
        let [name, kind, dtype, documents] = answer.split('\t').collect::<Vec<_>>()[..] else {
            panic!("{answer}")
        };
        let found = find(valid.join("tokens").join(name), &ANY).unwrap();
        assert_eq!(found.warnings, [], "{name}");
        let [file] = &found.files[..] else { panic!("{found:?}") };
        assert_eq!((file.dialect.name(), file.dtype.numpy_str().as_str()), (kind, dtype), "{name}");
        let expected: Vec<Vec<i128>> = documents.split_terminator(' ').map(numbers).collect();
        let tokens = tokens(file);
        assert_eq!(tokens, expected.concat(), "{name}");
        let documents = Documents::from_index(&found.files).unwrap();
        assert_eq!(documents.is_some(), file.index.is_some(), "{name}");
        if let Some(documents) = documents {
            let found: Vec<_> =
                (0..documents.len()).map(|i| &tokens[range(&documents, i).unwrap()]).collect();
            assert_eq!(found, expected, "{name}");
        }
    }
}

/// An index is enough: nothing is read of the tokens.
fn range(documents: &Documents, i: u64) -> lowtide::Result<Range<usize>> {
    let found = documents.range(i, &|_, _| panic!("the tokens were read"))?;
    Ok(usize::try_from(found.start).unwrap()..usize::try_from(found.end).unwrap())
}

#[test]
fn documents_of_many_shards_follow_each_other() {
    let dir = folder(&[]);
    // More than are kept open, some without documents, and one of datatrove's at the end.
    let (mut expected, mut at) = (Vec::new(), 0);
    for i in 0..30_i32 {
        let lengths: Vec<i32> = (0..i % 4).map(|n| (i + n) % 3).collect();
        let count = usize::try_from(lengths.iter().sum::<i32>()).unwrap();
        std::fs::write(dir.path().join(format!("{i:02}.idx")), megatron_index(&lengths)).unwrap();
        std::fs::write(dir.path().join(format!("{i:02}.bin")), u16s(&vec![1; count])).unwrap();
        for length in lengths {
            let length = usize::try_from(length).unwrap();
            expected.push(at..at + length);
            at += length;
        }
    }
    std::fs::write(dir.path().join("last.ds"), u16s(&[1, 2, 3])).unwrap();
    std::fs::write(dir.path().join("last.ds.index"), [1_u64, 3].map(u64::to_le_bytes).concat()).unwrap();
    expected.extend([at..at + 1, at + 1..at + 3]);
    let names = [dir.path().join("*.bin"), dir.path().join("last.ds")];
    let files = find_tokens(&names, &ANY).unwrap().files;
    let documents = Documents::from_index(&files).unwrap().unwrap();
    assert_eq!(documents.len(), expected.len() as u64);
    for i in (0..expected.len()).chain((0..expected.len()).rev()) {
        assert_eq!(range(&documents, i as u64).unwrap(), expected[i]);
    }
    assert!(matches!(range(&documents, documents.len()), Err(lowtide::Error::Index { .. })));
    let saved = documents.save(&files).unwrap_err().to_string();
    assert_eq!(saved, "these documents have an index already");
    // An index that is written again, and is not open any more, is noticed.
    std::fs::write(dir.path().join("29.idx"), megatron_index(&[1, 1])).unwrap();
    let changed = range(&documents, documents.len() - 3).unwrap_err().to_string();
    assert!(
        changed.contains("29.idx: at byte 0: expected an index of 62 bytes, as when it was opened"),
        "{changed}"
    );
}

#[test]
fn documents_need_an_index_beside_every_file_or_beside_none() {
    let dir = folder(&[
        ("a.ds", &u16s(&[1, 2])),
        ("a.ds.index", &2_u64.to_le_bytes()),
        ("b.ds", &u16s(&[3])),
        ("c.ds", b""),
        ("d.bin", &u16s(&[1])),
    ]);
    let files = |names: &[&str]| {
        let names: Vec<PathBuf> = names.iter().map(|name| dir.path().join(name)).collect();
        find_tokens(&names, &dtype("uint16")).unwrap().files
    };
    assert!(Documents::from_index(&files(&["d.bin", "b.ds"])).unwrap().is_none());
    assert_eq!(Documents::from_index(&files(&["a.ds", "c.ds"])).unwrap().unwrap().len(), 1);
    let error = Documents::from_index(&files(&["a.ds", "b.ds"])).unwrap_err().to_string();
    assert!(
        error.contains("a.ds has an index of its documents, ") && error.contains("b.ds has none"),
        "{error}"
    );
    // Megatron's merge once forgot the documents: the tokens are good all the same.
    let mut index = megatron_index(&[2]);
    let end = index.len() - 8;
    index[end..].copy_from_slice(&0_u64.to_le_bytes());
    std::fs::write(dir.path().join("e.idx"), index).unwrap();
    std::fs::write(dir.path().join("e.bin"), u16s(&[5, 6])).unwrap();
    let files = files(&["e"]);
    assert_eq!(files[0].tokens, 2);
    let error = Documents::from_index(&files).unwrap_err().to_string();
    assert!(error.contains("expected documents that end with the last of 1 sequences, found 0"), "{error}");
}

/// One document of `tokens.txt`.
fn numbers(text: &str) -> Vec<i128> {
    text.split(',').filter(|number| *number != "-").map(|number| number.parse().unwrap()).collect()
}

fn u16s(tokens: &[u16]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}

fn llmc(tokens: &[u16]) -> Vec<u8> {
    let mut file = [20_240_520, 1, i32::try_from(tokens.len()).unwrap()].map(i32::to_le_bytes).concat();
    file.resize(1024, 0);
    file.extend(u16s(tokens));
    file
}

/// One document for each sequence.
fn megatron_index(lengths: &[i32]) -> Vec<u8> {
    let count = lengths.len() as u64;
    let ends = lengths.iter().scan(0, |at, n| Some(std::mem::replace(at, *at + 2 * i64::from(*n))));
    let mut file = b"MMIDIDX\0\0\x01\0\0\0\0\0\0\0\x08".to_vec();
    file.extend([count, count + 1].map(u64::to_le_bytes).concat());
    file.extend(lengths.iter().flat_map(|n| n.to_le_bytes()));
    file.extend(ends.flat_map(i64::to_le_bytes));
    file.extend((0..=count).flat_map(u64::to_le_bytes));
    file
}

/// A folder of files with these contents.
fn folder(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in files {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    folder
}

/// What was found: names and tokens.
fn listed(found: &Found) -> Vec<(String, u64)> {
    let name = |file: &TokenFile| file.path.file_name().unwrap().to_str().unwrap().to_owned();
    found.files.iter().map(|file| (name(file), file.tokens)).collect()
}

fn names(found: &Found) -> Vec<String> {
    listed(found).into_iter().map(|(name, _)| name).collect()
}

#[test]
fn a_folder_gives_its_token_files_in_the_order_of_bytes() {
    let files = ["b.bin", "a10.bin", "a2.bin", "a.bin", "Z.bin", "\u{e9}.bin"];
    let beside =
        ["meta.pkl", "x.txt", "x.json", "x.csv.gz", ".hidden.bin", "x.bin.tmp", "prepare.py", "README"];
    let dir = folder(&[]);
    for name in files.iter().chain(&beside) {
        std::fs::write(dir.path().join(name), u16s(&[1, 2])).unwrap();
    }
    std::fs::create_dir(dir.path().join("inside.bin")).unwrap();
    let found = find(dir.path(), &ANY).unwrap();
    assert_eq!(names(&found), ["Z.bin", "a.bin", "a10.bin", "a2.bin", "b.bin", "\u{e9}.bin"]);
    assert!(found.files.iter().all(|file| file.dialect == Dialect::NanoGpt && file.offset == 0));
    let glob = find(dir.path().join("a*.bin"), &ANY).unwrap();
    assert_eq!(names(&glob), ["a.bin", "a10.bin", "a2.bin"]);
    // A glob may be careless: what lies beside tokens is passed over, hidden files are not matched.
    let all = ["Z.bin", "a.bin", "a10.bin", "a2.bin", "b.bin", "\u{e9}.bin"];
    std::fs::remove_file(dir.path().join("README")).unwrap();
    assert_eq!(names(&find(dir.path().join("*"), &ANY).unwrap()), all);
    // A list keeps its order, and a file named twice is read twice.
    let list = ["b.bin", "a.bin", "b.bin"].map(|name| dir.path().join(name));
    assert_eq!(names(&find_tokens(&list, &ANY).unwrap()), ["b.bin", "a.bin", "b.bin"]);
    // A link in a folder is followed, as in a download cache.
    std::os::unix::fs::symlink(dir.path().join("b.bin"), dir.path().join("c.bin")).unwrap();
    assert_eq!(find(dir.path(), &ANY).unwrap().files.len(), 7);
    std::os::unix::fs::symlink(dir.path().join("gone"), dir.path().join("d.bin")).unwrap();
    assert!(says(dir.path(), "", &ANY).contains("d.bin: cannot open the file"));
}

#[test]
fn names_that_lead_nowhere_are_errors_that_say_so() {
    let dir = folder(&[("train.bin", &u16s(&[1])), ("x.txt", b"x"), ("odd[1].bin", &u16s(&[7, 8]))]);
    std::fs::create_dir(dir.path().join("inside")).unwrap();
    for (name, message) in [
        ("nothing.bin", "nothing.bin: cannot open the file: No such file or directory (os error 2)"),
        (
            "train",
            "train: cannot open the file: No such file or directory (os error 2)\nhint: there is train.bin",
        ),
        ("*.npy", "*.npy: no file matches"),
        ("*.txt", "*.txt: no token files among what matches, such as x.txt"),
        ("[", "[: not a glob: invalid range pattern"),
        (
            "inside",
            "inside: no token files in this folder\nhint: they end in .bin or .npy or .ds; a glob finds others",
        ),
    ] {
        assert_eq!(says(dir.path(), name, &ANY), message);
    }
    assert_eq!(
        says(dir.path(), "", &dialect(Dialect::Datatrove)),
        "FOLDER/: no token files in this folder\n\
         hint: they end in .ds, and folders inside it are not searched; a glob finds others"
            .replace("FOLDER/", "")
    );
    let none = find_tokens(&[], &ANY).unwrap_err().to_string();
    assert_eq!(none, "no token files are named\nhint: name a file, a folder, a glob or a list");
    // A name that is a file is that file, whatever a glob would make of it.
    assert_eq!(listed(&find(dir.path().join("odd[1].bin"), &ANY).unwrap()), [("odd[1].bin".into(), 2)]);
}

#[test]
fn training_and_validation_files_are_not_one_stream() {
    for (train, held_out) in [
        ("train.bin", "val.bin"),
        ("fineweb_train_000001.bin", "fineweb_val_000000.bin"),
        ("Training-0.bin", "Validation-0.bin"),
    ] {
        let dir = folder(&[(train, &u16s(&[1])), (held_out, &u16s(&[2]))]);
        let said = says(dir.path(), "", &ANY);
        assert!(
            said.contains(&format!("holds {train} and {held_out}, which are not meant as one stream")),
            "{said}"
        );
        assert_eq!(find(dir.path().join("*.bin"), &ANY).unwrap().files.len(), 2, "a glob is meant");
    }
    let dir =
        folder(&[("train_0.bin", &u16s(&[1])), ("trivial_val.txt", b""), ("retraining.bin", &u16s(&[2]))]);
    assert_eq!(find(dir.path(), &ANY).unwrap().files.len(), 2);
}

#[test]
fn one_stream_has_one_type_and_a_folder_one_dialect() {
    let dir = folder(&[("a.bin", &u16s(&[1])), ("b.bin", &llmc(&[2, 3])), ("c.npy", &[0; 12])]);
    let path = |name: &str| dir.path().join(name);
    assert_eq!(
        says(dir.path(), "*.bin", &ANY),
        "one stream of two dialects: a.bin is nanogpt, b.bin is llmc\n\
         hint: name the files that belong together, or say format= or dtype= for all of them"
    );
    assert!(says(dir.path(), "", &dtype("uint16")).contains("a.bin is nanogpt, b.bin is llmc"));
    // By name, dialects may follow each other; types may not.
    let both = find_tokens(&[path("b.bin"), path("a.bin")], &ANY).unwrap();
    assert_eq!(listed(&both), [("b.bin".into(), 2), ("a.bin".into(), 1)]);
    std::fs::write(path("d.bin"), [20_240_801, 7, 0].map(i32::to_le_bytes).concat()).unwrap();
    std::fs::File::options().append(true).open(path("d.bin")).unwrap().set_len(1024).unwrap();
    let mixed = find_tokens(&[path("a.bin"), path("b.bin"), path("d.bin")], &ANY).unwrap_err().to_string();
    assert!(mixed.contains("one stream of two types: ") && mixed.contains("d.bin is uint32"), "{mixed}");
}

#[test]
fn megatron_goes_by_prefix_data_or_index_and_is_found_once() {
    let (index, data) = (megatron_index(&[3, 2]), u16s(&[1, 2, 3, 4, 5]));
    let dir = folder(&[("x.idx", &index), ("x.bin", &data), ("y.idx", &index), ("y.bin", &data)]);
    let path = |name: &str| dir.path().join(name);
    for name in ["x", "x.bin", "x.idx"] {
        let found = find(path(name), &ANY).unwrap();
        assert_eq!(
            found.files,
            [TokenFile {
                path: path("x.bin"),
                index: Some(path("x.idx")),
                dialect: Dialect::Megatron,
                dtype: Dtype::new(Kind::UInt16, ByteOrder::Little),
                offset: 0,
                tokens: 5,
                len: 10,
            }]
        );
    }
    for name in ["", "*", "*.bin", "*.idx", "[xy].*"] {
        assert_eq!(names(&find(path(name), &ANY).unwrap()), ["x.bin", "y.bin"], "{name}");
    }
    let expanded = ["x.bin", "x.idx", "y.bin", "y.idx"].map(path);
    assert_eq!(names(&find_tokens(&expanded, &ANY).unwrap()), ["x.bin", "y.bin"]);
    // Named as raw, the index is left alone.
    let raw = find(path("x.bin"), &dialect(Dialect::NanoGpt)).unwrap();
    assert_eq!((raw.files[0].dialect, raw.files[0].index.as_ref()), (Dialect::NanoGpt, None));
    assert_eq!(
        says(dir.path(), "x.bin", &dtype("int32")),
        "x.idx: the file says uint16, dtype= says int32\n\
         hint: leave dtype= out; format=\"raw\" reads the bytes as any type"
    );
    assert!(says(dir.path(), "x.idx", &dialect(Dialect::NanoGpt)).contains("an index holds no tokens"));
    // A folder of the prefix's own name.
    std::fs::create_dir(path("x")).unwrap();
    assert!(says(dir.path(), "x", &ANY).contains("this is a folder, and x.idx makes it a prefix"));
    assert!(says(dir.path(), "x/", &ANY).contains("no token files in this folder"));
    // More data than the index covers is said, and read.
    std::fs::write(path("y.bin"), u16s(&[1, 2, 3, 4, 5, 6])).unwrap();
    let found = find(path("y"), &ANY).unwrap();
    assert_eq!(found.files[0].tokens, 6);
    assert!(
        found.warnings[0]
            .to_string()
            .ends_with("y.bin: the index ends at byte 10 of 12; the rest is in no document")
    );
    // An index whose data is gone: an error by name, a warning in a folder.
    std::fs::remove_file(path("y.bin")).unwrap();
    assert!(says(dir.path(), "y", &ANY).contains("y.bin: cannot open the file"));
    let found = find(dir.path(), &ANY).unwrap();
    assert!(
        found.warnings[0].to_string().ends_with("y.idx: there is no .bin beside it"),
        "{:?}",
        found.warnings
    );
    // Somebody else's .idx beside raw tokens: refused as ambiguous, unless the user says what it is.
    std::fs::write(path("x.idx"), b"something else").unwrap();
    assert!(says(dir.path(), "x.bin", &ANY).contains("\"nanogpt\" with an .idx of something else"));
    for wish in [dtype("uint16"), dialect(Dialect::NanoGpt)] {
        assert_eq!(find(path("x.bin"), &wish).unwrap().files[0].dialect, Dialect::NanoGpt);
    }
}

#[test]
fn headerless_files_are_uint16_only_if_called_bin_and_wider_ones_are_warned_of() {
    let wide: Vec<u8> = (0..500_u32).flat_map(|i| (i * 7919 % 50_257).to_le_bytes()).collect();
    let dir = folder(&[("a.bin", &wide), ("b.u32", &wide), ("c.npy", &wide), ("empty.bin", b"")]);
    let path = |name: &str| dir.path().join(name);
    let found = find(path("a.bin"), &ANY).unwrap();
    assert_eq!(found.files[0].tokens, 1000);
    assert!(
        found.warnings[0].to_string().ends_with(
            "a.bin: read as uint16, but a sample looks like uint32: say dtype=\"uint32\", or dtype=\"uint16\" \
             if it is that"
        ),
        "{:?}",
        found.warnings
    );
    for (name, kind) in [
        ("a.bin", Dialect::NanoGpt),
        ("b.u32", Dialect::Raw),
        ("c.npy", Dialect::Olmo),
        ("empty.bin", Dialect::NanoGpt),
    ] {
        for (word, width) in [("uint8", 1), ("uint16", 2), (">u2", 2), ("uint32", 4), ("int64", 8)] {
            let found = find(path(name), &dtype(word)).unwrap();
            assert_eq!((found.files[0].dialect, found.files[0].dtype), (kind, word.parse().unwrap()));
            assert_eq!(found.files[0].tokens, if name == "empty.bin" { 0 } else { 2000 / width });
            assert_eq!(found.warnings, []);
        }
    }
    // The empty one comes first: the warning is about the first with tokens.
    let both = find_tokens(&[path("empty.bin"), path("a.bin")], &ANY).unwrap();
    assert_eq!(both.warnings, found.warnings);
    assert_eq!(
        says(dir.path(), "a.bin", &dtype("float32")),
        "dtype=\"float32\" is no type for tokens\n\
         hint: one of uint8, uint16, uint32, uint64, int8, int16, int32, int64"
    );
    assert!(
        says(dir.path(), "a.bin", &dialect(Dialect::Raw))
            .contains("format=\"raw\" has no header and needs dtype=")
    );
}

#[test]
fn a_forced_format_is_kept_to() {
    let npy = include_bytes!("valid/tokens/numpy/little-u2.npy");
    let dir = folder(&[("raw.bin", &u16s(&[5; 600])), ("llmc.bin", &llmc(&[1, 2])), ("x.npy", npy)]);
    for (name, wish, message) in [
        (
            "raw.bin",
            Dialect::LlmC,
            "expected llm.c's header, which begins with 20240520 or 20240801, found 327685",
        ),
        ("raw.bin", Dialect::Npy, "expected a .npy file, which begins with \\x93NUMPY"),
        ("raw.bin", Dialect::Megatron, "raw.idx: cannot open the file"),
        ("raw.bin", Dialect::Datatrove, "found neither beside it"),
        ("x.npy", Dialect::LlmC, "found 1297436307"),
    ] {
        let said = says(dir.path(), name, &dialect(wish));
        assert!(said.contains(message), "{name} {wish}: {said}");
    }
    let olmo = TokenWish { dialect: Some(Dialect::Olmo), ..dtype("uint16") };
    assert!(says(dir.path(), "x.npy", &olmo).contains("found NumPy's header"));
    let raw = TokenWish { dialect: Some(Dialect::Raw), ..dtype("uint16") };
    assert_eq!(
        listed(&find(dir.path().join("x.npy"), &raw).unwrap()),
        [("x.npy".into(), npy.len() as u64 / 2)]
    );
    let found = find(dir.path().join("llmc.bin"), &dialect(Dialect::NanoGpt)).unwrap();
    assert_eq!(listed(&found), [("llmc.bin".into(), 514)]);
    assert!(
        found.warnings[0].to_string().contains("header of format=\"llmc\", which is read as tokens"),
        "{:?}",
        found.warnings
    );
    assert!(
        says(dir.path(), "llmc.bin", &dtype("uint32")).contains("the file says uint16, dtype= says uint32")
    );
    assert_eq!(
        listed(&find(dir.path().join("llmc.bin"), &dtype("uint16")).unwrap()),
        [("llmc.bin".into(), 2)]
    );
}

#[test]
fn files_without_tokens_are_refused_by_name() {
    let dir = folder(&[("a.ds.index", b""), ("a.ds", b"")]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.path().join("pipe.bin"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RWXU,
        0,
    )
    .unwrap();
    assert!(says(dir.path(), "pipe.bin", &ANY).contains("pipe.bin: not a regular file"));
    assert_eq!(
        says(dir.path(), "a.ds.index", &ANY),
        "a.ds.index: datatrove's tokens are not in this file\nhint: name a.ds"
    );
}
