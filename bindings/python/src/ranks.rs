//! Which rank this process is, and of how many.
//!
//! What is said in the call counts. Else whoever started the processes is asked, in one order: torch.distributed
//! where it is initialised, torchrun's variables, Slurm's, Open MPI's, PMI's; a process of which nobody says
//! anything is alone. A loader may be made before the process group is, or before a fork: so [`RankWish`] asks
//! again until the first batch of an iteration. torch is never imported here: whoever has initialised it has it.

use crate::error::raise;
use lowtide::order::Shard;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Who says which rank this is. The order is the one in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    Given,
    Torch,
    Torchrun,
    Slurm,
    OpenMpi,
    Pmi,
    /// A rank without a size or a size without a rank: at the first batch that is an error.
    HalfSaid,
    Nobody,
}

impl Origin {
    const ALL: [Self; 8] = [
        Self::Given,
        Self::Torch,
        Self::Torchrun,
        Self::Slurm,
        Self::OpenMpi,
        Self::Pmi,
        Self::HalfSaid,
        Self::Nobody,
    ];

    /// The words of a repr.
    fn name(self) -> &'static str {
        match self {
            Self::Given => "given",
            Self::Torch => "torch.distributed",
            Self::Torchrun => "RANK and WORLD_SIZE",
            Self::Slurm => "SLURM_PROCID and SLURM_NTASKS",
            Self::OpenMpi => "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE",
            Self::Pmi => "PMI_RANK and PMI_SIZE",
            Self::HalfSaid => "for now: only half of it is known",
            Self::Nobody => "no launcher seen",
        }
    }
}

/// A rank, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranks {
    pub shard: Shard,
    origin: Origin,
}

impl Ranks {
    /// What a call has said, where nobody else is ever asked; `None` where it said nothing.
    pub fn given(shard: Shard) -> Option<Self> {
        (shard != Shard::ALONE).then_some(Self { shard, origin: Origin::Given })
    }

    /// For a repr.
    pub fn shown(self) -> String {
        let (rank, ranks) = (self.shard.rank(), self.shard.world_size());
        format!("rank={rank} world_size={ranks} ({})", self.origin.name())
    }

    /// For `.why`, after why the way of access was taken.
    pub fn after(self, why: &str) -> String {
        let (rank, ranks) = (self.shard.rank(), self.shard.world_size());
        format!("{why}; rank {rank} of {ranks}: {}", self.origin.name())
    }
}

/// What one source says: both numbers, or only one of them, or nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Says {
    rank: Option<u64>,
    world_size: Option<u64>,
}

impl Says {
    fn both(self) -> Option<(u64, u64)> {
        Some((self.rank?, self.world_size?))
    }
}

/// All of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    torch: Says,
    torchrun: Says,
    slurm: Says,
    open_mpi: Says,
    pmi: Says,
}

/// When the question is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the first batch: a launcher may not be ready.
    Early,
    /// Now it is known, or each rank would read everything.
    FirstBatch,
}

/// Which source counts, or why none can.
///
/// torch.distributed and torchrun's variables speak of the same processes, and must agree. Slurm's and MPI's may
/// be those of a launcher around it (torchrun in a Slurm task, say): they count only where the first two are silent.
/// Among each other they must agree, but for a single task or process, which can hold a launcher of many.
fn decide(seen: &Seen, moment: Moment) -> Result<(Origin, u64, u64), String> {
    let outer = [(Origin::Slurm, seen.slurm), (Origin::OpenMpi, seen.open_mpi), (Origin::Pmi, seen.pmi)];
    let of_many = outer.map(|(origin, Says { rank, world_size })| {
        (origin, Says { rank, world_size: world_size.filter(|&ranks| ranks > 1) })
    });
    for sources in [&[(Origin::Torch, seen.torch), (Origin::Torchrun, seen.torchrun)][..], &of_many, &outer] {
        if let Some(answer) = agreed(sources)? {
            return Ok(answer);
        }
    }
    let missing = match seen.torchrun {
        Says { rank: Some(rank), world_size: None } => Some(half("RANK", rank, "WORLD_SIZE")),
        Says { rank: None, world_size: Some(ranks @ 2..) } => Some(half("WORLD_SIZE", ranks, "RANK")),
        _ => only_a_rank(&outer),
    };
    match (missing, moment) {
        (Some(missing), Moment::FirstBatch) => Err(missing),
        (Some(_), Moment::Early) => Ok((Origin::HalfSaid, 0, 1)),
        (None, _) => Ok((Origin::Nobody, 0, 1)),
    }
}

