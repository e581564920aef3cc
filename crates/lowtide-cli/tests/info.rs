//! `lowtide info` on small files of every kind: what it says, and what it says where it cannot tell.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output};

fn info(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_lowtide"))
        .current_dir(folder)
        .arg("info")
        .args(arguments)
        .output()
        .unwrap()
}

/// The answer about one path, as a JSON parser that is not ours reads it.
fn json(folder: &Path, arguments: &[&str]) -> Value {
    let output = info(folder, &[arguments, &["--json"]].concat());
    let text = String::from_utf8_lossy(&output.stdout);
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    answer.as_array().unwrap()[0].clone()
}

/// What is said on stdout, without what depends on the machine.
fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = info(folder, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap().replace(&folder.display().to_string(), "FOLDER");
    let machine = ["memory", "room", "budget", "windows", "chunks", "shuffled", "sequential", "here"];
    let of_machine = |line: &&str| !machine.contains(&line.split_whitespace().next().unwrap_or_default());
    text.lines().filter(of_machine).fold(String::new(), |text, line| text + line + "\n")
}

/// What is said on stderr where it fails.
fn error(folder: &Path, arguments: &[&str], code: i32) -> String {
    let output = info(folder, arguments);
    let text = String::from_utf8(output.stderr).unwrap().replace(&folder.display().to_string(), "FOLDER");
    assert_eq!(output.status.code(), Some(code), "{text}");
    text
}

fn bytes<const N: usize>(numbers: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
    numbers.into_iter().flatten().collect()
}

/// 1,000 tokens of a vocabulary of 50,000.
fn tokens() -> impl Iterator<Item = u32> {
    (0..1000_u32).map(|i| i * 7_919 % 50_000)
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{header:117}\n");
    [b"\x93NUMPY\x01\x00", &u16::try_from(header.len()).unwrap().to_le_bytes()[..], header.as_bytes(), data]
        .concat()
}

/// One file or more of each kind.
fn files() -> tempfile::TempDir {
    let temporary = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = temporary.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let short = bytes(tokens().map(|token| u16::try_from(token).unwrap().to_le_bytes()));
    let long = bytes(tokens().map(u32::to_le_bytes));
    write("train.bin", &short);
    write("wide.bin", &long);
    write("olmo.npy", &short);
    write("numbers", &short);
    let header = [20_240_801, 7, 1000].into_iter().chain([0; 253]).map(i32::to_le_bytes);
    let llmc = [bytes(header), long.clone()].concat();
    for shard in ["shards/a_000.bin", "shards/a_001.bin", "shards/a_002.bin", "llama"] {
        write(shard, &llmc);
    }
    write("megatron.bin", &short);
    let head =
        [b"MMIDIDX\0\0", &1_u64.to_le_bytes()[..], &[8], &2_u64.to_le_bytes(), &3_u64.to_le_bytes()].concat();
    let (lengths, pointers) = ([400_i32, 600].map(i32::to_le_bytes), [0_i64, 800].map(i64::to_le_bytes));
    let documents = [0_i64, 1, 2].map(i64::to_le_bytes);
    write("megatron.idx", &[head, bytes(lengths), bytes(pointers), bytes(documents)].concat());
    write("trove.ds", &short);
    write("trove.ds.index", &bytes([100_u64, 300, 1000].map(u64::to_le_bytes)));
    write("tokens.npy", &npy("{'descr': '<u2', 'fortran_order': False, 'shape': (1000,), }", &short));
    write("rows.npy", &npy("{'descr': '<u2', 'fortran_order': False, 'shape': (10, 100), }", &short));
    write("floats.npy", &npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000,), }", &long));
    write("odd.bin", &short[..999]);
    std::fs::create_dir(temporary.path().join("empty")).unwrap();
    temporary
}

