/*!
The choice of the next slot to ask for. All servers are asked for the same one: each slot is a lock of its own, which a
majority grants. Servers that counted their holders instead would let in too many, because each of them knows only some.
*/

use crate::backend::redlock::quorum::majority;

/// The slots of one server, as far as they are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known<'a> {
    /// Nothing: each of them may be free there.
    Nothing,
    /// These are taken there, and the others are free.
    Taken(&'a [u32]),
    /// It grants none of them.
    Refused,
}

/// Returns those of this number of slots that the largest number of `servers` may grant, if that is a majority.
#[must_use]
pub(super) fn to_ask_for(slots: u32, servers: &[Known<'_>]) -> Vec<u32> {
    let mut taken = vec![0; usize::try_from(slots).unwrap_or_default()];
    let mut granting: usize = 0;
    for server in servers {
        granting += usize::from(*server != Known::Refused);
        let Known::Taken(numbers) = server else { continue };
        for number in *numbers {
            // A number beyond the last slot is ignored.
            if let Some(count) = usize::try_from(*number).ok().and_then(|number| taken.get_mut(number)) {
                *count += 1;
            }
        }
    }
    let fewest = taken.iter().copied().min().unwrap_or(granting);
    if granting.saturating_sub(fewest) < majority(servers.len()) {
        return Vec::new();
    }
    (0..slots).zip(taken).filter(|(_, count)| *count == fewest).map(|(slot, _)| slot).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_asked_for_that_a_majority_may_grant() {
        use Known::{Nothing as N, Refused as R, Taken as T};
        let table: &[(u32, &[Known<'_>], &[u32])] = &[
            (3, &[N, N, N], &[0, 1, 2]),
            (3, &[T(&[0]), T(&[0]), T(&[0])], &[1, 2]),
            (3, &[T(&[0, 2]), T(&[2, 0]), T(&[0, 2])], &[1]),
            (3, &[T(&[0, 1, 2]), T(&[0, 1, 2]), T(&[0, 1, 2])], &[]),
            // Two holders, each known to two servers: the free slot is better than those that only one may grant.
            (3, &[T(&[0, 1]), T(&[0]), T(&[1])], &[2]),
            (2, &[T(&[0]), T(&[1]), T(&[])], &[0, 1]),
            // A slot that two servers have taken cannot get a majority, one that only one has taken can.
            (2, &[T(&[0, 1]), T(&[0, 1]), T(&[])], &[]),
            (2, &[T(&[0, 1]), T(&[0]), T(&[])], &[1]),
            // Servers that are silent, or where the lock is held in another mode, grant nothing.
            (2, &[T(&[0]), T(&[0]), R], &[1]),
            (2, &[T(&[0]), T(&[1]), R], &[]),
            (2, &[T(&[0]), R, R], &[]),
            (2, &[N, R, R], &[]),
            // A server that granted another slot may grant this one too.
            (2, &[N, T(&[0]), T(&[0])], &[1]),
            (1, &[N, T(&[0]), T(&[0])], &[]),
            (1, &[N, T(&[0]), N], &[0]),
            (2, &[T(&[0]), T(&[0]), T(&[0]), R, R], &[1]),
            (2, &[T(&[0, 1]), T(&[0]), T(&[0]), R, R], &[]),
            // Invalid numbers.
            (2, &[T(&[7, 0]), T(&[u32::MAX, 0]), T(&[0])], &[1]),
            (0, &[N, N, N], &[]),
        ];
        for (slots, servers, expected) in table {
            assert_eq!(to_ask_for(*slots, servers), *expected, "{slots} {servers:?}");
        }
    }
}
