//! Does a curve keep growing? Times and bytes in, a slope with its confidence interval out.
//!
//! Pure functions, tested by simulation. The slope is Theil–Sen's, the median of the slopes between all
//! pairs of points: a burst or an outlier does not move it. A slope alone would still call one step or
//! one tooth of a saw a trend, so growth also has to be there in most quarters of the time, to go on in
//! the second half, to exceed the largest fall on the way, to come in more than two steps, and not to have
//! ended long before the end.

/// How a curve went after warm-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// It kept growing to the end.
    Growing,
    /// It grew, in a step or towards a level, and stayed there.
    Levelled,
    /// It stayed, swung or fell.
    Steady,
}

/// The slope of a curve and what it came from. Bytes and seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// How it went.
    pub shape: Shape,
    /// Bytes a second in which it was looked at, the median of the slopes between all pairs of points.
    pub per_second: f64,
    /// The lower end of the 95 % confidence interval.
    pub low: f64,
    /// The upper end of the 95 % confidence interval.
    pub high: f64,
    /// The level in the middle of the time looked at.
    pub level: u64,
    /// How long a stretch of time was looked at.
    pub seconds: f64,
}

/// Fewer windows than this say nothing: 95 % is out of reach with fewer than five points.
const FEWEST_WINDOWS: usize = 6;
/// More windows than this make the interval narrower than memory deserves, whose samples hang together.
const MOST_WINDOWS: usize = 24;
/// Below this many seconds after warm-up an allocator's first pools look like growth.
pub const SHORTEST: f64 = 1.5;

/// The part of a growth that the second half must have at least,
const ENOUGH: f64 = 0.2;
/// and where a long start was left out: half of it is a straight line, a fifth a curve that levels off.
const EVEN: f64 = 0.4;
/// A start may take up to this part of a run.
const LONG_START: f64 = 0.4;

/// What comes in fewer steps than this is a pool that fills, as long as nothing is seen to come again.
const FEWEST_STEPS: usize = 3;
/// The part of a growth that its largest steps are counted for. The rest may be noise.
const MOST_OF_IT: f64 = 0.8;
/// Rising by less than this part of the whole growth is standing still.
const STILL: f64 = 0.06;
/// Standing still at the end for this part of the time, and for so many times the longest pause before, is a level. A
/// quarter of the time would be enough for the last evaluation of a run to hide a leak.
const LONG_END: f64 = 1.0 / 3.0;
const LONGER: f64 = 1.25;

/// Where warm-up ends in a run of `seconds`: imports and first buffers are not a trend.
pub fn warm_up(seconds: f64) -> f64 {
    (seconds * 0.2).clamp(0.0, 60.0)
}

/// The trend of `(second, bytes)` points in order of time, warm-up included. Growth of up to
/// `tolerance` bytes is none. `None` when the run was too short to tell.
pub fn trend(points: &[(f64, u64)], tolerance: u64) -> Option<Trend> {
    let points = without_stalls(points);
    let (first, last) = (points.first()?.0, points.last()?.0);
    let begin = first + warm_up(last - first);
    let points = &points[points.partition_point(|point| point.0 < begin)..];
    // Two samples a window at least, because one may be a burst.
    let windows = (points.len() / 2).min(MOST_WINDOWS);
    if windows < FEWEST_WINDOWS || last - begin < SHORTEST {
        return None;
    }
    let floors = without_release(&floors(points, begin, last, windows)).to_vec();
    let found = of_floors(&floors, last - begin, tolerance, ENOUGH)?;
    if found.shape != Shape::Levelled {
        return Some(found);
    }
    // A start that took longer than warm-up makes a slow growth look like a level. What comes after it is
    // looked at alone, and has to be even: a curve that levels off is not.
    let begin = first + (last - first) * LONG_START;
    let tail = &floors[floors.partition_point(|floor| floor.0 < begin)..];
    let tail = if tail.len() < FEWEST_WINDOWS || last - begin < SHORTEST {
        None
    } else {
        of_floors(tail, last - begin, tolerance, EVEN)
    };
    Some(tail.filter(|tail| tail.shape == Shape::Growing).unwrap_or(found))
}