#[test]
fn tokens_are_described() {
    let files = files();
    let folder = files.path();
    assert_eq!(
        text(folder, &["train.bin"]),
        "FOLDER/train.bin\n  \
           format      nanogpt: bare tokens in a .bin\n  \
           dtype       uint16\n  \
           tokens      1,000\n  \
           documents   unknown: no index; --end-of-text finds them by reading all tokens\n  \
           files       1\n  \
           size        1.95 KiB\n"
    );
    assert_eq!(
        text(folder, &["shards"]),
        "FOLDER/shards\n  \
           format      llmc: llm.c's header, then tokens\n  \
           dtype       uint32\n  \
           tokens      3,000\n  \
           documents   unknown: no index; --end-of-text finds them by reading all tokens\n  \
           files       3, a_000.bin to a_002.bin\n  \
           size        11.7 KiB\n"
    );
    assert_eq!(
        text(folder, &["megatron"]),
        "FOLDER/megatron\n  \
           format      megatron: Megatron's .bin with its .idx\n  \
           dtype       uint16\n  \
           tokens      1,000\n  \
           documents   2, by the index\n  \
           files       1\n  \
           size        1.95 KiB\n"
    );
    let warned = text(folder, &["wide.bin"]).replace("\n      ", " "); // where a note breaks depends on the path
    assert!(
        warned.ends_with(
            "note: FOLDER/wide.bin: read as uint16, but a sample looks like uint32: say --dtype uint32, or --dtype \
             uint16 if it is that\n"
        ),
        "{warned}"
    );
}

#[test]
fn arrays_are_described_and_those_that_could_be_tokens_say_so() {
    let files = files();
    let folder = files.path();
    assert_eq!(
        text(folder, &["tokens.npy"]),
        "FOLDER/tokens.npy\n  \
           format    npy (version 1)\n  \
           dtype     uint16\n  \
           shape     (1000,), C order\n  \
           rows      1,000 of 2 B\n  \
           size      1.95 KiB from byte 128\n  \
           tokens    lowtide.tokens reads it too: integers of one axis\n"
    );
    for other in ["rows.npy", "floats.npy"] {
        assert!(!text(folder, &[other]).contains("tokens "), "{other}");
        assert_eq!(json(folder, &[other])["can_be_tokens"], false);
    }
}

#[test]
fn what_each_path_is() {
    let files = files();
    for (arguments, kind, format, dtype, count) in [
        (&["train.bin"][..], "tokens", "nanogpt", "uint16", 1000),
        (&["wide.bin"], "tokens", "nanogpt", "uint16", 2000),
        (&["wide.bin", "--dtype", "uint32"], "tokens", "nanogpt", "uint32", 1000),
        (&["wide.bin", "--dtype", "uint32", "--format", "raw"], "tokens", "raw", "uint32", 1000),
        (&["shards/*.bin"], "tokens", "llmc", "uint32", 3000),
        (&["llama"], "tokens", "llmc", "uint32", 1000),
        (&["megatron.idx"], "tokens", "megatron", "uint16", 1000),
        (&["megatron.bin"], "tokens", "megatron", "uint16", 1000),
        (&["trove.ds"], "tokens", "datatrove", "uint16", 1000),
        (&["olmo.npy", "--dtype", "uint16"], "tokens", "olmo", "uint16", 1000),
        (&["tokens.npy", "--format", "npy"], "tokens", "npy", "uint16", 1000),
        (&["tokens.npy"], "array", "npy (version 1)", "uint16", 1000),
        (&["rows.npy"], "array", "npy (version 1)", "uint16", 10),
        (&["wide.bin", "--dtype", "float32"], "array", "raw", "float32", 1000),
        (&["wide.bin", "--dtype", "uint32", "--shape", "-1,10"], "array", "raw", "uint32", 100),
        (&["wide.bin", "--dtype", "uint32", "--offset", "400"], "array", "raw", "uint32", 900),
        (&["numbers", "--dtype", "uint16"], "array", "raw", "uint16", 1000),
    ] {
        let answer = json(files.path(), arguments);
        let counted = if kind == "tokens" { &answer["tokens"] } else { &answer["rows"] };
        let found =
            [&answer["kind"], &answer["format"], &answer["dtype"]].map(|value| value.as_str().unwrap());
        assert_eq!((found, counted.as_u64()), ([kind, format, dtype], Some(count)), "{arguments:?}");
    }
}

