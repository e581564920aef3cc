//! A process and all that it starts.
//!
//! Children come and go: each sample walks from the known processes to their children, so that a process
//! is found however deep it is, and one whose parent died stays known. What has ended is remembered in
//! bounded memory: the largest few by name, the rest as a number.

use super::process::{Proc, Process, Share};

/// Where a tree starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Root {
    /// This process and everything below it.
    Process(u32),
    /// Everything below this process, which is the one that watches.
    Below(u32),
}

/// Live processes that fit without allocating.
const LIVE: usize = 1024;
/// Ended processes that keep their name and peaks; the smallest makes way.
const ENDED: usize = 256;
const NAME: usize = 160;

/// One process of the tree.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// As it was when last seen.
    pub last: Process,
    /// When it was first seen, in seconds.
    pub first_seen: f64,
    /// When it was last seen, in seconds.
    pub last_seen: f64,
    /// The largest `RssAnon`.
    pub peak_anon: u64,
    /// The largest `RssFile`.
    pub peak_file: u64,
    /// The largest `RssShmem`.
    pub peak_shmem: u64,
    /// The largest of their sum.
    pub peak_rss: u64,
    /// Bytes read from disk.
    pub read_bytes: u64,
    /// `RssFile` when its page tables were last walked for the watched files, and what was found of them.
    looked: (u64, u64),
    /// How much less than the whole its own share of anonymous, file and shared pages was, once measured.
    others: Option<[u64; 3]>,
    name: [u8; NAME],
    name_length: usize,
    sightings: u32,
}

impl Member {
    /// Its command line, cut to a line's length.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(&self.name[..self.name_length]).into_owned()
    }

    /// How much of the watched files it can have mapped: what was found when they were last looked for, and
    /// all that came since.
    pub fn mapped_at_most(&self) -> u64 {
        let (then, found) = self.looked;
        found + self.last.file.saturating_sub(then)
    }
}

/// The sums over a tree at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Totals {
    pub(super) processes: u32,
    pub(super) anon: u64,
    pub(super) file: u64,
    pub(super) shmem: u64,
    pub(super) rss: u64,
    pub(super) page_tables: u64,
    pub(super) swap: u64,
    pub(super) major_faults: u64,
    pub(super) cpu_ticks: u64,
    pub(super) read_bytes: u64,
    /// The largest `RssFile` and `RssShmem` of one process.
    pub(super) largest: [u64; 2],
}

/// The processes below a root, alive and ended.
#[derive(Debug)]
pub struct Tree {
    root: Root,
    /// Sorted by number.
    live: Vec<Member>,
    ended: Vec<Member>,
    found: Vec<u32>,
    children_listed: bool,
    /// How many processes were ever seen.
    pub seen: u64,
    /// The proportional shares of all processes together, when last measured.
    pub pss: Option<u64>,
    /// Whether the kernel told the shares of every process at the last asking.
    pub shares_known: bool,
    /// The mapped file pages in those shares.
    pub pss_file: u64,
    /// When that was, in seconds.
    pub shares_at: Option<f64>,
}

impl Tree {
    /// Starts with nothing seen.
    pub fn new(root: Root, proc: &mut Proc) -> Self {
        let (Root::Process(pid) | Root::Below(pid)) = root;
        let threads = proc.process(pid).map_or(1, |process| process.threads);
        let children_listed = proc.children(pid, threads, |_| {});
        Self {
            root,
            live: Vec::with_capacity(LIVE),
            ended: Vec::with_capacity(ENDED),
            found: Vec::with_capacity(LIVE),
            children_listed,
            seen: 0,
            pss: None,
            shares_known: false,
            pss_file: 0,
            shares_at: None,
        }
    }

    /// The processes alive at the last sample.
    pub fn live(&self) -> &[Member] {
        &self.live
    }

    /// Everything that is remembered, alive first, then the ended ones.
    pub fn members(&self) -> impl Iterator<Item = &Member> {
        self.live.iter().chain(&self.ended)
    }

    /// The largest process that has ended, as it was when last seen.
    pub fn largest_ended(&self) -> Option<&Member> {
        self.ended.iter().max_by_key(|member| member.last.rss())
    }

