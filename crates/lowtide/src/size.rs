//! Numbers of bytes, as people read them.

/// A number of bytes for people, in three digits: `1.94 GiB`, `12.3 MiB`, `936 KiB`, `512 B`. Zeros behind the
/// point are left out: `64 MiB`.
pub fn human(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // What would be rounded to 1024 is one of the next unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    // As it is rounded: 9.996 has three digits as 10.
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    let text = format!("{value:.decimals$}");
    let text = if decimals == 0 { &*text } else { text.trim_end_matches('0').trim_end_matches('.') };
    format!("{text} {}", UNITS[unit])
}
