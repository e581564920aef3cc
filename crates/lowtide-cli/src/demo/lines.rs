//! What a training run says of itself: lines of JSON from a program that is not ours, so none of it is believed.
//!
//! In: lines. Out: curves of finite numbers, and text without control characters. A line that makes no sense is
//! counted and passed over.

use serde_json::{Value, json};

/// The most points that a curve keeps.
const POINTS: usize = 100_000;
/// The most letters of a text.
const LETTERS: usize = 4_000;
/// No loss that anybody wants to see is larger.
const LARGEST: f64 = 1e6;

/// A run, as far as it is known.
#[derive(Debug, Default)]
pub struct Run {
    pub parameters: Option<u64>,
    pub tokens: Option<u64>,
    pub vocabulary: Option<u64>,
    pub batch: Option<u64>,
    pub block: Option<u64>,
    pub planned: Option<u64>,
    /// Step and loss.
    pub losses: Vec<(u64, f64)>,
    /// Step and loss on the validation split.
    pub validation: Vec<(u64, f64)>,
    /// The time of all steps, and what of it the loader took.
    pub step_seconds: f64,
    pub loader_seconds: f64,
    /// The most that was seen.
    pub anon: Option<u64>,
    pub file: Option<u64>,
    pub cache: Option<u64>,
    /// How long all of it took, and what the model writes.
    pub seconds: Option<f64>,
    pub sample: Option<String>,
    /// Lines that made no sense.
    pub unreadable: u64,
}

impl Run {
    /// Takes one line.
    pub fn take(&mut self, line: &[u8]) {
        let value = serde_json::from_slice::<Value>(line).ok();
        if value.and_then(|value| self.understand(&value)).is_none() {
            self.unreadable += 1;
        }
    }

    fn understand(&mut self, line: &Value) -> Option<()> {
        let whole = |name: &str| line[name].as_u64();
        let number = |name: &str, most: f64| line[name].as_f64().filter(|n| (0.0..=most).contains(n));
        match line["kind"].as_str()? {
            "start" => {
                (self.parameters, self.tokens, self.vocabulary) =
                    (whole("parameters"), whole("tokens"), whole("vocabulary"));
                (self.batch, self.block, self.planned) = (whole("batch"), whole("block"), whole("steps"));
            }
            "step" => {
                // The loader's share is counted here, not taken from the last line.
                let (step, loader) = (number("step_seconds", 1e6)?, number("loader_seconds", 1e6)?);
                add(&mut self.losses, whole("step")?, number("loss", LARGEST)?)?;
                self.step_seconds += step;
                self.loader_seconds += loader.min(step);
                self.anon = self.anon.max(whole("rss_anon"));
                self.file = self.file.max(whole("rss_file"));
                self.cache = self.cache.max(whole("cache"));
            }
            "eval" => add(&mut self.validation, whole("step")?, number("loss", LARGEST)?)?,
            "end" => {
                self.seconds = number("seconds", 1e6);
                self.sample = line["sample"].as_str().map(|text| clean(text, LETTERS));
            }
            _ => return None,
        }
        Some(())
    }

    /// The loader's part of the time of the steps.
    pub fn loader_share(&self) -> Option<f64> {
        (self.step_seconds > 0.0).then(|| self.loader_seconds / self.step_seconds)
    }

    /// Tokens a second, over all steps.
    pub fn rate(&self) -> Option<f64> {
        let window = self.batch?.checked_mul(self.block?)?;
        (self.step_seconds > 0.0).then(|| self.losses.len() as f64 * window as f64 / self.step_seconds)
    }

    pub fn json(&self) -> Value {
        json!({ "parameters": self.parameters, "tokens": self.tokens, "vocabulary": self.vocabulary,
            "batch_size": self.batch, "block_size": self.block, "planned_steps": self.planned,
            "loss": self.losses, "validation_loss": self.validation, "loader_share": self.loader_share(),
            "tokens_per_second": self.rate(), "seconds": self.seconds, "peak_anon_bytes": self.anon,
            "peak_file_bytes": self.file, "peak_cache_bytes": self.cache, "sample": self.sample,
            "unreadable_lines": self.unreadable })
    }
}