    /// Looks at every process of the tree, and finds new ones.
    pub fn sample(&mut self, proc: &mut Proc, seconds: f64) -> Totals {
        self.look_again(proc, seconds);
        self.find_new(proc, seconds);
        self.totals()
    }

    fn look_again(&mut self, proc: &mut Proc, seconds: f64) {
        let mut index = 0;
        while index < self.live.len() {
            let member = &mut self.live[index];
            match proc.process(member.last.pid) {
                // The number may have been given to another process meanwhile.
                Some(process) if process.started == member.last.started => {
                    member.update(process, proc, seconds);
                    index += 1;
                }
                _ => {
                    let gone = self.live.remove(index);
                    self.remember(&gone);
                }
            }
        }
    }

    fn find_new(&mut self, proc: &mut Proc, seconds: f64) {
        self.found.clear();
        match self.root {
            Root::Process(pid) => self.found.push(pid),
            Root::Below(pid) => self.ask_children(proc, pid, u64::MAX),
        }
        for index in 0..self.live.len() {
            let Process { pid, threads, .. } = self.live[index].last;
            self.ask_children(proc, pid, threads);
        }
        if !self.children_listed {
            self.search_everyone(proc);
        }
        // `found` grows while it is walked: a new child may have children already.
        let mut index = 0;
        while index < self.found.len() {
            let pid = self.found[index];
            index += 1;
            let Err(place) = self.live.binary_search_by_key(&pid, |member| member.last.pid) else { continue };
            let Some(process) = proc.process(pid) else { continue };
            self.live.insert(place, Member::new(process, proc, seconds));
            self.seen += 1;
            self.ask_children(proc, pid, process.threads);
        }
    }

    fn ask_children(&mut self, proc: &mut Proc, pid: u32, threads: u64) {
        if self.children_listed {
            let found = &mut self.found;
            proc.children(pid, threads, |child| found.push(child));
        }
    }

    /// Kernels without lists of children: read every process's parent, until nothing new is found.
    fn search_everyone(&mut self, proc: &mut Proc) {
        let mut everyone = Vec::new();
        proc.everyone(|pid| everyone.push(pid));
        let parents: Vec<_> = everyone.iter().filter_map(|pid| Some((*pid, proc.parent(*pid)?))).collect();
        let mut before = usize::MAX;
        while before != self.found.len() {
            before = self.found.len();
            for (pid, parent) in &parents {
                let known = self.found.contains(parent)
                    || self.root == Root::Below(*parent)
                    || self.live.binary_search_by_key(parent, |member| member.last.pid).is_ok();
                if known && !self.found.contains(pid) {
                    self.found.push(*pid);
                }
            }
        }
    }

    fn remember(&mut self, gone: &Member) {
        if self.ended.len() < ENDED {
            self.ended.push(*gone);
        } else if let Some(least) = self.ended.iter_mut().min_by_key(|member| member.peak_rss)
            && least.peak_rss < gone.peak_rss
        {
            *least = *gone;
        }
    }

    /// Notes that `found` bytes of the watched files are mapped into a process now.
    pub fn looked_at(&mut self, pid: u32, found: u64) {
        if let Ok(place) = self.live.binary_search_by_key(&pid, |member| member.last.pid) {
            let member = &mut self.live[place];
            member.looked = (member.last.file, found);
        }
    }

    /// Asks the kernel for every process's own share: slow, so at most once a second.
    pub fn measure_shares(&mut self, proc: &mut Proc, seconds: f64) {
        let mut sum = Some(0);
        self.pss_file = 0;
        for member in &mut self.live {
            let pid = member.last.pid;
            // One that has ended since it was looked at has no memory any more; that is known, too.
            let share = proc.share(pid).or_else(|| proc.process(pid).is_none().then(Share::default));
            member.others = share.map(|share| {
                let last = &member.last;
                [
                    last.anon.saturating_sub(share.anon),
                    last.file.saturating_sub(share.file),
                    last.shmem.saturating_sub(share.shmem),
                ]
            });
            self.pss_file += share.map_or(0, |share| share.file);
            sum = sum.zip(share).map(|(sum, share)| sum + share.total);
        }
        self.pss = sum;
        self.shares_known = sum.is_some();
        self.shares_at = Some(seconds);
    }

    fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        for member in &self.live {
            let process = &member.last;
            let [anon, file, shmem] = self.own(member);
            totals.processes += 1;
            totals.anon += anon;
            totals.file += file;
            totals.shmem += shmem;
            totals.rss += process.rss();
            totals.page_tables += process.page_tables;
            totals.swap += process.swap;
            totals.major_faults += process.major_faults;
            totals.cpu_ticks += process.cpu_ticks;
            totals.read_bytes += member.read_bytes;
            let [most_file, most_shmem] = totals.largest;
            totals.largest = [most_file.max(process.file), most_shmem.max(process.shmem)];
        }
        totals
    }

    /// What a process adds to the tree. Alone, that is its RSS. Beside others it is its share when last
    /// measured, and all that came since, because new pages are its own; one too new to have been measured
    /// is taken to share what its parent has, as it does after a fork.
    fn own(&self, member: &Member) -> [u64; 3] {
        let whole = [member.last.anon, member.last.file, member.last.shmem];
        if self.live.len() == 1 {
            return whole;
        }
        if let Some(others) = member.others {
            return std::array::from_fn(|kind| whole[kind].saturating_sub(others[kind]));
        }
        match self.live.binary_search_by_key(&member.last.parent, |other| other.last.pid) {
            Ok(place) if self.shares_known => {
                let parent = &self.live[place].last;
                let parent = [parent.anon, parent.file, parent.shmem];
                std::array::from_fn(|kind| whole[kind].saturating_sub(parent[kind]))
            }
            _ => whole,
        }
    }
}

impl Member {
    fn new(process: Process, proc: &mut Proc, seconds: f64) -> Self {
        let mut member = Self {
            last: process,
            first_seen: seconds,
            last_seen: seconds,
            peak_anon: 0,
            peak_file: 0,
            peak_shmem: 0,
            peak_rss: 0,
            read_bytes: 0,
            looked: (0, 0),
            others: None,
            name: [0; NAME],
            name_length: 0,
            sightings: 0,
        };
        member.update(process, proc, seconds);
        member
    }

