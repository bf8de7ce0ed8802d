/*!
The holder of a lock, by the columns of its row and of the row in `dlock_holder`.
*/

use crate::backend::sql::owner;
use crate::holder::{About, Holder, Published};
use crate::lock::admission::Mode;

/// The columns of a row that is locked. Times are in milliseconds since 1970 by the database's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Columns {
    /// ShedLock's `locked_by`.
    pub locked_by: String,
    /// The holder's token.
    pub token: Option<u64>,
    /// ShedLock's `locked_at`.
    pub since: Option<u64>,
    /// ShedLock's `lock_until`.
    pub until: Option<u64>,
    /// The metadata that the holder published: the JSON of [`About`], which may be cut or damaged.
    pub about: Option<String>,
    /// For a lock with several holders, the holder that the other columns are about.
    pub member: Option<Member>,
}

/// One of several holders of a lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its owner's id.
    pub owner: String,
    /// Its slot.
    pub slot: Option<u32>,
    /// `true` if it does not use the lock any more.
    pub done: bool,
    /// The number of other holders.
    pub beside: u64,
}

impl Columns {
    /// Returns `true` if another program holds the lock.
    #[must_use]
    pub(crate) fn is_foreign(&self) -> bool {
        owner::read(&self.locked_by).is_none() && owner::read_group(&self.locked_by).is_none()
    }

    /// Returns the holder. For another program, it is the text in `locked_by`.
    #[must_use]
    pub(crate) fn holder(&self) -> Holder {
        let mode = owner::read_group(&self.locked_by);
        let (id, done) = match (owner::read(&self.locked_by), mode, &self.member) {
            (Some(one), ..) => one,
            (None, Some(_), Some(member)) => (member.owner.as_str(), member.done),
            // The lease of the last of them has just ended.
            (None, Some(_), None) => return Holder::Unknown,
            (None, None, _) => return Holder::Foreign(self.locked_by.clone().into_bytes()),
        };
        let about = self.about.as_ref().and_then(|about| serde_json::from_str::<About>(about).ok());
        Holder::Dlock(Box::new(Published {
            v: 1,
            id: id.to_owned(),
            token: self.token,
            mode: mode.map(Mode::name),
            slot: self.member.as_ref().and_then(|member| member.slot),
            since: self.since,
            until: self.until.filter(|_| done),
            done,
            about: about.unwrap_or_default(),
            ..Published::default()
        }))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::holder::Owner;
    use crate::property::{holds, one_of};

    #[test]
    fn a_dlock_is_read_back_and_anything_else_is_foreign() {
        let id = Owner::random().expect("random");
        let about = About { host: "web1".to_owned(), user: "deploy".to_owned(), pid: 7, ..About::default() };
        let row = Columns {
            locked_by: owner::held(&id),
            token: Some(17),
            since: Some(1000),
            until: Some(2000),
            about: Some(format!("{{{}", about.rest())),
            member: None,
        };
        let expected = Published {
            v: 1,
            id: id.as_str().to_owned(),
            token: Some(17),
            since: Some(1000),
            about,
            ..Published::default()
        };
        assert_eq!(row.holder(), Holder::Dlock(Box::new(expected.clone())));
        let kept = Columns { locked_by: owner::kept(&id), ..row.clone() };
        let expected = Published { done: true, until: Some(2000), ..expected };
        assert_eq!(kept.holder(), Holder::Dlock(Box::new(expected.clone())));
        let member = Member { owner: id.as_str().to_owned(), slot: Some(4), done: false, beside: 1 };
        let slots = Columns { locked_by: "dlock:slots5".to_owned(), member: Some(member), ..row.clone() };
        let expected =
            Published { mode: Some("slots5".to_owned()), slot: Some(4), done: false, until: None, ..expected };
        assert_eq!(slots.holder(), Holder::Dlock(Box::new(expected)));
        assert_eq!(Columns { member: None, ..slots.clone() }.holder(), Holder::Unknown);
        assert!(!slots.is_foreign() && !row.is_foreign());
        let shedlock = Columns { locked_by: "web1".to_owned(), ..row };
        assert_eq!(shedlock.holder().describe(0), "held by another program: web1");
    }

    #[test]
    fn whatever_stands_there_is_told_in_a_line() {
        const TEXTS: &str =
            "|dlock:0123456789abcdef0123456789abcdef|dlock:x|\u{1b}[2J|\"host\":\"h\u{202e}\"}|\"pid\":-1}|{}|}";
        let any = (one_of(TEXTS), one_of(TEXTS), any::<Option<u64>>(), any::<u64>());
        holds(1000, any, |(locked_by, about, number, now)| {
            let (locked_by, about) = (locked_by.to_owned(), Some(about.to_owned()));
            let row = Columns { locked_by, about, token: number, since: number, until: number, member: None };
            prop_assert!(!row.holder().describe(now).contains(char::is_control));
            Ok(())
        });
    }
}