/// The trend of `floors` over some `seconds`, of whose growth the second half must have a part.
fn of_floors(floors: &[(f64, f64)], seconds: f64, tolerance: u64, second_half: f64) -> Option<Trend> {
    let (slope, low, high) = theil_sen(floors)?;
    let level = floors[floors.len() / 2].1;
    let (growth, rise) = (slope * seconds, floors[floors.len() - 1].1 - floors[0].1);
    let noise = (tolerance as f64).max(deepest_fall(floors));
    let shape = if rise <= noise {
        Shape::Steady
    } else if growth > noise && low > 0.0 && goes_on(floors, second_half) && !has_ended(floors) {
        Shape::Growing
    } else {
        Shape::Levelled
    };
    // A level is bytes, so it is neither negative nor fractional.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Some(Trend { shape, per_second: slope, low, high, level: level as u64, seconds })
}

/// Takes out the time in which nobody looked: a machine that stalls, or a stopped job, stalls the program
/// too, and a pause is not a plateau. A gap is long if it is eight times the usual one.
fn without_stalls(points: &[(f64, u64)]) -> Vec<(f64, u64)> {
    let mut gaps: Vec<f64> = points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    gaps.sort_unstable_by(f64::total_cmp);
    let usual = gaps.get(gaps.len() / 2).copied().unwrap_or(0.0);
    let mut lost = 0.0;
    let mut before = points.first().map_or(0.0, |point| point.0);
    let even = points.iter().map(|&(time, bytes)| {
        let gap = time - before;
        before = time;
        if gap > usual * 8.0 {
            lost += gap - usual;
        }
        (time - lost, bytes)
    });
    even.collect()
}

/// The sample at the lower quartile of each of `count` equal stretches of time: what remains when a
/// burst has passed.
fn floors(points: &[(f64, u64)], begin: f64, end: f64, count: usize) -> Vec<(f64, f64)> {
    let width = (end - begin) / count as f64;
    let mut floors = Vec::with_capacity(count);
    let mut rest = points;
    for index in 0..count {
        let until = begin + width * (index + 1) as f64;
        let inside =
            if index + 1 == count { rest.len() } else { rest.partition_point(|point| point.0 < until) };
        let (now, later) = rest.split_at(inside);
        rest = later;
        let mut sorted = now.to_vec();
        sorted.sort_unstable_by_key(|point| point.1);
        // A stretch in which the machine did not let us look has no floor.
        if let Some(floor) = sorted.get(sorted.len() / 4) {
            floors.push((floor.0, floor.1 as f64));
        }
    }
    floors
}

/// Programs give memory back at the end: what only falls within the last quarter is not part of the trend.
fn without_release(floors: &[(f64, f64)]) -> &[(f64, f64)] {
    let peak = (0..floors.len()).max_by(|&a, &b| floors[a].1.total_cmp(&floors[b].1)).unwrap_or(0);
    let falls = floors[peak..].windows(2).all(|pair| pair[1].1 <= pair[0].1);
    if falls && peak + 1 >= FEWEST_WINDOWS && peak >= floors.len() * 3 / 4 - 1 {
        &floors[..=peak]
    } else {
        floors
    }
}

/// The median of all slopes between two points, and the 95 % interval after Sen (1968).
fn theil_sen(points: &[(f64, f64)]) -> Option<(f64, f64, f64)> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (index, a) in points.iter().enumerate() {
        slopes.extend(points[index + 1..].iter().map(|b| (b.1 - a.1) / (b.0 - a.0)));
    }
    if slopes.len() < 10 {
        return None;
    }
    slopes.sort_unstable_by(f64::total_cmp);
    let (count, n) = (slopes.len() as f64, points.len() as f64);
    let reach = 1.96 * (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    // Ranks between 0 and count − 1 by the clamp.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let at = |rank: f64| slopes[rank.round().clamp(0.0, count - 1.0) as usize];
    let middle = slopes.len() / 2;
    let median = if slopes.len() % 2 == 1 {
        slopes[middle]
    } else {
        f64::midpoint(slopes[middle - 1], slopes[middle])
    };
    Some((median, at((count - reach) / 2.0 - 1.0), at(f64::midpoint(count, reach))))
}

