/*!
The queue for a lock: its contenders in the order of arrival, by one listing of the lock's directory, and before them
the minimum holds that are not over.

Pure; it sends no requests. If a decision needs more than the listing, it says so: the slots that others have entered,
and the minimum holds.
*/

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use crate::backend::zookeeper::hold::{Hold, MinimumHold};
use crate::backend::zookeeper::names::{Names, contender, contender_of, mode_in, sequence};
use crate::clock::Instant;
use crate::lock::admission::{Entry, Mode, QueuePlace, Watch, enters, holders, place};

/// The prefix of the names of minimum holds' entries, before their index; no node's name has a slash.
const KEPT: &str = "/";

/// Another contender, by its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rival {
    /// The name of its first node, whose data describe the contender.
    pub first: String,
    /// The name of its last node, which is the one to watch: renewals do not write to it, but entering a slot does.
    pub last: String,
}

/// A holder of the lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Who {
    /// A contender.
    Rival(Rival),
    /// An earlier holder, by its minimum hold.
    MinimumHold(Box<Hold>),
}

/// The event that can let a waiter in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The node of this name disappears.
    Gone(String),
    /// The node of this name disappears, or says that its owner has entered a slot.
    Turn(String),
    /// Any of the nodes of these names disappears.
    Any(Vec<String>),
    /// The minimum hold of this owner ends.
    MinimumHold(String),
}

/// The reason why we cannot enter, and what to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Behind {
    /// The oldest holder.
    pub holder: Who,
    /// The number of its co-holders.
    pub beside: u64,
    /// Our position among the waiters, 1 for the next; `None` while we are not in the queue.
    pub position: Option<u64>,
    /// The event to wait for; `None` while we are not in the queue.
    pub awaited: Option<Awaited>,
    /// The end of a minimum hold that is in our way.
    pub until: Option<Instant>,
    /// Set if there is a slot for us as soon as the contender before us has entered its own.
    pub is_entering: bool,
}

/// Our standing in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Not certain until it is known whether these have entered a slot: see [`QueueView::tell`].
    Unknown(Vec<Rival>),
    /// We are in the queue, and the lock is ours once it is certain that no minimum hold is in the way.
    Enters {
        /// Our slot, if there are slots.
        slot: Option<u32>,
    },
    /// We are not in the queue, and could enter at once if we were and no minimum hold were in the way.
    ConnectReply,
    /// We cannot enter, or could not if we were in the queue.
    Behind(Behind),
    /// Another number of slots is in use.
    OtherSlots {
        /// The number in use.
        slots: u32,
        /// A holder or waiter that uses it.
        by: Who,
    },
}

/// The contenders for a lock.
#[derive(Clone, Debug)]
pub(super) struct QueueView {
    /// The contenders, oldest first.
    entries: Vec<Entry>,
    /// The nodes of each contender, by the name of its entry.
    nodes: BTreeMap<String, Rival>,
    /// The name of our entry.
    own: String,
    /// The mode in which we want to hold the lock.
    mode: Mode,
    /// The names of the entries for which it is known whether they have entered a slot.
    read: BTreeSet<String>,
    /// The minimum holds that are not over, the first to end first; `None` until they have been read.
    kept: Option<Vec<MinimumHold>>,
}

/// Returns the contenders whose nodes are among the `children` of a lock's directory, oldest first. The slots that they
/// have entered are not known from that.
pub(super) fn contenders(children: &[String]) -> Vec<(Entry, Rival)> {
    let mut nodes: BTreeMap<String, Vec<(i64, &String)>> = BTreeMap::new();
    for child in children {
        if let Some(sequence) = sequence(child) {
            nodes.entry(contender(child)).or_default().push((sequence, child));
        }
    }
    let of = |(name, mut nodes): (String, Vec<(i64, &String)>)| {
        nodes.sort_unstable();
        let (&(order, first), &(_, last)) = (nodes.first()?, nodes.last()?);
        let mode = joint(nodes.iter().map(|(_, node)| mode_in(node)));
        let rival = Rival { first: first.clone(), last: last.clone() };
        Some((Entry { order, name, mode, slot: None }, rival))
    };
    let mut contenders: Vec<(Entry, Rival)> = nodes.into_iter().filter_map(of).collect();
    contenders.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    contenders
}

