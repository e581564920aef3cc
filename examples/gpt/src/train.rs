//! The training loop: a batch from Lowtide's loader, its loss, a step; now and then an evaluation and a checkpoint.
//!
//! A run is a function of its data, its flags and its seed. Killed at any moment and resumed from its last checkpoint,
//! it takes the very same steps: the checkpoint has the loader's state beside the model's.

use crate::checkpoint::{self, Place, Run};
use crate::model::{Gpt, Settings, size};
use crate::{Result, optimizer, sample, wrong};
use candle_core::{Device, Tensor};
use clap::parser::{ArgMatches, ValueSource};
use lowtide::budget::{human, parse_size};
use lowtide::format::manifest::TokenizerId;
use lowtide::meter::{Files, Interval, Meter, Root, Sample};
use lowtide::{Again, Budget, Error, Loader, LoaderOptions, LoaderState, TokenOptions, order::LastStep};
use serde_json::{Value, json};
use std::{fs, io::Write as _, path::PathBuf, time::Instant};

/// Train a model on tokens that `lowtide prepare` has made
#[derive(Debug, clap::Args)]
pub struct Args {
    #[arg(help = "The folder that `lowtide prepare` has made")]
    data: PathBuf,
    #[arg(long, default_value_t = 300, help = "Steps of the whole run, those before a --resume included")]
    steps: u64,
    #[arg(long, value_name = "DIR", help = "The folder for the checkpoint; it is made, if need be")]
    out: PathBuf,
    #[arg(long, help = "Go on from the checkpoint in --out, with the very next batch")]
    resume: bool,
    #[command(flatten)]
    settings: Settings,
    #[arg(long, value_parser = size, help = "Windows in a batch [default: 16]")]
    batch: Option<usize>,
    #[arg(long, default_value_t = 2e-3, help = "The highest learning rate")]
    rate: f32,
    #[arg(long, default_value_t = 50, help = "Evaluate, and write a checkpoint, after so many steps")]
    every: u64,
    #[arg(long, value_name = "FILE.jsonl", help = "Add a line of JSON for every step to this file")]
    log: Option<PathBuf>,
    #[arg(long, value_parser = size, help = "Threads of the model [default: one for each core]")]
    pub threads: Option<usize>,
    #[arg(long, value_parser = parse_size, help = "Memory for the loader, as 64MiB [default: 256MiB, or less]")]
    budget: Option<u64>,
}