    fn update(&mut self, process: Process, proc: &mut Proc, seconds: f64) {
        // Between fork and exec a child bears its parent's name.
        if matches!(self.sightings, 0 | 1 | 5) {
            self.name_length = proc.command_into(process.pid, &mut self.name).unwrap_or(self.name_length);
        }
        self.sightings = self.sightings.saturating_add(1);
        self.last = process;
        self.last_seen = seconds;
        self.peak_anon = self.peak_anon.max(process.anon);
        self.peak_file = self.peak_file.max(process.file);
        self.peak_shmem = self.peak_shmem.max(process.shmem);
        self.peak_rss = self.peak_rss.max(process.rss());
        if let Some(read) = proc.io(process.pid) {
            self.read_bytes = self.read_bytes.max(read.from_disk);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::Duration;

    fn shell(script: &str) -> Child {
        Command::new("sh").args(["-c", script]).spawn().unwrap()
    }

    #[test]
    fn grandchildren_are_found_and_remembered_after_their_end() {
        let mut proc = Proc::open().unwrap();
        let mut child = shell("sh -c 'sleep 0.3; true'; sleep 30; true");
        let mut tree = Tree::new(Root::Process(child.id()), &mut proc);
        std::thread::sleep(Duration::from_millis(100));
        let early = tree.sample(&mut proc, 0.1);
        assert_eq!(early.processes, 3, "sh, sh, sleep 0.3");
        std::thread::sleep(Duration::from_millis(500));
        let late = tree.sample(&mut proc, 0.6);
        assert_eq!(late.processes, 2, "sh, sleep 30");
        assert_eq!(tree.seen, 4);
        let names: Vec<_> = tree.members().map(Member::name).collect();
        assert!(names.iter().any(|name| name == "sleep 0.3"), "{names:?}");
        let sleeper = tree.live().iter().find(|member| member.name() == "sleep 30").unwrap().last.pid;
        child.kill().unwrap();
        child.wait().unwrap();
        // The orphan is still ours.
        assert_eq!(tree.sample(&mut proc, 0.7).processes, 1);
        let sleeper = rustix::process::Pid::from_raw(i32::try_from(sleeper).unwrap()).unwrap();
        rustix::process::kill_process(sleeper, rustix::process::Signal::KILL).unwrap();
    }

    #[test]
    fn the_slow_search_finds_the_same_processes() {
        let mut proc = Proc::open().unwrap();
        let mut child = shell("sh -c 'sleep 30; true'; true");
        std::thread::sleep(Duration::from_millis(100));
        let mut fast = Tree::new(Root::Process(child.id()), &mut proc);
        let mut slow = Tree::new(Root::Process(child.id()), &mut proc);
        slow.children_listed = false;
        fast.sample(&mut proc, 0.0);
        slow.sample(&mut proc, 0.0);
        let pids = |tree: &Tree| tree.live().iter().map(|member| member.last.pid).collect::<Vec<_>>();
        assert_eq!(pids(&fast), pids(&slow));
        assert_eq!(pids(&slow).len(), 3);
        for pid in pids(&slow).into_iter().filter(|pid| *pid != child.id()) {
            let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn what_is_shared_counts_once_and_what_came_since_counts_in_full() {
        let mut proc = Proc::open().unwrap();
        let mut tree = Tree::new(Root::Process(1), &mut proc);
        let template = Member::new(proc.process(std::process::id()).unwrap(), &mut proc, 0.0);
        let member = |pid, parent, anon, others| {
            let mut made = template;
            made.last = Process { pid, parent, anon, file: 0, shmem: 0, ..made.last };
            made.others = others;
            made
        };
        tree.live = vec![member(10, 1, 1000, None)];
        assert_eq!(tree.totals().anon, 1000, "alone, all of it is its own");
        tree.shares_known = true;
        tree.live = vec![member(10, 1, 1000, Some([500, 0, 0])), member(11, 10, 1000, None)];
        assert_eq!(tree.totals().anon, 500, "just forked: nothing of its own yet");
        tree.live = vec![member(10, 1, 1000, Some([500, 0, 0])), member(11, 10, 1000, Some([500, 0, 0]))];
        assert_eq!(tree.totals().anon, 1000, "half each");
        tree.live = vec![member(10, 1, 1000, Some([500, 0, 0])), member(11, 10, 1700, Some([500, 0, 0]))];
        assert_eq!(tree.totals().anon, 1700, "700 more of its own");
        tree.live = vec![member(10, 1, 0, Some([0, 0, 0])), member(11, 10, 300, Some([0, 0, 0]))];
        assert_eq!(tree.totals().anon, 300, "measured when there was nothing");
        tree.shares_known = false;
        tree.live = vec![member(10, 1, 1000, None), member(11, 10, 1000, None)];
        assert_eq!(tree.totals().anon, 2000, "nobody tells what is shared");
    }

    #[test]
    fn one_that_ends_meanwhile_leaves_known_what_the_others_share() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut proc = Proc::open().unwrap();
        let mut tree = Tree::new(Root::Process(1), &mut proc);
        tree.live = [std::process::id(), child.id()]
            .map(|pid| Member::new(proc.process(pid).unwrap(), &mut proc, 0.0))
            .to_vec();
        child.kill().unwrap();
        child.wait().unwrap();
        tree.measure_shares(&mut proc, 1.0);
        assert!(tree.shares_known);
        let (both, gone) = (tree.totals().rss, tree.live[1].last.rss());
        assert_eq!(tree.own(&tree.live[1]), [0; 3]);
        assert!(both > gone, "our own counts as ever");
    }

    #[test]
    fn thousands_of_ended_processes_stay_within_bounds_and_the_largest_stay_known() {
        let mut proc = Proc::open().unwrap();
        let mut tree = Tree::new(Root::Process(1), &mut proc);
        let mut member = Member::new(proc.process(std::process::id()).unwrap(), &mut proc, 0.0);
        for index in 0..5000_u64 {
            member.peak_rss = (index * 7919) % 5000;
            tree.remember(&member);
        }
        assert_eq!(tree.ended.len(), ENDED);
        assert!(tree.ended.iter().all(|member| member.peak_rss >= 5000 - ENDED as u64));
    }
}
