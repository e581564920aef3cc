//! Curves as SVG: pure functions from samples to markup.
//!
//! Shapes are drawn in a square of 1000 that is stretched to the width there is; text stands around it as HTML, so
//! that it keeps its size on a phone.

use super::lines::Run;
use super::story::{Side, time};
use lowtide::budget::human;
use lowtide::meter::{Sample, escape};
use std::fmt::Write as _;

/// The most points of a curve: a phone has fewer columns.
const POINTS: usize = 240;

/// One kind of memory at a moment.
type Kind<'a> = &'a dyn Fn(&Sample) -> u64;

/// Memory over time, one kind on the other, and the limit; `top` is the height in bytes.
pub fn memory(side: &Side, top: u64, limit: Option<u64>) -> String {
    let seconds = side.curve.last().map_or(side.seconds, |last| last.seconds).max(1e-3);
    let points = thin(&side.curve, seconds);
    let (x, y) =
        (|at: f64| 1000.0 * at / seconds, |bytes: u64| 1000.0 - 1000.0 * bytes as f64 / top.max(1) as f64);
    let mut shapes = String::new();
    let mut below: Vec<u64> = vec![0; points.len()];
    // Mapped pages are page cache too: only the rest of the cache stands on them.
    let kinds: [(&str, Kind<'_>); 4] = [
        ("own", &|_| side.own),
        ("anon", &|at| at.anon),
        ("file", &|at| at.file),
        ("cache", &|at| at.cache.unwrap_or(0).saturating_sub(at.file)),
    ];
    for (class, bytes) in kinds {
        let above: Vec<u64> = points.iter().zip(&below).map(|(at, below)| below + bytes(at)).collect();
        let mut path = String::new();
        let there = points.iter().zip(&above);
        let back = points.iter().zip(&below).rev();
        for (i, (at, bytes)) in there.chain(back).enumerate() {
            let _ = write!(path, "{}{:.1} {:.1}", if i == 0 { 'M' } else { 'L' }, x(at.seconds), y(*bytes));
        }
        let _ = write!(shapes, "<path class=\"{class}\" d=\"{path}Z\"/>");
        below = above;
    }
    let ticks: Vec<(f64, String)> =
        byte_ticks(top).map(|bytes| (bytes as f64 / top.max(1) as f64, human(bytes))).collect();
    let label = format!(
        "{}: RssAnon grew by {}, RssFile by {}, the page cache of the file by {}, in {}",
        side.name,
        human(side.anon),
        human(side.file),
        side.cache.map_or_else(|| "an unknown amount".into(), human),
        time(seconds),
    );
    let times = [(0.0, "0".to_owned()), (1.0, time(seconds))];
    let limit = limit.map(|bytes| (bytes as f64 / top.max(1) as f64, format!("limit {}", human(bytes))));
    plot(&label, &shapes, &ticks, &times, limit)
}

/// The loss of each step, and on the validation split.
pub fn losses(run: &Run) -> Option<String> {
    let last = run.losses.last()?.0.max(run.validation.last().map_or(0, |point| point.0)).max(1);
    let highest = run.losses.iter().chain(&run.validation).map(|point| point.1).fold(0.1, f64::max);
    let step = nice(highest / 4.0);
    let top = (highest / step).ceil() * step;
    let at = |&(step, loss): &(u64, f64)| (1000.0 * step as f64 / last as f64, 1000.0 - 1000.0 * loss / top);
    let mut shapes = String::new();
    let bucket = run.losses.len().div_ceil(POINTS).max(1);
    let means = run.losses.chunks(bucket).map(|some| {
        (some[some.len() / 2].0, some.iter().map(|point| point.1).sum::<f64>() / some.len() as f64)
    });
    let _ = write!(shapes, "<path class=\"train\" d=\"{}\"/>", line(means.map(|point| at(&point))));
    let thinner = run.validation.iter().step_by(run.validation.len().div_ceil(POINTS).max(1));
    let _ = write!(shapes, "<path class=\"val\" d=\"{}\"/>", line(thinner.clone().map(at)));
    for (x, y) in thinner.map(at) {
        // A line of no length has round ends: a dot that the stretching leaves round.
        let _ = write!(shapes, "<path class=\"val dot\" d=\"M{x:.1} {y:.1}h0\"/>");
    }
    let count = if step > 0.0 { (top / step).round() } else { 0.0 };
    let ticks =
        (0..=32).map(f64::from).take_while(|&i| i <= count).map(|i| (i * step / top, short(i * step)));
    let label =
        format!("Loss: {:.2} at first, {:.2} at step {last}", run.losses.first()?.1, run.losses.last()?.1);
    let times = [(0.0, "step 0".to_owned()), (1.0, format!("step {last}"))];
    Some(plot(&label, &shapes, &ticks.collect::<Vec<_>>(), &times, None))
}

fn line(points: impl Iterator<Item = (f64, f64)>) -> String {
    let mut path = String::new();
    for (i, (x, y)) in points.enumerate() {
        let _ = write!(path, "{}{x:.1} {y:.1}", if i == 0 { 'M' } else { 'L' });
    }
    path
}

/// The frame: lines at the ticks, the shapes, maybe a limit, and the words around them. Places are shares.
fn plot(
    label: &str,
    shapes: &str,
    ys: &[(f64, String)],
    xs: &[(f64, String)],
    limit: Option<(f64, String)>,
) -> String {
    let mut lines = String::new();
    for (at, _) in ys {
        let y = 1000.0 - 1000.0 * at;
        let _ = write!(lines, "<path class=\"grid\" d=\"M0 {y:.1}H1000\"/>");
    }
    let mut words = String::new();
    for (at, text) in ys {
        let _ =
            write!(words, "<span class=\"y\" style=\"bottom:{:.2}%\">{}</span>", at * 100.0, escape(text));
    }
    for (at, text) in xs {
        let side = if *at < 0.5 { "left:0" } else { "right:0" };
        let _ = write!(words, "<span class=\"x\" style=\"{side}\">{}</span>", escape(text));
    }
    let mut over = String::new();
    if let Some((at, text)) = limit {
        let _ = write!(over, "<path class=\"limit\" d=\"M0 {0:.1}H1000\"/>", 1000.0 - 1000.0 * at);
        let text = escape(&text);
        let _ = write!(words, "<span class=\"over\" style=\"bottom:{:.2}%\">{text}</span>", at * 100.0);
    }
    format!(
        "<div class=\"plot\"><svg role=\"img\" aria-label=\"{}\" viewBox=\"0 0 1000 1000\" \
         preserveAspectRatio=\"none\">{lines}{shapes}{over}</svg>{words}</div>\n",
        escape(label)
    )
}

/// So many samples that a screen can show them; of neighbours the larger one, so that a peak stays. The first one
/// stays, and the last one ends where the curve does.
fn thin(curve: &[Sample], seconds: f64) -> Vec<Sample> {
    let Some((first, rest)) = curve.split_first() else { return Vec::new() };
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a share of POINTS
    let column = |at: &Sample| (at.seconds / seconds * POINTS as f64) as usize;
    let larger = |a: Sample, b: &Sample| if b.footprint() > a.footprint() { *b } else { a };
    let columns = rest.chunk_by(|a, b| column(a) == column(b));
    let mut kept: Vec<Sample> = columns.map(|some| some.iter().fold(some[0], larger)).collect();
    if let (Some(last), Some(end)) = (kept.last_mut(), curve.last()) {
        last.seconds = end.seconds;
    }
    kept.insert(0, *first);
    kept
}

/// Round numbers of bytes from nothing to `top`, about four of them.
fn byte_ticks(top: u64) -> impl Iterator<Item = u64> {
    let step = (top / 4).max(1).next_power_of_two();
    (0..=8).map(move |i| i * step).take_while(move |&bytes| bytes <= top)
}

/// The next of 1, 2, 5, 10, … that is no less.
fn nice(number: f64) -> f64 {
    let power = 10_f64.powf(number.max(1e-9).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * power)
        .into_iter()
        .find(|&n| n >= number)
        .unwrap_or(10.0 * power)
}

/// A number without zeros at its end.
fn short(number: f64) -> String {
    let text = format!("{number:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(seconds: f64, anon: u64) -> Sample {
        Sample { seconds, anon, ..Sample::default() }
    }

    #[test]
    fn a_thinned_curve_keeps_its_ends_and_its_peak() {
        let mut curve: Vec<Sample> = (0..=10_000_u32).map(|i| sample(f64::from(i) / 100.0, 5)).collect();
        curve[7_777].anon = 99;
        let thinned = thin(&curve, 100.0);
        assert!(thinned.len() <= POINTS + 2, "{}", thinned.len());
        assert!(thinned.iter().any(|at| at.anon == 99));
        assert_eq!(thinned[0], curve[0]);
        assert!((thinned[thinned.len() - 1].seconds - 100.0).abs() < 1e-9);
        assert!(thinned.is_sorted_by(|a, b| a.seconds <= b.seconds));
        assert!(thin(&[], 1.0).is_empty());
    }

    #[test]
    fn ticks_are_round() {
        let ticks = |top: u64| byte_ticks(top << 20).map(|bytes| bytes >> 20).collect::<Vec<_>>();
        assert_eq!(ticks(170), [0, 64, 128]);
        assert_eq!(ticks(1100), [0, 512, 1024]);
        assert!((nice(1.3) - 2.0).abs() < 1e-12 && (nice(0.03) - 0.05).abs() < 1e-12);
        assert_eq!((short(2.5), short(0.0), short(10.0)), ("2.5".into(), "0".into(), "10".into()));
    }

    #[test]
    fn whatever_was_logged_the_curve_stays_in_its_frame() {
        for losses in [vec![(0, 0.0)], vec![(5, 1e6), (1 << 40, 1e-9)], (0..9999).map(|i| (i, 3.0)).collect()]
        {
            let run = Run { validation: losses.clone(), losses, ..Run::default() };
            let drawn = losses_of(&run);
            for number in &drawn {
                assert!((-0.1..=1000.1).contains(number), "{number}");
            }
        }
        assert!(losses(&Run::default()).is_none());
    }

    /// Every number of every path.
    fn losses_of(run: &Run) -> Vec<f64> {
        let svg = losses(run).unwrap();
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        let paths = svg.split(" d=\"").skip(1).map(|rest| rest.split('"').next().unwrap());
        paths
            .flat_map(|path| path.split(|c: char| c.is_ascii_alphabetic() || c == ' '))
            .filter_map(|number| number.parse().ok())
            .collect()
    }
}
