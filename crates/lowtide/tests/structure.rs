//! The house is what its plan says: who knows whom, and how long a function may be.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The code of every file, without its tests, under the module of the crate that it belongs to.
fn code() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let tests = |path: &PathBuf| path.ends_with("tests.rs") || path.ends_with("simulated.rs");
    let one = |path: PathBuf| {
        let text = fs::read_to_string(&path).unwrap();
        let text = text.split("#[cfg(test)]").next().unwrap().to_owned();
        let inside = path.strip_prefix(&root).unwrap();
        let module = inside.components().next().unwrap().as_os_str().to_str().unwrap();
        (module.trim_end_matches(".rs").to_owned(), path, text)
    };
    files.into_iter().filter(|path| !tests(path)).map(one).filter(|(module, ..)| module != "lib").collect()
}

/// Which modules of the crate a text names: `crate::store::…`, and those of `crate::{meter, sys}`.
fn named(text: &str) -> BTreeSet<String> {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    let text: String = text.lines().filter(code).collect::<Vec<_>>().join("\n");
    let mut found = BTreeSet::new();
    for (at, _) in text.match_indices("crate::") {
        let rest = &text[at + "crate::".len()..];
        let group = rest.strip_prefix('{').and_then(|rest| rest.split('}').next()).unwrap_or(rest);
        for name in group.split(',') {
            found.insert(name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect());
            if !rest.starts_with('{') {
                break;
            }
        }
    }
    found
}

/// Data moves one way, and so do imports: no module knows another that knows it.
#[test]
fn the_import_graph_has_no_circle() {
    let mut knows: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let files = code();
    let modules: BTreeSet<String> = files.iter().map(|(module, ..)| module.clone()).collect();
    assert!(modules.len() > 15 && modules.contains("engine"), "the sources were found: {modules:?}");
    for (module, _, text) in &files {
        let others = named(text).into_iter().filter(|name| modules.contains(name) && name != module);
        knows.entry(module.clone()).or_default().extend(others);
    }
    // Take away who knows nobody that is left, again and again: what stays is a circle.
    while let Some(free) = knows.iter().find(|(_, known)| known.is_empty()).map(|(module, _)| module.clone())
    {
        knows.remove(&free);
        for known in knows.values_mut() {
            known.remove(&free);
        }
    }
    assert!(knows.is_empty(), "these know each other, or somebody who does: {knows:#?}");
}

/// A function that does not fit on a screen hides something.
#[test]
fn no_function_of_the_engine_is_longer_than_a_screen() {
    const MOST: usize = 70;
    let long: Vec<String> = code()
        .into_iter()
        .filter(|(module, ..)| module == "engine" || module == "store")
        .flat_map(|(_, path, text)| {
            let lines: Vec<&str> = text.lines().collect();
            let mut long = Vec::new();
            for (start, line) in lines.iter().enumerate() {
                let indent = line.len() - line.trim_start().len();
                let is_fn = line.trim_start().split(' ').take(4).any(|word| word == "fn");
                if !is_fn || line.trim_start().starts_with("//") {
                    continue;
                }
                let end = format!("{}}}", " ".repeat(indent));
                let len = lines[start..].iter().position(|line| *line == end).map_or(0, |len| len + 1);
                if len > MOST {
                    long.push(format!("{}:{}: {len} lines", path.display(), start + 1));
                }
            }
            long
        })
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}