/// The largest fall from a high to a later low.
fn deepest_fall(points: &[(f64, f64)]) -> f64 {
    let mut high = f64::NEG_INFINITY;
    points.iter().fold(0.0, |fall, point| {
        high = high.max(point.1);
        fall.max(high - point.1)
    })
}

/// Whether at least three quarters of the time saw growth, and the second half its part of it: one step
/// and a curve that levels off do not.
fn goes_on(points: &[(f64, f64)], second_half: f64) -> bool {
    let (first, last) = (points[0], points[points.len() - 1]);
    let rise = last.1 - first.1;
    let at = |quarter: usize| {
        let time = first.0 + (last.0 - first.0) * quarter as f64 / 4.0;
        let after = points.partition_point(|point| point.0 < time).clamp(1, points.len() - 1);
        let (a, b) = (points[after - 1], points[after]);
        a.1 + (b.1 - a.1) * (time - a.0) / (b.0 - a.0)
    };
    let grew = (0..4).filter(|quarter| at(quarter + 1) - at(*quarter) > rise * 0.06).count();
    grew >= 3 && at(4) - at(2) > rise * second_half
}

/// Whether a growth was a few steps, or has come to rest: a pool that fills late in a short run looks like a
/// leak to its slope, and stands still at the end for longer than it did between two steps.
fn has_ended(points: &[(f64, f64)]) -> bool {
    // What stays: a level that a later one falls below was a swing.
    let mut lasting = points.to_vec();
    for index in (1..lasting.len()).rev() {
        lasting[index - 1].1 = lasting[index - 1].1.min(lasting[index].1);
    }
    let (first, last) = (lasting[0], lasting[lasting.len() - 1]);
    let rise = last.1 - first.1;
    few_steps(&lasting, rise * MOST_OF_IT) || {
        let still = rise * STILL;
        // The longest stretch from each point on in which nothing came, up to where the last one begins.
        let end = lasting.partition_point(|point| point.1 < last.1 - still);
        let pause = |from: usize| {
            let until = lasting[..=end].partition_point(|point| point.1 < lasting[from].1 + still);
            lasting[until.min(end)].0 - lasting[from].0
        };
        let longest = (0..end).map(pause).fold(0.0, f64::max);
        let at_end = last.0 - lasting[end].0;
        at_end > longest * LONGER && at_end > (last.0 - first.0) * LONG_END
    }
}

