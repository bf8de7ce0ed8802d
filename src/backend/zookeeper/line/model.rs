/*!
Explores all states that a few clients of different kinds can reach in one directory, if each follows its own library's
rule: those hold together that a table allows, and no circle of clients waits for each other.
*/

use std::collections::BTreeSet;

use super::*;

/// A client, by its library and what it wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Exclusive,
    Shared,
    Slots,
    /// An earlier release of dlock, which creates two nodes and knows no modes.
    Earlier,
    CuratorMutex,
    CuratorRead,
    CuratorWrite,
    KazooLock,
    KazooRead,
    KazooWrite,
}

use Kind::{
    CuratorMutex, CuratorRead, CuratorWrite, Earlier, Exclusive, KazooLock, KazooRead, KazooWrite, Shared, Slots,
};

const KINDS: [Kind; 10] =
    [Exclusive, Shared, Slots, Earlier, CuratorMutex, CuratorRead, CuratorWrite, KazooLock, KazooRead, KazooWrite];

/// For each pair, in the order of [`KINDS`]: `+` if the later client (column) holds together with the earlier one
/// (row), `w` if it waits for it.
const TOGETHER: [&str; 10] = [
    "wwwwwwwwww",
    "w+www+w++w",
    "ww+wwwwwww",
    "wwwww++www",
    "wwwww+++++",
    "w+ww++w+++",
    "wwww+ww+++",
    "wwww+++www",
    "w+ww+++++w",
    "wwww+++www",
];

impl Kind {
    fn mode(self) -> Mode {
        match self {
            Self::Shared | Self::CuratorRead | Self::KazooRead => Mode::Shared,
            Self::Slots => Mode::read("slots2").expect("a mode"),
            _ => Mode::Exclusive,
        }
    }

    /// Returns the names of its nodes, without their numbers.
    fn prefixes(self, id: usize) -> Vec<String> {
        let zeros = "0".repeat(24);
        let (uuid, ours) = (format!("_c_{id:08}-0000-0000-0000-000000000000"), format!("f{id:07}{zeros}"));
        let theirs = format!("a{id:07}{zeros}");
        match self {
            Self::Exclusive => vec![format!("{uuid}-lock-"), format!("{uuid}-__WRIT__"), format!("{ours}__lock__")],
            Self::Shared => vec![format!("{uuid}-lock-"), format!("{uuid}-__READ__"), format!("{ours}__rlock__")],
            Self::Slots => {
                let uuid = format!("{uuid}-slots2");
                vec![format!("{uuid}-lock-"), format!("{uuid}-__WRIT__"), format!("{ours}-slots2__lock__")]
            }
            Self::Earlier => vec![format!("{uuid}-lock-"), format!("{ours}__lock__")],
            Self::CuratorMutex => vec![format!("{uuid}-lock-")],
            Self::CuratorRead => vec![format!("{uuid}-__READ__")],
            Self::CuratorWrite => vec![format!("{uuid}-__WRIT__")],
            Self::KazooLock | Self::KazooWrite => vec![format!("{theirs}__lock__")],
            Self::KazooRead => vec![format!("{theirs}__rlock__")],
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Coming,
    Waiting,
    Holding(Option<u32>),
    Gone,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    clients: Vec<(Kind, State)>,
    /// The nodes in order of creation, each with the number of its client.
    nodes: Vec<(String, usize)>,
}

/// Returns what follows the last `mark`, or the whole name: Curator sorts by that.
fn after<'a>(name: &'a str, marks: &[&str]) -> &'a str {
    marks.iter().find_map(|mark| name.rsplit_once(*mark)).map_or(name, |(_, after)| after)
}

impl World {
    /// Returns the names as the server lists them; a number only says which of two nodes is older.
    fn listed(&self) -> Vec<String> {
        self.nodes.iter().enumerate().map(|(number, (name, _))| format!("{name}{number:010}")).collect()
    }

    /// Returns the state of `who` as a holder, if it may enter by its own library's rule.
    fn enters(&self, who: usize) -> Option<State> {
        let listed = self.listed();
        let own = &listed[self.place(who)];
        let sorted = |marks: &[&str]| {
            let mut sorted: Vec<&String> = listed.iter().collect();
            sorted.sort_by(|one, other| after(one, marks).cmp(after(other, marks)));
            sorted
        };
        // kazoo considers only the nodes that it takes for other clients' locks.
        let is_behind = |marks: &[&str]| {
            let counts = |name: &String| marks.iter().any(|mark| name[..name.len() - 10].ends_with(*mark));
            listed.iter().take_while(|name| *name != own).any(counts)
        };
        let enters = match self.clients[who].0 {
            Exclusive | Shared | Slots => return self.by_line(who, &listed),
            Earlier => self.nodes[0].1 == who,
            CuratorMutex => sorted(&["lock-"])[0] == own,
            CuratorWrite => sorted(&["__WRIT__", "__READ__"])[0] == own,
            CuratorRead => {
                let mut before = sorted(&["__READ__", "__WRIT__"]).into_iter().take_while(|name| *name != own);
                !before.any(|name| name.contains("__WRIT__"))
            }
            KazooLock | KazooRead => !is_behind(&["__lock__"]),
            KazooWrite => !is_behind(&["__lock__", "__rlock__"]),
        };
        enters.then_some(State::Holding(None))
    }

