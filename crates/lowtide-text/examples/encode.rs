//! Drives a tokenizer from another program, such as the tests against Python's tiktoken.
//!
//! `encode NAME` reads texts from standard input, each after its length (u32, little-endian), and answers each with
//! the number of its ids and the ids (u32, little-endian). `encode NAME --ranks` prints the words instead, one in a
//! line, in base64 and with its id: the format of tiktoken's files. `encode NAME --about` prints what it is.
//! `encode NAME --time FILE` encodes the texts of a file, each ended by a NUL, whenever a line comes in, and prints the
//! seconds and the number of ids.

use lowtide_text::tokenizer::{Encoding, Tokenizer, named};
use std::error::Error;
use std::io::{BufWriter, Read, Write};
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, rest @ ..] = &arguments[..] else {
        return Err("usage: encode NAME [--ranks | --about | --time FILE]".into());
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    match rest.first().map(String::as_str) {
        Some("--ranks") => {
            let encoding = Encoding::named(name).ok_or("an encoding of the package")?;
            for (id, word) in encoding.words() {
                writeln!(out, "{} {id}", base64(word))?;
            }
        }
        Some("--about") => {
            let it = named(name)?;
            writeln!(
                out,
                "{} {} {:?} {:?}",
                it.fingerprint(),
                it.vocabulary(),
                it.end_of_text(),
                it.memory()
            )?;
        }
        Some("--time") => {
            let text = std::fs::read_to_string(rest.get(1).ok_or("--time FILE")?)?;
            time(&*named(name)?, &text, &mut out)?;
        }
        _ => answer(&*named(name)?, &mut out)?,
    }
    Ok(out.flush()?)
}

fn time(tokenizer: &dyn Tokenizer, texts: &str, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut ids = Vec::new();
    for _ in std::io::stdin().lines() {
        let start = Instant::now();
        let mut count = 0;
        for text in texts.split('\0') {
            ids.clear();
            tokenizer.encode(text, &mut ids)?;
            count += ids.len();
        }
        writeln!(out, "{} {count}", start.elapsed().as_secs_f64())?;
        out.flush()?;
    }
    Ok(())
}

fn answer(tokenizer: &dyn Tokenizer, out: &mut impl Write) -> Result<(), Box<dyn Error>> {
    let mut input = std::io::stdin().lock();
    let mut length = [0; 4];
    let mut ids = Vec::new();
    while input.read_exact(&mut length).is_ok() {
        let mut text = vec![0; u32::from_le_bytes(length) as usize];
        input.read_exact(&mut text)?;
        ids.clear();
        tokenizer.encode(std::str::from_utf8(&text)?, &mut ids)?;
        out.write_all(&u32::try_from(ids.len())?.to_le_bytes())?;
        for id in &ids {
            out.write_all(&id.to_le_bytes())?;
        }
        out.flush()?;
    }
    Ok(())
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let all =
            three.iter().fold(0usize, |all, &byte| all << 8 | usize::from(byte)) << (8 * (3 - three.len()));
        for place in 0..4 {
            let digit = char::from(DIGITS[all >> (18 - 6 * place) & 63]);
            text.push(if place > three.len() { '=' } else { digit });
        }
    }
    text
}
