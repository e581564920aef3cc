//! Which rates may be compared. A pass is the measure: what a way delivers in the first part of one is not what it
//! delivers in the rest. A cold file that fits in memory gives a map little at first and more later; whoever looks
//! ahead reads first and delivers later.

use super::report::Figures;

/// One pass, by which all ways are measured.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// So many rows.
    pub rows: u64,
    /// Whether nothing changes while it goes on: all of the file stays in memory, or hardly any of it can, or no
    /// row profits from what came before it.
    pub settled: bool,
}

/// How two ways compare over one pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Ratio {
    Is(f64),
    AtLeast(f64),
    AtMost(f64),
    Unknown,
}

impl Pass {
    /// Whether a way came to the end of it.
    pub fn is_finished(self, figures: &Figures) -> bool {
        figures.rows >= self.rows
    }

    /// Whether a way's rate is that of a whole pass: it finished one, or it was even where nothing changes.
    pub fn is_known(self, figures: &Figures) -> bool {
        // The second half of the time brought as much as the first, give or take what one look-ahead holds.
        let even = (0.4..=0.6).contains(&(figures.half_rows as f64 / figures.rows.max(1) as f64));
        self.is_finished(figures) || self.settled && even
    }

    /// How many times as fast `ours` is.
    pub fn compare(self, ours: &Figures, theirs: &Figures) -> Ratio {
        let bound = theirs.seconds / ours.seconds.max(1e-9);
        match (self.is_known(ours), self.is_known(theirs)) {
            (true, true) => Ratio::Is(ours.rate() / theirs.rate()),
            // Whoever is not at the end yet takes longer than it has taken.
            _ if self.is_finished(ours) && bound > 1.0 => Ratio::AtLeast(bound),
            _ if self.is_finished(theirs) && bound < 1.0 => Ratio::AtMost(bound),
            _ => Ratio::Unknown,
        }
    }

    /// The time of a whole pass, if its rest were like its beginning.
    pub fn seconds(self, figures: &Figures) -> f64 {
        figures.seconds * self.rows as f64 / figures.rows.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COLD: Pass = Pass { rows: 1000, settled: false };
    const SETTLED: Pass = Pass { rows: 1000, settled: true };

    fn way(rows: u64, half_rows: u64, seconds: f64) -> Figures {
        Figures { rows, half_rows, seconds, read: None, memory: None, access: None }
    }

    #[test]
    fn whole_passes_have_a_ratio() {
        for pass in [COLD, SETTLED] {
            assert_eq!(pass.compare(&way(1000, 0, 2.0), &way(1000, 900, 3.0)), Ratio::Is(1.5));
            // Of a warm file several passes.
            assert_eq!(pass.compare(&way(3000, 1500, 3.0), &way(1000, 500, 3.0)), Ratio::Is(3.0));
        }
    }

    #[test]
    fn a_pass_against_a_part_of_one_has_a_bound() {
        // 38 % of a pass in 3 s at an ever better rate: 3 s against 2 s is all that is known.
        assert_eq!(COLD.compare(&way(1000, 300, 2.0), &way(380, 120, 3.0)), Ratio::AtLeast(1.5));
        assert_eq!(COLD.compare(&way(380, 120, 3.0), &way(1000, 300, 1.5)), Ratio::AtMost(0.5));
        // Who finished later than the other one stopped: nothing is known.
        assert_eq!(COLD.compare(&way(1000, 300, 3.2), &way(380, 120, 3.0)), Ratio::Unknown);
    }

    #[test]
    fn parts_have_a_ratio_only_where_nothing_changes_and_both_are_even() {
        let (ours, theirs) = (way(600, 300, 3.0), way(200, 100, 3.0));
        assert_eq!(COLD.compare(&ours, &theirs), Ratio::Unknown);
        assert_eq!(SETTLED.compare(&ours, &theirs), Ratio::Is(3.0));
        assert_eq!(SETTLED.compare(&way(600, 0, 3.0), &theirs), Ratio::Unknown, "one burst at the end");
        assert_eq!(SETTLED.compare(&ours, &way(200, 30, 3.0)), Ratio::Unknown, "ever faster");
    }

    #[test]
    fn nothing_at_all_is_no_ratio() {
        assert_eq!(SETTLED.compare(&way(0, 0, 3.0), &way(0, 0, 3.0)), Ratio::Unknown);
    }
}
