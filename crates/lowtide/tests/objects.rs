//! Range requests pass the one suite over objects in memory and behind a web server, and say what is wrong with a server.
#![cfg(feature = "remote")]

use lowtide::store::{Cache, Source, Storage, Store, Way, conformance, open};
use lowtide::{Budget, Error, Options, Result};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Serves every file of this machine by its path, with ranges and tags, on loopback.
struct Files {
    port: u16,
    over: Arc<AtomicBool>,
}

impl Files {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, over) = (listener.local_addr().unwrap().port(), Arc::new(AtomicBool::new(false)));
        let ends = over.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                std::thread::spawn(move || serve(&stream));
            }
        });
        Self { port, over }
    }

    fn url(&self, path: &Path) -> PathBuf {
        format!("http://127.0.0.1:{}{}", self.port, path.display()).into()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve(stream: &TcpStream) {
    let _ = stream.set_nodelay(true); // head and body are two writes
    let mut reader = BufReader::new(stream);
    while let Some(()) = answer(&mut reader, stream) {}
}

/// One request: what it asks for, or none where the connection ended.
fn answer(reader: &mut impl BufRead, mut stream: &TcpStream) -> Option<()> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let header = |name: &str| {
        let found = lines.iter().skip(1).filter_map(|line| line.split_once(": "));
        found.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let (method, path) =
        lines.first()?.split_once(' ').map(|(method, rest)| (method, rest.split(' ').next()))?;
    let Ok(mut file) = std::fs::File::open(path?) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").ok();
    };
    let meta = file.metadata().ok()?;
    let tag = format!("\"{}-{}-{}\"", meta.ino(), meta.len(), meta.mtime_nsec());
    if header("if-match").is_some_and(|wanted| wanted != tag) {
        return stream.write_all(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n").ok();
    }
    let (mut from, mut to, mut status) = (0, meta.len(), "200 OK".to_owned());
    if let Some((first, last)) =
        header("range").as_deref().and_then(|range| range.strip_prefix("bytes=")?.split_once('-'))
    {
        (from, to) = (first.parse().ok()?, last.parse::<u64>().ok()?.saturating_add(1).min(meta.len()));
        if from >= meta.len() {
            return stream.write_all(b"HTTP/1.1 416 Range\r\nContent-Length: 0\r\n\r\n").ok();
        }
        status = format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{}", to - 1, meta.len());
    }
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nETag: {tag}\r\n\r\n", to - from);
    stream.write_all(head.as_bytes()).ok()?;
    if method == "GET" {
        file.seek(SeekFrom::Start(from)).ok()?;
        std::io::copy(&mut file.take(to - from), &mut stream).ok()?;
    }
    Some(())
}

/// The objects of an array of bytes, and a store over them.
fn store(storage: &Storage, urls: &[PathBuf], budget: &Budget) -> Result<Arc<dyn Store>> {
    let objects = lowtide::store::objects(storage, urls)?;
    open(&Source::Objects(objects), Way::Range, Cache::Drop, budget)
}

#[test]
fn behind_a_web_server() {
    let (server, budget) = (Files::new(), Budget::new(64 << 20).unwrap());
    conformance::run_objects(&|path| store(&Storage::default(), &[server.url(path)], &budget));
}

/// With a budget that has no room for two connections.
#[test]
#[ignore = "slow: make test-all runs it"]
fn behind_a_web_server_in_a_small_budget() {
    let (server, budget) = (Files::new(), Budget::new(1 << 20).unwrap());
    conformance::run_objects(&|path| store(&Storage::default(), &[server.url(path)], &budget));
}

/// The same bytes as three objects, cut where nothing is aligned.
#[test]
fn in_memory_and_in_pieces() {
    let budget = Budget::new(64 << 20).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    conformance::run_objects(&|path| {
        let bytes = std::fs::read(path).map_err(|error| Error::io(path, "open the file", error))?;
        let memory = object_store::memory::InMemory::new();
        let (first, second) = (bytes.len() / 3, bytes.len() / 3 + bytes.len().min(1001) / 2);
        let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
        let mut urls = Vec::new();
        for (i, piece) in pieces.into_iter().enumerate() {
            use object_store::ObjectStoreExt;
            let key = object_store::path::Path::from(format!("piece-{i}"));
            runtime.block_on(memory.put(&key, piece.to_vec().into())).unwrap();
            urls.push(PathBuf::from(format!("s3://memory/piece-{i}")));
        }
        let storage = Storage::default().with_store("s3://memory", Arc::new(memory))?;
        store(&storage, &urls, &budget)
    });
}

#[test]
fn a_replaced_object_is_an_error_and_never_a_mixture() {
    let (server, folder) = (Files::new(), tempfile::tempdir().unwrap());
    let path = folder.path().join("data");
    std::fs::write(&path, vec![1; 1 << 20]).unwrap();
    let budget = Budget::new(16 << 20).unwrap();
    let store = store(&Storage::default(), &[server.url(&path)], &budget).unwrap();
    let new = folder.path().join("new");
    std::fs::write(&new, vec![2; 1 << 20]).unwrap();
    std::fs::rename(&new, &path).unwrap();
    let mut out = vec![0; 1 << 20];
    let read = lowtide::store::Read { offset: 0, into: &mut out };
    let said = store.read(&mut [read], lowtide::store::How::default()).unwrap_err().to_string();
    assert!(said.contains("the object that was opened (ETag") && said.contains("open it again"), "{said}");
}

#[test]
fn what_a_server_refuses_is_said_as_the_system_says_it() {
    let server = Files::new();
    let open = |url: PathBuf| Options::new().open(url).unwrap_err();
    let missing = open(server.url(Path::new("/no/such/file.npy")));
    assert!(
        matches!(&missing, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound),
        "{missing}"
    );
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = open(format!("http://{nobody}/x.npy").into());
    assert!(
        matches!(&refused, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::ConnectionRefused),
        "{refused}"
    );
    let access =
        Options::new().access(lowtide::Access::Map).open("s3://bucket/x.npy").unwrap_err().to_string();
    assert!(access.contains("access=\"map\" is for files"), "{access}");
}

/// Nobody waits longer than he said, whatever a server does.
#[test]
fn a_server_that_never_answers_ends_with_the_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/x.npy", listener.local_addr().unwrap());
    let storage = Storage::new([("timeout", "700ms")]).unwrap();
    let began = std::time::Instant::now();
    let said = Options::new().storage(storage).open(url).unwrap_err();
    assert!(
        matches!(&said, Error::Io { source, .. } if source.kind() == std::io::ErrorKind::TimedOut),
        "{said}"
    );
    assert!(began.elapsed().as_secs() < 5);
}
