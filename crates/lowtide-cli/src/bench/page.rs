//! The report as one page that needs nothing else: no script, nothing loaded, light and dark, wide and narrow.
//!
//! Each bar is an SVG of its own whose lengths are shares, so that text keeps its size on a phone.

use super::report::{Figures, Kind, Report, Way, decimal, percent, whole};
use lowtide::budget::human;
use lowtide::meter::escape;
use std::fmt::Write as _;

const TEMPLATE: &str = include_str!("page.html");

/// The whole page.
pub fn draw(report: &Report) -> String {
    let name = report.path.rsplit('/').next().unwrap_or(&report.path);
    let sentence = report.sentence().unwrap_or_else(|| report.subject());
    fill(&[
        ("PATH", escape(&report.path)),
        ("TITLE", escape(&format!("{name}, {}", report.order))),
        ("SENTENCE", escape(&sentence)),
        ("METHOD", escape(&[report.subject(), report.reading(), report.limits()].join("; "))),
        ("BUDGET", human(report.budget)),
        ("RATES", rates(report)),
        ("MEMORY", memory(report)),
        ("TABLE", report.ways.iter().map(|way| line(report, way)).collect()),
        ("MACHINE", machine(report)),
        ("NOTES", notes(report)),
    ])
}

/// Puts values into the template, in one walk: what a file's name says is never taken for a place.
fn fill(values: &[(&str, String)]) -> String {
    let mut page =
        String::with_capacity(TEMPLATE.len() + values.iter().map(|(_, value)| value.len()).sum::<usize>());
    let mut rest = TEMPLATE;
    while let Some((before, place)) = rest.split_once("{{") {
        let (name, after) = place.split_once("}}").unwrap_or((place, ""));
        page.push_str(before);
        page.extend(values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str()));
        rest = after;
    }
    page + rest
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
        let shape = format!(
            "<rect class=\"{class}\" width=\"{:.2}%\" height=\"100%\" rx=\"4\"/>",
            100.0 * figures.rate() / most
        );
        let tone = if best == Some(&way.name) { " best" } else { "" };
        bar(way, &format!("{}: {value} rows a second", way.name), &shape, tone, &value)
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
    let scale = 100.0 / (widest.unwrap_or(0).max(report.budget) as f64 * 1.02).max(1.0);
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
        let at = report.budget as f64 * scale;
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
    cell("", &decimal(figures.rate() * report.row_bytes as f64 / 1e6));
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
    let machine = &report.machine;
    let unknown = || "unknown".to_owned();
    let cores = if machine.cores == 1 { "1 core".into() } else { format!("{} cores", machine.cores) };
    let versions =
        report.versions.as_ref().map(|(python, numpy)| format!(", Python {python}, NumPy {numpy}"));
    let pairs = [
        ("file", report.path.clone()),
        ("array", format!("{} of {}, {}", report.shape, report.dtype, human(report.bytes()))),
        ("disk", machine.disk.words()),
        ("processor", format!("{}, {cores}", machine.processor.clone().unwrap_or_else(unknown))),
        (
            "memory",
            format!("{}, room for {}", machine.memory.map_or_else(unknown, human), human(machine.room)),
        ),
        ("kernel", format!("Linux {}", machine.kernel.clone().unwrap_or_else(unknown))),
        ("versions", format!("lowtide {}{}", env!("CARGO_PKG_VERSION"), versions.unwrap_or_default())),
        ("settings", format!("budget {}, cache={:?}", human(report.budget), report.cache)),
        ("measured", machine.when.clone()),
    ];
    let lines = pairs.iter().map(|(name, value)| format!("    <dt>{name}</dt><dd>{}</dd>\n", escape(value)));
    lines.collect::<Vec<_>>().concat()
}

fn notes(report: &Report) -> String {
    if report.notes.is_empty() {
        return String::new();
    }
    let notes = report.notes.iter().map(|note| format!("<li>{}</li>\n", escape(note)));
    let notes = notes.collect::<Vec<_>>().concat();
    format!(
        "<section aria-labelledby=\"notes\">\n  <h2 id=\"notes\">Notes</h2>\n  <ul class=\"notes\">\n{notes}  </ul>\n</section>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_become_markup_or_a_place() {
        let page = fill(&[("PATH", escape("<b>\"{{TABLE}}&")), ("TABLE", "rows".into())]);
        assert!(page.contains("&lt;b&gt;&quot;{{TABLE}}&amp;"));
        assert_eq!(page.matches("{{").count(), 2, "the title and the heading, both the user's");
    }
}
