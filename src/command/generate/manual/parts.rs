/*!
The parts from which the sections of a man page are made.
*/

use clap_mangen::roff::{Roff, bold, roman};

/// The date in the pages' feet: the last change of their text, so that the same source gives the same page.
pub(super) const DATE: &str = "2026-11-24";

/// Writes the names of other pages, each with its section.
pub(super) fn see_also(page: &mut Roff, pages: &[&str]) {
    let mut inlines = Vec::new();
    for (index, other) in pages.iter().enumerate() {
        let (name, section) = other.split_once('(').unwrap_or((other, ""));
        inlines.push(bold(name));
        let end = if index + 1 == pages.len() { "" } else { ", " };
        inlines.push(roman(format!("({section}{end}")));
    }
    page.text(inlines);
}

/// Writes a section of paragraphs.
pub(super) fn paragraphs(page: &mut Roff, title: &str, paragraphs: &[&str]) {
    page.control("SH", [title]);
    for (index, paragraph) in paragraphs.iter().enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text([roman(*paragraph)]);
    }
}

/// Writes examples: a description and a line for each.
pub(super) fn listed(page: &mut Roff, examples: &[(&str, &str)]) {
    for (index, (what, line)) in examples.iter().enumerate() {
        if index > 0 {
            page.control("PP", []);
        }
        page.text([roman(*what)]);
        page.control("PP", []).control("RS", ["4"]).control("nf", []);
        page.text([roman(*line)]);
        page.control("fi", []).control("RE", []);
    }
}

/// Writes a section of names and their meanings.
pub(super) fn list<'a>(page: &mut Roff, title: &str, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    page.control("SH", [title]);
    entries(page, rows);
}

/// Writes names and their meanings.
pub(super) fn entries<'a>(page: &mut Roff, rows: impl Iterator<Item = (&'a str, &'a str)>) {
    for (name, meaning) in rows {
        page.control("TP", []);
        page.text([bold(name)]);
        page.text([roman(meaning)]);
    }
}
