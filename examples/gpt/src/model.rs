//! The model: a GPT as they are built today, small. Tokens go in, a score for every possible next token comes out.
//!
//! It knows nothing of files. All that is learned lies in one map: the optimizer changes it, a checkpoint is a copy.

use candle_core::{D, Device, Result, Tensor, Var};
use candle_nn::{Embedding, LayerNorm, Linear, Module as _, loss, ops};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
use rand_distr::{Distribution as _, StandardNormal};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What makes a model what it is. A run cannot change it on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::Args)]
pub struct Settings {
    #[arg(skip)]
    pub vocabulary: usize,
    #[arg(long, default_value_t = 64, value_parser = size, help = "Tokens in a window")]
    pub block: usize,
    #[arg(long, default_value_t = 4, value_parser = size, help = "Layers of the model")]
    pub layers: usize,
    #[arg(long, default_value_t = 4, value_parser = size, help = "Heads of each layer")]
    pub heads: usize,
    #[arg(long, default_value_t = 128, value_parser = size, help = "Numbers that stand for a token inside")]
    pub width: usize,
    #[arg(long, default_value_t = 0, help = "Another seed, other first weights and another order")]
    pub seed: u64,
}

pub fn size(text: &str) -> std::result::Result<usize, &'static str> {
    text.parse().ok().filter(|size| (1..=4096).contains(size)).ok_or("it is a number from 1 to 4096")
}

impl Settings {
    /// Every weight: its name, its shape, and how far its first values spread around 0. Norms begin as 1.
    pub fn weights(self) -> impl Iterator<Item = (String, Vec<usize>, f32)> {
        let Self { vocabulary, block, layers, width, .. } = self;
        // As GPT-2: what a layer adds to a token begins the smaller the more layers there are.
        let (usual, added) = (0.02, 0.02 / (2.0 * layers as f32).sqrt());
        let layer = move |n| {
            let parts = [
                ("attention_norm", vec![width], 0.0),
                ("query", vec![width, width], usual),
                ("key", vec![width, width], usual),
                ("value", vec![width, width], usual),
                ("project", vec![width, width], added),
                ("mlp_norm", vec![width], 0.0),
                ("up", vec![4 * width, width], usual),
                ("down", vec![width, 4 * width], added),
            ];
            parts.map(|(part, shape, spread)| (format!("layer{n}.{part}"), shape, spread))
        };
        let table = |name: &str, rows| (name.to_owned(), vec![rows, width], usual);
        let tables = [table("tokens", vocabulary), table("positions", block)].into_iter();
        tables.chain((0..layers).flat_map(layer)).chain([("last".to_owned(), vec![width], 0.0)])
    }
}

/// A weight lies under its name, and beside it the optimizer's averages of its gradient and of the gradient's square.
pub const KINDS: [&str; 3] = ["", ".mean", ".square"];

#[derive(Debug)]
pub struct Gpt {
    pub settings: Settings,
    pub learned: BTreeMap<String, Var>,
}

impl Gpt {
    /// A model that has learned nothing. The same seed gives the same one.
    pub fn new(settings: Settings) -> Result<Self> {
        let (mut random, mut learned) = (ChaCha8Rng::seed_from_u64(settings.seed), BTreeMap::new());
        for (name, shape, spread) in settings.weights() {
            let mut normal = || -> f32 { StandardNormal.sample(&mut random) };
            let first = |_| if spread > 0.0 { normal() * spread } else { 1.0 };
            let values = (0..shape.iter().product()).map(first).collect();
            let weight = Var::from_vec(values, shape, &Device::Cpu)?;
            for average in [".mean", ".square"] {
                learned.insert(format!("{name}{average}"), Var::from_tensor(&weight.zeros_like()?)?);
            }
            learned.insert(name, weight);
        }
        Ok(Self { settings, learned })
    }

    /// Scores of the next token after each of these, batch × tokens × vocabulary.
    pub fn forward(&self, tokens: &Tensor) -> Result<Tensor> {
        let Settings { layers, heads, width, .. } = self.settings;
        let (batch, len) = tokens.dims2()?;
        let weight = |name: &str| self.learned[name].as_tensor().clone();
        let linear = |name: &str, x: &Tensor| Linear::new(weight(name), None).forward(x);
        // Not RmsNorm, nor softmax_last_dim below: candle has no gradient for them, and does not say so.
        let norm = |name: &str, x: &Tensor| LayerNorm::rms_norm(weight(name), 1e-5).forward(x);
        // 0 where a token may look, −∞ where that would be the future.
        let future = |at: usize| if at % len > at / len { f32::NEG_INFINITY } else { 0.0 };
        let mask = Tensor::from_vec((0..len * len).map(future).collect(), (len, len), &Device::Cpu)?;
        let positions = weight("positions").narrow(0, 0, len)?;
        let mut x = Embedding::new(weight("tokens"), width).forward(tokens)?.broadcast_add(&positions)?;
        for layer in (0..layers).map(|n| format!("layer{n}")) {
            // Each token gathers from those before it what it asks for.
            let seen = norm(&format!("{layer}.attention_norm"), &x)?;
            let split = |part: &str| {
                let all = linear(&format!("{layer}.{part}"), &seen)?;
                all.reshape((batch, len, heads, width / heads))?.transpose(1, 2)?.contiguous()
            };
            let fits = (split("query")?.matmul(&split("key")?.t()?)? * ((width / heads) as f64).powf(-0.5))?;
            let gathered = ops::softmax(&fits.broadcast_add(&mask)?, D::Minus1)?.matmul(&split("value")?)?;
            let gathered = gathered.transpose(1, 2)?.reshape((batch, len, width))?;
            x = (x + linear(&format!("{layer}.project"), &gathered)?)?;
            // Then each by itself. Not with GELU: its tanh would be a good part of a step on a CPU.
            let inner = linear(&format!("{layer}.up"), &norm(&format!("{layer}.mlp_norm"), &x)?)?.relu()?;
            x = (x + linear(&format!("{layer}.down"), &inner)?)?;
        }
        // The same table at both ends: the score of a token is how much the outcome looks like it.
        linear("tokens", &norm("last", &x)?)
    }

    /// The cross-entropy with the tokens that came next: the mean of −ln of the chance that each was given.
    pub fn loss(&self, tokens: &Tensor, next: &Tensor) -> Result<Tensor> {
        loss::cross_entropy(&self.forward(tokens)?.flatten_to(1)?, &next.flatten_all()?)
    }
}
