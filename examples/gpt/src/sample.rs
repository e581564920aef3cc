//! Text from a model: one token after another, each drawn by the chances that the model gives.

use crate::{Result, checkpoint, model::Gpt};
use candle_core::{Device, Tensor};
use candle_nn::ops;
use lowtide_text::{Tokenizer, show, tokenizer};
use rand_chacha::{ChaCha8Rng, rand_core::SeedableRng as _};
use rand_distr::{Distribution as _, weighted::WeightedIndex};
use std::{io::Write as _, path::PathBuf};

/// Print text from a trained model
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(long, value_name = "DIR", help = "The folder that was trained into")]
    from: PathBuf,
    #[arg(long, value_name = "TEXT", default_value = "", help = "What the text begins with")]
    prompt: String,
    #[arg(long, value_name = "N", default_value_t = 300, help = "How many tokens are made")]
    tokens: usize,
    #[arg(long, default_value_t = 0, help = "Another seed, another text")]
    seed: u64,
}

pub fn run(args: &Args) -> Result<()> {
    let (run, model) = checkpoint::load(&args.from)?;
    let tokenizer = tokenizer::of_manifest(&args.from, &run.tokenizer)?;
    print(&model, &*tokenizer, &args.prompt, args.tokens, args.seed).map(drop)
}

/// Prints, and gives, the prompt and `count` tokens that the model goes on with.
pub fn print(gpt: &Gpt, tokenizer: &dyn Tokenizer, prompt: &str, count: usize, seed: u64) -> Result<String> {
    // A document begins where another one has ended.
    let mut ids = vec![tokenizer.end_of_text().unwrap_or(0)];
    tokenizer.encode(prompt, &mut ids)?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..count {
        let context = &ids[ids.len().saturating_sub(gpt.settings.block)..];
        let scores = gpt.forward(&Tensor::new(context, &Device::Cpu)?.unsqueeze(0)?)?;
        // Divided by less than 1, likely tokens become likelier.
        let chances = ops::softmax(&(scores.get(0)?.get(context.len() - 1)? / 0.8)?, 0)?.to_vec1::<f32>()?;
        ids.push(WeightedIndex::new(chances)?.sample(&mut random) as u32);
    }
    let text = show::text(tokenizer, &ids[1..], true)?;
    let _ = writeln!(std::io::stdout(), "{text}"); // if somebody still reads
    Ok(text)
}
