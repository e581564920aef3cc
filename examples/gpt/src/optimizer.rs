//! How gradients change the model: the learning rate of each step, clipping, and `AdamW`.
//!
//! candle's own `AdamW` keeps its two averages to itself: a run that resumes without them would take other steps.

use crate::model::{Gpt, KINDS};
use candle_core::{DType, Result, Tensor, backprop::GradStore};

const MEAN: f64 = 0.9;
const SQUARE: f64 = 0.99;
const DECAY: f64 = 0.1; // how fast weights fall back towards 0; those of norms do not
const LONGEST: f64 = 1.0; // of all gradients together
const WARM_UP: u64 = 20; // steps until the learning rate is at its highest

/// The learning rate of a step, the first one being 0: up in a line, then down along half a cosine to a tenth.
pub fn rate(step: u64, steps: u64, highest: f32) -> f32 {
    if step < WARM_UP {
        return highest * (step + 1) as f32 / WARM_UP as f32;
    }
    let way = (step - WARM_UP) as f32 / steps.saturating_sub(WARM_UP).max(1) as f32;
    highest * (0.55 + 0.45 * (std::f32::consts::PI * way.min(1.0)).cos())
}

/// Takes a step down the gradients, the first one being 0; says how long they were, all together.
pub fn step(model: &Gpt, gradients: &GradStore, step: u64, rate: f64) -> Result<f64> {
    let squared = |gradient: &Tensor| gradient.to_dtype(DType::F64)?.sqr()?.sum_all()?.to_scalar::<f64>();
    let all = model.learned.values().filter_map(|var| gradients.get(var));
    let length = all.map(squared).sum::<Result<f64>>()?.sqrt();
    let factor = (LONGEST / length).min(1.0);
    // Both averages begin at 0, and would be too small in the first steps.
    let taken = i32::try_from(step + 1).unwrap_or(i32::MAX);
    let (mean_grown, square_grown) = (1.0 - MEAN.powi(taken), 1.0 - SQUARE.powi(taken));
    for (name, ..) in model.settings.weights() {
        let [weight, mean, square] = KINDS.map(|kind| &model.learned[&format!("{name}{kind}")]);
        let Some(gradient) = gradients.get(weight) else { continue };
        let gradient = (gradient * factor)?;
        mean.set(&((mean.as_tensor() * MEAN)? + (&gradient * (1.0 - MEAN))?)?)?;
        square.set(&((square.as_tensor() * SQUARE)? + (gradient.sqr()? * (1.0 - SQUARE))?)?)?;
        let length = ((square.as_tensor() / square_grown)?.sqrt()? + 1e-8)?;
        let way = ((mean.as_tensor() / mean_grown)? / length)?;
        let kept = if weight.rank() > 1 { 1.0 - rate * DECAY } else { 1.0 };
        weight.set(&((weight.as_tensor() * kept)? - (way * rate)?)?)?;
    }
    Ok(length)
}
