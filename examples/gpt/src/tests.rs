//! Each part against something that was computed otherwise: by hand, by differences, by reading the file again.

use crate::checkpoint::{NAME, Place, Run, load, save};
use crate::model::{Gpt, Settings};
use crate::optimizer::{rate, step};
use candle_core::{Device, Tensor, Var};
use lowtide::format::manifest::TokenizerId;

const SETTINGS: Settings = Settings { vocabulary: 11, block: 6, layers: 2, heads: 2, width: 8, seed: 0 };

fn model(seed: u64) -> Gpt {
    Gpt::new(Settings { seed, ..SETTINGS }).unwrap()
}

/// The weights alone, without the optimizer's averages.
fn weights(model: &Gpt) -> Vec<(String, Var)> {
    let var = |name: String| (name.clone(), model.learned[&name].clone());
    model.settings.weights().map(|(name, ..)| var(name)).collect()
}

fn tensor(ids: &[u32], shape: (usize, usize)) -> Tensor {
    Tensor::from_slice(ids, shape, &Device::Cpu).unwrap()
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    tensor.flatten_all().unwrap().to_vec1().unwrap()
}

/// Two windows of six tokens, and what comes after each token.
fn batch() -> (Tensor, Tensor) {
    let x = tensor(&[1, 2, 3, 4, 5, 6, 10, 9, 8, 7, 6, 5], (2, 6));
    (x, tensor(&[2, 3, 4, 5, 6, 7, 9, 8, 7, 6, 5, 4], (2, 6)))
}

#[test]
fn scores_have_the_shape_and_parameters_the_number_that_they_should() {
    let model = model(0);
    let (x, y) = batch();
    assert_eq!(model.forward(&x).unwrap().dims(), [2, 6, 11]);
    assert_eq!(model.forward(&tensor(&[3], (1, 1))).unwrap().dims(), [1, 1, 11], "shorter than a block");
    let (tables, layer) = ((11 + 6) * 8, 12 * 8 * 8 + 2 * 8);
    let size = weights(&model).iter().map(|(_, var)| var.elem_count()).sum::<usize>();
    assert_eq!(size, tables + 2 * layer + 8);
    assert_eq!(model.learned.len(), 3 * weights(&model).len(), "two averages beside each");
    // A model that knows nothing gives every token about the same chance.
    let loss: f32 = model.loss(&x, &y).unwrap().to_scalar().unwrap();
    assert!((loss - 11_f32.ln()).abs() < 0.1, "{loss}");
}

#[test]
fn a_seed_gives_the_same_model_and_another_seed_another() {
    let values = |seed| numbers(&model(seed).learned["tokens"]);
    assert_eq!(values(1), values(1));
    assert_ne!(values(1), values(2));
}

#[test]
fn first_weights_spread_as_they_should() {
    let model = Gpt::new(Settings { width: 64, ..SETTINGS }).unwrap();
    for (name, var) in weights(&model) {
        let values = numbers(&var);
        let root = (values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32).sqrt();
        let want = match &*name {
            "layer1.project" | "layer1.down" | "layer0.project" | "layer0.down" => 0.01,
            name if name.contains("norm") || name == "last" => 1.0,
            _ => 0.02,
        };
        assert!((root / want - 1.0).abs() < 0.15, "{name}: {root}");
    }
}

#[test]
fn a_later_token_does_not_change_earlier_scores() {
    let model = model(0);
    let ids = [1, 2, 3, 4, 5, 6];
    let before = model.forward(&tensor(&ids, (1, 6))).unwrap().get(0).unwrap();
    for changed in 0..6 {
        let mut others = ids;
        others[changed] = 9;
        let after = model.forward(&tensor(&others, (1, 6))).unwrap().get(0).unwrap();
        for place in 0..6 {
            let same = numbers(&before.get(place).unwrap()) == numbers(&after.get(place).unwrap());
            assert_eq!(same, place < changed, "token {changed} changed, scores at {place}");
        }
    }
}

/// candle leaves out gradients that it does not know. Differences do not.
#[test]
fn gradients_are_what_differences_say() {
    let model = model(3);
    let (x, y) = batch();
    // Weights as they begin are so small that rounding would hide the differences.
    for (_, var) in weights(&model).iter().filter(|(_, var)| var.rank() == 2) {
        var.set(&(var.as_tensor() * 10.0).unwrap()).unwrap();
    }
    let gradients = model.loss(&x, &y).unwrap().backward().unwrap();
    for (name, var) in weights(&model) {
        let gradient = numbers(gradients.get(&var).unwrap());
        let values = numbers(&var);
        let steepest = (0..gradient.len()).max_by(|&a, &b| gradient[a].abs().total_cmp(&gradient[b].abs()));
        let at = steepest.unwrap();
        let loss_with = |change: f32| {
            let mut moved = values.clone();
            moved[at] += change;
            var.set(&Tensor::from_vec(moved, var.shape(), &Device::Cpu).unwrap()).unwrap();
            f64::from(model.loss(&x, &y).unwrap().to_scalar::<f32>().unwrap())
        };
        let difference = (loss_with(1e-3) - loss_with(-1e-3)) / 2e-3;
        loss_with(0.0);
        let slope = f64::from(gradient[at]);
        assert!((slope - difference).abs() < 1e-3 + 0.03 * slope.abs(), "{name}: {slope} and {difference}");
        assert!(slope.abs() > 1e-4, "{name} learns");
    }
}