pub fn run(args: &Args, flags: &ArgMatches) -> Result<()> {
    let started = Instant::now();
    let made = "lowtide prepare TEXT -o DATA --tokenizer bytes --val 0.1 makes a folder to train on";
    let budget = args.budget.map(Budget::new).transpose()?;
    let options = budget.map_or_else(TokenOptions::new, |budget| TokenOptions::new().budget(budget));
    let hinted = |error: Error| if error.hint().is_empty() { error.with_hint(made) } else { error };
    let tokens = options.open([&args.data]).map_err(hinted)?;
    let Some(prepared) = tokens.prepared() else {
        let what = format!("{}: nothing says which tokenizer made these tokens", args.data.display());
        return wrong(what, made);
    };
    let tokenizer = lowtide_text::show::tokenizer_of(&tokens, None)?;
    let (mut run, model) = args.begin(flags, &prepared.manifest.tokenizer)?;
    let Settings { vocabulary, block, seed, .. } = run.settings;

    let options = LoaderOptions { batch_size: run.batch, block_size: block, ..Default::default() };
    let mut loader = Loader::new(&tokens, LoaderOptions { seed, epochs: None, ..options })?;
    if args.resume {
        let Place { epoch, position, fingerprint } = run.loader.clone();
        loader.load(&LoaderState { epoch, position, fingerprint, ..loader.state()? })?;
    }
    // To measure with: the same batches every time, whatever the seed, so that two runs can be compared.
    let options = LoaderOptions { again: Again::SameEpoch, last: LastStep::Split, ..options };
    let split = TokenOptions::new().budget(tokens.budget().clone()).split("val");
    let open = || Loader::new(&split.open([&prepared.folder])?, options);
    let mut val = prepared.manifest.split(Some("val")).is_ok().then(open).transpose()?;
    if val.is_none() {
        eprintln!("note: no validation split to measure with; lowtide prepare --val 0.1 makes one");
    }
    fs::create_dir_all(&args.out).map_err(|error| Error::io(&args.out, "make the folder", error))?;
    // `sample` may run where the data is not.
    if let (Some((_, table)), Some(name)) = (tokenizer.table(), &run.tokenizer.file) {
        lowtide::write::replace(&args.out.join(name), table.as_bytes())?;
    }

    let parameters: usize = run.settings.weights().map(|(_, shape, _)| shape.iter().product::<usize>()).sum();
    eprintln!("{parameters} parameters, {} tokens, a vocabulary of {vocabulary}", tokens.len());
    args.log(&json!({
        "kind": "start", "parameters": parameters, "tokens": tokens.len(), "vocabulary": vocabulary,
        "batch": run.batch, "block": block, "steps": args.steps, "step": run.step,
    }))?;
    let files = Files::new(&[prepared.folder.to_string_lossy().into_owned()]);
    let meter = Meter::start(Root::Process(std::process::id()), files, Interval::Auto)?;
    let (mut spent, mut waited) = (0.0, 0.0); // seconds of all steps, and of that for the loader
    if run.step == 0 {
        args.evaluate(&model, val.as_mut(), 0)?;
    }
    while run.step < args.steps {
        let began = Instant::now();
        let Some((x, y)) = next(&mut loader, vocabulary)? else { break }; // there is always one
        let loader_seconds = began.elapsed().as_secs_f64();
        let loss = model.loss(&x, &y)?;
        let rate = optimizer::rate(run.step, args.steps, args.rate);
        optimizer::step(&model, &loss.backward()?, run.step, rate.into())?;
        let (loss, step_seconds) = (loss.to_scalar::<f32>()?, began.elapsed().as_secs_f64());

        (spent, waited) = (spent + step_seconds, waited + loader_seconds);
        let speed = x.elem_count() as f64 / step_seconds;
        let Sample { anon, file, cache, .. } = meter.latest().unwrap_or_default();
        args.log(&json!({
            "kind": "step", "step": run.step, "loss": loss, "rate": rate, "step_seconds": step_seconds,
            "loader_seconds": loader_seconds, "tokens_per_second": speed,
            "rss_anon": anon, "rss_file": file, "cache": cache,
        }))?;
        let last = run.step + 1 == args.steps;
        if last || run.step.is_multiple_of(10) {
            let cached = cache.map_or_else(|| "unknown".to_owned(), human);
            let memory = format!("anonymous {}, mapped {}, page cache {cached}", human(anon), human(file));
            eprintln!("step {:>5}  loss {loss:.4}  {speed:>6.0} tokens/s  {memory}", run.step);
        }
        run.step += 1;
        if last || run.step.is_multiple_of(args.every) {
            args.evaluate(&model, val.as_mut(), run.step)?;
            let LoaderState { epoch, position, fingerprint, .. } = loader.state()?;
            run.loader = Place { epoch, position, fingerprint };
            checkpoint::save(&args.out, &run, &model)?;
        }
    }

    let sample = sample::print(&model, &*tokenizer, "", 300, seed)?;
    let (share, checkpoint) = (waited / f64::max(spent, f64::MIN_POSITIVE), args.out.join(checkpoint::NAME));
    args.log(&json!({
        "kind": "end", "seconds": started.elapsed().as_secs_f64(), "loader_share": share, "sample": sample,
        "checkpoint": checkpoint,
    }))?;
    let verdict = meter.stop(vec!["lowtide-gpt".to_owned()], None)?.verdict;
    eprintln!("memory      {}: {}", verdict.word.as_str(), verdict.sentence);
    eprintln!("loader      {:.3} % of the time of the steps", 100.0 * share);
    eprintln!("checkpoint  {}", checkpoint.display());
    Ok(())
}

