//! What README and Cargo.toml claim: the commands on a fresh machine, the exit codes, the oldest Rust, the licences.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::support::dlock::{DLOCK, NO_CONFIG};
use crate::support::scratch::Scratch;

fn readme() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap()
}

#[test]
fn the_first_command_of_the_readme_works() {
    let readme = readme();
    let line = readme.lines().find(|line| line.starts_with("cargo run --release -- ")).unwrap();
    assert!(readme.contains("\ntests/run\n"), "the second command is missing");
    let scratch = Scratch::new();
    // The directory of `file:` without a path is the user's own, which a test must not use.
    let url = format!("-b {} ", scratch.file_url());
    let line = line.replace("cargo run --release --", *DLOCK).replace("-b file: ", &url);
    assert!(line.contains(&url), "{line}");
    let output = Command::new("sh").args(["-c", &line]).envs([NO_CONFIG]).current_dir(scratch.root()).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    assert_eq!(output.stdout, b"hello from under the lock\n");
}

#[test]
fn readme_and_man_page_agree_on_the_exit_codes() {
    let page = Command::new(*DLOCK).args(["generate", "man", "run"]).output().unwrap();
    let page = String::from_utf8(page.stdout).unwrap();
    let readme = readme();
    let table = readme.split("## Exit codes").nth(1).unwrap().split("\n## ").next().unwrap();
    let mut codes = 0;
    for row in table.lines().filter(|line| line.starts_with("| ") && !line.contains("---")).skip(1) {
        let code = row.split('|').nth(1).unwrap().trim();
        assert!(
            page.contains(&format!("\\fB{code}\\fR")) || page.contains("\\*(Aq") && code.contains('\''),
            "no {code} in the page"
        );
        codes += 1;
    }
    assert_eq!(codes, 12);
}

/// Contributors are told where to add what.
#[test]
fn the_paths_that_contributors_are_told_are_there() {
    let development = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("CONTRIBUTING.md")).unwrap();
    let named =
        development.split('`').skip(1).step_by(2).filter(|name| name.starts_with("src/") || name.starts_with("tests/"));
    let paths: Vec<&str> = named.map(|name| name.split([' ', '*']).next().unwrap()).collect();
    assert!(paths.len() >= 10, "{paths:?}");
    for path in paths {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "{path} is not there");
    }
}

/// The names of the variants of the enum `name` in the Rust code `text`.
fn variants(text: &str, name: &str) -> Vec<String> {
    let (_, body) = text.split_once(&format!("pub enum {name} {{\n")).unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let names =
        body.lines().map(str::trim).filter(|line| !line.starts_with("//")).filter_map(|line| line.strip_suffix(','));
    names.map(str::to_owned).collect()
}

#[test]
fn the_campaigns_readme_names_every_invariant_and_class() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    let readme = read("README.md");
    let (invariants, classes) = readme.split_once("Each cell of the matrix has a class:").unwrap();
    let named = |text: &str, start: &str| -> Vec<String> {
        let lines = text.lines().filter_map(|line| line.strip_prefix(start)?.split_once('`'));
        lines.map(|(name, _)| name.to_owned()).collect()
    };
    assert_eq!(named(invariants, "| `"), variants(&read("episode/report.rs"), "Invariant"));
    assert_eq!(named(classes, "- `"), variants(&read("matrix.rs"), "Class"));
}

/// The campaign's README tells contributors where to add what.
#[test]
fn the_paths_that_the_campaigns_readme_names_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = fs::read_to_string(root.join("tests/faults/README.md")).unwrap();
    let named = readme.split('`').skip(1).step_by(2).filter(|name| name.starts_with("tests/") && !name.contains(' '));
    let named: Vec<&str> = named.filter(|name| *name != "tests/").collect();
    assert!(named.len() >= 15, "{named:?}");
    for path in named {
        assert!(root.join(path).exists(), "it names {path}, which is not there");
    }
}

