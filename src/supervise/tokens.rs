/*!
The fencing tokens of a command, as they travel to the guard, which cannot allocate.
*/

/// The maximum number of locks that a command can run under.
pub(crate) const MOST_LOCKS: usize = 16;

/// The fencing tokens of the locks under which a command runs, in the user's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tokens {
    numbers: [u64; MOST_LOCKS],
    count: usize,
}

impl Tokens {
    /// Takes these tokens, of which only the first [`MOST_LOCKS`] count.
    #[must_use]
    pub(crate) fn new(tokens: &[u64]) -> Self {
        let mut numbers = [0; MOST_LOCKS];
        let count = numbers.iter_mut().zip(tokens).map(|(number, token)| *number = *token).count();
        Self { numbers, count }
    }

    /// Returns all of them.
    #[must_use]
    pub(crate) fn as_slice(&self) -> &[u64] {
        &self.numbers[..self.count]
    }

    /// Returns the token of the lock that the user has named first.
    #[must_use]
    pub(crate) fn first(&self) -> u64 {
        self.numbers[0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_tokens_as_there_are_locks() {
        for tokens in [&[][..], &[7], &[9, 0, u64::MAX], &[1; MOST_LOCKS]] {
            assert_eq!(Tokens::new(tokens).as_slice(), tokens);
            assert_eq!(Tokens::new(tokens).first(), tokens.first().copied().unwrap_or_default());
        }
        assert_eq!(Tokens::new(&[1; MOST_LOCKS + 1]), Tokens::new(&[1; MOST_LOCKS]));
    }
}
