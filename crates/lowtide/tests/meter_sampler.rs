//! The sampler does not disturb what it measures: it allocates nothing and costs next to nothing.
//!
//! A test binary of its own, because it replaces the allocator to count.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::process::Command;
use std::time::{Duration, Instant};

use lowtide::meter::files::Files;
use lowtide::meter::sampler::{Interval, Sampler};
use lowtide::meter::tree::Root;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promises are the ones that System asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the pointer came from System through `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn sampling_allocates_nothing_however_many_children_come_and_go() {
    let folder = tempfile::tempdir().unwrap();
    for index in 0..20 {
        std::fs::write(folder.path().join(format!("{index}.bin")), vec![1; 100_000]).unwrap();
    }
    let script = "i=0; while [ $i -lt 300 ]; do sleep 0.01; i=$((i+1)); done";
    let mut child = Command::new("sh").args(["-c", script]).spawn().unwrap();
    let files = Files::new(&[folder.path().display().to_string()]);
    let mut sampler = Sampler::new(Root::Process(child.id()), files, Interval::Auto).unwrap();
    let before = ALLOCATIONS.with(Cell::get);
    let mut taken = 0_u32;
    while child.try_wait().unwrap().is_none() {
        sampler.sample();
        taken += 1;
        std::thread::sleep(Duration::from_millis(2));
    }
    let counted = ALLOCATIONS.with(Cell::get) - before;
    assert!(taken > 100, "only {taken} taken");
    assert!(sampler.tree().seen > 50, "only {} of 300 short-lived children seen", sampler.tree().seen);
    assert_eq!(sampler.files().list().len(), 20);
    assert_eq!(counted, 0, "{counted} allocations in {taken} taken");
}

#[test]
fn watching_costs_less_than_one_per_cent_of_a_core() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.bin");
    std::fs::write(&path, vec![1; 256 << 20]).unwrap();
    let mut child = Command::new("sleep").arg("30").spawn().unwrap();
    let files = Files::new(&[path.display().to_string(), "auto".to_owned()]);
    let mut sampler = Sampler::new(Root::Process(child.id()), files, Interval::Auto).unwrap();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_secs(4) {
        sampler.sample();
        sampler.look_around();
        std::thread::sleep(sampler.pause());
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let share = sampler.cost().as_secs_f64() / sampler.elapsed().as_secs_f64();
    eprintln!("{} taken, {:.3} % of a core", sampler.taken(), share * 100.0);
    assert!(sampler.taken() >= 15, "{} taken in 4 s", sampler.taken());
    assert!(share < 0.01, "{:.2} % of a core", share * 100.0);
}
