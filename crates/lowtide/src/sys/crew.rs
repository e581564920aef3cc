//! Threads that stand ready to lend a hand, so that work of 100 µs can be shared.
//!
//! Starting a thread takes 30 µs and more; waking one that rests takes five. [`together`] runs a piece of work
//! in the caller's thread and offers it to others: whoever comes in time helps, and nobody waits for one who
//! does not come. It returns when all who came have left, even by a panic, so the work may borrow from the
//! caller's stack. Threads start on demand, end when nobody needed them for a while, and do not survive
//! a fork: a child finds an empty desk and starts its own.

use super::{generation, locked};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// A thread that nobody needed for so long ends.
const IDLE: Duration = Duration::from_secs(5);
/// More threads than this never stand ready; with fewer than it wanted, work is only slower.
const MOST: usize = 32;
/// How often somebody who waits looks by himself: against a fork in the middle of the work.
const LOOK: Duration = Duration::from_millis(100);

/// How long the end is waited for without a rest: the others are at their last part, and a core that
/// rests takes as long to wake in a virtual machine.
const SPIN: Duration = Duration::from_micros(50);

/// How long a thread stays awake for the next offer, where the last ones came as quickly: waking a core that rests
/// takes a virtual machine up to 100 µs, as long as copying a chunk.
const LINGER: Duration = Duration::from_micros(200);
/// How many offers there have been: what those who linger look at.
static OFFERS: AtomicU64 = AtomicU64::new(0);

type Work<'a> = &'a (dyn Fn() + Sync);
type Panic = Box<dyn Any + Send>;

/// Work that others may join.
struct Offer {
    number: u64,
    work: Work<'static>,
    /// How many more may come.
    wanted: usize,
    /// How many are at it.
    inside: usize,
    caller: Thread,
    panic: Option<Panic>,
}

/// What all sides look at. Only under [`locked`], and never while waiting: a fork finds it whole.
struct Desk {
    /// See [`generation`].
    generation: u64,
    offers: Vec<Offer>,
    /// Threads that rest, the one that worked last at the end.
    resting: Vec<Thread>,
    threads: usize,
    next: u64,
}

impl Desk {
    const fn new(generation: u64) -> Self {
        Self { generation, offers: Vec::new(), resting: Vec::new(), threads: 0, next: 0 }
    }

    fn inside(&self) -> usize {
        self.offers.iter().map(|offer| offer.inside).sum()
    }

    fn offer(&mut self, number: u64) -> Option<&mut Offer> {
        self.offers.iter_mut().find(|offer| offer.number == number)
    }
}

static DESK: Mutex<Desk> = Mutex::new(Desk::new(0));

fn desk<T>(f: impl FnOnce(&mut Desk) -> T) -> T {
    locked(&DESK, |desk| {
        if desk.generation != generation() {
            // The parent's threads and offers are not here. Nothing of it is dropped: it is not ours.
            std::mem::forget(std::mem::replace(desk, Desk::new(generation())));
        }
        f(desk)
    })
}

/// Runs `work` in this thread and, where they come in time, in up to `helpers` others at once.
///
/// `work` takes what is to be done from some list that all share and returns when nothing is left. In a child
/// that was forked in the middle of it (by a signal's handler, say) what the others had taken stays undone.
///
/// # Panics
/// Where `work` panics, in whatever thread; not before all have left.
pub fn together(helpers: usize, work: &(dyn Fn() + Sync)) {
    if helpers == 0 {
        return work();
    }
    // SAFETY: only the lifetime is changed. The reference lives in an offer; `Invitation` takes the offer back
    // and waits until nobody is inside before this function is left in whatever way, and who comes later finds
    // no offer. So it is never used after `work` ends to live.
    let work_for_others = unsafe { std::mem::transmute::<Work<'_>, Work<'static>>(work) };
    let (invitation, wake, missing) = desk(|desk| {
        let number = desk.next;
        desk.next += 1;
        let caller = std::thread::current();
        desk.offers.push(Offer {
            number,
            work: work_for_others,
            wanted: helpers,
            inside: 0,
            caller,
            panic: None,
        });
        // Who has just left the last offer comes to look for the next one by himself.
        let coming = desk.threads.saturating_sub(desk.resting.len() + desk.inside());
        let wake = desk.resting.split_off(desk.resting.len().saturating_sub(helpers));
        let missing = helpers.saturating_sub(wake.len() + coming).min(MOST.saturating_sub(desk.threads));
        desk.threads += missing;
        (Invitation(number), wake, missing)
    });
    OFFERS.fetch_add(1, Ordering::Release);
    wake.iter().for_each(Thread::unpark);
    for _ in 0..missing {
        if std::thread::Builder::new().name("lowtide-help".into()).spawn(help).is_err() {
            desk(|desk| desk.threads -= 1);
        }
    }
    work();
    if let Some(panic) = invitation.withdraw() {
        resume_unwind(panic);
    }
}

