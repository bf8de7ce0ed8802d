//! How long the files and functions of the source may be.

use std::fs;
use std::path::{Path, PathBuf};

use crate::source::layers::graph::sources;
use crate::source::layers::place;

/// The longest that a source file may be, in lines: one idea needs no more.
const LONGEST_FILE: usize = 600;
/// The longest that a function may be, in lines. One `match` with an arm for each variant may have as many as it needs.
const LONGEST_FUNCTION: usize = 60;

/// Whether the body of a function, which is indented like this, is one `match` and nothing else.
fn is_one_match(function: &[&str], indent: usize) -> bool {
    let body = " ".repeat(indent + 4);
    let mut outermost =
        function[1..].iter().filter_map(|line| line.strip_prefix(&body)).filter(|line| !line.starts_with(' '));
    outermost.next().is_some_and(|line| line.starts_with("match ")) && outermost.eq(["}"])
}

/// The functions in a text formatted by rustfmt, each with its number of lines.
fn functions(text: &str) -> Vec<(&str, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let begins = |line: &str| {
        let (before, _) = line.split_once("fn ")?;
        let is_known = |word: &str| {
            ["const", "async", "unsafe", "extern", "\"C\""].contains(&word)
                || word.starts_with("pub")
                || word.ends_with(')')
        };
        before.split_whitespace().all(is_known).then(|| line.len() - line.trim_start().len())
    };
    let length = |first: usize, indent: usize| {
        let ends = |line: &str| {
            let (before, rest) = line.split_at_checked(indent).unwrap_or(("", ""));
            before.trim().is_empty() && (rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        let is_one_line = lines[first].ends_with(['}', ';']);
        if is_one_line {
            return 1;
        }
        let function = &lines[first..=first + lines[first..].iter().position(|line| ends(line)).unwrap()];
        if is_one_match(function, indent) { 1 } else { function.len() }
    };
    let function = |(first, line): (usize, &&'_ str)| Some((lines[first], length(first, begins(line)?)));
    lines.iter().enumerate().filter_map(function).collect()
}

#[test]
fn no_file_and_no_function_is_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let (mut files, mut counted) = (Vec::new(), 0);
    sources(&root, &mut files);
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let lines = text.lines().count();
        assert!(lines <= LONGEST_FILE, "{} has {lines} lines: which ideas are in it?", file.display());
        for (function, lines) in functions(&text) {
            assert!(lines <= LONGEST_FUNCTION, "{}: {} has {lines} lines", file.display(), function.trim());
            counted += 1;
        }
    }
    assert!(counted > 1000, "{counted}");
}

/// The files in `tests` that are longer than [`LONGEST_FILE`] as yet.
const LONG_TESTS: &[&str] = &["cli/input/mod.rs", "services/tls.rs", "supervise/surroundings.rs"];

#[test]
fn no_other_file_of_the_tests_is_long() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let mut files = Vec::new();
    sources(&root, &mut files);
    let is_long = |file: &PathBuf| fs::read_to_string(file).unwrap().lines().count() > LONGEST_FILE;
    let mut long: Vec<String> = files.into_iter().filter(is_long).map(|file| place(&root, &file)).collect();
    long.sort();
    assert_eq!(long, LONG_TESTS, "which ideas are in a new one? One that is short now leaves the list");
}

#[test]
fn functions_are_counted_from_their_first_line_to_their_last() {
    let text = "\
/// fn no
fn f() {}
impl A {
    pub(in crate::a) async fn g(
        a: u8,
    ) -> u8 {
        if a {
        }
        a
    }
}
trait T {
    fn h(&self);
    fn i(
        a: u8,
    ) -> u8;
}
fn one(a: u8) {
    match a {
        1 => {
        }
    }
}
fn more(a: u8) {
    match a {
    }
    a
}
";
    let found: Vec<usize> = functions(text).into_iter().map(|(_, lines)| lines).collect();
    assert_eq!(found, [1, 7, 1, 3, 1, 5]);
}
