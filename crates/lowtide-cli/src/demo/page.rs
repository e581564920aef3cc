//! The demo as one page: the memory of the three ways side by side, what they reached, the tokens, the loss, the text.

use super::story::{Side, multiple, time};
use super::training::{HINT, small};
use super::{NEXT, Told, chart, tokens};
use crate::bench::report::{decimal, whole};
use crate::draw::thousands;
use crate::page;
use lowtide::budget::human;
use lowtide::meter::escape;
use std::fmt::Write as _;

const TEMPLATE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// Who made the page, by which an older one is known.
pub const GENERATOR: &str = "lowtide demo";

/// The whole page.
pub fn draw(told: &Told) -> String {
    let story = &told.story;
    let headline = headline(told);
    let limit = story.limit.memory().map_or_else(String::new, |memory| {
        format!("<li><span class=\"swatch dash\"></span>limit {memory}</li>")
    });
    let body = page::fill(
        TEMPLATE,
        &[
            ("HEADLINE", escape(&headline)),
            ("SENTENCE", escape(&story.sentence())),
            ("METHOD", escape(&method(told))),
            ("LIMIT", limit),
            ("PANELS", panels(told)),
            ("WAYS", story.sides.iter().map(|side| way(told, side)).collect()),
            ("NOTES", notes(&story.notes(told.machine.disk.read_ahead_kb))),
            ("TOKENS", escape(&told.tokens.sentence())),
            ("BATCHES", told.tokens.sides.iter().map(batches).collect()),
            ("LEGEND", if told.training.run.losses.is_empty() { String::new() } else { LEGEND.into() }),
            ("CORPUS", corpus(told)),
            ("TRAINING", training(told)),
            ("MACHINE", page::pairs(&told.machine.pairs(told.versions.as_ref()))),
            ("STEPS", steps(told)),
            ("AGAIN", escape(&told.command)),
            ("NEXT", escape(&NEXT.map(|(command, what)| format!("# {what}\n{command}")).join("\n"))),
        ],
    );
    page::whole(GENERATOR, &format!("lowtide demo: {headline}"), STYLE, &body)
}

const LEGEND: &str = "<ul class=\"legend\"><li><span class=\"swatch\" style=\"--c:var(--rate)\"></span>loss, training\
                      </li><li><span class=\"swatch\" style=\"--c:var(--val)\"></span>validation</li></ul>";

fn headline(told: &Told) -> String {
    let (file, factor) = (human(told.story.bytes), multiple(told.story.factor()));
    match told.story.limit.memory() {
        Some(memory) => format!("{file} in {memory} of memory: {factor} as fast as np.memmap"),
        None => format!("A shuffled pass over {file}"),
    }
}

fn method(told: &Told) -> String {
    let memory = match &told.story.limit {
        super::story::Limit::Given(_) => "in a control group, which counts the page cache too",
        super::story::Limit::Found(_) => "in the memory that there is",
        super::story::Limit::Ample(_) => "with memory to spare",
    };
    format!(
        "Each way in a process of its own, {memory}: the same rows in the same order, from a cold page cache."
    )
}

fn panels(told: &Told) -> String {
    let story = &told.story;
    let peak =
        |side: &Side| side.own + side.curve.iter().map(lowtide::meter::Sample::footprint).max().unwrap_or(0);
    let most = story.sides.iter().map(peak).max().unwrap_or(0).max(story.limit.bytes().unwrap_or(0));
    let panel = |side: &Side| {
        let share = side.rows as f64 / story.rows().max(1) as f64;
        let far = if story.finished(side) {
            format!("the whole pass in {}", time(side.seconds))
        } else {
            format!("{} of the pass in {}, then stopped", small(share), time(side.seconds))
        };
        let plot = chart::memory(side, most / 100 * 112, story.limit.bytes());
        format!("    <div><h3>{}</h3><p>{}</p>{plot}</div>\n", escape(side.name), escape(&far))
    };
    story.sides.iter().map(panel).collect()
}

fn cells(side: &Side, values: &[String]) -> String {
    let class = if side.name.starts_with("Lowtide") { "" } else { " class=\"reference\"" };
    let memory = [human(side.anon), human(side.file), side.cache.map_or_else(|| "unknown".into(), human)];
    let mut line = format!("<tr><th scope=\"row\"{class}>{}</th>", escape(side.name));
    for value in values.iter().chain(&memory) {
        let _ = write!(line, "<td>{}</td>", escape(value));
    }
    line + "</tr>\n"
}

fn way(told: &Told, side: &Side) -> String {
    let mark = if told.story.finished(side) { "" } else { " *" };
    let megabytes = side.rate() * super::file::ROW as f64 / 1e6;
    cells(side, &[whole(side.rate()), decimal(megabytes), format!("{}{mark}", time(told.story.pass(side)))])
}

fn batches(side: &Side) -> String {
    cells(side, &[decimal(tokens::batches(side)), whole(side.rate() * tokens::BLOCK as f64)])
}

fn notes(notes: &[String]) -> String {
    let hint = |note: &String| format!("  <p class=\"hint\">{}.</p>\n", escape(&capital(note)));
    notes.iter().map(hint).collect()
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn corpus(told: &Told) -> String {
    let words = match &told.corpus {
        Ok(corpus) => corpus.words() + ".",
        Err(why) => format!("No corpus was made: {why}."),
    };
    said(&words)
}

fn said(words: &str) -> String {
    format!("  <p class=\"said\">{}</p>\n", escape(words))
}

fn training(told: &Told) -> String {
    let (training, run) = (&told.training, &told.training.run);
    let mut text = String::new();
    let mut say = |words: &str| text += &said(words);
    if let Some(words) = training.words() {
        say(&words);
    }
    if let Some(problem) = &training.problem {
        say(&format!(
            "{}: {problem}.",
            if run.losses.is_empty() { "No model was trained" } else { "Not the whole run" }
        ));
        if run.losses.is_empty() {
            say(&format!("How to get it: {HINT}."));
        }
    }
    let Some(plot) = chart::losses(run) else { return text };
    let last = |curve: &[(u64, f64)]| curve.last().map(|point| format!("{:.2}", point.1));
    let tiles = [
        ("parameters", run.parameters.map(thousands)),
        ("batch", run.batch.zip(run.block).map(|(batch, block)| format!("{batch} × {block}"))),
        ("tokens a second", run.rate().map(whole)),
        ("loss", last(&run.losses)),
        ("validation loss", last(&run.validation)),
        ("the loader's share", run.loader_share().map(small)),
        ("RssAnon, at most", run.anon.map(human)),
        ("RssFile, at most", run.file.map(human)),
    ];
    let tiles = tiles.into_iter().filter_map(|(name, value)| {
        Some(format!("    <div><dt>{name}</dt><dd>{}</dd></div>\n", escape(&value?)))
    });
    text += &plot;
    let _ = write!(text, "  <dl class=\"tiles\">\n{}  </dl>\n", tiles.collect::<String>());
    if let Some(sample) = run.sample.as_deref().filter(|sample| !sample.trim().is_empty()) {
        text += &said("What it writes, after so little training:");
        let _ = writeln!(text, "  <pre class=\"sample\">{}</pre>", escape(sample));
    }
    text
}

fn steps(told: &Told) -> String {
    let step = |(what, took): &(String, f64)| {
        format!("    <li>{} <span class=\"reference\">({})</span></li>\n", escape(what), time(*took))
    };
    told.steps.iter().map(step).collect()
}
