//! The mutations of `tests/run mutations`: each still applies to the source, and the tests that it names exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::own_tests;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The patches, sorted by name.
fn patches() -> Vec<PathBuf> {
    let files = fs::read_dir(root().join("tests/mutations")).unwrap().map(|entry| entry.unwrap().path());
    let mut patches: Vec<PathBuf> = files.filter(|path| path.extension().is_some_and(|end| end == "patch")).collect();
    patches.sort();
    assert!(patches.len() > 30, "{patches:?}");
    patches
}

#[test]
fn every_patch_applies() {
    for patch in patches() {
        let output = Command::new("git").args(["apply", "--check"]).arg(&patch).current_dir(root()).output().unwrap();
        assert!(output.status.success(), "{}: {}", patch.display(), String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn every_test_that_a_patch_names_is_there() {
    let (tests, variants) = (own_tests(&[]), own_tests(&["--ignored"]));
    // `tests/run` has to notice it, not only `tests/run all`.
    let is_test = |name: &str| tests.iter().any(|test| test == name) && !variants.iter().any(|test| test == name);
    for path in patches() {
        let text = fs::read_to_string(&path).unwrap();
        let (head, _) = text.split_once("\ndiff --git ").unwrap();
        let mut named = 0;
        for (kind, name) in head.lines().filter_map(|line| line.split_once(": ")) {
            match kind {
                "Caught-by" => assert!(is_test(name), "{}: there is no test {name}", path.display()),
                "Caught-by-campaign" => assert!(is_cell(name), "{}: there is no cell {name}", path.display()),
                "Caught-by-unit" => assert!(is_unit_test(name), "{}: there is no unit test {name}", path.display()),
                _ => continue,
            }
            named += 1;
        }
        assert!(named > 0, "{}: it names no test", path.display());
        assert!(!head.starts_with("Caught-by"), "{}: it does not say whose mistake it is", path.display());
    }
}

/// Whether `name`, which is `FAULT:SERVICE`, names a row and a column of the matrix of faults.
fn is_cell(name: &str) -> bool {
    let Some((fault, column)) = name.split_once(':') else { return false };
    let matrix = fs::read_to_string(root().join("tests/faults/listed.rs")).unwrap();
    let column = ["-shared", "-slots"].iter().find_map(|held| column.strip_suffix(held)).unwrap_or(column);
    let columns = ["file", "redis", "sentinel", "redlock3", "redlock", "etcd", "zookeeper", "postgres", "mysql"];
    columns.contains(&column) && matrix.contains(&format!("\"{fault}\","))
}

/// Whether the source has a unit test of this name (`lease::timing::tests::NAME`): in its module's file, or in that of the module
/// around it, which may make modules of its tests for several services.
fn is_unit_test(name: &str) -> bool {
    let Some((module, name)) = name.rsplit_once("::") else { return false };
    let module = root().join("src").join(module.replace("::", "/"));
    let modules = module.ancestors().take(2);
    let files =
        modules.flat_map(|module| [module.with_extension("rs"), module.join("mod.rs"), module.join("tests.rs")]);
    let mut sources = files.filter_map(|path| fs::read_to_string(path).ok());
    sources.any(|source| [" ", "\n"].iter().any(|before| source.contains(&format!("{before}fn {name}()"))))
}