impl Args {
    /// A run that has learned nothing, or what its checkpoint holds.
    fn begin(&self, flags: &ArgMatches, tokenizer: &TokenizerId) -> Result<(Run, Gpt)> {
        let Self { settings: Settings { width, heads, .. }, out, batch, .. } = self;
        if self.resume {
            let (mut run, model) = checkpoint::load(out)?;
            let (now, was) = (serde_json::to_value(self.settings)?, serde_json::to_value(run.settings)?);
            for flag in ["block", "layers", "heads", "width", "seed"] {
                let (now, was) = (&now[flag], &was[flag]);
                if now != was && flags.value_source(flag) == Some(ValueSource::CommandLine) {
                    let what = format!("--{flag} is {now}, and the checkpoint was made with {was}");
                    return wrong(what, format!("leave --{flag} out to go on, or choose another --out"));
                }
            }
            run.batch = batch.unwrap_or(run.batch); // it may change: the loader's state does not depend on it
            return Ok((run, model));
        }
        if out.join(checkpoint::NAME).exists() {
            let what = format!("{}: a model was trained into this folder already", out.display());
            return wrong(what, "--resume goes on with it; or choose another --out");
        }
        if !width.is_multiple_of(*heads) {
            let what = format!("a width of {width} cannot be shared among {heads} heads");
            return wrong(what, "--width is a multiple of --heads");
        }
        let settings = Settings { vocabulary: usize::try_from(tokenizer.vocabulary)?, ..self.settings };
        let (batch, tokenizer, loader) = (batch.unwrap_or(16), tokenizer.clone(), Place::default());
        Ok((Run { settings, batch, step: 0, tokenizer, loader }, Gpt::new(settings)?))
    }

    /// Says the loss on a few batches of the validation split.
    fn evaluate(&self, model: &Gpt, val: Option<&mut Loader>, step: u64) -> Result<()> {
        let Some(val) = val else { return Ok(()) };
        val.begin()?;
        let mut losses = Vec::new();
        for _ in 0..8 {
            let Some((x, y)) = next(val, model.settings.vocabulary)? else { break };
            losses.push(model.loss(&x, &y)?.to_scalar::<f32>()?);
        }
        let loss = losses.iter().sum::<f32>() / losses.len() as f32;
        eprintln!("step {step:>5}  validation loss {loss:.4}");
        self.log(&json!({ "kind": "eval", "step": step, "loss": loss }))
    }

    /// Adds a line of JSON to the log at once: it is there whatever happens next.
    fn log(&self, line: &Value) -> Result<()> {
        let Some(path) = &self.log else { return Ok(()) };
        let file = fs::File::options().create(true).append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        Ok(written.map_err(|error| Error::io(path, "write to the log", error))?)
    }
}

/// The next batch as candle has it, and what came after each of its tokens.
fn next(loader: &mut Loader, vocabulary: usize) -> Result<Option<(Tensor, Tensor)>> {
    let Some((x, y)) = loader.next_batch::<u32>(&|| Ok(())).transpose()? else { return Ok(None) };
    let (shape, x, y) = (x.shape(), x.as_slice::<u32>()?, y.as_slice::<u32>()?);
    if let Some(id) = x.iter().chain(y).find(|&&id| id as usize >= vocabulary) {
        let what = format!("a batch has the token {id}, and the vocabulary ends at {}", vocabulary - 1);
        return wrong(what, "the data is damaged, and lowtide verify DATA says where");
    }
    let tensor = |ids| Tensor::from_slice(ids, shape, &Device::Cpu);
    Ok(Some((tensor(x)?, tensor(y)?)))
}