/// That one of Slurm and MPI says a rank and not of how many. A size alone says nothing: a job's shell has it too.
fn only_a_rank(sources: &[(Origin, Says)]) -> Option<String> {
    sources.iter().find_map(|(origin, says)| {
        let (rank, world_size) = origin.name().split_once(" and ")?;
        Some(half(rank, says.rank.filter(|_| says.world_size.is_none())?, world_size))
    })
}

/// What the first source says that says anything, if no other contradicts it.
fn agreed(sources: &[(Origin, Says)]) -> Result<Option<(Origin, u64, u64)>, String> {
    let mut speaking = sources.iter().filter_map(|(origin, says)| Some((origin, says.both()?)));
    let Some((origin, answer)) = speaking.next() else { return Ok(None) };
    match speaking.find(|(_, other)| *other != answer) {
        None => Ok(Some((*origin, answer.0, answer.1))),
        Some((other, (rank, ranks))) => Err(format!(
            "{} says rank {} of {}, {} says rank {rank} of {ranks}\n\
             hint: unset the wrong one, or pass rank= and world_size=",
            origin.name(),
            answer.0,
            answer.1,
            other.name()
        )),
    }
}

fn half(there: &str, value: u64, missing: &str) -> String {
    format!(
        "the environment has {there}={value} but no {missing}, and torch.distributed is not initialised, so that \
         this process does not know its rank\n\
         hint: initialise torch.distributed before the first batch, or pass rank= and world_size="
    )
}

/// What a loader was told about ranks, and what it has found out.
#[derive(Debug)]
pub struct RankWish {
    given: Option<Shard>,
    origin: AtomicU8,
    /// The process in which `origin` was found: a forked child may be another rank.
    found_in: AtomicU32,
    /// The process in which a first batch was taken; 0 before it, and when the next iteration begins.
    settled_in: AtomicU32,
}

impl RankWish {
    /// `rank=` and `world_size=`, and which ones those are for now.
    pub fn new(py: Python<'_>, rank: Option<u64>, world_size: Option<u64>) -> PyResult<(Self, Shard)> {
        let given = match (rank, world_size) {
            (Some(rank), Some(world_size)) => Some(Shard::new(rank, world_size).map_err(raise)?),
            (None, None) => None,
            _ => {
                return Err(PyValueError::new_err("rank and world_size go together: give both or none"));
            }
        };
        let wish = Self {
            given,
            origin: AtomicU8::new(Origin::Given as u8),
            found_in: AtomicU32::new(0),
            settled_in: AtomicU32::new(0),
        };
        let shard = wish.ask(py, Moment::Early)?.or(given).unwrap_or_default();
        Ok((wish, shard))
    }

    /// An iteration begins: at its first batch they are asked again.
    pub fn begin(&self) {
        self.settled_in.store(0, Ordering::Relaxed);
    }

    /// The rank of this process if it may have become another one: not if it was given, nor within an iteration.
    pub fn ask(&self, py: Python<'_>, moment: Moment) -> PyResult<Option<Shard>> {
        if self.given.is_some() {
            return Ok(None);
        }
        let process = std::process::id();
        if self.settled_in.load(Ordering::Relaxed) == process {
            return Ok(None);
        }
        let found = self.found_in.load(Ordering::Relaxed) == process;
        let (origin, rank, world_size) = decide(&look(py)?, moment).map_err(PyValueError::new_err)?;
        if moment == Moment::FirstBatch {
            self.settled_in.store(process, Ordering::Relaxed);
        }
        // After the process group was destroyed a rank is still what it was.
        let knows = |origin| !matches!(origin, Origin::HalfSaid | Origin::Nobody);
        if found && !knows(origin) && knows(self.origin()) {
            return Ok(None);
        }
        self.origin.store(origin as u8, Ordering::Relaxed);
        self.found_in.store(process, Ordering::Relaxed);
        match Shard::new(rank, world_size) {
            Ok(shard) => Ok(Some(shard)),
            Err(error) => Err(PyValueError::new_err(format!("{}: {error}", origin.name()))),
        }
    }

