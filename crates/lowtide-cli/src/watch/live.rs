//! The live view: a chart docked below the command's output, for as long as that disturbs nobody.
//!
//! It comes after a second, so that short commands and programs that take the whole screen never see it, and
//! steps aside for good when the command turns out to be one of those.

use std::time::{Duration, Instant};

use lowtide::meter::recording::Recording;
use lowtide::meter::sampler::Sampler;
use lowtide::meter::verdict::Verdict;

use super::dock::{self, Dock, User};
use super::panel::{Figures, Paint, chart, wrap};
use super::{our_cpu, said};

/// A title, the chart with its axis, and two lines of verdict.
const ROWS: usize = 12;
/// A command that ends or takes the screen sooner is not disturbed at all.
const FIRST: Duration = Duration::from_secs(1);
const FRAME: Duration = Duration::from_millis(250);
const JUDGED: Duration = Duration::from_secs(1);

/// The live view.
#[derive(Debug)]
pub struct Live {
    stage: Stage,
    paint: Paint,
    started: Instant,
    drawn: Instant,
    verdict: Option<(Instant, Verdict)>,
}

#[derive(Debug)]
enum Stage {
    /// Not shown now: it is too early, we are in the background, or there is no room.
    Waiting,
    Docked(Dock),
    /// Never shown.
    Aside,
    /// Not shown any more, because a program took the screen. What it brings back when it leaves is erased.
    GaveWay(#[expect(dead_code, reason = "it is held to be dropped")] Dock),
}

impl Live {
    /// A view that shows itself when it can, or never.
    pub fn new(wanted: bool, paint: Paint) -> Self {
        let stage = if wanted && dock::is_possible() { Stage::Waiting } else { Stage::Aside };
        let now = Instant::now();
        Self { stage, paint, started: now, drawn: now, verdict: None }
    }

    /// Shows what the sampler has, if it is time to.
    pub fn show(&mut self, sampler: &Sampler) {
        let stage = std::mem::replace(&mut self.stage, Stage::Aside);
        self.stage = match (stage, dock::user()) {
            (stage @ (Stage::Aside | Stage::GaveWay(_)), _) => stage,
            (Stage::Docked(dock), User::Interactive) => {
                dock.give_way();
                Stage::GaveWay(dock)
            }
            (Stage::Waiting, User::Interactive) => Stage::Aside,
            (_, User::Others) => Stage::Waiting,
            (Stage::Waiting, User::Printing) if self.started.elapsed() >= FIRST => {
                Dock::open(ROWS).map_or(Stage::Waiting, Stage::Docked)
            }
            (stage, User::Printing) => stage,
        };
        if self.drawn.elapsed() >= FRAME
            && let Stage::Docked(dock) = &self.stage
        {
            self.drawn = Instant::now();
            let (judged, verdict) =
                self.verdict.get_or_insert_with(|| (self.drawn, Recording::so_far(sampler)));
            if judged.elapsed() >= JUDGED {
                (*judged, *verdict) = (self.drawn, Recording::so_far(sampler));
            }
            dock.draw(&picture(sampler, verdict, dock.width(), self.paint));
        }
    }

    /// The terminal has another size.
    pub fn resized(&mut self) {
        self.stage = match std::mem::replace(&mut self.stage, Stage::Aside) {
            Stage::Docked(dock) if dock::user() == User::Printing => {
                dock.resized().map_or(Stage::Waiting, Stage::Docked)
            }
            stage => stage,
        };
        // The picture was erased.
        self.drawn = self.drawn.checked_sub(FRAME).unwrap_or(self.drawn);
    }

    /// Gives the rows back until it is shown again: we are about to be stopped.
    pub fn hide(&mut self) {
        if matches!(self.stage, Stage::Docked(_)) {
            self.stage = Stage::Waiting;
        }
    }
}

/// The twelve lines of the live view.
fn picture(sampler: &Sampler, verdict: &Verdict, width: usize, paint: Paint) -> Vec<String> {
    let elapsed = sampler.elapsed().as_secs_f64();
    let cost = our_cpu().as_secs_f64() / elapsed * 100.0;
    let latest = sampler.latest();
    let files = match sampler.files().list() {
        [] => String::new(),
        [one] => format!(" · {}", one.path.file_name().unwrap_or_default().to_string_lossy()),
        many => format!(" · {} files", many.len()),
    };
    let title = format!(
        "─── lowtide watch · {elapsed:.0} s · {} process{}{files} · watching costs {cost:.1} % of a core ",
        latest.processes,
        if latest.processes == 1 { "" } else { "es" },
    );
    let mut lines = vec![cut(&format!("{title:─<width$}"), width)];
    let limit = sampler.limit().and_then(|level| level.limit);
    lines.extend(chart(sampler.series(), width, 9, &Figures::now(latest, limit), paint));
    let verdict = format!("so far {}: {}", said(verdict.word, paint), verdict.sentence);
    lines.extend(wrap(&verdict, width).into_iter().take(ROWS - lines.len()));
    lines
}

fn cut(line: &str, width: usize) -> String {
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).chain(std::iter::once('…')).collect()
}