/// The map at the head of main.rs names every module at the top.
#[test]
fn the_map_of_the_source_is_complete() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let main = fs::read_to_string(source.join("main.rs")).unwrap();
    let (map, modules) = main.split_once("*/").unwrap();
    let modules: Vec<&str> = modules.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
    assert!(modules.len() > 10, "{modules:?}");
    // Those of the tests are not part of dlock.
    for module in modules.into_iter().filter(|module| !["property", "support"].contains(module)) {
        assert!(map.contains(&format!("`{module}`")), "the map does not say what {module} is");
    }
    for place in map.split('`').skip(1).step_by(2).filter(|name| name.contains('/') && !name.contains(' ')) {
        let place = source.join(place);
        assert!(place.exists() || place.with_extension("rs").exists(), "the map names {}", place.display());
    }
}

/// dlock's own package and the packages that it is built from, by `cargo metadata`.
fn packages() -> (Value, Vec<Value>) {
    let arguments =
        ["metadata", "--locked", "--offline", "--format-version", "1", "--filter-platform", "x86_64-unknown-linux-gnu"];
    let output = Command::new(env!("CARGO")).args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let used: Vec<&str> =
        metadata["resolve"]["nodes"].as_array().unwrap().iter().map(|node| node["id"].as_str().unwrap()).collect();
    let all = metadata["packages"].as_array().unwrap();
    let packages: Vec<Value> =
        all.iter().filter(|package| used.contains(&package["id"].as_str().unwrap())).cloned().collect();
    let own = packages.iter().find(|package| package["name"] == "dlock-cli").unwrap().clone();
    assert!(packages.len() > 50);
    (own, packages)
}

fn version(text: &str) -> Vec<u32> {
    // 1.89 means 1.89.0.
    let numbers = text.split('.').map(|number| number.parse().unwrap());
    numbers.chain(std::iter::repeat(0)).take(3).collect()
}

#[test]
fn no_dependency_needs_a_newer_rust_than_we_say() {
    let (own, packages) = packages();
    let ours = own["rust_version"].as_str().unwrap();
    assert!(readme().contains(&format!("Rust {ours} or newer")), "README names another Rust");
    for package in packages {
        if let Some(needed) = package["rust_version"].as_str() {
            assert!(version(needed) <= version(ours), "{} needs Rust {needed}, we say {ours}", package["name"]);
        }
    }
}

#[test]
fn every_licence_is_permissive() {
    let permissive =
        ["MIT", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "Unicode-3.0", "Zlib", "0BSD", "BSL-1.0"];
    for package in packages().1 {
        let licence = package["license"].as_str().unwrap_or_default().replace('/', " OR ");
        let allows =
            |term: &str| permissive.contains(&term.trim().trim_matches(['(', ')']).split(" WITH ").next().unwrap());
        let fine = licence.split(" AND ").all(|part| part.split(" OR ").any(allows));
        assert!(fine, "{} is under {licence:?}", package["name"]);
    }
}

#[test]
fn tls_is_rustls_on_ring() {
    let names: Vec<String> = packages().1.iter().map(|package| package["name"].as_str().unwrap().to_owned()).collect();
    assert!(names.iter().any(|name| name == "ring"));
    for other in ["aws-lc-rs", "aws-lc-sys", "openssl-sys", "native-tls"] {
        assert!(!names.iter().any(|name| name == other), "{other} came in");
    }
}

#[test]
fn the_repository_compiles_protocol_files_by_itself() {
    let scratch = Scratch::new();
    // With an import that an installed protoc without its includes does not find.
    let proto = "syntax = \"proto3\"; import \"google/protobuf/descriptor.proto\"; message M { int32 field = 1; }";
    fs::write(scratch.path("m.proto"), proto).unwrap();
    let compiler = Path::new(env!("CARGO_MANIFEST_DIR")).join("tools/protoc");
    let mut command = Command::new(compiler);
    command.arg("-I").arg(scratch.root()).arg("--include_imports").arg("--descriptor_set_out=out").arg("m.proto");
    let output = command.current_dir(scratch.root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read(scratch.path("out")).unwrap().len() > 1000, "the import is missing");
}
