/*!
The man pages: options from the parser's definitions, and all other sections from texts, one file for each page.

A text has sections (`# TITLE`), paragraphs, entries (`- TERM`, and the meaning in lines that begin with two spaces) and
examples (lines that begin with four spaces). Line breaks count only in examples. A line in braces stands for a text in
`shared.txt`, or for something that only the program knows: see [`Page::insert`].
*/

use std::io;
use std::iter::Peekable;
use std::str::Lines;

use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

use crate::backend::registry;
use crate::cli::defaults::{Kind, kind};
use crate::cli::settable;
use crate::exit::{Exit, Failure};
use crate::report::event::Event;
use crate::schema;

/// The date in the pages' feet: the last change of their text, so that the same source gives the same page.
const DATE: &str = "2026-11-24";

/// Lists the pages with these names, each with its text.
macro_rules! texts {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("manual/", $name, ".txt")))),*] };
}

/// The pages: those of dlock and its subcommands, and two that are not about a command.
const PAGES: &[(&str, &str)] = texts! {
    "dlock" "run" "flock" "status" "list" "held" "break" "acquire" "renew" "release" "latch" "barrier" "check" "config"
    "generate" "config.5" "json"
};

/// Texts for several pages, each below a line with its name (`## NAME`).
const SHARED: &str = include_str!("manual/shared.txt");

/// Writes the page of the subcommand `name`, or of dlock itself.
pub(super) fn page(cli: &clap::Command, name: Option<&str>, text: &mut Vec<u8>) -> Result<(), Failure> {
    let missing = || Failure::new(Exit::Usage, Event::NoSuchPage(name.unwrap_or_default().to_owned()));
    let (title, own) = PAGES.iter().find(|(title, _)| *title == name.unwrap_or("dlock")).ok_or_else(missing)?;
    let mut page = Page::default();
    match *title {
        "config.5" => page.begin("DLOCK-CONFIG", "5", "File Formats"),
        "json" => page.begin("DLOCK-JSON", "7", "Miscellaneous Information"),
        _ => {
            let command = match name {
                None => cli.clone(),
                Some(name) => {
                    cli.find_subcommand(name).cloned().ok_or_else(missing)?.version(env!("CARGO_PKG_VERSION"))
                }
            };
            // Writing to memory cannot fail.
            describe(command, text)
                .map_err(|error| Failure::new(Exit::Internal, Event::Settings(error.to_string())))?;
        }
    }
    page.write(own);
    text.extend_from_slice(page.roff.render().as_bytes());
    Ok(())
}

/// Writes what the parser's definition of `command` gives.
fn describe(mut command: clap::Command, text: &mut Vec<u8>) -> io::Result<()> {
    let title = command.get_display_name().unwrap_or("dlock").to_uppercase();
    let has_subcommands = command.has_subcommands();
    // As in the help: a synopsis that lists every option has no room for their values.
    let usage = command.render_usage().to_string();
    let command = command.override_usage(usage.trim_start_matches("Usage: ").to_owned());
    let man = Man::new(command).title(title).section("1").date(DATE).source(source()).manual("User Commands");
    man.render_title(text)?;
    let title_ends = text.len();
    man.render_name_section(text)?;
    lower_name(text);
    man.render_synopsis_section(text)?;
    man.render_description_section(text)?;
    man.render_options_section(text)?;
    if has_subcommands {
        man.render_subcommands_section(text)?;
    }
    mend_spaces(text, title_ends);
    Ok(())
}

/// Returns the name of the program with its version.
fn source() -> String {
    format!("dlock {}", env!("CARGO_PKG_VERSION"))
}

/// The sections of a page that belong to no option.
#[derive(Default)]
struct Page {
    roff: Roff,
    /// `true` if the last line was the title of a section.
    is_titled: bool,
}

impl Page {
    fn begin(&mut self, title: &str, section: &str, manual: &str) {
        self.roff.control("TH", [title, section, DATE, source().as_str(), manual]);
    }

    /// Writes a text.
    fn write(&mut self, text: &str) {
        let mut lines = text.lines().peekable();
        let mut title = "";
        while let Some(line) = lines.next() {
            if let Some(new) = line.strip_prefix("# ") {
                title = new;
                self.title(title);
            } else if let Some(term) = line.strip_prefix("- ") {
                self.entry(term, &joined("", &mut lines, |line| line.starts_with("  ")));
            } else if let Some(name) = line.strip_prefix('{').and_then(|line| line.strip_suffix('}')) {
                self.insert(name);
            } else if line.starts_with("    ") {
                self.example(line, &mut lines);
            } else if !line.is_empty() {
                let paragraph = joined(line, &mut lines, |line| !line.is_empty());
                if title == "SEE ALSO" { self.see_also(&paragraph) } else { self.paragraph(&paragraph) }
            }
        }
    }

    /// Writes the shared text of this name, or the part that the program computes.
    fn insert(&mut self, name: &str) {
        match name {
            "documents" => self.documents(),
            "events" => self.events(),
            "options" => self.options(),
            _ => match name.strip_prefix("backends") {
                Some(without) => self.backends(without.trim_start_matches(" but ")),
                None => self.write(shared(name)),
            },
        }
    }

    fn title(&mut self, title: &str) {
        self.roff.control("SH", [title]);
        self.is_titled = true;
    }

    fn paragraph(&mut self, text: &str) {
        if !std::mem::take(&mut self.is_titled) {
            self.roff.control("PP", []);
        }
        self.roff.text([roman(text)]);
    }

    fn entry(&mut self, term: &str, meaning: &str) {
        self.is_titled = false;
        self.roff.control("TP", []);
        self.roff.text([bold(term)]);
        self.roff.text([roman(meaning.replace("{kinds}", &registry::names()))]);
    }

