//! The report as one page that needs nothing else: no script, nothing loaded, light and dark, wide and narrow.
//!
//! Each bar is an SVG of its own whose lengths are shares, so that text keeps its size on a phone.

use super::report::{Figures, Kind, Report, Way, decimal, percent, whole};
use super::subject::Unit;
use crate::page;
use lowtide::budget::human;
use lowtide::meter::escape;
use std::fmt::Write as _;

const TEMPLATE: &str = include_str!("page.html");

/// What a pale bar is, where there are some.
const PARTS: &str = "  <p class=\"hint\">A pale bar is the rate of a part: the way did not come to the end of a pass in \
                     its time, and the first part says little about the rest. The notes say how long it takes.</p>\n";

/// The whole page.
pub fn draw(report: &Report) -> String {
    let subject = &report.subject;
    let name = subject.path.trim_end_matches('/').rsplit('/').next().unwrap_or(&subject.path);
    let sentence = report.sentence().unwrap_or_else(|| subject.words());
    let (unit, rate) = match subject.unit {
        Unit::Rows => ("rows", "Rows a second"),
        Unit::Windows => ("windows", "Windows a second"),
    };
    let body = page::fill(
        TEMPLATE,
        &[
            ("PATH", escape(&subject.path)),
            ("TITLE", escape(&format!("{name}, {}", subject.order.name()))),
            ("SENTENCE", escape(&sentence)),
            ("METHOD", escape(&[subject.words(), report.reading(), report.limits()].join("; "))),
            ("BUDGET", human(subject.budget)),
            ("UNIT", unit.into()),
            ("RATE", rate.into()),
            ("RATES", rates(report)),
            ("PARTS", if report.partial().next().is_some() { PARTS.into() } else { String::new() }),
            ("MEMORY", memory(report)),
            ("TABLE", report.ways.iter().map(|way| line(report, way)).collect()),
            ("MACHINE", machine(report)),
            ("NOTES", notes(report)),
        ],
    );
    page::whole("lowtide bench", &format!("lowtide bench: {}", subject.path), "", &body)
}

/// The class of a way's name: references stand back.
fn tone(way: &Way) -> &'static str {
    if way.kind == Kind::Lowtide { "" } else { " class=\"reference\"" }
}

fn bar(way: &Way, label: &str, shapes: &str, class: &str, value: &str) -> String {
    format!(
        "    <div><dt{}>{}</dt><dd class=\"bar\"><svg role=\"img\" aria-label=\"{}\">\
         <rect class=\"track\" width=\"100%\" height=\"100%\" rx=\"4\"/>{shapes}</svg></dd>\
         <dd class=\"value{class}\">{value}</dd></div>\n",
        tone(way),
        escape(&way.name),
        escape(label),
    )
}

fn rates(report: &Report) -> String {
    let most = report.measured().map(|(_, figures)| figures.rate()).fold(1e-9, f64::max);
    let best = report.best();
    let one = |(way, figures): (&Way, &Figures)| {
        let class = match way.kind {
            Kind::Lowtide => "lowtide",
            Kind::NumPy => "numpy",
            Kind::Disk => "disk",
        };
        let value = whole(figures.rate());
        let part = if report.partial().any(|(partial, _)| partial.name == way.name) { " part" } else { "" };
        let shape = format!(
            "<rect class=\"{class}{part}\" width=\"{:.2}%\" height=\"100%\" rx=\"4\"/>",
            100.0 * figures.rate() / most
        );
        let tone = if best == Some(&way.name) { " best" } else { "" };
        bar(
            way,
            &format!("{}: {value} {} a second", way.name, report.subject.unit.name()),
            &shape,
            tone,
            &value,
        )
    };
    report.measured().map(one).collect()
}

fn memory(report: &Report) -> String {
    // Mapped pages are page cache too: only the rest of the cache stands behind them.
    let parts = |figures: &Figures| {
        let memory = figures.memory?;
        Some([memory.anon, memory.file, memory.cache.unwrap_or(0).saturating_sub(memory.file)])
    };
    let widest =
        report.measured().filter_map(|(_, figures)| parts(figures)).map(|parts| parts.iter().sum()).max();
    let scale = 100.0 / (widest.unwrap_or(0).max(report.subject.budget) as f64 * 1.02).max(1.0);
    let mut bars = String::new();
    for (way, figures) in report.measured() {
        let (Some(parts), Some(memory)) = (parts(figures), figures.memory) else { continue };
        let mut shapes = String::new();
        let mut from = 0.0;
        for (class, bytes) in ["anon", "file", "cache"].into_iter().zip(parts) {
            let width = bytes as f64 * scale;
            let _ = write!(
                shapes,
                "<rect class=\"{class}\" x=\"{from:.2}%\" width=\"{width:.2}%\" height=\"100%\"/>"
            );
            from += width;
        }
        let at = report.subject.budget as f64 * scale;
        let _ =
            write!(shapes, "<line class=\"budget\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"100%\"/>");
        let cache = memory.cache.map_or_else(|| "unknown".into(), human);
        let label = format!(
            "{}: RssAnon {}, RssFile {}, page cache {cache}",
            way.name,
            human(memory.anon),
            human(memory.file)
        );
        let over = report.exceeds(memory);
        bars +=
            &bar(way, &label, &shapes, if over { " over" } else { "" }, &human(memory.anon + memory.file));
    }
    bars
}

fn line(report: &Report, way: &Way) -> String {
    let mut line = format!("<tr><th scope=\"row\"{}>{}</th>", tone(way), escape(&way.name));
    let mut cell = |class: &str, text: &str| {
        let _ = write!(line, "<td class=\"{class}\">{text}</td>");
    };
    let Ok(figures) = &way.result else { return line + "<td colspan=\"7\">none: see the notes</td></tr>\n" };
    cell(if report.best() == Some(&way.name) { "best" } else { "" }, &whole(figures.rate()));
    cell("", &decimal(figures.rate() * report.subject.row_bytes as f64 / 1e6));
    cell("", &report.read_per_byte(figures).map_or_else(|| "unknown".into(), decimal));
    if let Some(memory) = figures.memory {
        for (bytes, over) in report.parts(memory) {
            cell(if over { "over" } else { "" }, &human(bytes));
        }
        cell("", &memory.cache.map_or_else(|| "unknown".into(), human));
        cell("", &percent(report.passes(figures)));
    } else {
        (0..4).for_each(|_| cell("reference", "–"));
    }
    line + "</tr>\n"
}

fn machine(report: &Report) -> String {
    let mut pairs = vec![("file", report.subject.path.clone()), ("what", report.subject.shape.clone())];
    pairs.extend(report.machine.pairs(report.versions.as_ref()));
    let settings = format!("budget {}, cache={:?}", human(report.subject.budget), report.cache);
    pairs.insert(pairs.len() - 1, ("settings", settings));
    page::pairs(&pairs)
}

fn notes(report: &Report) -> String {
    let notes = report.notes();
    if notes.is_empty() {
        return String::new();
    }
    let notes = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note)));
    let notes = notes.collect::<Vec<_>>().concat();
    format!(
        "<section aria-labelledby=\"notes\">\n  <h2 id=\"notes\">Notes</h2>\n  <ul class=\"notes\">\n{notes}  </ul>\n</section>\n"
    )
}