/// Adds a point that comes after all others.
fn add(curve: &mut Vec<(u64, f64)>, step: u64, loss: f64) -> Option<()> {
    let later = curve.last().is_none_or(|&(last, _)| step > last);
    (later && step <= 1 << 40 && curve.len() < POINTS).then(|| curve.push((step, loss)))
}

/// Text without anything that a terminal or a page would obey: no control characters but line feeds and tabs, none
/// that turn the direction of writing.
pub fn clean(text: &str, most: usize) -> String {
    let harmless = |letter: &char| {
        let turns =
            matches!(letter, '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        matches!(letter, '\n' | '\t') || !(letter.is_control() || turns)
    };
    text.chars().filter(harmless).take(most).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(lines: &[&str]) -> Run {
        let mut run = Run::default();
        for line in lines {
            run.take(line.as_bytes());
        }
        run
    }

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let run = taken(&[
            r#"{"kind":"start","parameters":7,"tokens":9,"vocabulary":257,"batch":2,"block":8,"steps":2,"step":0}"#,
            r#"{"kind":"eval","step":0,"loss":5.5}"#,
            r#"{"kind":"step","step":0,"loss":5.25,"rate":0.1,"step_seconds":3.0,"loader_seconds":0.03,
                "tokens_per_second":5,"rss_anon":10,"rss_file":4,"cache":null}"#,
            r#"{"kind":"step","step":1,"loss":5,"rate":0.1,"step_seconds":1.0,"loader_seconds":0.01,
                "tokens_per_second":5,"rss_anon":8,"rss_file":6,"cache":3}"#,
            r#"{"kind":"end","seconds":4.5,"loader_share":0.9,"sample":"def f():\n\treturn","checkpoint":"x"}"#,
        ]);
        assert_eq!(
            (run.losses.as_slice(), run.validation.as_slice()),
            (&[(0, 5.25), (1, 5.0)][..], &[(0, 5.5)][..])
        );
        assert!((run.loader_share().unwrap() - 0.01).abs() < 1e-12, "counted, not believed");
        assert_eq!(run.rate(), Some(8.0), "2 steps of 16 tokens in 4 s");
        assert_eq!((run.anon, run.file, run.cache), (Some(10), Some(6), Some(3)));
        assert_eq!((run.sample.as_deref(), run.unreadable), (Some("def f():\n\treturn"), 0));
    }

    #[test]
    fn nonsense_is_counted_and_leaves_nothing() {
        let nonsense = [
            "",
            "{",
            "null",
            "[1]",
            "\u{0}",
            r#"{"kind":"dance"}"#,
            r#"{"kind":3}"#,
            r#"{"kind":"step","step":0,"loss":NaN,"step_seconds":1,"loader_seconds":0}"#,
            r#"{"kind":"step","step":0,"loss":1e999,"step_seconds":1,"loader_seconds":0}"#,
            r#"{"kind":"step","step":0,"loss":1e300,"step_seconds":1,"loader_seconds":0}"#,
            r#"{"kind":"step","step":-1,"loss":1,"step_seconds":1,"loader_seconds":0}"#,
            r#"{"kind":"step","step":99999999999999999999,"loss":1}"#,
            r#"{"kind":"eval","step":18446744073709551615,"loss":1}"#,
            r#"{"kind":"eval","step":0,"loss":-1}"#,
            r#"{"kind":"eval","step":0,"loss":null}"#,
        ];
        let run = taken(&nonsense);
        assert_eq!(run.unreadable, nonsense.len() as u64);
        assert!(run.losses.is_empty() && run.validation.is_empty());
        assert_eq!((run.loader_share(), run.rate()), (None, None));
    }

    #[test]
    fn a_curve_only_goes_forward() {
        let run = taken(&[
            r#"{"kind":"eval","step":5,"loss":1}"#,
            r#"{"kind":"eval","step":5,"loss":2}"#,
            r#"{"kind":"eval","step":4,"loss":3}"#,
            r#"{"kind":"eval","step":6,"loss":4}"#,
        ]);
        assert_eq!(run.validation, [(5, 1.0), (6, 4.0)]);
    }

    #[test]
    fn no_text_commands_a_terminal() {
        assert_eq!(clean("\u{1b}[31ma\r\u{7}\u{202e}b\u{9b}\n\tc\u{2066}", 99), "[31mab\n\tc");
        assert_eq!(clean("äöü", 2), "äö");
    }
}