impl QueueView {
    /// Builds the queue from the `children` of a lock's directory, for the contender with these `names`. `entered` has
    /// the known slots, keyed by last node.
    pub(super) fn read(children: &[String], names: &Names, entered: &BTreeMap<String, u32>) -> Self {
        let own = contender(&names.last);
        let mut line = Self {
            entries: Vec::new(),
            nodes: BTreeMap::new(),
            own,
            mode: names.mode,
            read: BTreeSet::new(),
            kept: None,
        };
        for (entry, rival) in contenders(children) {
            let slot = entered.get(&rival.last).copied();
            if slot.is_some() {
                line.read.insert(entry.name.clone());
            }
            line.nodes.insert(entry.name.clone(), rival);
            line.entries.push(Entry { slot, ..entry });
        }
        line
    }

    /// Returns the number of contenders.
    pub(super) fn count(&self) -> u64 {
        self.entries.len().try_into().unwrap_or(u64::MAX)
    }

    /// Records that `rival` has entered this slot, or none yet.
    pub(super) fn tell(&mut self, rival: &Rival, slot: Option<u32>) {
        let name = contender(&rival.last);
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.name == name) {
            entry.slot = slot;
        }
        self.read.insert(name);
    }

    /// Returns the known slots, keyed by the contenders' last nodes.
    pub(super) fn entered(&self) -> BTreeMap<String, u32> {
        let last = |entry: &Entry| Some((self.nodes.get(&entry.name)?.last.clone(), entry.slot?));
        self.entries.iter().filter_map(last).collect()
    }

    /// Returns `true` if the minimum holds have been read.
    pub(super) fn knows_holds(&self) -> bool {
        self.kept.is_some()
    }

    /// Records the minimum holds that are not over, except those whose owners still contend: they add nothing.
    pub(super) fn keep(&mut self, mut holds: Vec<MinimumHold>) {
        let contends = |name: &String| *name == self.own || self.nodes.contains_key(name);
        holds.retain(|kept| !contends(&contender_of(kept.hold.owner())));
        holds.sort_by_key(|kept| kept.over);
        self.kept = Some(holds);
    }

    /// Returns the nodes of the oldest holder among these `owners`.
    pub(super) fn holder_among(&self, owners: &[String]) -> Option<Rival> {
        let holders = holders(self.entries.iter().map(|entry| entry.mode));
        let is_one = |entry: &&Entry| owners.iter().any(|owner| contender_of(owner) == entry.name);
        self.nodes.get(&self.entries.iter().take(holders).find(is_one)?.name).cloned()
    }

    /// Returns our standing in the queue.
    pub(super) fn standing(&self) -> Standing {
        let Some(own) = self.entries.iter().find(|entry| entry.name == self.own) else { return self.outlook() };
        let line = self.whole();
        let before: Vec<&Entry> = line.iter().filter(|entry| *entry < own).collect();
        match place(&line, |entry| entry.name == self.own) {
            QueuePlace::Missing => self.outlook(),
            QueuePlace::OtherSlots(slots) => self.other_slots(slots, &line),
            QueuePlace::Enters { slot } => Standing::Enters { slot },
            QueuePlace::Behind { watch: Watch::Turn(entry), .. } if self.is_unread(&entry) => {
                self.unknown(&entry, &before)
            }
            QueuePlace::Behind { holder, watch, position } => self.behind(&holder, &watch, position, &before),
        }
    }

    /// Returns the standing of a contender that is not in the queue: behind all others.
    fn outlook(&self) -> Standing {
        let line = self.whole();
        let slots = line.iter().find_map(|entry| entry.mode.slots().map(|slots| (slots, entry.mode)));
        if let Some((slots, _)) = slots.filter(|(_, oldest)| self.mode.contradicts(*oldest)) {
            return self.other_slots(slots, &line);
        }
        match line.first() {
            Some(holder) if !enters(self.mode, line.iter().map(|entry| entry.mode)) => Standing::Behind(Behind {
                holder: self.who(holder),
                beside: beside(line.iter().map(|entry| entry.mode)),
                position: None,
                awaited: None,
                until: None,
                is_entering: false,
            }),
            _ => Standing::ConnectReply,
        }
    }

    /// Reports that it is unknown whether `entry` has entered a slot. If `entry` is not the last one before us, that
    /// last one has entered, and there is a slot for us: then the slots of all others are needed at once.
    fn unknown(&self, entry: &Entry, before: &[&Entry]) -> Standing {
        if before.last().is_some_and(|last| *last == entry) {
            return Standing::Unknown(vec![self.rival(entry)]);
        }
        let unread = before.iter().filter(|entry| self.is_unread(entry));
        Standing::Unknown(unread.map(|entry| self.rival(entry)).collect())
    }

    fn behind(&self, holder: &Entry, watch: &Watch, position: u64, before: &[&Entry]) -> Standing {
        let (awaited, until) = self.awaited(watch);
        Standing::Behind(Behind {
            holder: self.who(holder),
            beside: beside(before.iter().map(|entry| entry.mode)),
            position: Some(position),
            awaited: Some(awaited),
            until,
            is_entering: matches!(watch, Watch::Turn(_)) && before.len() < self.mode.room(),
        })
    }

    fn other_slots(&self, slots: u32, line: &[Entry]) -> Standing {
        let by = line.iter().find(|entry| entry.mode.slots() == Some(slots));
        Standing::OtherSlots { slots, by: by.map_or_else(|| Who::Rival(Rival::default()), |entry| self.who(entry)) }
    }

    /// Converts `watch` to the event that we wait for, with the end of a minimum hold that is part of it.
    fn awaited(&self, watch: &Watch) -> (Awaited, Option<Instant>) {
        let last = |entry: &Entry| self.rival(entry).last;
        let kept = |kept: &MinimumHold| (Awaited::MinimumHold(kept.hold.owner().to_owned()), Some(kept.over));
        match watch {
            Watch::Gone(entry) => self.kept_by(entry).map_or_else(|| (Awaited::Gone(last(entry)), None), kept),
            Watch::Turn(entry) => self.kept_by(entry).map_or_else(|| (Awaited::Turn(last(entry)), None), kept),
            Watch::Any(entries) => {
                // The minimum holds are in the order in which they end.
                let first = entries.iter().find_map(|entry| self.kept_by(entry));
                let nodes: Vec<String> =
                    entries.iter().filter(|entry| self.kept_by(entry).is_none()).map(last).collect();
                match first {
                    Some(first) if nodes.is_empty() => kept(first),
                    first => (Awaited::Any(nodes), first.map(|first| first.over)),
                }
            }
        }
    }

    /// Returns the minimum holds, as entries that came before all others, followed by the contenders.
    fn whole(&self) -> Cow<'_, [Entry]> {
        let kept = self.kept.as_deref().unwrap_or_default();
        if kept.is_empty() {
            return Cow::Borrowed(&self.entries);
        }
        let entry = |(order, kept): (i64, &MinimumHold)| Entry {
            order,
            name: format!("{KEPT}{}", order.wrapping_sub(i64::MIN)),
            mode: kept.hold.mode(),
            slot: kept.hold.slot(),
        };
        (i64::MIN..).zip(kept).map(entry).chain(self.entries.iter().cloned()).collect()
    }

    /// Returns the minimum hold that this entry stands for, if it does.
    fn kept_by(&self, entry: &Entry) -> Option<&MinimumHold> {
        let index: usize = entry.name.strip_prefix(KEPT)?.parse().ok()?;
        self.kept.as_ref()?.get(index)
    }

    /// Returns `true` if it is unknown whether this contender has entered a slot.
    fn is_unread(&self, entry: &Entry) -> bool {
        !self.read.contains(&entry.name) && self.kept_by(entry).is_none()
    }

    fn rival(&self, entry: &Entry) -> Rival {
        self.nodes.get(&entry.name).cloned().unwrap_or_default()
    }

    fn who(&self, entry: &Entry) -> Who {
        match self.kept_by(entry) {
            Some(kept) => Who::MinimumHold(Box::new(kept.hold.clone())),
            None => Who::Rival(self.rival(entry)),
        }
    }
}

/// Combines the modes that the nodes of one contender express.
fn joint(modes: impl Iterator<Item = Mode>) -> Mode {
    modes.fold(Mode::Exclusive, |joint, said| match (joint, said) {
        (slots @ Mode::Slots(_), _) | (_, slots @ Mode::Slots(_)) => slots,
        (Mode::Shared, _) | (_, Mode::Shared) => Mode::Shared,
        (Mode::Exclusive, Mode::Exclusive) => Mode::Exclusive,
    })
}

/// Returns the number of holders besides the first one.
fn beside(modes: impl Iterator<Item = Mode>) -> u64 {
    holders(modes).saturating_sub(1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod model;

#[cfg(test)]
mod tests;
