//! A command that does everything it can to outlive its lock.

use std::time::Duration;

use super::rendezvous::{Fifo, Gate, Lifeline, LifelineEnd, boottime};
use super::scratch::Scratch;

/// A stubborn process tree, to be run under dlock:
///
/// - the command itself, a shell that catches SIGTERM, tells of it, and goes on,
/// - its child, which ignores SIGTERM,
/// - its grandchild, which ignores it too, has lost its parent, and is in a session of its own.
///
/// It ends only when it is killed; the command alone ends (with 0, and the others stay) when it is [told to](Self::leave).
/// Every process of it holds a [`Lifeline`]. One per scratch directory, in which all of it works.
pub struct Tree {
    words: Fifo,
    gate: Gate,
    lifeline: Lifeline,
    end: Option<LifelineEnd>,
}

/// The processes of a [`Tree`].
#[derive(Clone, Copy, Debug)]
pub struct Members {
    pub command: i32,
    pub child: i32,
    pub grandchild: i32,
}

impl Members {
    pub fn all(self) -> [i32; 3] {
        [self.command, self.child, self.grandchild]
    }
}

impl Tree {
    pub fn new(scratch: &Scratch) -> Self {
        let (lifeline, end) = Lifeline::pair();
        let (words, gate) = (Fifo::new(scratch.path("tree")), Gate::new(scratch.path("tree-gate")));
        Self { words, gate, lifeline, end: Some(end) }
    }

    /// Shell code that becomes the tree.
    pub fn work(&self) -> String {
        let stubborn = |name: &str| format!("trap '' TERM; {}; exec sleep 1000", self.words.say(&format!("{name}:$$")));
        // In quotes, because the words contain one another.
        let quoted = |script: String| format!("'{}'", script.replace('\'', r"'\''"));
        let (child, grandchild) = (quoted(stubborn("child")), quoted(stubborn("grandchild")));
        let (term, command, wait) = (quoted(self.words.say("TERM")), self.words.say("command:$$"), self.gate.wait());
        // A signal interrupts the wait; without the gate the test is over.
        format!(
            "exec 2>/dev/null; trap {term} TERM; sh -c {child} & (setsid sh -c {grandchild} &) ; {command}
             until {wait}; do [ -e '{gate}' ] || exit; done",
            gate = self.gate.path().display()
        )
    }

    /// The end of the lifeline for [`super::dlock::Dlock::lifeline`]. Works once.
    #[track_caller]
    pub fn end(&mut self) -> LifelineEnd {
        self.end.take().expect("the lifeline's end was given away before")
    }

    /// Waits until all of it runs.
    #[track_caller]
    pub fn wait_grown(&mut self) -> Members {
        let mut members = Members { command: 0, child: 0, grandchild: 0 };
        while members.all().contains(&0) {
            let word = self.words.word();
            let (name, pid) = word.split_once(':').unwrap_or_else(|| panic!("{word:?} from a tree that is growing"));
            let pid = pid.parse().expect("a process id");
            match name {
                "command" => members.command = pid,
                "child" => members.child = pid,
                _ => members.grandchild = pid,
            }
        }
        members
    }

    /// Lets the command end; the rest of the tree stays.
    pub fn leave(&self) {
        self.gate.open();
    }

    /// Waits until the command has reported a SIGTERM that was not waited for yet; returns when it did, by
    /// [`boottime`].
    #[track_caller]
    pub fn termed_at(&mut self) -> Duration {
        self.words.expect("TERM");
        boottime()
    }

    /// Whether the command has reported another SIGTERM.
    pub fn was_termed(&mut self) -> bool {
        self.words.try_word().is_some()
    }

    /// Waits until the last process of the tree is gone; returns when that was, by [`boottime`].
    #[track_caller]
    pub fn died_at(&self) -> Duration {
        self.lifeline.closed_at()
    }

    /// Whether any process of the tree is left.
    pub fn is_alive(&self) -> bool {
        self.lifeline.is_open()
    }
}