#[test]
fn programs_are_told_everything() {
    let files = files();
    let answer = json(files.path(), &["megatron"]);
    assert_eq!(answer["documents"], 2);
    assert_eq!(answer["documents_unknown"], Value::Null);
    assert_eq!((answer["files"].as_u64(), answer["bytes"].as_u64()), (Some(1), Some(2000)));
    assert_eq!(answer["numpy_dtype"], "<u2");
    // Just written by us, so that it is known and there.
    assert!(answer["cached_bytes"].as_u64().unwrap() >= 2000, "{answer}");
    for order in ["windows", "shuffled", "sequential"] {
        let way = answer["access"][order]["access"].as_str().unwrap();
        assert!(["map", "remap", "advise", "read", "direct"].contains(&way));
        assert!(!answer["access"][order]["why"].as_str().unwrap().is_empty());
    }
    let here = answer["here"].as_object().unwrap();
    for key in ["kernel", "filesystem", "io_uring", "direct_alignment", "dontcache", "cachestat"] {
        assert!(here.contains_key(key), "{key}");
    }
    let warned = json(files.path(), &["wide.bin"]);
    assert_eq!(warned["warnings"].as_array().unwrap().len(), 1);
    assert_eq!(warned["documents"], Value::Null);
    assert!(warned["documents_unknown"].is_string());
}

#[test]
fn the_machine_is_described_in_one_line() {
    let files = files();
    for path in ["train.bin", "rows.npy"] {
        let output = String::from_utf8(info(files.path(), &[path]).stdout).unwrap();
        let line = output.lines().find(|line| line.trim_start().starts_with("here ")).unwrap();
        for word in ["Linux ", "io_uring", "O_DIRECT", "RWF_DONTCACHE", "cachestat"] {
            assert!(line.contains(word), "{line}");
        }
    }
}

#[test]
fn a_file_of_nothing_has_no_windows() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("none.bin"), "").unwrap();
    let answer = json(folder.path(), &["none.bin"]);
    assert_eq!(answer["tokens"], 0);
    assert_eq!(answer["access"].as_object().unwrap().len(), 1, "{answer}");
}

#[test]
fn errors_say_what_to_do_in_the_words_of_the_command() {
    let files = files();
    let folder = files.path();
    for (arguments, code, says) in [
        (
            &["nothing.bin"][..],
            1,
            "error: FOLDER/nothing.bin: cannot open the file: No such file or directory (os error 2)\n",
        ),
        (
            &["empty"],
            1,
            "error: FOLDER/empty: no token files in this folder\n\
             hint: they end in .bin or .npy or .ds; a glob finds others\n",
        ),
        (&["*.tokens"], 1, "error: FOLDER/*.tokens: no file matches\n"),
        (
            &["odd.bin"],
            1,
            "error: FOLDER/odd.bin: at byte 998: expected whole tokens of uint16, 2 bytes each, found a file of \
             999 bytes\nhint: is uint16 right? or an interrupted copy or download?\n",
        ),
        (
            &["olmo.npy"],
            1,
            "error: FOLDER/olmo.npy: at byte 0: expected a .npy header, found bytes 00 00 ef 1e de 3d cd 5c\n\
             hint: a file without a header needs --dtype (and --shape, --offset), as for np.memmap\n",
        ),
        (
            &["train.bin", "--format", "raw"],
            1,
            "error: --format raw has no header and needs --dtype\n\
             hint: such as --dtype uint16\n",
        ),
        (
            &["train.bin", "--dtype", "uint17"],
            2,
            "error: invalid value 'uint17' for '--dtype <DTYPE>': \"uint17\" is not a dtype\nhint: supported: bool, int8, int16, int32, int64, uint8, uint16, \
             uint32, uint64, float16, float32, float64, bfloat16, complex64, complex128\n\n\
             For more information, try '--help'.\n",
        ),
    ] {
        assert_eq!(error(folder, arguments, code), says);
    }
    assert!(
        error(folder, &["train.bin", "--format", "gpt"], 2)
            .contains("possible values: nanogpt, llmc, megatron")
    );
    assert!(
        error(folder, &["train.bin", "--format", "raw", "--shape", "3"], 2).contains("cannot be used with")
    );
    // The others are shown all the same, and JSON has the error too.
    let output = info(folder, &["nothing.bin", "train.bin", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(answer[0]["error"].as_str().unwrap().contains("cannot open the file"));
    assert_eq!(answer[1]["tokens"], 1000);
}