/// Does two things at once, the second in another thread where one comes before the first is done.
///
/// `None` stands for what a child that was forked in the middle of it does not have.
pub fn both<A: Send, B: Send>(
    first: impl FnOnce() -> A + Send,
    second: impl FnOnce() -> B + Send,
) -> (Option<A>, Option<B>) {
    let todo = (Mutex::new(Some(first)), Mutex::new(Some(second)));
    let done = (Mutex::new(None), Mutex::new(None));
    together(1, &|| {
        if let Some(first) = locked(&todo.0, Option::take) {
            let answer = first();
            locked(&done.0, |done| *done = Some(answer));
        }
        if let Some(second) = locked(&todo.1, Option::take) {
            let answer = second();
            locked(&done.1, |done| *done = Some(answer));
        }
    });
    (locked(&done.0, Option::take), locked(&done.1, Option::take))
}

/// Has `work` done on every item, by this thread and up to `helpers` others, each of which takes the next one when it is done
/// with one. The answers come in the order of the items.
///
/// In a child that was forked in the middle of it there are fewer answers than items.
pub fn each<T, R: Send>(
    helpers: usize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) -> R + Sync,
) -> Vec<R> {
    let (items, done) = (Mutex::new(items.enumerate()), Mutex::new(Vec::new()));
    together(helpers, &|| {
        while let Some((number, item)) = locked(&items, Iterator::next) {
            let answer = work(item);
            locked(&done, |done| done.push((number, answer)));
        }
    });
    let mut done = locked(&done, std::mem::take);
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, answer)| answer).collect()
}

/// An offer that is on the desk. Dropping it takes it back and waits for those who are at it.
struct Invitation(u64);

impl Invitation {
    fn withdraw(self) -> Option<Panic> {
        let panic = self.end();
        std::mem::forget(self);
        panic
    }

    fn end(&self) -> Option<Panic> {
        let began = Instant::now();
        loop {
            let left = desk(|desk| {
                let Some(at) = desk.offers.iter().position(|offer| offer.number == self.0) else {
                    return Some(None); // a forked child: nobody is at it here
                };
                desk.offers[at].wanted = 0;
                (desk.offers[at].inside == 0).then(|| desk.offers.swap_remove(at).panic)
            });
            match left {
                Some(panic) => return panic,
                None if began.elapsed() < SPIN => (0..100).for_each(|_| std::hint::spin_loop()),
                None => std::thread::park_timeout(LOOK),
            }
        }
    }
}