    /// For a copy in another process. One that nobody gave a rank may be sent to where ranks are, and asks there.
    pub fn send(&self, shard: Shard, keywords: &Bound<'_, PyDict>) -> PyResult<()> {
        if self.given.is_none() && shard == Shard::ALONE {
            return Ok(());
        }
        keywords.set_item("rank", shard.rank())?;
        keywords.set_item("world_size", shard.world_size())
    }

    /// With the shard that it led to.
    pub fn with(&self, shard: Shard) -> Ranks {
        Ranks { shard, origin: self.origin() }
    }

    fn origin(&self) -> Origin {
        Origin::ALL[usize::from(self.origin.load(Ordering::Relaxed))]
    }
}

/// Asks everybody.
fn look(py: Python<'_>) -> PyResult<Seen> {
    let environ = py.import("os")?.getattr("environ")?; // Python's own view: it can differ from the process's
    let number = |name: &str| -> PyResult<Option<u64>> {
        let value = environ.call_method1("get", (name,))?;
        if value.is_none() {
            return Ok(None);
        }
        let text: String = value.extract()?;
        let not_a_number =
            |_| PyValueError::new_err(format!("the environment has {name}={text:?}, which is not a number"));
        text.trim().parse().map(Some).map_err(not_a_number)
    };
    let pair = |rank: &str, world_size: &str| -> PyResult<Says> {
        Ok(Says { rank: number(rank)?, world_size: number(world_size)? })
    };
    let torch = torch(py)?;
    let torchrun = pair("RANK", "WORLD_SIZE")?;
    if torch.both().or(torchrun.both()).is_some() {
        return Ok(Seen { torch, torchrun, ..Seen::default() });
    }
    // A batch script has Slurm's variables too, as if it were the first task; only the tasks of a step have its
    // number. The step may have fewer tasks than the job.
    let is_set = |name: &str| environ.contains(name);
    let slurm = if is_set("SLURM_JOB_ID")? && !is_set("SLURM_STEP_ID")? {
        Says::default()
    } else {
        let in_step = number("SLURM_STEP_NUM_TASKS")?;
        let Says { rank, world_size } = pair("SLURM_PROCID", "SLURM_NTASKS")?;
        let world_size = in_step.or(world_size);
        // Outside of a step a number alone was left there by somebody, and is no rank.
        let is_rank = world_size.is_some() || is_set("SLURM_STEP_ID")?;
        Says { rank: rank.filter(|_| is_rank), world_size }
    };
    Ok(Seen {
        torch,
        torchrun,
        slurm,
        open_mpi: pair("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")?,
        pmi: pair("PMI_RANK", "PMI_SIZE")?,
    })
}

/// What torch.distributed says, where somebody has loaded and initialised it.
fn torch(py: Python<'_>) -> PyResult<Says> {
    let modules = py.import("sys")?.getattr("modules")?.cast_into::<PyDict>()?;
    let Some(distributed) = modules.get_item("torch.distributed")? else { return Ok(Says::default()) };
    // Absent in a torch without it, and in one that another thread is just importing.
    let Ok(is_initialized) = distributed.getattr("is_initialized") else { return Ok(Says::default()) };
    if !is_initialized.call0()?.is_truthy()? {
        return Ok(Says::default());
    }
    let number =
        |name: &str| -> PyResult<Option<u64>> { distributed.call_method0(name)?.extract().map(Some) };
    Ok(Says { rank: number("get_rank")?, world_size: number("get_world_size")? })
}
