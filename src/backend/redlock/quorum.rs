/*!
The decisions of a majority, as pure functions of the answers so far. Knows nothing of connections or time.

A majority is more than half of the *configured* servers, whether they answer or not: any two majorities have a server
in common.

The token follows Protocol F. Each server counts its grants; an attempt's token is the largest count among the servers
that granted it, and is final once a majority of servers *hold* it: their count was at least as large while the lock was
this attempt's there. Two attempts that are granted share such a server, which granted one of them first; the other's
count there is larger than the first one's token. So tokens differ, and an attempt that begins after another was granted
gets the larger one, whatever the clocks say, as long as the counts are kept.
*/

/// Returns the number of servers that is a majority of `servers`.
#[must_use]
pub(super) fn majority(servers: usize) -> usize {
    servers / 2 + 1
}

/// One server's answer to an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Vote {
    /// It has not answered yet.
    Pending,
    /// The attempt holds the lock there, with this counter.
    Granted(u64),
    /// Another client holds the lock there, or the server gave no useful answer.
    Lost,
}

/// The outcome of an attempt so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verdict {
    /// Not decided yet.
    Undecided,
    /// A majority granted it and holds this token.
    Granted(u64),
    /// A majority granted it, and this is its token once a majority holds it.
    WriteBack(u64),
    /// No majority will grant it.
    Impossible,
}

/// Decides an attempt, as soon as the votes allow it.
#[must_use]
pub(super) fn verdict(votes: &[Vote]) -> Verdict {
    let majority = majority(votes.len());
    let counts = || votes.iter().filter_map(count);
    let pending = votes.iter().filter(|vote| **vote == Vote::Pending).count();
    match counts().max() {
        Some(token) if counts().count() >= majority => {
            if counts().filter(|count| *count == token).count() >= majority {
                Verdict::Granted(token)
            } else {
                Verdict::WriteBack(token)
            }
        }
        _ if counts().count() + pending < majority => Verdict::Impossible,
        _ => Verdict::Undecided,
    }
}

fn count(vote: &Vote) -> Option<u64> {
    match vote {
        Vote::Granted(count) => Some(*count),
        Vote::Pending | Vote::Lost => None,
    }
}

/// One server's answer to a yes-or-no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Ballot {
    /// It has not answered yet.
    Pending,
    /// It said yes.
    Yes,
    /// It said no.
    No,
    /// It will not answer.
    Silent,
}

/// The servers' common answer to a yes-or-no question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Outcome {
    /// Not decided yet.
    Undecided,
    /// A majority said yes.
    Yes,
    /// Too many said no for a majority to say yes.
    No,
    /// Neither, because too many servers are silent.
    Unknown,
}

/// Decides a yes-or-no question as soon as the ballots allow it. Silence never counts as a no.
#[must_use]
pub(super) fn outcome(ballots: &[Ballot]) -> Outcome {
    let count = |wanted| ballots.iter().filter(|ballot| **ballot == wanted).count();
    let (yes, no, pending) = (count(Ballot::Yes), count(Ballot::No), count(Ballot::Pending));
    let majority = majority(ballots.len());
    let against = ballots.len() - majority + 1;
    if yes >= majority {
        Outcome::Yes
    } else if no >= against {
        Outcome::No
    } else if yes + pending < majority && no + pending < against {
        Outcome::Unknown
    } else {
        Outcome::Undecided
    }
}

/// Returns the ballots at the start of the write-back of `token`: servers that granted the attempt with that count
/// already hold the token, those with a smaller count must be asked, and the others cannot hold it.
#[must_use]
pub(super) fn holders(votes: &[Vote], token: u64) -> Vec<Ballot> {
    let ballot = |vote: &Vote| match count(vote) {
        Some(count) if count >= token => Ballot::Yes,
        Some(_) => Ballot::Pending,
        None => Ballot::Silent,
    };
    votes.iter().map(ballot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts() {
        use Verdict::{Granted, Impossible, Undecided, WriteBack};
        use Vote::{Granted as G, Lost as L, Pending as P};
        let table: &[(&[Vote], Verdict)] = &[
            (&[G(7)], Granted(7)),
            (&[P, P, P], Undecided),
            (&[G(7), P, P], Undecided),
            (&[G(7), L, P], Undecided),
            (&[L, P, P], Undecided),
            (&[L, L, P], Impossible),
            (&[G(7), L, L], Impossible),
            // The third server is not waited for.
            (&[G(7), G(7), P], Granted(7)),
            (&[G(7), P, G(7)], Granted(7)),
            (&[G(7), L, G(7)], Granted(7)),
            (&[G(7), G(9), P], WriteBack(9)),
            (&[G(7), G(9), L], WriteBack(9)),
            // Two servers agree, but a larger count was granted.
            (&[G(7), G(7), G(9)], WriteBack(9)),
            (&[G(7), G(9), G(9)], Granted(9)),
            // Half is no majority.
            (&[G(7), G(7), L, L], Impossible),
            (&[G(7), G(7), P, L], Undecided),
            (&[G(7), L, P, L], Impossible),
            (&[G(7), G(7), G(7), L], Granted(7)),
            (&[G(1), G(1), L, L, P], Undecided),
            (&[G(1), G(1), L, L, G(2)], WriteBack(2)),
            (&[G(2), G(2), L, L, G(2)], Granted(2)),
        ];
        for (votes, expected) in table {
            assert_eq!(verdict(votes), *expected, "{votes:?}");
        }
    }

    #[test]
    fn questions() {
        use Ballot::{No as N, Pending as P, Silent as S, Yes as Y};
        let table: &[(&[Ballot], Outcome)] = &[
            (&[P, P, P], Outcome::Undecided),
            (&[Y, Y, P], Outcome::Yes),
            (&[Y, N, P], Outcome::Undecided),
            (&[N, N, P], Outcome::No),
            (&[Y, N, N], Outcome::No),
            // A server that restarted empty is outvoted; one that is silent may still hold the lock.
            (&[Y, N, Y], Outcome::Yes),
            (&[Y, N, S], Outcome::Unknown),
            (&[Y, S, S], Outcome::Unknown),
            (&[S, S, P], Outcome::Unknown),
            (&[N, S, P], Outcome::Undecided),
            (&[N, S, N], Outcome::No),
            (&[Y, Y, N, N], Outcome::No),
            (&[Y, Y, N, S], Outcome::Unknown),
            (&[Y, Y, N, S, S], Outcome::Unknown),
            (&[N, N, N, P, P], Outcome::No),
        ];
        for (ballots, expected) in table {
            assert_eq!(outcome(ballots), *expected, "{ballots:?}");
        }
    }

    #[test]
    fn a_write_back_asks_only_who_granted_less() {
        use Ballot::{Pending, Silent, Yes};
        let votes = [Vote::Granted(9), Vote::Granted(7), Vote::Lost, Vote::Pending, Vote::Granted(9)];
        assert_eq!(holders(&votes, 9), [Yes, Pending, Silent, Silent, Yes]);
    }
}