    /// Applies dlock's own rule to `who`.
    fn by_line(&self, who: usize, listed: &[String]) -> Option<State> {
        let kind = self.clients[who].0;
        let [first, middle, last] = <[String; 3]>::try_from(kind.prefixes(who)).expect("three nodes");
        let names = Names { first, middle, last, mode: kind.mode() };
        let mut line = QueueView::read(listed, &names, &BTreeMap::new());
        loop {
            match line.standing() {
                Standing::Unknown(rivals) => {
                    for rival in rivals {
                        let node = listed.iter().position(|name| *name == rival.last).expect("it is listed");
                        let slot = match self.clients[self.nodes[node].1].1 {
                            State::Holding(slot) => slot,
                            State::Coming | State::Waiting | State::Gone => None,
                        };
                        line.tell(&rival, slot);
                    }
                }
                Standing::Enters { slot } => return Some(State::Holding(slot)),
                _ => return None,
            }
        }
    }

    /// Returns the index of the first node of `who`, which must have one.
    fn place(&self, who: usize) -> usize {
        self.nodes.iter().position(|(_, client)| *client == who).expect("it has nodes")
    }

    /// Returns the world after each step that one of the clients can take.
    fn steps(&self) -> Vec<Self> {
        (0..self.clients.len()).flat_map(|who| [self.goes_on(who), self.leaves(who)]).flatten().collect()
    }

    fn goes_on(&self, who: usize) -> Option<Self> {
        let mut world = self.clone();
        let (kind, state) = self.clients[who];
        world.clients[who].1 = match state {
            State::Coming => {
                world.nodes.extend(kind.prefixes(who).into_iter().map(|name| (name, who)));
                State::Waiting
            }
            State::Waiting => self.enters(who)?,
            State::Holding(_) | State::Gone => return None,
        };
        Some(world)
    }

    fn leaves(&self, who: usize) -> Option<Self> {
        if !matches!(self.clients[who].1, State::Waiting | State::Holding(_)) {
            return None;
        }
        let mut world = self.clone();
        world.clients[who].1 = State::Gone;
        world.nodes.retain(|(_, client)| *client != who);
        Some(world)
    }

    fn holders(&self) -> Vec<usize> {
        let holds = |who: &usize| matches!(self.clients[*who].1, State::Holding(_));
        (0..self.clients.len()).filter(holds).collect()
    }

    /// Returns the fault of this state, if it has one.
    fn fault(&self) -> Option<String> {
        let holders = self.holders();
        let states = holders.iter().map(|&who| self.clients[who].1);
        let slots: Vec<State> = states.filter(|state| *state != State::Holding(None)).collect();
        if slots.len() > 2 || slots.iter().collect::<BTreeSet<_>>().len() < slots.len() {
            return Some(format!("{slots:?} at the same time"));
        }
        let waits = |who: &usize| self.clients[*who].1 == State::Waiting;
        let waiting: Vec<usize> = (0..self.clients.len()).filter(waits).collect();
        let stuck = holders.is_empty() && !waiting.is_empty() && waiting.iter().all(|&who| self.enters(who).is_none());
        stuck.then(|| "all wait for each other".to_owned())
    }
}

/// Explores all states that these clients can reach. Returns the pairs that were seen to hold together, the earlier
/// client first, and the number of states.
fn search(kinds: &[Kind]) -> (BTreeSet<(Kind, Kind)>, usize) {
    let first = World { clients: kinds.iter().map(|&kind| (kind, State::Coming)).collect(), nodes: Vec::new() };
    let mut seen = BTreeSet::from([first.clone()]);
    let (mut open, mut together) = (vec![first], BTreeSet::new());
    while let Some(world) = open.pop() {
        if let Some(fault) = world.fault() {
            panic!("{fault}: {world:?}");
        }
        for next in world.steps() {
            let (before, now) = (world.holders(), next.holders());
            for &new in now.iter().filter(|who| !before.contains(who)) {
                let in_order = |holder: usize| {
                    if next.place(holder) < next.place(new) { (holder, new) } else { (new, holder) }
                };
                let pairs = before.iter().map(|&holder| in_order(holder));
                together.extend(pairs.map(|(first, later)| (kinds[first], kinds[later])));
            }
            if seen.insert(next.clone()) {
                open.push(next);
            }
        }
    }
    (together, seen.len())
}

#[test]
fn who_holds_together_is_as_the_table_says_and_nobody_waits_forever() {
    let mut expected = BTreeSet::new();
    for (holder, row) in KINDS.into_iter().zip(TOGETHER) {
        assert_eq!(row.len(), KINDS.len());
        let later = KINDS.into_iter().zip(row.chars()).filter(|(_, cell)| *cell == '+');
        expected.extend(later.map(|(kind, _)| (holder, kind)));
    }
    let (mut together, mut states) = (BTreeSet::new(), 0);
    for (index, &one) in KINDS.iter().enumerate() {
        for (more, &two) in KINDS.iter().enumerate().skip(index) {
            for &three in &KINDS[more..] {
                let (seen, count) = search(&[one, two, three]);
                let odd: Vec<_> = seen.difference(&expected).collect();
                assert!(odd.is_empty(), "{one:?}, {two:?} and {three:?} come to {odd:?}");
                together.extend(seen);
                states += count;
            }
        }
    }
    assert_eq!(together, expected);
    assert!(states > 5_000, "{states}");
    // Three clients that want slots, and a fourth one of every kind.
    for third in KINDS {
        let (seen, _) = search(&[Slots, Slots, Slots, third]);
        assert!(seen.is_subset(&expected), "{third:?}: {seen:?}");
    }
}