    fn section<'a>(&mut self, title: &str, entries: impl IntoIterator<Item = &'a (&'a str, &'a str)>) {
        self.title(title);
        for (term, meaning) in entries {
            self.entry(term, meaning);
        }
    }

    /// Writes an example, of which `first` is the first line.
    fn example(&mut self, first: &str, lines: &mut Peekable<Lines<'_>>) {
        let mut example = vec![first];
        while let Some(line) = lines.next_if(|line| line.is_empty() || line.starts_with("    ")) {
            example.push(line);
        }
        let example: Vec<&str> = example.iter().map(|line| line.get(4..).unwrap_or_default()).collect();
        self.roff.control("PP", []).control("RS", ["4"]).control("nf", []);
        self.roff.text([roman(example.join("\n").trim_end())]);
        self.roff.control("fi", []).control("RE", []);
    }

    /// Writes the names of other pages, each with its section.
    fn see_also(&mut self, pages: &str) {
        let names = pages.split_inclusive(", ").map(|page| page.split_once('(').unwrap_or((page, "")));
        self.roff.text(names.flat_map(|(name, rest)| [bold(name), roman(format!("({rest}"))]).collect::<Vec<_>>());
    }

    /// Writes the backends, except one, with all forms of their URLs.
    fn backends(&mut self, without: &str) {
        // The URLs are too long for lines of even length.
        self.roff.control("na", []);
        for (name, forms) in registry::table().filter(|(name, _)| *name != without) {
            self.entry(name, &forms);
        }
        self.roff.control("ad", []);
    }

    /// Writes the names of the options that a config file may set, by the kind of their values.
    fn options(&mut self) {
        for (values, of) in [
            ("a text in quotes, or a number", Kind::Text),
            ("the path of a file, in quotes", Kind::Path),
            ("true or false", Kind::Switch),
        ] {
            let options = settable();
            let of_kind = options.iter().filter(|option| kind(option) == of);
            let mut names: Vec<&str> = of_kind.filter_map(clap::Arg::get_long).collect();
            names.sort_unstable();
            self.entry(values, &names.join(", "));
        }
    }

    /// Writes the fields of all JSON documents.
    fn documents(&mut self) {
        self.section("STATUS", schema::LOCK);
        self.section("HOLDERS", schema::HOLDER);
        self.section("WAITERS", schema::WAITER);
        self.section("LIST", schema::LIST);
        self.section("CONFIG", schema::settings::SETTINGS);
        self.section("SETTINGS", schema::settings::SETTING);
        self.section("ACQUIRE", schema::ACQUIRED);
        self.section("LATCH", schema::LATCH);
        self.section("CHECK", schema::checked::CHECKED);
        self.section("PROBES", schema::checked::PROBE);
        self.section("LATENCY", schema::checked::LATENCY);
    }

    /// Writes the fields of all events.
    fn events(&mut self) {
        self.section("FIELDS OF ALL EVENTS", schema::events::EVENT);
        for (name, when, fields) in schema::events::EVENTS {
            let head = format!("{when}; its fields:");
            let head = [(*name, head.as_str())];
            self.section(&format!("EVENT {}", name.to_uppercase()), head.iter().chain(fields.iter()));
        }
        self.section("HOLDER OF AN EVENT", schema::events::EVENT_HOLDER);
    }
}

/// Joins `first` and the next lines that belong to it.
fn joined(first: &str, lines: &mut Peekable<Lines<'_>>, belongs: fn(&str) -> bool) -> String {
    let mut text = first.to_owned();
    while let Some(line) = lines.next_if(|line| belongs(line)) {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(line.trim_start());
    }
    text
}

/// Returns the shared text of this name; nothing if there is none, which a test of the texts rules out.
fn shared(name: &str) -> &'static str {
    let mut texts = SHARED.split("\n## ").filter_map(|text| text.split_once('\n'));
    texts.find(|(title, _)| *title == name).map_or("", |(_, text)| text)
}

/// Makes the description in NAME begin with a small letter, as all pages do.
fn lower_name(text: &mut [u8]) {
    const DASH: &[u8] = b" \\- ";
    let at = text.windows(DASH.len()).rposition(|part| part == DASH).map(|at| at + DASH.len());
    if let Some(letter) = at.and_then(|at| text.get_mut(at)) {
        letter.make_ascii_lowercase();
    }
}

/// Replaces an empty line between two breaks, which is meant as a space, by `.sp`, as manual checkers demand.
fn mend_spaces(text: &mut Vec<u8>, from: usize) {
    let page = String::from_utf8_lossy(&text[from..]).replace("\n.br\n\n.br\n", "\n.sp\n");
    text.truncate(from);
    text.extend_from_slice(page.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_the_texts_name_exists() {
        let texts = PAGES.iter().map(|(_, text)| *text).chain([SHARED]);
        let mut named: Vec<&str> = texts
            .flat_map(str::lines)
            .filter_map(|line| line.strip_prefix('{').and_then(|line| line.strip_suffix('}')))
            .filter(|name| !["documents", "events", "options"].contains(name))
            .collect();
        named.sort_unstable();
        named.dedup();
        let (of_backends, of_texts): (Vec<&str>, Vec<&str>) =
            named.iter().partition(|name| name.starts_with("backends"));
        for name in &of_texts {
            assert!(!shared(name).is_empty(), "{name}");
        }
        let without = of_backends.iter().filter_map(|name| name.strip_prefix("backends but "));
        assert!(without.clone().all(|without| registry::table().any(|(name, _)| name == without)), "{of_backends:?}");
        assert_eq!(SHARED.matches("\n## ").count(), of_texts.len(), "no text is left over");
    }
}