impl Drop for Invitation {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a thread of the crew does: whatever is offered, until nothing was for a while.
fn help() {
    let (mut worked, mut waited) = (Instant::now(), Duration::MAX);
    loop {
        let offers = OFFERS.load(Ordering::Acquire);
        let lingers = waited < LINGER && worked.elapsed() < LINGER;
        let me = std::thread::current();
        let idle = worked.elapsed() >= IDLE;
        let (task, over) = desk(|desk| {
            let resting = desk.resting.iter().position(|thread| thread.id() == me.id());
            if let Some(offer) = desk.offers.iter_mut().find(|offer| offer.wanted > 0) {
                offer.wanted -= 1;
                offer.inside += 1;
                let task = (offer.number, offer.work);
                resting.map(|at| desk.resting.remove(at));
                return (Some(task), false);
            }
            match resting {
                _ if lingers => {}
                Some(at) if idle => drop(desk.resting.remove(at)),
                Some(_) => {}
                None if idle => {}
                None => desk.resting.push(me),
            }
            desk.threads -= usize::from(idle);
            (None, idle)
        });
        if let Some((number, work)) = task {
            waited = worked.elapsed();
            let panic = catch_unwind(AssertUnwindSafe(work)).err();
            let caller = desk(|desk| {
                let offer = desk.offer(number)?;
                offer.inside -= 1;
                offer.panic = offer.panic.take().or(panic);
                (offer.inside == 0).then(|| offer.caller.clone())
            });
            // Whoever is still at work himself is woken for nothing the next time he waits: he looks again.
            if let Some(caller) = caller {
                caller.unpark();
            }
            worked = Instant::now();
        } else if lingers {
            while OFFERS.load(Ordering::Acquire) == offers && worked.elapsed() < LINGER {
                (0..20).for_each(|_| std::hint::spin_loop());
            }
        } else if over {
            return;
        } else {
            std::thread::park_timeout(IDLE);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;

    /// Counts to `end` together, and says how many threads were at it.
    fn count(end: usize, helpers: usize, each: impl Fn(usize) + Sync) -> usize {
        let (next, done, came) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        together(helpers, &|| {
            came.fetch_add(1, Ordering::Relaxed);
            loop {
                let i = next.fetch_add(1, Ordering::Relaxed);
                if i >= end {
                    return;
                }
                each(i);
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        assert_eq!(done.into_inner(), end, "nobody is at it any more");
        came.into_inner()
    }

    #[test]
    fn everything_is_done_once_and_before_it_returns() {
        for round in 0..2_000 {
            assert!(count(round % 50, round % 5, |_| {}) <= 1 + round % 5);
        }
    }

    #[test]
    fn others_help() {
        let threads = count(8, 3, |_| std::thread::sleep(Duration::from_millis(20)));
        assert!(threads > 1);
    }

    #[test]
    fn work_may_bring_in_others_itself_and_callers_may_be_many() {
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        count(10, 3, |_| {
                            count(5, 2, |_| {});
                        });
                    }
                });
            }
        });
        assert!(desk(|desk| desk.threads) <= MOST);
    }

    #[test]
    fn both_are_done_once_and_each_has_its_answer() {
        for i in 0..100 {
            let word = String::from("first");
            let (first, second) = both(|| word + &i.to_string(), || i * 2);
            assert_eq!((first, second), (Some(format!("first{i}")), Some(i * 2)));
        }
        // A slow first one does not keep the second waiting where somebody is there to help.
        let mut at_once = false;
        for _ in 0..10 {
            let second_came = AtomicUsize::new(0);
            let slow = || {
                std::thread::sleep(Duration::from_millis(50));
                second_came.load(Ordering::Relaxed)
            };
            at_once |= both(slow, || second_came.store(1, Ordering::Relaxed)).0 == Some(1);
        }
        assert!(at_once);
    }

    #[test]
    fn each_item_has_its_answer_in_its_place() {
        for len in [0, 1, 7, 1000] {
            let answers = each(3, 0..len, |item| item * 2);
            assert_eq!(answers, (0..len).map(|item| item * 2).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_when_all_have_left() {
        for culprit in 0..8 {
            let at_work = AtomicUsize::new(0);
            let answer = catch_unwind(AssertUnwindSafe(|| {
                count(8, 3, |i| {
                    at_work.fetch_add(1, Ordering::SeqCst);
                    std::thread::sleep(Duration::from_millis(2));
                    at_work.fetch_sub(1, Ordering::SeqCst);
                    assert!(i != culprit, "on purpose");
                })
            }));
            assert!(answer.is_err());
            assert_eq!(at_work.load(Ordering::SeqCst), 0);
        }
        count(8, 3, |_| {});
    }
}