#[test]
fn the_rate_goes_up_in_a_line_and_down_along_a_cosine() {
    let near = |step, want: f32| assert!((rate(step, 120, 1.0) - want).abs() < 1e-6, "{step}");
    near(0, 0.05);
    near(19, 1.0);
    near(20, 1.0);
    near(70, 0.55); // half way: in the middle of 1 and 0.1
    near(120, 0.1);
    near(1000, 0.1);
    assert!((rate(4, 5, 1.0) - 0.25).abs() < 1e-6, "a run that ends while it warms up");
}

/// Steps of one weight in a matrix and one in a norm, by the paper's formulas, in f64.
#[test]
fn the_optimizer_clips_and_takes_the_steps_of_adamw() {
    let model =
        Gpt::new(Settings { vocabulary: 1, block: 1, layers: 0, heads: 1, width: 1, seed: 0 }).unwrap();
    let [matrix, norm] = ["tokens", "last"].map(|name| &model.learned[name]);
    let untouched = numbers(&model.learned["positions"]);
    let mut want = [matrix, norm].map(|var| f64::from(numbers(var)[0]));
    let (mut mean, mut square) = (0.0, 0.0);
    // Together both gradients are longer than 1 in the third step, and only there.
    for (taken, slope) in (0..).zip([0.3_f64, -0.1, 5.0, 0.2]) {
        // The gradient of this sum is `slope` for both.
        let sum = ((matrix.sum_all().unwrap() + norm.sum_all().unwrap()).unwrap() * slope).unwrap();
        let length = step(&model, &sum.backward().unwrap(), taken, 0.1).unwrap();
        assert!((length - slope.abs() * 2_f64.sqrt()).abs() < 1e-6);
        let slope = slope / length.max(1.0);
        mean = 0.9 * mean + 0.1 * slope;
        square = 0.99 * square + 0.01 * slope * slope;
        let steps = i32::try_from(taken + 1).unwrap();
        let way = mean / (1.0 - 0.9_f64.powi(steps)) / (square / (1.0 - 0.99_f64.powi(steps))).sqrt();
        want = [want[0] * (1.0 - 0.1 * 0.1) - 0.1 * way, want[1] - 0.1 * way];
        for (var, want) in [matrix, norm].into_iter().zip(want) {
            assert!((f64::from(numbers(var)[0]) - want).abs() < 1e-5, "step {taken}");
        }
    }
    assert_eq!(numbers(&model.learned["positions"]), untouched, "it had no gradient");
}

#[test]
fn a_model_learns_a_batch_by_heart() {
    let model = model(0);
    let (x, y) = batch();
    let mut loss = 0.0;
    for taken in 0..100 {
        let tensor = model.loss(&x, &y).unwrap();
        loss = tensor.to_scalar::<f32>().unwrap();
        step(&model, &tensor.backward().unwrap(), taken, 1e-2).unwrap();
    }
    assert!(loss < 0.1, "{loss}");
}

fn learned() -> (Run, Gpt) {
    let model = model(7);
    let (x, y) = batch();
    for taken in 0..3 {
        step(&model, &model.loss(&x, &y).unwrap().backward().unwrap(), taken, 1e-2).unwrap();
    }
    let tokenizer = TokenizerId {
        name: "bytes".to_owned(),
        fingerprint: "b".to_owned(),
        vocabulary: 11,
        end_of_text: None,
        file: None,
    };
    let loader = Place { epoch: 2, position: 48, fingerprint: "f00d".to_owned() };
    (Run { settings: model.settings, batch: 2, step: 3, tokenizer, loader }, model)
}

#[test]
fn a_checkpoint_gives_back_every_bit() {
    let folder = tempfile::tempdir().unwrap();
    let (run, model) = learned();
    std::fs::write(folder.path().join("checkpoint.unfinished"), "what a kill has left").unwrap();
    save(folder.path(), &run, &model).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    let (same, again) = load(folder.path()).unwrap();
    assert_eq!((&same, again.settings), (&run, model.settings));
    assert!(again.learned.keys().eq(model.learned.keys()));
    for (name, var) in &model.learned {
        assert_eq!(numbers(var), numbers(&again.learned[name]), "{name}");
        assert!(!name.ends_with(".square") || numbers(var).iter().any(|&square| square > 0.0));
    }
}

#[test]
fn a_damaged_checkpoint_is_refused_in_words() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |what: &str| {
        let said = load(folder.path()).unwrap_err().to_string();
        assert!(said.contains("no whole checkpoint") && said.contains("hint: "), "{what}: {said}");
    };
    let (mut run, mut model) = learned();
    save(folder.path(), &run, &model).unwrap();
    let path = folder.path().join(NAME);
    let whole = std::fs::read(&path).unwrap();
    for end in (0..whole.len()).step_by(whole.len() / 50) {
        std::fs::write(&path, &whole[..end]).unwrap();
        refused(&format!("cut at {end}"));
    }
    for (field, value) in [
        ("vocabulary", 1_u64 << 60),
        ("width", u64::MAX),
        ("heads", 0),
        ("heads", 3),
        ("layers", 0),
        ("layers", 9),
        ("layers", u64::MAX),
    ] {
        let mut settings = serde_json::to_value(SETTINGS).unwrap();
        settings[field] = value.into();
        run.settings = serde_json::from_value(settings).unwrap();
        save(folder.path(), &run, &model).unwrap();
        refused(&format!("{field} of {value}"));
    }
    run.settings = model.settings;
    let other = model.learned["last.mean"].to_dtype(candle_core::DType::F64).unwrap();
    model.learned.insert("last.mean".to_owned(), Var::from_tensor(&other).unwrap());
    save(folder.path(), &run, &model).unwrap();
    refused("numbers of another type");
    model.learned.remove("last.mean");
    save(folder.path(), &run, &model).unwrap();
    refused("an average that is missing");
}