/// Whether a curve that never falls came to most of its growth in fewer than three steps. A step that lies across
/// two windows is one; growth in a third of all windows is no step.
fn few_steps(lasting: &[(f64, f64)], most: f64) -> bool {
    let mut steps: Vec<(f64, usize)> =
        lasting.windows(2).map(|pair| pair[1].1 - pair[0].1).zip(0..).collect();
    steps.sort_unstable_by(|a, b| b.0.total_cmp(&a.0));
    let mut sum = 0.0;
    let enough = steps.iter().take_while(|step| {
        let missing = sum < most;
        sum += step.0;
        missing
    });
    let mut places: Vec<usize> = enough.map(|step| step.1).collect();
    places.sort_unstable();
    let apart = 1 + places.windows(2).filter(|pair| pair[1] - pair[0] > 1).count();
    apart < FEWEST_STEPS && places.len() * 3 < lasting.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::TAU;

    const MIB: f64 = (1 << 20) as f64;
    const TOLERANCE: u64 = 4 << 20;

    /// Ten samples a second of a curve in MiB, with an allocator's noise of ±0.5 MiB.
    fn run(seconds: f64, curve: impl Fn(f64) -> f64) -> Vec<(f64, u64)> {
        let mut state = 88_172_645_463_325_252_u64;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        (0..(seconds * 10.0) as usize)
            .map(|index| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                let noise = (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
                let second = index as f64 / 10.0;
                (second, ((curve(second) + noise) * MIB).max(0.0) as u64)
            })
            .collect()
    }

    fn shape(points: &[(f64, u64)]) -> Option<Shape> {
        trend(points, TOLERANCE).map(|trend| trend.shape)
    }

    #[test]
    fn steady_growth_is_growth_and_the_interval_holds_the_truth() {
        for seconds in [3.0, 10.0, 60.0, 600.0] {
            for rate in [5.0, 50.0] {
                let found = trend(&run(seconds, |t| 100.0 + rate * t), TOLERANCE).unwrap();
                assert_eq!(found.shape, Shape::Growing, "{rate} MiB/s for {seconds} s");
                assert!(found.low <= rate * MIB * 1.001 && found.high >= rate * MIB * 0.999, "{found:?}");
                assert!((found.per_second / MIB - rate).abs() < rate * 0.2, "{found:?}");
            }
        }
    }

    #[test]
    fn growth_under_the_tolerance_is_none() {
        assert_eq!(shape(&run(30.0, |t| 100.0 + 0.05 * t)), Some(Shape::Steady));
        assert_eq!(trend(&run(30.0, |t| 100.0 + 0.05 * t), 1 << 19).unwrap().shape, Shape::Growing);
    }

    #[test]
    fn a_slow_leak_shows_in_a_long_run() {
        assert_eq!(shape(&run(3600.0, |t| 2000.0 + 0.02 * t)), Some(Shape::Growing));
    }

    #[test]
    fn a_leak_in_steps_is_growth() {
        for every in [1.0, 5.0, 10.0] {
            let points = run(60.0, |t| 100.0 + 40.0 * (t / every).floor());
            assert_eq!(shape(&points), Some(Shape::Growing), "a step every {every} s");
        }
    }

    #[test]
    fn a_leak_under_oscillation_and_bursts_is_growth() {
        let waves = run(60.0, |t| 100.0 + 5.0 * t + 30.0 * (t * TAU / 3.0).sin());
        assert_eq!(shape(&waves), Some(Shape::Growing));
        let bursts = run(60.0, |t| 100.0 + 2.0 * t + if t % 4.0 < 0.7 { 900.0 } else { 0.0 });
        assert_eq!(shape(&bursts), Some(Shape::Growing));
    }

    #[test]
    fn quiet_is_steady() {
        for seconds in [3.0, 30.0, 300.0] {
            assert_eq!(shape(&run(seconds, |_| 500.0)), Some(Shape::Steady));
        }
    }

    #[test]
    fn short_is_none() {
        assert_eq!(shape(&run(1.5, |t| 100.0 * t)), None);
        assert_eq!(shape(&[]), None);
        assert_eq!(shape(&[(0.0, 1), (100.0, 2)]), None);
    }

    #[test]
    fn warm_up_and_a_step_are_not_growth() {
        let import = run(10.0, |t| 20.0 + 300.0 * t.min(1.5));
        assert_eq!(shape(&import), Some(Shape::Steady));
        for at in [3.0, 5.0, 7.0, 9.0] {
            let step = run(10.0, |t| if t < at { 100.0 } else { 900.0 });
            assert_ne!(shape(&step), Some(Shape::Growing), "a step at {at} s");
        }
        let levels_off = run(20.0, |t| 1000.0 * (1.0 - (-t / 4.0).exp()));
        assert_eq!(shape(&levels_off), Some(Shape::Levelled));
    }

    #[test]
    fn a_slow_leak_after_a_long_start_is_growth_and_levelling_off_is_not() {
        for start in [0.5, 1.0, 1.4, 1.8] {
            let leak = run(5.0, |t| 2.0 + 100.0 * (t / start).min(1.0) + 5.0 * (t - start).max(0.0));
            let found = trend(&leak, TOLERANCE).unwrap();
            assert_eq!(found.shape, Shape::Growing, "a start of {start} s");
            assert!((found.per_second / MIB - 5.0).abs() < 1.0, "{found:?}");
            let flat = run(5.0, |t| 2.0 + 100.0 * (t / start).min(1.0));
            assert_ne!(shape(&flat), Some(Shape::Growing), "a start of {start} s");
        }
        for tau in [1.0, 2.0, 3.0, 4.0, 5.0] {
            let levels_off = run(20.0, |t| 1000.0 * (1.0 - (-t / tau).exp()));
            assert_ne!(shape(&levels_off), Some(Shape::Growing), "towards a level in {tau} s");
        }
    }

    #[test]
    fn a_pool_that_fills_late_is_not_growth() {
        // As it was seen beside two other programs: 47.8, 52.3 and 56.6 MiB, then nothing more.
        for (first, second, end) in [(1.2, 2.3, 3.8), (1.0, 2.0, 3.8), (1.5, 2.5, 3.8), (1.2, 2.9, 4.2)] {
            let pool =
                run(end, |t| 47.8 + if t < first { 0.0 } else { 4.5 } + if t < second { 0.0 } else { 4.3 });
            assert_ne!(shape(&pool), Some(Shape::Growing), "steps at {first} and {second} s of {end}");
        }
        for seconds in [4.0, 10.0, 60.0] {
            let begin = seconds * 0.2;
            // In as many steps as one likes, or in none: at seven tenths of the time all is there.
            for steps in [2.0, 3.0, 5.0, 1000.0] {
                let full = run(seconds, |t| {
                    100.0 + 60.0 * (((t - begin) / (0.5 * seconds)).clamp(0.0, 1.0) * steps).ceil() / steps
                });
                assert_ne!(shape(&full), Some(Shape::Growing), "{steps} steps in {seconds} s");
            }
        }
    }

    #[test]
    fn a_pause_at_the_end_that_is_no_longer_than_others_does_not_hide_a_leak() {
        for every in [0.5, 2.0, 5.0, 8.0, 11.0, 15.0] {
            for shift in 0..5 {
                let steps = run(60.0, |t| 100.0 + 50.0 * ((t / every) + f64::from(shift) / 5.0).floor());
                assert_eq!(
                    shape(&steps),
                    Some(Shape::Growing),
                    "a step every {every} s, {shift} fifths later"
                );
            }
        }
        // The last tenth, or even three tenths, are spent on something else: a last evaluation, an export.
        for (seconds, until) in [(20.0, 18.0), (600.0, 440.0)] {
            let idle = run(seconds, |t| 100.0 + 30.0 * t.min(until));
            assert_eq!(shape(&idle), Some(Shape::Growing), "until {until} of {seconds} s");
        }
    }

    #[test]
    fn bursts_are_steady() {
        for (every, long) in [(2.0, 0.3), (5.0, 1.0), (7.0, 2.0), (20.0, 1.0)] {
            let points = run(60.0, |t| 200.0 + if t % every < long { 1500.0 } else { 0.0 });
            assert_eq!(shape(&points), Some(Shape::Steady), "{long} s every {every} s");
        }
    }

    #[test]
    fn oscillation_is_not_growth_at_any_period_and_phase() {
        for period in [0.7, 1.0, 3.0, 7.0, 13.0, 20.0] {
            for phase in 0..8 {
                let shift = f64::from(phase) / 8.0 * period;
                let wave = run(30.0, |t| 500.0 + 300.0 * ((t + shift) * TAU / period).sin());
                assert_ne!(shape(&wave), Some(Shape::Growing), "wave of {period} s shifted {shift}");
                let saw = run(30.0, |t| 100.0 + 600.0 * ((t + shift) / period).fract());
                assert_ne!(shape(&saw), Some(Shape::Growing), "saw of {period} s shifted {shift}");
            }
        }
    }

    #[test]
    fn release_at_the_end_does_not_hide_a_leak() {
        for released_in in [0.1, 0.4, 1.0, 1.6] {
            let end = 10.0 - released_in;
            let grown = 50.0 * end;
            let points =
                run(10.0, |t| 100.0 + if t < end { 50.0 * t } else { grown * (10.0 - t) / released_in });
            assert_eq!(shape(&points), Some(Shape::Growing), "released in {released_in} s");
        }
    }

    #[test]
    fn falling_memory_is_steady() {
        assert_eq!(shape(&run(30.0, |t| 1000.0 - 20.0 * t)), Some(Shape::Steady));
    }

    #[test]
    fn time_in_which_nobody_looked_is_neither_a_plateau_nor_a_panic() {
        // A machine that stalls for as long as the program runs.
        let mut stalled = run(4.0, |t| 100.0 + 5.0 * t);
        for point in stalled.iter_mut().filter(|point| point.0 > 2.0) {
            point.0 += 5.0;
        }
        assert_eq!(shape(&stalled), Some(Shape::Growing));
        let mut unseen = run(30.0, |t| 100.0 + 5.0 * t);
        unseen.retain(|point| point.0 < 8.0 || point.0 > 22.0);
        assert_ne!(shape(&unseen), Some(Shape::Steady));
        assert_eq!(shape(&[(5.0, 7); 100]), None, "no time passed");
    }
}
